"""A subscription at a broker, as its subscriber holds it: an asynchronous stream of notifications."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from tidings.client.callback_runner import Callback, CallbackRunner
from tidings.model.errors import ClosedError, InvalidValueError, SecurityError, TidingsError, UnreachableError
from tidings.model.limits import MAX_REMEMBERED_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import NO_JOURNAL_AT_BROKER, Receipt
from tidings.model.time_arguments import checked_timeout
from tidings.protocol import answers, requests

if TYPE_CHECKING:
    from tidings.client.client import Client
    from tidings.client.secure.decryption import DecryptionQueue
    from tidings.policy.policy import Policy
    from tidings.security.tokens.token import Token

OnRefused = Callable[[Notification, TidingsError], Any]
_LOG = logging.getLogger("tidings.client")
# How many notifications beyond its limit a subscription may hold before the oldest is lost. They come together with
# the last one below the limit, or while the session reads on because a request waits for its answer.
MORE = 10_000
CANNOT_OPEN = "the event is sealed, and this client has no identity to open it"


class ClientSubscription:
    """A subscription, created by `Client.subscribe`: `await` it or enter it with `async with`; then iterate.

    `lost` counts notifications that were dropped because the program was too slow, `refused` sealed ones that could not
    be decrypted. `findings` are remarks on the policy, and a warning if a durable subscription is at a broker without a
    journal. A durable subscription gets unacknowledged notifications again after a reconnection.
    """

    # A client may have very many subscriptions, so an instance holds only what most of them need.
    __slots__ = (
        *("_ack_tracker", "_callback", "_callback_runner", "_client", "_closed", "_findings", "_is_ended", "_on_lost"),
        *("_on_refused", "_waiters", "_waiting", "is_confined", "limit", "lost", "opening", "raw", "refused", "token"),
        *("timeout", "topic", "wanted", "__weakref__"),
    )

    def __init__(
        self,
        client: "Client",
        wanted: requests.SubscribeRequest,
        limit: int,
        callback: Callback | None,
        on_lost: Callable[[int], Any] | None,
        *,
        topic: str | None = None,
        raw: bool = False,
        on_refused: "OnRefused | None" = None,
    ) -> None:
        self.wanted = wanted
        self.topic, self.raw = topic, raw
        self.timeout: float | None = None  # seconds to wait for the broker's answer when subscribing
        self.token: Token | None = None  # the token it subscribed with, on a secure topic
        self.is_confined = False  # whether only events on that topic can match
        self.opening: DecryptionQueue | None = None  # decrypts for a secure client, unless `raw`
        self.lost = self.refused = 0
        self._findings: tuple[str, ...] = ()
        self.limit = limit
        self._client = client
        self._callback, self._on_lost, self._on_refused = callback, on_lost, on_refused
        self._waiting: deque[Notification] = deque()
        self._ack_tracker = None if wanted.durable is None else AckTracker()
        self._waiters: tuple[asyncio.Future[None], ...] = ()  # of tasks that wait for a notification
        self._closed: Exception | None = None
        self._is_ended = False
        self._callback_runner: CallbackRunner | None = None

    @property
    def id(self) -> str:
        return self.wanted.id

    @property
    def durable(self) -> str | None:
        return self.wanted.durable

    @property
    def findings(self) -> list[str]:
        """Remarks on the policy, and a warning if the broker has no journal for a durable subscription."""
        is_durable_enough = self.durable is None or self._client.has_journal
        return [*self._findings] if is_durable_enough else [*self._findings, NO_JOURNAL_AT_BROKER]

    @property
    def waiting(self) -> int:
        """The number of notifications that have come and were not taken."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended."""
        return self._is_ended

    @property
    def failure(self) -> Exception | None:
        """The error that ended the subscription, if the program did not close it itself."""
        return self._closed

    # Taking

    async def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Take waiting notifications, at most `limit`; if none wait, wait up to `timeout` seconds (None: without end).

        Raises:
            ClosedError: Nothing waits and the subscription was closed. If the broker or the client ended it, their
                error is raised instead.
        """
        if not self._waiting and not self._is_ended and timeout != 0:
            try:
                async with asyncio.timeout(checked_timeout(timeout)):
                    await self._wait_for_notification()
            except TimeoutError:
                return []
        return self.take_waiting(limit)

    def take_waiting(self, limit: int | None) -> list[Notification]:
        """Take the notifications that wait now, at most `limit`; raise an error if none wait and none will come."""
        if self._is_ended and not self._waiting:
            raise self._end_error()
        count = len(self._waiting) if limit is None else min(limit, len(self._waiting))
        return [self.next() for _ in range(count)]

    def _end_error(self) -> Exception:
        """Return the error that says why no more notifications come."""
        if self._closed is None:
            return ClosedError(f"the subscription {self.id} is closed")
        return self._closed.with_traceback(None)  # the same exception may be raised many times

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            if self._is_ended:
                if self._closed is not None:
                    raise self._end_error()
                raise StopAsyncIteration
            await self._wait_for_notification()
        return self.next()

    async def _wait_for_notification(self) -> None:
        while not self._waiting and not self._is_ended:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters += (waiter,)
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():  # a cancelled future belongs to a task that stopped waiting
                waiter.set_result(None)

    def next(self) -> Notification:
        """Take the first waiting notification; there must be one."""
        notification = self._waiting.popleft()
        if self._ack_tracker is not None:
            self._ack_tracker.record_taken(notification.event.id)
        if len(self._waiting) == self.limit // 2:
            self._client.has_room()
        return notification

    # Acknowledging

    async def acknowledge(self, *notes: Notification | UUID, timeout: float | None = None) -> int:
        """Acknowledge notifications, or event ids, of a durable subscription: they will not be redelivered.

        Returns how many of them were known and not yet acknowledged. It waits while too much is in flight to the
        broker. After the `timeout` the notifications are acknowledged all the same, once the broker can be reached.
        """
        if self._ack_tracker is None:
            raise InvalidValueError(f"{self.id} is not durable: there is nothing to acknowledge")
        seconds = checked_timeout(timeout)
        events = [note.event.id if isinstance(note, Notification) else note for note in notes]
        for event in events:
            if not isinstance(event, UUID):
                raise InvalidValueError(f"acknowledge takes notifications or ids of events, not {type(event).__name__}")
        acknowledged = self._ack_tracker.acknowledge(events)
        self._client.acknowledge(self, acknowledged)
        await self._client.room(seconds)
        return len(acknowledged)

    async def acknowledge_all(self, timeout: float | None = None) -> int:
        """Acknowledge every notification that was taken; return how many."""
        taken = () if self._ack_tracker is None else self._ack_tracker.all_taken()
        return await self.acknowledge(*taken, timeout=timeout)

    # Replay and closing

    def replay(
        self, since: datetime | int | Receipt | None = None, timeout: float | None = None
    ) -> AsyncIterator[Notification]:
        """Replay events of the broker's journal from `since` on: yield the notifications that would come now."""
        return self._client.replay(since, subscriptions=[self], timeout=timeout)

    async def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """End the subscription for good, even a durable one. Waiting notifications can still be taken."""
        await self._client.unsubscribe(self.id, policy, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """End the subscription, or detach from a durable one, which goes on collecting at the broker.

        Waits for the broker's answer at most `timeout` seconds, 5 by default. Without a connection it does not wait,
        since the subscription ended at the broker together with the connection.
        """
        seconds = checked_timeout(timeout)
        self.end()
        if self.durable is None:
            await self._client.retire(self, seconds)
        else:
            self._client.leave(self)

    # Subscribing

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _begin(self) -> Self:
        await self._client.begin(self)
        if self._callback is not None and self._callback_runner is None:
            self._callback_runner = CallbackRunner(self, self._callback)
        return self

    # Called by the client

    def begun(self, done: answers.RequestDone) -> None:
        """Record the broker's answer: findings, and the id under which the broker knows a durable subscription."""
        if done.id != self.id:
            self.wanted = msgspec.structs.replace(self.wanted, id=done.id)
        self._findings = done.findings

    def notified(self, note: Notification) -> None:
        """Take in a notification from the broker: deduplicate, then decrypt, refuse, or enqueue it."""
        if self._ack_tracker is not None and not self._ack_tracker.record_received(note.event.id):
            if self._ack_tracker.is_acknowledged(note.event.id):
                self._client.acknowledge(self, [note.event.id])  # the acknowledgement was lost in transit
            return
        if self.opening is not None and self.opening.concerns(note):
            self.opening.take(note)
        elif note.event.signature is not None and not self.raw:
            self.refuse(note, SecurityError("key", CANNOT_OPEN))
        else:
            self.put(note)

    def put(self, note: Notification) -> None:
        """Enqueue a notification for the program; drop the oldest if far too many wait."""
        self._waiting.append(note)
        if self.durable is None and len(self._waiting) > self.limit + MORE:
            self._waiting.popleft()
            self.told_lost(1)
        if self._callback_runner is not None:
            self._callback_runner.wake()
        if self._waiters:
            self._wake()

    def refuse(self, note: Notification, error: TidingsError) -> None:
        """Refuse a sealed notification that cannot be decrypted; a durable subscription acknowledges it.

        If only the key management centre was unreachable, a durable subscription gets it again after a reconnection.
        """
        is_known = self._ack_tracker is not None and self._ack_tracker.forget(note.event.id)
        if is_known and not isinstance(error, UnreachableError):
            self._client.acknowledge(self, [note.event.id])
        self.told_refused(note, error)

    def told_refused(self, note: Notification, error: TidingsError) -> None:
        """Count a notification that could not be decrypted, and call `on_refused`."""
        self.refused += 1
        if self._on_refused is None:
            return
        try:
            self._on_refused(note, error)
        except Exception:
            _LOG.exception("the function on_refused of the subscription %s raised", self.id)

    @property
    def is_full(self) -> bool:
        """Whether the limit of waiting notifications is reached, so that the client must stop reading.

        Never for a durable subscription: its broker limits the unacknowledged ones.
        """
        sealed = 0 if self.opening is None else len(self.opening)
        return self.durable is None and len(self._waiting) + sealed >= self.limit

    def told_lost(self, count: int) -> None:
        """Count lost notifications, and call `on_lost`."""
        self.lost += count
        if self._on_lost is None:
            return
        try:
            self._on_lost(count)
        except Exception:
            _LOG.exception("the function on_lost of the subscription %s raised", self.id)

    def end(self, error: Exception | None = None) -> None:
        """Mark the subscription as ended, with an error if there is one; waiting notifications can still be taken."""
        if self.opening is not None:
            self.opening.end()
        self._is_ended, self._closed = True, self._closed or error
        self._wake()

    def __repr__(self) -> str:
        return f"<{self.id}: {self.wanted.content or 'everything'}, {self.waiting} waiting>"


class AckTracker:
    """Tracks which events of a durable subscription were received, taken and acknowledged.

    After a reconnection the broker sends unacknowledged events again; their ids identify them.
    """

    __slots__ = ("_acknowledged", "_received")

    def __init__(self) -> None:
        self._received: dict[UUID, bool] = {}  # event id -> whether the program took it
        self._acknowledged: OrderedDict[UUID, None] = OrderedDict()

    def record_received(self, event: UUID) -> bool:
        """Record that an event was received; return whether it is new."""
        if event in self._received or event in self._acknowledged:
            return False
        self._received[event] = False
        return True

    def is_acknowledged(self, event: UUID) -> bool:
        """Return whether the event was acknowledged."""
        return event in self._acknowledged

    def record_taken(self, event: UUID) -> None:
        """Record that the program took the event."""
        self._received[event] = True

    def all_taken(self) -> list[UUID]:
        """Return the events that were taken and not acknowledged."""
        return [event for event, is_taken in self._received.items() if is_taken]

    def acknowledge(self, events: Iterable[UUID]) -> list[UUID]:
        """Mark taken events as acknowledged; return the events that this concerned."""
        acknowledged = [event for event in dict.fromkeys(events) if self._received.get(event)]
        for event in acknowledged:
            del self._received[event]
            self._acknowledged[event] = None
            if len(self._acknowledged) > MAX_REMEMBERED_NOTIFICATIONS:
                self._acknowledged.popitem(last=False)
        return acknowledged

    def forget(self, event: UUID) -> bool:
        """Drop an event that the program will not get; return whether it was there."""
        return self._received.pop(event, None) is not None


class NotificationDedup:
    """Deduplicates notifications after a reconnection, by remembering the recent ones of earlier connections."""

    def __init__(self) -> None:
        # Two deques rather than one of pairs: each notification is added, but they are read only after a reconnection.
        self._subscriptions: deque[str] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._events: deque[int] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._earlier: frozenset[tuple[str, int]] = frozenset()

    def connected_again(self) -> None:
        """Begin a new connection: notifications noted so far were delivered by earlier ones."""
        self._earlier = frozenset(zip(self._subscriptions, self._events, strict=True))

    def is_new(self, notification: Notification) -> bool:
        """Record a notification; return whether it is new, not delivered by an earlier connection."""
        subscription, event = notification.subscription, notification.event.id.int
        if self._earlier and (subscription, event) in self._earlier:
            return False
        self._subscriptions.append(subscription)
        self._events.append(event)
        return True
