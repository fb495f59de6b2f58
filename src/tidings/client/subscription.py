"""A client's subscriptions: each an asynchronous stream of notifications, and the table of all of them.

Theory of operation. A `ClientSubscription` is created by `Client.subscribe`, and begins when the program awaits it:
`SubscriptionTable.begin` sends the request to the broker. The session hands notifications to the table, which
deduplicates them after a reconnection and passes each to its subscription. If too many wait there, the table stops the
session from reading, until the program has taken half of them. The program ends a subscription through the
subscription; the broker, the membership in secure topics and the end of the session end it through the table.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID

import msgspec

from tidings.client.callback_runner import Callback, CallbackRunner
from tidings.client.deduplication import AckTracker, NotificationDedup
from tidings.client.request_sender import RequestSender, SessionState
from tidings.coerce import policy_text
from tidings.model.advertisement import checked_id
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    RefusedError,
    RequestTimeoutError,
    SecurityError,
    TidingsError,
    UnreachableError,
)
from tidings.model.notification import Notification
from tidings.model.receipt import NO_JOURNAL_AT_BROKER
from tidings.model.time_arguments import Since, checked_timeout, start_of
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind
from tidings.protocol.notifications import WireNotification, notification_from_wire

if TYPE_CHECKING:
    from tidings.client.secure.decryption import DecryptionQueue
    from tidings.client.secure.membership import SecureSubscription
    from tidings.policy.policy import Policy
    from tidings.security.tokens.token import Token

OnRefused = Callable[[Notification, TidingsError], Any]
_LOG = logging.getLogger("tidings.client")
# How many notifications beyond its limit a subscription may hold before the oldest is lost. They come together with
# the last one below the limit, or while the session reads on because a request waits for its answer.
MORE = 10_000
_CLOSE_SECONDS = 5.0  # seconds to wait for the broker's answer when a subscription is closed
_CANNOT_OPEN = "the event is sealed, and this client has no identity to open it"


class ClientSubscription:
    """A subscription, created by `Client.subscribe`: `await` it or enter it with `async with`; then iterate.

    `lost` counts notifications that were dropped because the program was too slow, `refused` sealed ones that could not
    be decrypted. `findings` are remarks on the policy, and a warning if a durable subscription is at a broker without a
    journal. A durable subscription gets unacknowledged notifications again after a reconnection.
    """

    # A client may have very many subscriptions, so an instance holds only what most of them need.
    __slots__ = (
        *("_ack_tracker", "_callback", "_callback_runner", "_closed", "_findings", "_is_ended", "_on_lost"),
        *(
            "_on_refused",
            "_table",
            "_waiters",
            "_waiting",
            "is_confined",
            "limit",
            "lost",
            "opening",
            "raw",
            "refused",
            "token",
        ),
        *("timeout", "topic", "wanted", "__weakref__"),
    )

    def __init__(
        self,
        table: "SubscriptionTable",
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
        self._table = table
        self._callback, self._on_lost, self._on_refused = callback, on_lost, on_refused
        self._waiting: deque[Notification] = deque()
        self._ack_tracker = None if wanted.durable is None else AckTracker()
        self._waiters: tuple[asyncio.Future[None], ...] = ()  # of tasks that wait for a notification
        self._closed: Exception | None = None
        self._is_ended = False
        self._callback_runner: CallbackRunner | None = None

    @property
    def id(self) -> str:
        """The subscription's id."""
        return self.wanted.id

    @property
    def durable(self) -> str | None:
        """The name under which the subscription outlives its client; None for one that does not."""
        return self.wanted.durable

    @property
    def findings(self) -> list[str]:
        """Remarks on the policy, and a warning if the broker has no journal for a durable subscription."""
        is_durable_enough = self.durable is None or self._table.has_journal
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
            self._table.resume_reading()
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
        self._table.acknowledge(self.id, acknowledged)
        await self._table.wait_for_room(seconds)
        return len(acknowledged)

    async def acknowledge_all(self, timeout: float | None = None) -> int:
        """Acknowledge every notification that was taken; return how many."""
        taken = () if self._ack_tracker is None else self._ack_tracker.all_taken()
        return await self.acknowledge(*taken, timeout=timeout)

    # Replay and closing

    def replay(self, since: Since = None, timeout: float | None = None) -> AsyncIterator[Notification]:
        """Replay events of the broker's journal from `since` on: yield the notifications that would come now."""
        return self._table.replay(since, [self.id], timeout)

    async def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """End the subscription for good, even a durable one. Waiting notifications can still be taken."""
        await self._table.unsubscribe(self.id, policy, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """End the subscription, or detach from a durable one, which goes on collecting at the broker.

        Waits for the broker's answer at most `timeout` seconds, 5 by default. Without a connection it does not wait,
        since the subscription ended at the broker together with the connection.
        """
        seconds = checked_timeout(timeout)
        self.end()
        if self.durable is None:
            await self._table.retire(self, seconds)
        else:
            self._table.leave(self)

    # Subscribing

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _begin(self) -> Self:
        await self._table.begin(self)
        if self._callback is not None and self._callback_runner is None:
            self._callback_runner = CallbackRunner(self, self._callback)
        return self

    # Called by the table

    def begun(self, done: answers.RequestDone) -> None:
        """Record the broker's answer: findings, and the id under which the broker knows a durable subscription."""
        if done.id != self.id:
            self.wanted = msgspec.structs.replace(self.wanted, id=done.id)
        self._findings = done.findings

    def notified(self, note: Notification) -> None:
        """Take in a notification from the broker: deduplicate, then decrypt, refuse, or enqueue it."""
        if self._ack_tracker is not None and not self._ack_tracker.record_received(note.event.id):
            if self._ack_tracker.is_acknowledged(note.event.id):
                self._table.acknowledge(self.id, [note.event.id])  # the acknowledgement was lost in transit
            return
        if self.opening is not None and self.opening.concerns(note):
            self.opening.take(note)
        elif note.event.signature is not None and not self.raw:
            self.refuse(note, SecurityError("key", _CANNOT_OPEN))
        else:
            self.put(note)

    def put(self, note: Notification) -> None:
        """Enqueue a notification for the program; drop the oldest if far too many wait."""
        self._waiting.append(note)
        if self.durable is None and len(self._waiting) > self.limit + MORE:
            self._waiting.popleft()
            self.count_lost(1)
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
            self._table.acknowledge(self.id, [note.event.id])
        self.count_refused(note, error)

    def count_refused(self, note: Notification, error: TidingsError) -> None:
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

    def count_lost(self, count: int) -> None:
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


class SubscriptionSession(Protocol):
    """What subscriptions need of the client's session."""

    session_state: SessionState

    @property
    def name(self) -> str: ...
    @property
    def has_journal(self) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    async def wait_for_room(self) -> None: ...
    def withdraw(self, subscription: str) -> "asyncio.Future[Any] | None": ...
    def acknowledge(self, subscription: str, events: list[UUID]) -> None: ...
    def read(self, wants_notifications: bool) -> None: ...


class SecurityOfSubscriptions(Protocol):
    """What the subscriptions of a secure client need of its membership in secure topics."""

    async def secure(self, subscription: "SecureSubscription") -> None: ...
    async def reconsider(self, subscription: "SecureSubscription") -> bool: ...
    def connected_again(self) -> None: ...
    def decryption_queue(
        self,
        limit: int,
        policy: Callable[[], str | None],
        on_decrypted: Callable[[Notification], None],
        on_refused: Callable[[Notification, TidingsError], None],
        on_lost: Callable[[Notification], None],
    ) -> "DecryptionQueue": ...


class SubscriptionTable:
    """The subscriptions of one client, by their ids. `membership` secures them, if the client has one."""

    def __init__(self, session: SubscriptionSession, sender: RequestSender) -> None:
        self._session, self._requests = session, sender
        self._session_state = session.session_state
        self._subscriptions: dict[str, ClientSubscription] = {}
        self._dedup = NotificationDedup()
        self.membership: SecurityOfSubscriptions | None = None

    def subscriptions(self) -> list[ClientSubscription]:
        """Return the subscriptions that have begun and not ended."""
        return list(self._subscriptions.values())

    # Beginning

    async def begin(self, subscription: ClientSubscription) -> None:
        """Subscribe at the broker, within the subscription's timeout."""
        async with self._requests.limit(subscription.timeout, "subscribe"):
            await self._subscribe_at_broker(subscription)

    async def _subscribe_at_broker(self, subscription: ClientSubscription) -> None:
        await self._requests.announce_context()
        request, subscriptions = subscription.wanted, self._subscriptions
        earlier = self._session_state.subscriptions.get(request.id)
        if request.policy is None and earlier is not None:  # keep the policy, as the broker does
            subscription.wanted = request = msgspec.structs.replace(request, policy=earlier.policy)
        if self.membership is not None:
            self._decrypt(subscription, self.membership)
            await self.membership.secure(subscription)
        replaced = subscriptions.get(request.id)
        subscriptions[request.id] = subscription  # before the request: notifications may come together with the answer
        try:
            done = await self._send_subscribe(subscription)
        except BaseException as error:
            if subscriptions.get(request.id) is subscription:
                del subscriptions[request.id]
                if replaced is not None:
                    subscriptions[request.id] = replaced
                elif isinstance(error, asyncio.CancelledError) and request.durable is None:
                    self._session.withdraw(request.id)
            raise
        subscription.begun(done)
        if subscription.closed and subscription.durable is None:  # closed while this waited for the broker
            self._session.withdraw(subscription.id)
            return
        if done.id != request.id:
            subscriptions.pop(request.id, None)
            replaced, subscriptions[done.id] = subscriptions.get(done.id), subscription
        if replaced is not None and replaced is not subscription:
            replaced.end()
        self._session_state.subscriptions[subscription.id] = subscription.wanted

    def _decrypt(self, subscription: ClientSubscription, membership: SecurityOfSubscriptions) -> None:
        """Decrypt the subscription's sealed notifications from now on, unless it is `raw`."""
        if subscription.raw or subscription.opening is not None:
            return

        def put(notification: Notification) -> None:
            subscription.put(notification)
            self._stop_reading_if_full(subscription)

        subscription.opening = membership.decryption_queue(
            subscription.limit + MORE,
            lambda: self._policy_of(subscription),
            put,
            subscription.refuse,
            lambda _: subscription.count_lost(1),
        )

    def _policy_of(self, subscription: ClientSubscription) -> str | None:
        """Return the policy of the subscription as it was set last."""
        return self._session_state.subscriptions.get(subscription.id, subscription.wanted).policy

    async def _send_subscribe(self, subscription: ClientSubscription) -> answers.RequestDone:
        """Subscribe at the broker; if it refuses a secure subscription, get a new token and try once more."""
        try:
            return await self._requests.request(FrameKind.SUBSCRIBE, subscription.wanted)
        except (RefusedError, SecurityError):
            if self.membership is None or not await self.membership.reconsider(subscription):
                raise
        return await self._requests.request(FrameKind.SUBSCRIBE, subscription.wanted)

    async def subscribe_anew(self, id: str) -> None:  # noqa: A002
        """Subscribe again under the same id, with the subscription's new token."""
        subscription = self._subscriptions.get(id)
        if subscription is not None:
            await self._requests.request(FrameKind.SUBSCRIBE, subscription.wanted)
            self._session_state.subscriptions[id] = subscription.wanted

    # Ending

    async def unsubscribe(self, id: str, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:  # noqa: A002
        """Remove a subscription, even a durable one; `policy` holds the rules to run before the removal."""
        request = requests.UnsubscribeRequest(0, checked_id(id), policy_text(policy))
        limit = self._requests.limit(timeout, "unsubscribe")
        self._session_state.subscriptions.pop(id, None)
        try:
            async with limit:
                await self._requests.request(FrameKind.UNSUBSCRIBE, request)
        except RequestTimeoutError:
            self._remove(id)
            raise
        self._remove(id)

    def _remove(self, id: str) -> None:  # noqa: A002
        subscription = self._subscriptions.pop(id, None)
        if subscription is not None:
            subscription.end()
            self.resume_reading()

    def leave(self, subscription: ClientSubscription) -> None:
        """Detach from a subscription; a durable one goes on collecting at the broker."""
        if self._subscriptions.get(subscription.id) is subscription:
            del self._subscriptions[subscription.id]
            self._session_state.subscriptions.pop(subscription.id, None)
            self.resume_reading()

    async def retire(self, subscription: ClientSubscription, timeout: float | None) -> None:
        """Tell the broker that a subscription that is not durable has ended, and wait for its answer.

        The wait is 5 seconds unless `timeout` says otherwise. Without a connection it returns at once.
        """
        if self._subscriptions.get(subscription.id) is not subscription:
            return
        self.leave(subscription)
        answer = self._session.withdraw(subscription.id)
        if answer is not None:
            await asyncio.wait([answer], timeout=_CLOSE_SECONDS if timeout is None else timeout)

    def give_up(self, id: str, error: TidingsError) -> None:  # noqa: A002
        """End a subscription with an error, which its subscriber gets when it takes the next notification."""
        subscription = self._subscriptions[id]
        self.leave(subscription)
        if subscription.durable is None:
            self._session.withdraw(id)
        subscription.end(error)

    # Acknowledging and reading

    @property
    def has_journal(self) -> bool:
        """Whether the broker that the client is, or was last, connected to has a journal."""
        return self._session.has_journal

    def acknowledge(self, id: str, events: list[UUID]) -> None:  # noqa: A002
        """Send the acknowledgement of events at the end of this turn of the event loop."""
        if events:
            self._session.acknowledge(id, events)

    async def wait_for_room(self, timeout: float | None) -> None:
        """Wait while the limit of publications in flight is reached, which acknowledgements share."""
        if self._session.is_full:
            async with self._requests.limit(timeout, "acknowledge", "the broker will be told as soon as it can be"):
                await self._session.wait_for_room()

    def resume_reading(self) -> None:
        """Resume reading notifications if no subscription is full."""
        if not any(subscription.is_full for subscription in self._subscriptions.values()):
            self._session.read(True)

    def _stop_reading_if_full(self, subscription: ClientSubscription) -> None:
        if subscription.is_full:
            self._session.read(False)

    # Replay

    async def replay(
        self, since: Since, subscriptions: Iterable[str] | None, timeout: float | None
    ) -> AsyncIterator[Notification]:
        """Yield the notifications that these subscriptions, by default all, would get of journaled events now."""
        ids = list(self._subscriptions if subscriptions is None else subscriptions)
        offset, timestamp = start_of(since)
        while True:
            page = await self._requests.ask(
                "replay", timeout=timeout, subscriptions=ids, since=timestamp, offset=offset
            )
            for wire_notification in msgspec.convert(page["notes"], list[WireNotification]):
                notification = notification_from_wire(wire_notification, self._session.name)
                decrypted = await self._decrypt_replayed(notification)
                if decrypted is not None:
                    yield decrypted
            if page["next"] is None:
                return
            offset = page["next"]

    async def _decrypt_replayed(self, notification: Notification) -> Notification | None:
        """Decrypt a replayed notification; None, counted as refused, if it cannot be decrypted."""
        subscription = self._subscriptions.get(notification.subscription)
        if subscription is not None and subscription.opening is not None:
            decrypted = await subscription.opening.decrypt(notification, again=True)
            if isinstance(decrypted, Notification):
                return decrypted
            subscription.count_refused(notification, decrypted)
            return None
        if notification.event.signature is None or (subscription is not None and subscription.raw):
            return notification
        if subscription is not None:
            subscription.count_refused(notification, SecurityError("key", _CANNOT_OPEN))
        return None

    # Called by the session

    def notified(self, notification: Notification) -> None:
        """Hand a notification to its subscription, unless it was handed out before a reconnection."""
        subscription = self._subscriptions.get(notification.subscription)
        if subscription is None:
            return
        if subscription.durable is None and not self._dedup.is_new(notification):
            return
        subscription.notified(notification)
        if subscription.is_full:
            self._session.read(False)

    def notifications_lost(self, lost: answers.NotificationsLost) -> None:
        """Count the notifications that the broker has lost for a subscription."""
        subscription = self._subscriptions.get(lost.subscription)
        if subscription is not None:
            subscription.count_lost(lost.count)

    def connected_again(self) -> None:
        """Deduplicate notifications from now on, and let the membership fetch what it has missed."""
        self._dedup.connected_again()
        if self.membership is not None:
            self.membership.connected_again()

    def ended(self, error: ClosedError | None) -> None:
        """End all subscriptions, since the session has ended."""
        for subscription in self._subscriptions.values():
            subscription.end(error)
