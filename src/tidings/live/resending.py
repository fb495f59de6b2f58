"""Resending: what other brokers may have missed of what was published here is read from the journal, and sent again.

`engine.debts` says what that is; here it is read, a piece at a time, by a thread, and written down how far it got.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tidings import journal
from tidings.engine.debts import Debts, Piece, State
from tidings.engine.effects import Arranged, Effect, Moved, Rearranging, Settled
from tidings.engine.operations import Lag
from tidings.filters import ContextFilter
from tidings.journal import PUBLISH
from tidings.model.errors import OffsetGoneError, TidingsError
from tidings.model.event import Event

if TYPE_CHECKING:
    from tidings.live.broker import Broker

DEBTS = "debts"  # the kind of the rows that say what is owed
_PIECE = 256  # publications at a time
_LOOKED_AT = 10_000  # rows of the journal, at most, for them
_WRITTEN_AFTER = 1.0  # seconds

Read = tuple[list[tuple[int, Event]], int]  # publications with their offsets, and up to where was read


class Resending:
    """Of a broker with a journal; one without has nothing to send again, and owes nothing."""

    def __init__(self, broker: "Broker", state: State | None) -> None:
        self._broker = broker
        archive = broker.desk.archive
        self.is_possible = archive is not None
        self.debts = Debts(broker.name, state, 0 if archive is None else archive.journal.next)
        if not broker.configuration.links:  # nobody will come, so tables are complete from the start
            self.debts.arranged(frozenset({broker.name}), broker.clock.now())
        self._is_reading = False
        self._written = self.debts.state()
        self._write_at = 0.0

    @property
    def is_settled(self) -> bool:
        return not self.is_possible or (self.debts.is_settled and not self._is_reading)

    def published(self, event: Event, offset: int) -> None:
        """An event of a client is in the journal."""
        if self.is_possible:
            self.debts.published(offset, event, goes_on=bool(self._broker.desk.engine.neighbours))

    def take(self, effect: Effect) -> bool:
        """What the engine tells of events and of the network; whether it was about that. It counts at once: the next
        publication must not overtake what is owed from now on."""
        debts, now = self.debts, self._broker.clock.now()
        match effect:
            case Settled(event, round):
                if debts.settled(event, round):
                    self._broker.desk.acceptance.settled(event)
            case Rearranging(brokers):
                debts.rearranging(brokers)
                if debts.known != self._written.known:  # nothing that goes to them may be forgotten with them
                    self._broker.at_the_end(self.write_debts)
            case Arranged(brokers):
                debts.arranged(brokers, now)
            case Moved(client, broker, session):
                debts.moved(client, broker, session, now)
            case _:
                return False
        self._let_lag()
        return True

    def _let_lag(self) -> None:
        """New publications are not for those who are sent older ones first."""
        engine, lagging = self._broker.desk.engine, self.debts.lagging
        if lagging != engine.overlay.lagging:
            engine.handle(Lag(lagging), self._broker.clock.now())

    def is_waiting(self, offset: int) -> bool:
        """Whether the publication there is not settled yet."""
        return self.is_possible and self.debts.is_waiting(offset)

    def tick(self) -> None:
        if self.is_possible:
            self.debts.tick(self._broker.clock.now())
            self.go_on()
            self._write()

    def forget(self, broker: str) -> None:
        """It will not come back."""
        self.debts.forget(broker)
        self.write_debts()

    # Sending again

    def go_on(self) -> None:
        """Sends the next piece, if there is one."""
        if not self.is_possible:
            return
        self._let_lag()
        broker = self._broker
        if self._is_reading or broker.is_full or broker.is_stopping or not self.debts.has_to_send:
            return
        piece = self.debts.piece(broker.clock.now())
        if piece is not None:
            self._is_reading = True
            done = asyncio.get_running_loop().run_in_executor(broker.readers, self._read, piece)
            done.add_done_callback(lambda read: self._send(piece, read))

    def _read(self, piece: Piece) -> Read:
        """In a thread."""
        archive = self._broker.desk.archive
        found: list[tuple[int, Event]] = []
        if archive is None:
            return found, piece.stop
        archive.sync(piece.stop)
        position = piece.start
        try:
            for record in archive.journal.read(piece.start, piece.stop):
                position, row = record.offset + 1, record.operation
                if row.kind == PUBLISH and row.publisher != self._broker.name:
                    found.append((record.offset, row.event(ContextFilter.parse)))
                if len(found) >= _PIECE or position - piece.start >= _LOOKED_AT:
                    return found, position
        except OffsetGoneError as gone:
            who = ", ".join(piece.only)
            self._broker.desk.note(f"what {who} missed before offset {gone.first} is not kept any more")
            return found, min(gone.first, piece.stop)
        return found, piece.stop

    def _send(self, piece: Piece, done: "asyncio.Future[Read]") -> None:
        self._is_reading = False
        error = done.exception()
        if isinstance(error, TidingsError):
            self._broker.desk.note(f"what {', '.join(piece.only)} has missed cannot be read: {error}")
            return
        events, reached = done.result()
        if not self.debts.is_owed(piece):
            self.go_on()
            return  # the network has changed meanwhile
        now = self._broker.clock.now()
        for offset, event in events:
            self._broker.desk.drive(self.debts.sends_again(piece, offset, event, now))
        self.debts.reached(piece, reached)
        self._let_lag()
        self.go_on()
        self._broker.flush()

    # What outlives the process

    def _write(self) -> None:
        """Now and then: with an older state more is sent again, and nothing is lost."""
        if self._broker.now() >= self._write_at and self.debts.state() != self._written:
            self.write_debts()

    def write_debts(self) -> None:
        """Appends the state of what others have yet to acknowledge to the journal."""
        desk = self._broker.desk
        if desk.archive is not None:
            self._write_at, self._written = self._broker.now() + _WRITTEN_AFTER, self.debts.state()
            desk.write(debts_row(self._written))

    def committing(self) -> None:
        """With what is synced anyway: up to where all is settled. What is sent again after a power cut, though it had
        arrived, would be judged by what clients want by then."""
        desk = self._broker.desk
        if not desk.engine.neighbours:
            return
        state = self.debts.state()
        if state != self._written:
            only_floor = state == msgspec.structs.replace(self._written, floor=state.floor)
            self._written = state
            desk.write(floor_row(state.floor) if only_floor else debts_row(state))


def debts_row(state: State) -> journal.Operation:
    # By way of JSON: a row holds lists, and `to_builtins` would leave tuples.
    return journal.Operation.control(DEBTS, body=msgspec.json.decode(msgspec.json.encode(state)))


def floor_row(floor: int) -> journal.Operation:
    return journal.Operation.control(DEBTS, body={"floor": floor})


def read_debts(row: journal.Operation, before: State | None = None) -> State:
    """What a row says, together with those before it."""
    said = row.content()
    if len(said) == 1:
        return msgspec.structs.replace(before or State(), floor=said["floor"])
    return msgspec.convert(said, State)
