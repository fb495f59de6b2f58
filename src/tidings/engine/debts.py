"""Debts: what a broker owes to others of what was published at it, by offsets of its journal.

What has not been settled when the network changes may be lost, or not: it is owed to every broker that was ever known,
and sent again when tables are complete, to those that are there; the others stay owed until they are back. Whoever got
it before does not deliver it again. While a broker is sent what it has missed, new publications would overtake that:
it *lags*, and gets them in their turn. All of this is bookkeeping: a driver reads its journal, and tells what happens.
"""

from heapq import heappop, heappush
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidings.engine.journey import ABROAD
from tidings.engine.operations import Republish
from tidings.model.event import Event
from tidings.model.limits import MAX_REMEMBERED_MOVES

PATIENCE = 10_000_000  # microseconds without any progress, after which what is not settled is sent again
MOVING = 1_000_000  # microseconds in which the wishes of a client that has moved become known


class Creditor(NamedTuple):
    """A broker; or a client that has come to it from another one, which may be gone with what it was owed."""

    broker: str
    client: str = ""


class Piece(msgspec.Struct, frozen=True):
    """What is to be read and sent again next: from one offset up to another, which is not in it."""

    start: int
    stop: int
    only: tuple[str, ...]
    whose: tuple[str, ...] = ()


class State(msgspec.Struct, frozen=True):
    """What outlives the process."""

    floor: int = 0
    owed: dict[str, int] = {}  # by broker
    moved: list[tuple[str, str, int]] = []  # broker, client, offset
    known: frozenset[str] = frozenset()


