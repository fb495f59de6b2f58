"""The synchronous client: the methods of `Client`, for programs and threads that wait for the result.

The asynchronous client runs in an event loop in a thread of its own; every call is carried out there. The methods that
do just that are generated from those of `Client` and `ClientSubscription`, with their signatures and docstrings.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from tidings.client.api import ClientHandle, ContextText, Handle, Text
from tidings.client.callback_runner import Callback
from tidings.client.client import Client, ClientAdvertisement, Since
from tidings.client.connection import ConnectionState
from tidings.client.subscription import ClientSubscription, OnRefused
from tidings.model.errors import ClosedError, InvalidValueError
from tidings.model.explanation import Explanation
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

_Answer = TypeVar("_Answer")
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


class SyncClient:
    """The synchronous client of a broker, created by `tidings.connect_sync`. Methods may be called from any thread.

    Methods that wait for the broker take a `timeout` in seconds, as those of `Client` do.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._loop = _Loop()

        async def connect() -> Client:
            return await make().__aenter__()

        try:
            self._client = self._loop.run(connect())
        except BaseException:
            self._loop.stop()
            raise

    def states(self) -> Iterator[ConnectionState]:
        """Yield the present state of the connection, then each later one, until the client is closed.

        A slow reader gets the latest state and misses those before it.
        """
        state: ConnectionState | None = None
        while state is None or state.state != "closed":
            state = self.state_after(state)
            yield state

    def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """Wait until the state of the connection differs from `seen`, and return it.

        A `closed` state returns at once.
        """
        try:
            return self._loop.run(self._client.state_after(seen))
        except ClosedError:
            if not self._loop.is_stopped:
                raise
        return self._client.state  # the loop has stopped, so this is the final state

    def close(self, timeout: float | None = None) -> None:
        """Close the client, after waiting for the answers to its publications. Subscriptions end, except durable ones.

        `timeout` limits the wait, in seconds; the default is the `patience` of `connect_sync`. Without a connection the
        client does not wait.
        """
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

    # Generated from `Client` by `python -m tests.sync_client --write`

    @property
    def name(self) -> str:
        """The client's name."""
        return self._client.name

    @property
    def state(self) -> ConnectionState:
        """The current state of the connection."""
        return self._client.state

    @property
    def broker(self) -> str:
        """The name of the broker that the client is, or was last, connected to."""
        return self._client.broker

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected to a broker."""
        return self._client.is_connected

    def until_closed(self, timeout: float | None = None) -> None:
        """Wait until the client is closed; raise `ClosedError` with the reason if the broker closed it for good.

        For programs, such as services, that have nothing else to wait for.
        """
        self._loop.run(self._client.until_closed(timeout))

    def move(self, addresses: str | Iterable[str], timeout: float | None = None) -> None:
        """Connect to another broker, and restore the context, advertisements and subscriptions there.

        After the `timeout` the client keeps trying, the new addresses first.
        """
        self._loop.run(self._client.move(addresses, timeout))

    @property
    def context(self) -> Context:
        """The client's current context."""
        return self._client.context

    def set_context(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        merge: bool = False,
        of: str | None = None,
        timeout: float | None = None,
        **values: Any,
    ) -> None:
        """Replace the client's context; with `merge`, change only the given values, where None removes one.

        An unchanged context sends nothing. A client that only publishes sends nothing either, since its context travels
        with its events. Values named `merge`, `of` or `timeout` must be in the mapping. After the `timeout` the new
        context is set all the same, and reaches the broker with the next connection at the latest.

        Args:
            mapping: Names and values of the context.
            merge: Whether to change only the given values.
            of: Another client, which let this one set its context by `let_set_context`.
            timeout: Seconds to wait for the broker.
            **values: More names and values.
        """
        self._loop.run(self._client.set_context(mapping, merge=merge, of=of, timeout=timeout, **values))

    def let_set_context(self, other: str | ClientHandle, allowed: bool = True, timeout: float | None = None) -> None:
        """Allow another client to set this client's context, or withdraw the permission."""
        self._loop.run(self._client.let_set_context(other, allowed, timeout))

    def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,
        format: str = "sql",
        timeout: float | None = None,
    ) -> ClientAdvertisement:
        """Advertise what this client will publish; an advertisement of this client with the same id is replaced.

        Args:
            content: Filter that the events will match.
            publisher_context: Context names, or a filter, that this client offers; None offers all names.
            subscriber_context: Context names, or a filter, of subscribers that this client will use.
            policy: Policy associated with the advertisement.
            id: The advertisement's id; a new one by default.
            format: The format of `content`.
            timeout: Seconds to wait for the broker.
        """
        return self._loop.run(
            self._client.advertise(content, publisher_context, subscriber_context, policy, id, format, timeout)
        )

    def unadvertise(self, id: str | Handle, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """Withdraw an advertisement; `policy` holds the rules to run before the removal."""
        self._loop.run(self._client.unadvertise(id, policy, timeout))

    def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,
        sequence: int | None = None,
        sealed: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish an event; return its receipt once the event has the requested durability.

        To publish many events without waiting for each, use `publish_many`: events published together travel
        together.

        On a secure topic the client seals the event, if it has an identity and the right to publish, and asks the
        topic's centre for keys when needed. The receipt's `sealed` is the epoch of the key, its `safe` the durability
        reached: a broker without a journal has the event in memory only.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts, for whom the event is.
            payload: The event's payload.
            subject: The event's subject.
            policy: Policy attached to the event.
            safe: "accepted" (in the broker's memory), "journaled" (on its disk) or "settled" (arrived wherever it is
                due).
            id: The event's UUIDv7; a new one by default. After a timeout the event may be published again under the
                same id.
            sequence: The event's number among this client's events, higher than any before; counted by default.
            sealed: Whether to refuse, before sending it, an event that would not be sealed.
            timeout: Seconds to wait. After it, the event may still be published.

        Raises:
            SecurityError: The client lacks the right, token or key for a secure topic.
            PublishedBeforeError: An event of this id was published before.
            RefusedError: The broker refused the event.
        """
        return self._loop.run(
            self._client.publish(attributes, subscribers, payload, subject, policy, safe, id, sequence, sealed, timeout)
        )

    def publish_many(
        self,
        /,
        events: Iterable[Mapping[str, Any]],
        safe: str = "journaled",
        timeout: float | None = None,
        **given: Any,
    ) -> list[Receipt]:
        """Publish events, each given as its attributes; return their receipts in order.

        If some are refused, the first error is raised once all are answered; the others are published.

        Args:
            events: The attributes of each event.
            safe: The durability to wait for, as in `publish`.
            timeout: Seconds for all events together; after it, any of them may have been published.
            **given: Further arguments of `publish`, the same for each event.
        """
        return self._loop.run(self._client.publish_many(events, safe, timeout, **given))

    def subscribe(
        self,
        content: Text = "",
        publishers: ContextText | None = None,
        policy: "str | Policy | None" = None,
        durable: str | None = None,
        notify: Notify = "subscription",
        subject: str | None = None,
        structure: AttributeFilter | None = None,
        format: str = "sql",
        id: str | None = None,
        limit: int | None = None,
        callback: Callback | None = None,
        on_lost: Callable[[int], Any] | None = None,
        topic: str | None = None,
        raw: bool = False,
        on_refused: OnRefused | None = None,
        timeout: float | None = None,
    ) -> "SyncSubscription":
        """Subscribe, and return the subscription once it has begun.

        A subscription of this client with the same durable name or id is replaced. Sealed events are decrypted if this
        client has an identity and the right to subscribe.

        Args:
            content: Filter over the events' attributes.
            publishers: Filter over the publishers' contexts; `this.` is this client's context.
            policy: Policy associated with the subscription.
            durable: A name under which the subscription outlives this client and its process.
            notify: "subscription" for a notification per subscription, "client" for one per client and event.
            subject: The subject of the events.
            structure: Attribute names that must be present or absent.
            format: The format of `content`.
            id: The subscription's id; a new one by default.
            limit: How many notifications may wait in this client before it stops reading from the broker.
            callback: Called with each notification, in the client's own thread; returning acknowledges it.
            on_lost: Called with the number of notifications that were lost.
            topic: Template of the secure topic to get a token for. Not needed if `subject` or `content` names the
                topic.
            raw: Whether to hand over sealed events as they are.
            on_refused: Called with each notification that cannot be decrypted, and the reason. `refused` counts them.
            timeout: Seconds to wait for the broker's answer.
        """
        return SyncSubscription(
            self._loop,
            lambda: self._client.subscribe(
                content,
                publishers,
                policy,
                durable,
                notify,
                subject,
                structure,
                format,
                id,
                limit,
                callback,
                on_lost,
                topic,
                raw,
                on_refused,
                timeout,
            ),
        )

    def unsubscribe(self, id: str | Handle, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """Remove a subscription, even a durable one; `policy` holds the rules to run before the removal.

        After the `timeout`, the subscription has ended in this client.
        """
        self._loop.run(self._client.unsubscribe(id, policy, timeout))

    def set_policy(self, id: str | Handle, policy: "str | Policy | None", timeout: float | None = None) -> list[str]:
        """Set the policy of a subscription or an advertisement, None removes it; return the remarks on it."""
        return self._loop.run(self._client.set_policy(id, policy, timeout))

    def schema(self, schema: Schema | str, timeout: float | None = None) -> Schema:
        """Define a subject's schema, or extend it by a longer version.

        Given a subject, return the broker's schema of it.
        """
        return self._loop.run(self._client.schema(schema, timeout))

    def topics(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the `subjects` with their schemas, and the `advertisements`, that this client may subscribe to."""
        return self._loop.run(self._client.topics(timeout))

    def explain(
        self,
        event: Any,
        subscription: str | Handle | None = None,
        *,
        publisher: str | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        client: str | None = None,
        timeout: float | None = None,
    ) -> "list[Explanation]":
        """Explain, step by step, why an event does or does not reach a subscription, or each subscription of a client.

        Args:
            event: A past event, by its receipt, notification or id; or the attributes of an event that could be
                published.
            subscription: The subscription to explain; None for each of the client's.
            publisher: The publisher of an event given by its attributes; this client by default.
            subscribers: Its filter over subscribers' contexts.
            payload: Its payload.
            subject: Its subject.
            policy: Its attached policy.
            client: Another client whose subscriptions to explain, as far as this one may see them.
            timeout: Seconds to wait for the broker.
        """
        return self._loop.run(
            self._client.explain(
                event,
                subscription,
                publisher=publisher,
                subscribers=subscribers,
                payload=payload,
                subject=subject,
                policy=policy,
                client=client,
                timeout=timeout,
            )
        )

    def replay(
        self, since: Since = None, subscriptions: Iterable[str | Handle] | None = None, timeout: float | None = None
    ) -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that subscriptions would get now.

        `since` is a time, a number of microseconds, or a receipt. By default all of this client's subscriptions are
        replayed. The `timeout` applies to each page of the broker's answer.
        """
        return _iterate(self._loop, self._client.replay(since, subscriptions, timeout))

    def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """Send the broker a query, which changes nothing, and return its answer."""
        return self._loop.run(self._client.ask(question, timeout=timeout, **about))

    # End of the generated methods


class SyncSubscription:
    """A subscription of a synchronous client, created by `SyncClient.subscribe`. Iterate over it, or `take`.

    `make` makes the asynchronous subscription in the client's loop.
    """

    def __init__(self, loop: _Loop, make: Callable[[], ClientSubscription]) -> None:
        async def begin() -> ClientSubscription:
            return await make()

        self._loop, self._subscription = loop, loop.run(begin())

    @property
    def lost(self) -> int:
        """The number of notifications that were dropped because the program was too slow."""
        return self._subscription.lost

    @property
    def refused(self) -> int:
        """The number of sealed notifications that could not be decrypted."""
        return self._subscription.refused

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Take waiting notifications, at most `limit`; if none wait, wait up to `timeout` seconds (None: without end).

        Notifications that have come can be taken even after the client was closed.

        Raises:
            ClosedError: Nothing waits and the subscription was closed. If the broker or the client ended it, their
                error is raised instead.
        """
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

    def close(self, timeout: float | None = None) -> None:
        """End the subscription, or detach from a durable one, which goes on collecting at the broker.

        Waits for the broker's answer at most `timeout` seconds, 5 by default. Without a connection it does not wait,
        since the subscription ended at the broker together with the connection.
        """
        with contextlib.suppress(ClosedError):  # the client is closed, and so is the subscription
            self._loop.run(self._subscription.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Generated from `ClientSubscription` by `python -m tests.sync_client --write`

    @property
    def id(self) -> str:
        """The subscription's id."""
        return self._subscription.id

    @property
    def durable(self) -> str | None:
        """The name under which the subscription outlives its client; None for one that does not."""
        return self._subscription.durable

    @property
    def findings(self) -> list[str]:
        """Remarks on the policy, and a warning if the broker has no journal for a durable subscription."""
        return self._subscription.findings

    @property
    def waiting(self) -> int:
        """The number of notifications that have come and were not taken."""
        return self._subscription.waiting

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended."""
        return self._subscription.closed

    @property
    def failure(self) -> Exception | None:
        """The error that ended the subscription, if the program did not close it itself."""
        return self._subscription.failure

    def acknowledge(self, *notes: Notification | UUID, timeout: float | None = None) -> int:
        """Acknowledge notifications, or event ids, of a durable subscription: they will not be redelivered.

        Returns how many of them were known and not yet acknowledged. It waits while too much is in flight to the
        broker. After the `timeout` the notifications are acknowledged all the same, once the broker can be reached.
        """
        return self._loop.run(self._subscription.acknowledge(*notes, timeout=timeout))

    def acknowledge_all(self, timeout: float | None = None) -> int:
        """Acknowledge every notification that was taken; return how many."""
        return self._loop.run(self._subscription.acknowledge_all(timeout))

    def replay(self, since: Since = None, timeout: float | None = None) -> Iterator[Notification]:
        """Replay events of the broker's journal from `since` on: yield the notifications that would come now."""
        return _iterate(self._loop, self._subscription.replay(since, timeout))

    def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """End the subscription for good, even a durable one. Waiting notifications can still be taken."""
        self._loop.run(self._subscription.unsubscribe(policy, timeout))

    # End of the generated methods


def _iterate(loop: _Loop, notifications: AsyncIterator[Notification]) -> Iterator[Notification]:
    async def next_notification() -> Notification | None:
        return await anext(notifications, None)

    while (notification := loop.run(next_notification())) is not None:
        yield notification
