"""Decrypts the sealed notifications of a subscription, in their order, before the program gets them.

While a key is fetched for the first notification, later ones wait behind it, so that the order is preserved.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.policy.client_conversion import convert_for_client
from tidings.security.member import Member, Opener
from tidings.security.sealing.envelope import Seal
from tidings.security.tokens.token import Token
from tidings.security.topic_record import TopicRecord

_LACKING = ("key", "revocations")  # failed checks that a centre or the broker can help with
_GIVEN_UP_SECONDS = 10.0  # seconds until a content key that was refused is asked for again
_GIVEN_UP_KEYS_MAX = 1_024


class RewrapCentres(Protocol):
    """Where a queue gets the centre of an event's topic, and has its content key wrapped anew."""

    def record_of(self, event: Event) -> TopicRecord: ...
    async def rewrapped(self, event: Event) -> Event: ...


class DecryptionKeys(Protocol):
    """What decrypting needs of the client's membership in secure topics."""

    @property
    def member(self) -> Member: ...
    @property
    def centres(self) -> RewrapCentres: ...
    async def obtain(self, record: TopicRecord) -> Token: ...
    async def fetch_revocations(self) -> None: ...


class DecryptionQueue:
    """Decrypts the notifications of one subscription, and applies its policy's conversions, which brokers cannot.

    Args:
        membership: The client's membership, which fetches keys.
        limit: How many notifications may wait; beyond that the oldest is lost.
        policy: Returns the subscription's present policy.
        on_decrypted: Called with each readable notification.
        on_refused: Called with each one that cannot be decrypted, now or ever, and the reason.
        on_lost: Called with each one for which there was no room.
    """

    def __init__(
        self,
        membership: DecryptionKeys,
        limit: int,
        policy: Callable[[], str | None],
        on_decrypted: Callable[[Notification], None],
        on_refused: Callable[[Notification, TidingsError], None],
        on_lost: Callable[[Notification], None],
    ) -> None:
        self._membership, self._limit, self._policy = membership, limit, policy
        self._opener: Opener = membership.member.opener()
        self._on_decrypted, self._on_refused, self._on_lost = on_decrypted, on_refused, on_lost
        self.only: TopicRecord | None = None  # the only topic whose events the subscription can match
        self._given_up: dict[bytes, float] = {}  # content keys that were refused, and until when, in the loop's time
        self._waiting: deque[Notification] = deque()
        self._fetch_task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def concerns(self, notification: Notification) -> bool:
        """Return whether the notification must go through the queue.

        It must if it is sealed, if it should be but is not, or if earlier notifications wait.
        """
        event = notification.event
        return event.signature is not None or bool(self._waiting) or self._topic_of(event) is not None

    def take(self, notification: Notification) -> None:
        """Enqueue a notification, and decrypt as far as possible."""
        self._waiting.append(notification)
        if len(self._waiting) > self._limit:
            self._on_lost(self._waiting.popleft())
        self._decrypt_waiting()

    def end(self) -> None:
        """Drop everything that waits: the subscription has ended."""
        self._waiting.clear()
        if self._fetch_task is not None:
            self._fetch_task.cancel()

    def _decrypt_waiting(self) -> None:
        while self._waiting and self._fetch_task is None:
            notification = self._waiting[0]
            try:
                decrypted = self._decrypt(notification)
            except SecurityError as error:
                if error.check in _LACKING:
                    self._fetch_task = asyncio.create_task(self._fetch_and_decrypt(notification))
                    self._fetch_task.add_done_callback(self._fetch_done)
                    return
                self._waiting.popleft()
                self._on_refused(notification, error)
            else:
                self._waiting.popleft()
                self._on_decrypted(decrypted)

    def _decrypt(self, notification: Notification, *, again: bool = False) -> Notification:
        """Return the notification as the program gets it: decrypted and converted.

        Raises:
            SecurityError: It cannot be decrypted, or is unsealed on a secure topic.
        """
        if notification.event.signature is None:
            record = self._topic_of(notification.event)
            if record is None:
                return notification
            raise SecurityError("seal", f"the event is on the secure topic {record.template}, and is not sealed")
        event, added = self._opener.opened(notification.event, notification.event.timestamp, again=again)
        decrypted = msgspec.structs.replace(
            notification, event=event, attributes=event.attributes, payload=event.payload, added=added
        )
        policy = self._policy()
        return decrypted if policy is None else convert_for_client(decrypted, policy)

    def _topic_of(self, event: Event) -> TopicRecord | None:
        return self.only or self._membership.member.topic_of(event.subject, event.attributes)

    async def _fetch_and_decrypt(self, notification: Notification) -> None:
        """Fetch what the first waiting notification lacks, and hand it over or refuse it."""
        outcome = await self.decrypt(notification)
        if self._waiting and self._waiting[0] is notification:
            self._waiting.popleft()
            if isinstance(outcome, Notification):
                self._on_decrypted(outcome)
            else:
                self._on_refused(notification, outcome)

    def _fetch_done(self, done: "asyncio.Task[None]") -> None:
        self._fetch_task = None
        if not done.cancelled():
            done.result()
            self._decrypt_waiting()

    async def decrypt(self, notification: Notification, *, again: bool = False) -> Notification | TidingsError:
        """Decrypt a notification, asking centres and brokers for what is missing; return it, or the error.

        `again`: the notification may have come before, so it is not checked for replay.
        """
        error: TidingsError
        try:
            return self._decrypt(notification, again=again)
        except SecurityError as first:
            error = first
        if error.check == "key" and self._is_given_up(notification.event):
            return error
        for step in (self._fetch, self._rewrap):
            if not isinstance(error, SecurityError) or error.check not in _LACKING:
                break
            try:
                notification = await step(notification, error.check)
                return self._decrypt(notification, again=again)
            except RefusedError as refused:
                error = SecurityError("key", refused.reason)
            except TidingsError as other:
                error = other
        if isinstance(error, SecurityError) and error.check == "key":
            self._give_up(notification.event)
        return error

    def _give_up(self, event: Event) -> None:
        """Do not ask for this event's content key again for a while: many events may have it."""
        self._given_up[Seal.of(event).instance] = asyncio.get_running_loop().time() + _GIVEN_UP_SECONDS
        if len(self._given_up) > _GIVEN_UP_KEYS_MAX:
            del self._given_up[next(iter(self._given_up))]

    def _is_given_up(self, event: Event) -> bool:
        return asyncio.get_running_loop().time() < self._given_up.get(Seal.of(event).instance, 0.0)

    async def _fetch(self, notification: Notification, lacking: str) -> Notification:
        """Fetch the revocation list, or the keys of the notification's topic."""
        if lacking == "revocations":
            await self._membership.fetch_revocations()
        else:
            await self._membership.obtain(self._membership.centres.record_of(notification.event))
        return notification

    async def _rewrap(self, notification: Notification, _: str) -> Notification:
        """Have the centre wrap the event's content key in a key that the member has."""
        return msgspec.structs.replace(notification, event=await self._membership.centres.rewrapped(notification.event))
