"""The synchronous client: the methods of `Client`, for programs and threads that wait for the result.

The asynchronous client runs in an event loop in a thread of its own; every call is carried out there.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from tidings.client.client import Client, ClientAdvertisement, Since
from tidings.client.connection_state import ConnectionState
from tidings.client.subscription import ClientSubscription
from tidings.model.errors import ClosedError, InvalidValueError
from tidings.model.explanation import Explanation
from tidings.model.notification import Notification
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

_Answer = TypeVar("_Answer")
_Arguments = ParamSpec("_Arguments")
_PAGE = 256


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings-client", daemon=True)
        self._thread.start()

    def run(self, doing: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine in the loop and wait for its result.

        Raises:
            ClosedError: The client is or gets closed, or belongs to the parent process of a fork.
            InvalidValueError: The caller is in the loop's own thread, in a callback.
        """
        if threading.current_thread() is self._thread:
            doing.close()
            raise InvalidValueError("a callback is called in the client's own thread, which cannot wait for itself")
        if self._is_of_another_process:
            doing.close()
            raise ClosedError("the client belongs to the process that made it; connect after the fork")
        with self._lock:
            if self._is_stopped:
                doing.close()
                raise ClosedError("the client is closed")
            answer = asyncio.run_coroutine_threadsafe(doing, self._loop)
        try:
            return answer.result()
        except CancelledError:
            raise ClosedError("the client was closed meanwhile") from None
        except BaseException:  # such as Ctrl-C: an abandoned call must not take notifications
            answer.cancel()
            raise

    @property
    def _is_of_another_process(self) -> bool:
        """Whether this is a forked process, which has a copy of the loop but not its thread."""
        return not self._is_stopped and not self._thread.is_alive()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def after_stop(self, action: Callable[[], _Answer]) -> _Answer:
        """Run `action` in the caller's thread once the loop has stopped, when nothing else changes state."""
        self._thread.join()
        with self._lock:
            return action()

    def stop(self) -> None:
        """Stop the loop; calls that still wait get a `ClosedError`."""
        if self._is_of_another_process:
            return  # the parent process owns the loop and its connection
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _blocking(
    method: Callable[Concatenate[Client, _Arguments], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate["SyncClient", _Arguments], _Answer]:
    """Return a synchronous method with the same arguments that runs `method` in the client's loop."""

    @functools.wraps(method)
    def call(self: "SyncClient", /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        return self._loop.run(method(self._client, *arguments, **named))

    return call


def _blocking_subscribe(
    method: Callable[Concatenate[Client, _Arguments], ClientSubscription],
) -> Callable[Concatenate["SyncClient", _Arguments], "SyncSubscription"]:
    """Return a synchronous method that subscribes and waits until the subscription has begun.

    The subscription's callback is called in the thread of the client's loop.
    """

    @functools.wraps(method)
    def call(self: "SyncClient", /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> "SyncSubscription":
        async def subscribe() -> ClientSubscription:
            return await method(self._client, *arguments, **named)

        return SyncSubscription(self._loop, self._loop.run(subscribe()))

    return call


class SyncClient:
    """The synchronous client of a broker, created by `tidings.connect_sync`. Methods may be called from any thread."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._loop = _Loop()

        async def connect() -> Client:
            return await make().__aenter__()

        try:
            self._client = self._loop.run(connect())
        except BaseException:
            self._loop.stop()
            raise

    @property
    def name(self) -> str:
        return self._client.name

    @property
    def broker(self) -> str:
        return self._client.broker

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def context(self) -> Context:
        return self._client.context

    set_context = _blocking(Client.set_context)
    let_set_context = _blocking(Client.let_set_context)
    advertise = _blocking(Client.advertise)
    unadvertise = _blocking(Client.unadvertise)
    publish = _blocking(Client.publish)
    publish_many = _blocking(Client.publish_many)

    subscribe = _blocking_subscribe(Client.subscribe)

    def unsubscribe(
        self,
        id: "str | SyncSubscription",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a subscription; see `Client.unsubscribe`."""
        self._loop.run(self._client.unsubscribe(_id(id), policy, timeout))

    def set_policy(
        self,
        id: "str | SyncSubscription | ClientAdvertisement",  # noqa: A002
        policy: "str | Policy | None",
        timeout: float | None = None,
    ) -> list[str]:
        """Set the policy of a subscription or an advertisement; see `Client.set_policy`."""
        return self._loop.run(self._client.set_policy(_id(id), policy, timeout))

    schema = _blocking(Client.schema)
    topics = _blocking(Client.topics)

    def explain(
        self, event: Any, subscription: "str | SyncSubscription | None" = None, **given: Any
    ) -> list[Explanation]:
        """Explain why an event does or does not reach a subscription; see `Client.explain`."""
        subscription_id = None if subscription is None else _id(subscription)
        return self._loop.run(self._client.explain(event, subscription_id, **given))

    def replay(self, since: Since = None, timeout: float | None = None) -> Iterator[Notification]:
        """Replay past events: yield the notifications that subscriptions would get of them now; see `Client.replay`."""
        return _iterate(self._loop, self._client.replay(since, timeout=timeout))

    move = _blocking(Client.move)
    until_closed = _blocking(Client.until_closed)

    def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """Send the broker a query; see `Client.ask`."""
        return self._loop.run(self._client.ask(question, timeout=timeout, **about))

    @property
    def state(self) -> ConnectionState:
        return self._client.state

    def states(self) -> Iterator[ConnectionState]:
        """Yield the present state of the connection and each later one; see `Client.states`."""
        state: ConnectionState | None = None
        while state is None or state.state != "closed":
            state = self.state_after(state)
            yield state

    def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """Wait until the state of the connection differs from `seen`; see `Client.state_after`."""
        try:
            return self._loop.run(self._client.state_after(seen))
        except ClosedError:
            if not self._loop.is_stopped:
                raise
        return self._client.state  # the loop has stopped, so this is the final state

    def close(self, timeout: float | None = None) -> None:
        """Close the client, after waiting for the answers to its publications; see `Client.close`."""
        try:
            with contextlib.suppress(ClosedError):
                self._loop.run(self._client.close(timeout))
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client)


class SyncSubscription:
    """A subscription of a synchronous client, created by `SyncClient.subscribe`."""

    def __init__(self, loop: _Loop, subscription: ClientSubscription) -> None:
        self._loop, self._subscription = loop, subscription

    @property
    def id(self) -> str:
        return self._subscription.id

    @property
    def lost(self) -> int:
        return self._subscription.lost

    @property
    def refused(self) -> int:
        return self._subscription.refused

    @property
    def waiting(self) -> int:
        return self._subscription.waiting

    @property
    def findings(self) -> list[str]:
        return self._subscription.findings

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Take waiting notifications, even after the client was closed; see `ClientSubscription.take`."""
        try:
            return self._loop.run(self._subscription.take(limit, timeout))
        except ClosedError:
            if not self._loop.is_stopped:
                raise
        return self._loop.after_stop(lambda: self._subscription.take_waiting(limit))

    def listen(self, timeout: float | None = None) -> Iterator[Notification]:
        """Yield notifications until the subscription or the client is closed, or none has come for `timeout` seconds.

        If the broker, or the client because of an error, ended the subscription, that error is raised.
        """
        while True:
            try:
                taken = self.take(_PAGE, timeout)
            except ClosedError:
                if self._subscription.failure is None:
                    return
                raise
            yield from taken
            if not taken and timeout is not None:
                return

    def __iter__(self) -> Iterator[Notification]:
        return self.listen()

    def acknowledge(self, *notes: Notification | UUID, timeout: float | None = None) -> int:
        """Acknowledge notifications of a durable subscription; see `ClientSubscription.acknowledge`."""
        return self._loop.run(self._subscription.acknowledge(*notes, timeout=timeout))

    def acknowledge_all(self, timeout: float | None = None) -> int:
        """Acknowledge every notification that was taken."""
        return self._loop.run(self._subscription.acknowledge_all(timeout))

    def replay(self, since: Since = None, timeout: float | None = None) -> Iterator[Notification]:
        """Replay past events: yield the notifications that would come now; see `Client.replay`."""
        return _iterate(self._loop, self._subscription.replay(since, timeout))

    def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """Remove the subscription, even a durable one."""
        self._loop.run(self._subscription.unsubscribe(policy, timeout))

    def close(self, timeout: float | None = None) -> None:
        """End the subscription, or detach from a durable one, which goes on collecting at the broker."""
        with contextlib.suppress(ClosedError):  # the client is closed, and so is the subscription
            self._loop.run(self._subscription.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id(id_or_handle: "str | SyncSubscription | ClientAdvertisement") -> str:
    return id_or_handle if isinstance(id_or_handle, str) else id_or_handle.id


def _iterate(loop: _Loop, notifications: AsyncIterator[Notification]) -> Iterator[Notification]:
    async def next_notification() -> Notification | None:
        return await anext(notifications, None)

    while (notification := loop.run(next_notification())) is not None:
        yield notification
