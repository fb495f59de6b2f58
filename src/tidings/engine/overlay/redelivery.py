"""Redelivery: which of its own publications a broker must send again to which brokers, by journal offsets.

Rules:

1. A publication is in flight until it is settled: everything that it can reach has it. `floor` is the offset of the
   oldest publication in flight; everything below it is settled, except for what is owed.
2. When the topology changes, publications in flight may or may not be lost. They become owed to every broker that was
   ever known, from `floor` on. When routing tables are complete again they are sent again to the brokers that are
   reachable; to the others they stay owed until they are back. A broker that has an event does not deliver it twice.
3. A broker that is being sent older publications is lagging: new publications would overtake them, so they are owed to
   it too, and sent in their turn.
4. A client that has moved may have been owed something at its former broker, which may be gone. Its durable
   subscriptions are sent, at the new broker, what was owed to any broker.
5. Publications in flight without any progress for `PATIENCE` are owed again, each time after twice as long.

This module only does the bookkeeping. The driver reports what happens, reads the journal, and sends: it asks
`next_range` what to read next, `republish` for the operation of each event, and reports progress with `reached`.
"""

from heapq import heappop, heappush
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidings.engine.headers import ABROAD
from tidings.engine.operations import Republish
from tidings.model.event import Event
from tidings.model.limits import MAX_REMEMBERED_MOVES

PATIENCE = 10_000_000  # microseconds without progress after which publications in flight are sent again
MOVING = 1_000_000  # microseconds in which the subscriptions of a client that has moved become known


class Recipient(NamedTuple):
    """A broker to which publications are owed; or a client that moved to it, whose former broker may be gone."""

    broker: str
    client: str = ""


class ResendRange(msgspec.Struct, frozen=True):
    """The next journal offsets to read and send again, from `start` up to but not including `stop`.

    `brokers` are the brokers that they are for; with `clients`, they are only for these clients' durable subscriptions.
    """

    start: int
    stop: int
    brokers: tuple[str, ...]
    clients: tuple[str, ...] = ()


class RedeliveryState(msgspec.Struct, frozen=True):
    """The part of the bookkeeping that the driver stores across restarts."""

    floor: int = 0
    owed: dict[str, int] = {}  # broker -> the offset from which it is owed
    moved: list[tuple[str, str, int]] = []  # broker, client, offset
    known: frozenset[str] = frozenset()