class Debts:
    """`end` is the offset of the next publication. Below `floor` all is settled, but for what is owed."""

    def __init__(self, name: str, state: State | None = None, end: int = 0) -> None:
        """With the state that was saved last, and the journal's end now: what came since is not settled."""
        self._name = name
        self.end = end
        self.known: set[str] = {ABROAD}
        self.owed: dict[Creditor, int] = {}
        self._present: frozenset[str] = frozenset()  # while tables are complete: who is there
        self._waiting: dict[tuple[UUID, int], int] = {}  # what is not settled: an event and a round -> offset
        self._rounds: dict[int, int] = {}  # offset -> how many of these it has
        self._lowest: list[int] = []  # a heap of these offsets, and some that are settled
        self._round = 0  # the last one
        # Of clients that have moved: from where they were owed, up to where they were sent it, and when that may begin.
        self._starts: dict[Creditor, int] = {}
        self._sent: dict[Creditor, int] = {}
        self._ripe: dict[Creditor, int] = {}
        self._sessions: dict[str, int] = {}  # of clients that have moved
        self._latest: dict[str, int] = {}  # by publisher: the last that may not be settled
        self._now = self._progressed = 0  # when something was settled last
        self._patience = PATIENCE
        if state is not None:
            self.known |= state.known
            self.owed = {Creditor(broker): offset for broker, offset in state.owed.items()}
            self._starts = {Creditor(broker, client): offset for broker, client, offset in state.moved}
            self.owed |= self._starts
            self._owe_all(state.floor)

    @property
    def floor(self) -> int:
        while self._lowest and self._lowest[0] not in self._rounds:
            heappop(self._lowest)
        return self._lowest[0] if self._lowest else self.end

    @property
    def needed(self) -> int:
        """From here on the journal may have to be read again."""
        return min(self.floor, *self.owed.values(), self.end)

    @property
    def is_settled(self) -> bool:
        """Whether everybody who is there has got everything."""
        return not self._waiting and not self.has_to_send

    @property
    def unsettled(self) -> int:
        """How many publications are under way."""
        return len(self._waiting)

    def is_waiting(self, offset: int) -> bool:
        """Whether a publication is not settled, or owed to somebody who is there, or may be."""
        if offset in self._rounds:
            return True
        return any(
            owed <= offset for one, owed in self.owed.items() if not self._present or one.broker in self._present
        )

    @property
    def has_to_send(self) -> bool:
        """Whether something is owed to those who are there."""
        return any(one.broker in self._present for one in self.owed)

    @property
    def lagging(self) -> tuple[str, ...]:
        """The brokers that new publications are not for."""
        return tuple(sorted(one.broker for one in self.owed if not one.client and one.broker in self._present))

    def state(self) -> State:
        return State(
            floor=self.floor,
            owed={one.broker: offset for one, offset in self.owed.items() if not one.client},
            moved=[(one.broker, one.client, self._owed_to(one, self.floor)) for one in self._starts],
            known=frozenset(self.known),
        )

    # What happens

    def published(self, offset: int, event: Event, *, goes_on: bool) -> None:
        """A publication is in the journal; `goes_on`: there are neighbours, so it will be settled."""
        self.end = offset + 1
        if goes_on:
            self._wait(offset, event.id, 0)
            self._latest.pop(event.publisher, None)
            self._latest[event.publisher] = offset
            if len(self._latest) > MAX_REMEMBERED_MOVES:
                del self._latest[next(iter(self._latest))]

    def settled(self, event: UUID, round: int) -> bool:  # noqa: A002 - the route's word
        """Whether that counts: not in a round of a former network."""
        offset = self._waiting.pop((event, round), None)
        if offset is not None:
            self._progressed, self._patience = self._now, PATIENCE
            self._close(offset)
            for one in [one for one, sent in self._sent.items() if sent <= self.floor]:
                self._forget(one)
        return offset is not None

    def rearranging(self, brokers: frozenset[str]) -> None:
        """The network has changed."""
        self.known |= brokers - {self._name}
        self._present = frozenset()
        self._owe_all(self.floor)

    def arranged(self, brokers: frozenset[str], now: int) -> None:
        """Tables are complete: what is owed to these can be sent."""
        self._now = self._progressed = now
        self._present = brokers | {ABROAD}
        self._release()

    def moved(self, client: str, broker: str, session: int, now: int) -> None:
        """A client has come to a broker. What is owed to others, or not settled, may be due to it: it may have been
        there. Where it was is not known; so what is older goes to its new broker first. What it has published itself
        and is not settled may have met those who turned to its new broker already: all are sent it again."""
        if self._sessions.get(client, 0) >= session:
            return
        self._sessions.pop(client, None)
        self._sessions[client] = session
        if len(self._sessions) > MAX_REMEMBERED_MOVES:
            del self._sessions[next(iter(self._sessions))]
        if self._latest.pop(client, -1) >= self.floor:
            self._owe_all(self.floor)
        before = [one for one in self._starts if one.client == client]
        owed = [offset for one, offset in self.owed.items() if not one.client and one.broker != broker]
        owed += [self._owed_to(one, self.floor) for one in before]
        for one in before:
            self._forget(one)
        start = min([self.floor, *owed])
        if start < self.end:
            arrived = Creditor(broker, client)
            self._starts[arrived] = self.owed[arrived] = start
            self._ripe[arrived] = now + MOVING
            if start < self.floor and broker != self._name:
                self.owed.setdefault(Creditor(broker), self.end)

    def forget(self, broker: str) -> None:
        """It will not come back: nothing is owed to it any more."""
        self.known.discard(broker)
        for one in [one for one in [*self.owed, *self._starts] if one.broker == broker]:
            self._forget(one)

    def tick(self, now: int) -> None:
        """What has not been settled for too long is owed again: somebody on the way has lost it, or forgotten."""
        self._now = now
        if not self._waiting or not self._present:
            self._progressed = now
        elif now - self._progressed > self._patience:
            self._progressed, self._patience = now, self._patience * 2
            self._owe_all(self.floor)

    # Sending again

    def is_owed(self, piece: Piece) -> bool:
        """Whether it still is what is to be sent next, after it was read."""
        return any(
            offset == piece.start and one.broker in piece.only and one.broker in self._present
            for one, offset in self.owed.items()
        )

    def piece(self, now: int) -> Piece | None:
        """What to send again next, in the order of offsets; None if there is nothing, or not yet."""
        due = {one: offset for one, offset in self.owed.items() if one.broker in self._present}
        for one in [one for one in due if self._ripe.get(one, 0) > now]:
            waits = due.pop(one)
            if waits < due.get(Creditor(one.broker), waits):  # what is older comes first
                del due[Creditor(one.broker)]
        if not due:
            return None
        start = min(due.values())
        first = [one for one, offset in due.items() if offset == start]
        stop = min((offset for offset in due.values() if offset > start), default=self.end)
        brokers = {one.broker for one in first if not one.client}
        if brokers:
            return Piece(start, stop, tuple(sorted(brokers)))
        only, whose = {one.broker for one in first}, {one.client for one in first}
        return Piece(start, stop, tuple(sorted(only)), tuple(sorted(whose)))

    def sends_again(self, piece: Piece, offset: int, event: Event, now: int) -> Republish:
        """What to do with an event of a piece."""
        self._round = max(now, self._round + 1)
        self._wait(offset, event.id, self._round)
        return Republish(event, self._round, piece.only, piece.whose)

    def reached(self, piece: Piece, offset: int) -> None:
        """All of a piece below that offset was sent again. Who has reached the end lags no longer."""
        for one, owed in list(self.owed.items()):
            is_in_it = one.client in piece.whose if piece.whose else not one.client
            if owed == piece.start and one.broker in piece.only and is_in_it:
                self.owed[one] = offset
        self._release()

    def _release(self) -> None:
        for one, offset in list(self.owed.items()):
            if one.broker in self._present and offset >= self.end:
                del self.owed[one]
                if one.client:
                    self._sent[one] = offset

    def _owed_to(self, one: Creditor, floor: int) -> int:
        """From where a client that has moved is owed: what is settled it has got."""
        return min(self.owed.get(one, self.end), max(self._starts[one], floor))

    def _forget(self, one: Creditor) -> None:
        for kept in (self.owed, self._starts, self._sent, self._ripe):
            kept.pop(one, None)

    def _wait(self, offset: int, event: UUID, round: int) -> None:  # noqa: A002
        if not self._waiting:
            self._progressed = self._now
        before = self._waiting.pop((event, round), None)
        self._waiting[event, round] = offset
        if offset in self._rounds:
            self._rounds[offset] += 1
        else:
            self._rounds[offset] = 1
            heappush(self._lowest, offset)
        if before is not None:  # it was published twice: one will be settled with the other
            self._close(before)

    def _close(self, offset: int) -> None:
        self._rounds[offset] -= 1
        if not self._rounds[offset]:
            del self._rounds[offset]

    def _owe_all(self, floor: int) -> None:
        """To all others, what is not settled, and what they were owed before."""
        for broker in self.known:
            one = Creditor(broker)
            self.owed[one] = min(floor, self.owed.get(one, floor))
        for one in self._starts:
            self.owed[one] = self._owed_to(one, floor)
        self._sent.clear()
        self._waiting, self._rounds, self._lowest = {}, {}, []
