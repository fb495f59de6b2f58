"""Opening: what comes sealed to a subscription is opened before the program sees it, in the order in which it came."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.policy.conversion import converted
from tidings.security.envelope import Seal
from tidings.security.opening import Opener
from tidings.security.records import TopicRecord

if TYPE_CHECKING:
    from tidings.client.membership import Membership

_LACKING = ("key", "revocations")  # what somebody else may have
_A_WHILE = 10.0  # seconds
_MOST_GIVEN_UP = 1_024


class Opening:
    """Of one subscription. While a key is asked for, what comes after waits; more than `most` do not: then the oldest
    is lost. `policy` is the subscription's own: what it wants converted is converted here, since brokers cannot.

    `opened` is called with what can be read, `refused` with what cannot and never will, or not for now, `lost` with
    what there was no room for.
    """

    def __init__(
        self,
        membership: "Membership",
        most: int,
        policy: Callable[[], str | None],
        opened: Callable[[Notification], None],
        refused: Callable[[Notification, TidingsError], None],
        lost: Callable[[Notification], None],
    ) -> None:
        self._membership, self._most, self._policy = membership, most, policy
        self._opener: Opener = membership.member.opener()
        self._opened, self._refused, self._lost = opened, refused, lost
        self.only: TopicRecord | None = None  # the topic that all is on that the subscription asks for
        self._given_up: dict[bytes, float] = {}  # instances, and until when, in the loop's time
        self._waiting: deque[Notification] = deque()
        self._asking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def concerns(self, note: Notification) -> bool:
        """Whether it has to be opened, or comes after such a one, or should be sealed and is not."""
        event = note.event
        return event.signature is not None or bool(self._waiting) or self._topic_of(event) is not None

    def take(self, note: Notification) -> None:
        self._waiting.append(note)
        if len(self._waiting) > self._most:
            self._lost(self._waiting.popleft())
        self._look()

    def end(self) -> None:
        self._waiting.clear()
        if self._asking is not None:
            self._asking.cancel()

    def _look(self) -> None:
        while self._waiting and self._asking is None:
            note = self._waiting[0]
            try:
                made = self._open(note)
            except SecurityError as error:
                if error.check in _LACKING:
                    self._asking = asyncio.create_task(self._ask(note))
                    self._asking.add_done_callback(self._asked)
                    return
                self._waiting.popleft()
                self._refused(note, error)
            else:
                self._waiting.popleft()
                self._opened(made)

    def _open(self, note: Notification, *, again: bool = False) -> Notification:
        """As the program gets to see it."""
        if note.event.signature is None:
            record = self._topic_of(note.event)
            if record is None:
                return note
            raise SecurityError("seal", f"the event is on the secure topic {record.template}, and is not sealed")
        event, added = self._opener.opened(note.event, note.event.timestamp, again=again)
        made = msgspec.structs.replace(
            note, event=event, attributes=event.attributes, payload=event.payload, added=added
        )
        policy = self._policy()
        return made if policy is None else converted(made, policy)

    def _topic_of(self, event: Event) -> TopicRecord | None:
        return self.only or self._membership.member.topic_of(event.subject, event.attributes)

    async def _ask(self, note: Notification) -> None:
        """Sees what can be done about the first one that waits."""
        outcome = await self.asked(note)
        if self._waiting and self._waiting[0] is note:
            self._waiting.popleft()
            if isinstance(outcome, Notification):
                self._opened(outcome)
            else:
                self._refused(note, outcome)

    def _asked(self, done: "asyncio.Task[None]") -> None:
        self._asking = None
        if not done.cancelled():
            done.result()
            self._look()

    async def asked(self, note: Notification, *, again: bool = False) -> Notification | TidingsError:
        """The notification opened, with what centres and brokers can help; or why it cannot be. `again`: it may have
        come before."""
        error: TidingsError
        try:
            return self._open(note, again=again)
        except SecurityError as first:
            error = first
        if error.check == "key" and self._is_given_up(note.event):
            return error
        for step in (self._fetched, self._rewrapped):
            if not isinstance(error, SecurityError) or error.check not in _LACKING:
                break
            try:
                note = await step(note, error.check)
                return self._open(note, again=again)
            except RefusedError as refused:
                error = SecurityError("key", refused.reason)
            except TidingsError as other:
                error = other
        if isinstance(error, SecurityError) and error.check == "key":
            self._give_up(note.event)
        return error

    def _give_up(self, event: Event) -> None:
        """What has this content key is not asked for again for a while: there may be very much of it."""
        self._given_up[Seal.of(event).instance] = asyncio.get_running_loop().time() + _A_WHILE
        if len(self._given_up) > _MOST_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def _is_given_up(self, event: Event) -> bool:
        return asyncio.get_running_loop().time() < self._given_up.get(Seal.of(event).instance, 0.0)

    async def _fetched(self, note: Notification, lacking: str) -> Notification:
        if lacking == "revocations":
            await self._membership.fetch_revocations()
        else:
            await self._membership.obtain(self._membership.centres.record_of(note.event))
        return note

    async def _rewrapped(self, note: Notification, _: str) -> Notification:
        return msgspec.structs.replace(note, event=await self._membership.centres.rewrapped(note.event))