class RedeliveryTracker:
    """Tracks which publications of a broker are not settled, and which are owed to which brokers and moved clients.

    `end` is the offset of the next publication. Everything below `floor` is settled, except for what is owed.
    """

    def __init__(self, name: str, state: RedeliveryState | None = None, end: int = 0) -> None:
        """Start with the stored state and the journal's end; everything from the state's floor on becomes owed."""
        self._name = name
        self.end = end
        self.known: set[str] = {ABROAD}
        self.owed: dict[Recipient, int] = {}
        self._present: frozenset[str] = frozenset()  # the reachable brokers, while routing tables are complete
        self.unsettled = 0  # how many publications are in flight, counting each round
        self._in_flight: dict[tuple[UUID, int], int] = {}  # in flight: an event and a round -> offset
        self._rounds: dict[int, int] = {}  # offset -> its rounds in flight
        self._offsets_in_flight: list[int] = []  # a heap of these offsets; some of them are settled
        self._round = 0  # the last round
        # Of moved clients: the offset owed from, the offset sent up to, and the time from which sending may begin.
        self._owed_from: dict[Recipient, int] = {}
        self._sent_up_to: dict[Recipient, int] = {}
        self._may_begin_at: dict[Recipient, int] = {}
        self._sessions: dict[str, int] = {}  # moved client -> its session
        self._last_publications: dict[
            str, int
        ] = {}  # publisher -> the offset of its last publication that may be in flight
        self._now = self._progressed_at = 0  # when something was settled last
        self._patience = PATIENCE
        if state is not None:
            self.known |= state.known
            self.owed = {Recipient(broker): offset for broker, offset in state.owed.items()}
            self._owed_from = {Recipient(broker, client): offset for broker, client, offset in state.moved}
            self.owed |= self._owed_from
            self._owe_to_all(state.floor)

    @property
    def floor(self) -> int:
        """The offset of the oldest publication in flight; `end` if there is none."""
        while self._offsets_in_flight and self._offsets_in_flight[0] not in self._rounds:
            heappop(self._offsets_in_flight)
        return self._offsets_in_flight[0] if self._offsets_in_flight else self.end

    @property
    def needed(self) -> int:
        """The lowest offset from which the journal may have to be read again."""
        return min(self.floor, *self.owed.values(), self.end)

    @property
    def is_settled(self) -> bool:
        """Whether every reachable broker has every publication."""
        return not self._in_flight and not self.has_to_send

    def is_waiting(self, offset: int) -> bool:
        """Whether a publication is in flight, or owed to a broker that is or may be reachable."""
        if offset in self._rounds:
            return True
        return any(
            owed <= offset
            for recipient, owed in self.owed.items()
            if not self._present or recipient.broker in self._present
        )

    @property
    def has_to_send(self) -> bool:
        """Whether something is owed to a reachable broker."""
        return any(recipient.broker in self._present for recipient in self.owed)

    @property
    def lagging(self) -> tuple[str, ...]:
        """The reachable brokers that must not get new publications yet, because they are owed older ones."""
        return tuple(
            sorted(
                recipient.broker
                for recipient in self.owed
                if not recipient.client and recipient.broker in self._present
            )
        )

    def state(self) -> RedeliveryState:
        """Return the state to store."""
        return RedeliveryState(
            floor=self.floor,
            owed={recipient.broker: offset for recipient, offset in self.owed.items() if not recipient.client},
            moved=[
                (recipient.broker, recipient.client, self._owed_to(recipient, self.floor))
                for recipient in self._owed_from
            ],
            known=frozenset(self.known),
        )

    # What the driver reports

    def published(self, offset: int, event: Event, *, goes_on: bool) -> None:
        """Note that a publication is in the journal; with `goes_on` it has neighbours to go to, and will be settled."""
        self.end = offset + 1
        if goes_on:
            self._add_in_flight(offset, event.id, 0)
            self._last_publications.pop(event.publisher, None)
            self._last_publications[event.publisher] = offset
            if len(self._last_publications) > MAX_REMEMBERED_MOVES:
                del self._last_publications[next(iter(self._last_publications))]

    def settled(self, event: UUID, round: int) -> bool:  # noqa: A002 - the route's word
        """Note that an event is settled in a round; return False if that round was of a former topology."""
        offset = self._in_flight.pop((event, round), None)
        self.unsettled = len(self._in_flight)
        if offset is not None:
            self._progressed_at, self._patience = self._now, PATIENCE
            self._end_round(offset)
            for recipient in [recipient for recipient, sent in self._sent_up_to.items() if sent <= self.floor]:
                self._forget(recipient)
        return offset is not None

    def topology_changing(self, brokers: frozenset[str]) -> None:
        """Note that the topology has changed to these brokers: publications in flight become owed."""
        self.known |= brokers - {self._name}
        self._present = frozenset()
        self._owe_to_all(self.floor)

    def topology_settled(self, brokers: frozenset[str], now: int) -> None:
        """Note that routing tables are complete: what is owed to these brokers can be sent."""
        self._now = self._progressed_at = now
        self._present = brokers | {ABROAD}
        self._release()

    def moved(self, client: str, broker: str, session: int, now: int) -> None:
        """Note that a client has moved to a broker, in this session; older sessions are ignored.

        The client may have been at any other broker, so everything that is in flight or owed to another broker becomes
        owed to the client; older publications that are owed to its new broker are sent first. If the client itself has
        publications in flight, these become owed to all brokers, because subscriptions may have been routed toward its
        new broker before they could reach them.

        Args:
            client: The client.
            broker: Its new broker.
            session: The session in which it came there.
            now: The time in microseconds.
        """
        if self._sessions.get(client, 0) >= session:
            return
        self._sessions.pop(client, None)
        self._sessions[client] = session
        if len(self._sessions) > MAX_REMEMBERED_MOVES:
            del self._sessions[next(iter(self._sessions))]
        if self._last_publications.pop(client, -1) >= self.floor:
            self._owe_to_all(self.floor)
        before = [recipient for recipient in self._owed_from if recipient.client == client]
        owed = [
            offset for recipient, offset in self.owed.items() if not recipient.client and recipient.broker != broker
        ]
        owed += [self._owed_to(recipient, self.floor) for recipient in before]
        for recipient in before:
            self._forget(recipient)
        start = min([self.floor, *owed])
        if start < self.end:
            arrived = Recipient(broker, client)
            self._owed_from[arrived] = self.owed[arrived] = start
            self._may_begin_at[arrived] = now + MOVING
            if start < self.floor and broker != self._name:
                self.owed.setdefault(Recipient(broker), self.end)

    def forget(self, broker: str) -> None:
        """Drop what is owed to a broker that will not come back."""
        self.known.discard(broker)
        for recipient in [recipient for recipient in [*self.owed, *self._owed_from] if recipient.broker == broker]:
            self._forget(recipient)

    def tick(self, now: int) -> None:
        """Note that time has passed: after too long without progress, publications in flight are owed again."""
        self._now = now
        if not self._in_flight or not self._present:
            self._progressed_at = now
        elif now - self._progressed_at > self._patience:
            self._progressed_at, self._patience = now, self._patience * 2
            self._owe_to_all(self.floor)

    # What the driver sends

    def is_owed(self, resend_range: ResendRange) -> bool:
        """Whether a broker that is up still needs this range, which may have changed while the journal was read."""
        return any(
            offset == resend_range.start
            and recipient.broker in resend_range.brokers
            and recipient.broker in self._present
            for recipient, offset in self.owed.items()
        )

    def next_range(self, now: int) -> ResendRange | None:
        """Return the next range to send again, lowest offsets first; None if there is nothing to send yet."""
        due = {recipient: offset for recipient, offset in self.owed.items() if recipient.broker in self._present}
        for recipient in [recipient for recipient in due if self._may_begin_at.get(recipient, 0) > now]:
            waits = due.pop(recipient)
            if waits < due.get(Recipient(recipient.broker), waits):  # older publications go first
                del due[Recipient(recipient.broker)]
        if not due:
            return None
        start = min(due.values())
        first = [recipient for recipient, offset in due.items() if offset == start]
        stop = min((offset for offset in due.values() if offset > start), default=self.end)
        brokers = {recipient.broker for recipient in first if not recipient.client}
        if brokers:
            return ResendRange(start, stop, tuple(sorted(brokers)))
        brokers_moved_to, clients = {recipient.broker for recipient in first}, {recipient.client for recipient in first}
        return ResendRange(start, stop, tuple(sorted(brokers_moved_to)), tuple(sorted(clients)))

    def republish(self, resend_range: ResendRange, offset: int, event: Event, now: int) -> Republish:
        """Return the operation that sends an event of a range again, in a new round.

        Args:
            resend_range: The range.
            offset: The event's offset.
            event: The event.
            now: The time in microseconds.
        """
        self._round = max(now, self._round + 1)
        self._add_in_flight(offset, event.id, self._round)
        return Republish(event, self._round, resend_range.brokers, resend_range.clients)

    def reached(self, resend_range: ResendRange, offset: int) -> None:
        """Note that everything of a range below this offset was sent again.

        A broker that has been sent everything lags no more.
        """
        for recipient, owed in list(self.owed.items()):
            is_in_it = recipient.client in resend_range.clients if resend_range.clients else not recipient.client
            if owed == resend_range.start and recipient.broker in resend_range.brokers and is_in_it:
                self.owed[recipient] = offset
        self._release()

    def _release(self) -> None:
        """Drop what is owed to reachable recipients that have been sent everything."""
        for recipient, offset in list(self.owed.items()):
            if recipient.broker in self._present and offset >= self.end:
                del self.owed[recipient]
                if recipient.client:
                    self._sent_up_to[recipient] = offset

    def _owed_to(self, recipient: Recipient, floor: int) -> int:
        """Return the offset from which a moved client is owed; what is settled below `floor` it has got."""
        return min(self.owed.get(recipient, self.end), max(self._owed_from[recipient], floor))

    def _forget(self, recipient: Recipient) -> None:
        for kept in (self.owed, self._owed_from, self._sent_up_to, self._may_begin_at):
            kept.pop(recipient, None)

    def _add_in_flight(self, offset: int, event: UUID, round: int) -> None:  # noqa: A002
        if not self._in_flight:
            self._progressed_at = self._now
        before = self._in_flight.pop((event, round), None)
        self._in_flight[event, round] = offset
        self.unsettled = len(self._in_flight)
        if offset in self._rounds:
            self._rounds[offset] += 1
        else:
            self._rounds[offset] = 1
            heappush(self._offsets_in_flight, offset)
        if before is not None:  # the event was published twice: both are settled together
            self._end_round(before)

    def _end_round(self, offset: int) -> None:
        self._rounds[offset] -= 1
        if not self._rounds[offset]:
            del self._rounds[offset]

    def _owe_to_all(self, floor: int) -> None:
        """Make everything from `floor` on owed to all other brokers and moved clients, besides what was owed before."""
        for broker in self.known:
            recipient = Recipient(broker)
            self.owed[recipient] = min(floor, self.owed.get(recipient, floor))
        for recipient in self._owed_from:
            self.owed[recipient] = self._owed_to(recipient, floor)
        self._sent_up_to.clear()
        self._in_flight, self._rounds, self._offsets_in_flight = {}, {}, []
        self.unsettled = 0
