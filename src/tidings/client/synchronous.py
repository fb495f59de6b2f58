"""The synchronous face of a client: the same words, for programs and threads that wait.

An event loop of its own runs in a thread; every call is carried out there.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from tidings.client.client import Advertised, Client, Since
from tidings.client.connection_state import ConnectionState
from tidings.client.subscription import Subscription
from tidings.model.errors import ClosedError, InvalidValueError
from tidings.model.explanation import Explanation
from tidings.model.notification import Notification
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")
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
        except BaseException:  # such as Ctrl-C: what nobody waits for any more must not take notifications
            answer.cancel()
            raise

    @property
    def _is_of_another_process(self) -> bool:
        """Whether this is a fork, which has the loop and not its thread."""
        return not self._is_stopped and not self._thread.is_alive()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def after_stop(self, action: Callable[[], _Answer]) -> _Answer:
        """Carry out an action in the caller's thread, once the loop has stopped: nothing else changes state then."""
        self._thread.join()
        with self._lock:
            return action()

    def stop(self) -> None:
        """Whoever still waits for something is told that it does not come."""
        if self._is_of_another_process:
            return  # the loop and its connection are that one's
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


def _waited_for(
    method: Callable[Concatenate[Client, _Given], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate["SyncClient", _Given], _Answer]:
    """The same, with the same arguments, carried out by the client's own loop."""

    @functools.wraps(method)
    def waiting(self: "SyncClient", /, *given: _Given.args, **named: _Given.kwargs) -> _Answer:
        return self._loop.run(method(self._client, *given, **named))

    return waiting


def _begun(
    method: Callable[Concatenate[Client, _Given], Subscription],
) -> Callable[Concatenate["SyncClient", _Given], "SyncSubscription"]:
    """The same of a subscription, which has begun when it returns. A callback is called in the client's own thread."""

    @functools.wraps(method)
    def beginning(self: "SyncClient", /, *given: _Given.args, **named: _Given.kwargs) -> "SyncSubscription":
        async def begun() -> Subscription:
            return await method(self._client, *given, **named)

        return SyncSubscription(self._loop, self._loop.run(begun()))

    return beginning


class SyncClient:
    """Made by `tidings.connect_sync`. Every method may be called from any thread."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._loop = _Loop()

        async def opened() -> Client:
            return await make().__aenter__()

        try:
            self._client = self._loop.run(opened())
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

    set_context = _waited_for(Client.set_context)
    let_set_context = _waited_for(Client.let_set_context)
    advertise = _waited_for(Client.advertise)
    unadvertise = _waited_for(Client.unadvertise)
    publish = _waited_for(Client.publish)
    publish_many = _waited_for(Client.publish_many)

    subscribe = _begun(Client.subscribe)

    def unsubscribe(
        self,
        id: "str | SyncSubscription",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        self._loop.run(self._client.unsubscribe(_id(id), policy, timeout))

    def set_policy(
        self,
        id: "str | SyncSubscription | Advertised",  # noqa: A002
        policy: "str | Policy | None",
        timeout: float | None = None,
    ) -> list[str]:
        return self._loop.run(self._client.set_policy(_id(id), policy, timeout))

    schema = _waited_for(Client.schema)
    topics = _waited_for(Client.topics)

    def explain(
        self, event: Any, subscription: "str | SyncSubscription | None" = None, **given: Any
    ) -> list[Explanation]:
        """As `Client.explain`."""
        wanted = None if subscription is None else _id(subscription)
        return self._loop.run(self._client.explain(event, wanted, **given))

    def replay(self, since: Since = None, timeout: float | None = None) -> Iterator[Notification]:
        """As `Client.replay`."""
        return _iterated(self._loop, self._client.replay(since, timeout=timeout))

    move = _waited_for(Client.move)
    until_closed = _waited_for(Client.until_closed)

    def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """As `Client.ask`."""
        return self._loop.run(self._client.ask(question, timeout=timeout, **about))

    @property
    def state(self) -> ConnectionState:
        return self._client.state

    def states(self) -> Iterator[ConnectionState]:
        """As `Client.states`."""
        state: ConnectionState | None = None
        while state is None or state.state != "closed":
            state = self.state_after(state)
            yield state

    def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """As `Client.state_after`."""
        try:
            return self._loop.run(self._client.state_after(seen))
        except ClosedError:
            if not self._loop.is_stopped:
                raise
        return self._client.state  # the last one

    def close(self, timeout: float | None = None) -> None:
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
    """Made by `SyncClient.subscribe`."""

    def __init__(self, loop: _Loop, subscription: Subscription) -> None:
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
        """As `Subscription.take`. What waits can still be taken after the client was closed."""
        try:
            return self._loop.run(self._subscription.take(limit, timeout))
        except ClosedError:
            if not self._loop.is_stopped:
                raise
        return self._loop.after_stop(lambda: self._subscription.take_waiting(limit))

    def listen(self, timeout: float | None = None) -> Iterator[Notification]:
        """What waits and what comes, until the subscription or the client is closed or nothing has come for `timeout`
        seconds. If the broker or the client has ended it, the error says why."""
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
        return self._loop.run(self._subscription.acknowledge(*notes, timeout=timeout))

    def acknowledge_all(self, timeout: float | None = None) -> int:
        return self._loop.run(self._subscription.acknowledge_all(timeout))

    def replay(self, since: Since = None, timeout: float | None = None) -> Iterator[Notification]:
        return _iterated(self._loop, self._subscription.replay(since, timeout))

    def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        self._loop.run(self._subscription.unsubscribe(policy, timeout))

    def close(self, timeout: float | None = None) -> None:
        with contextlib.suppress(ClosedError):  # the client is closed, and so is the subscription
            self._loop.run(self._subscription.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id(given: "str | SyncSubscription | Advertised") -> str:
    return given if isinstance(given, str) else given.id


def _iterated(loop: _Loop, found: AsyncIterator[Notification]) -> Iterator[Notification]:
    async def following() -> Notification | None:
        return await anext(found, None)

    while (note := loop.run(following())) is not None:
        yield note
