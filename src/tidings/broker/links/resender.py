"""Resend to other brokers the publications of this broker that they may have missed, read from its journal.

The `RedeliveryTracker` decides which publications are owed to which brokers. The resender feeds it the engine's
effects, reads the journal a piece at a time in another thread, publishes each event again for the brokers that may have
missed it, and journals how far it got. A broker that receives an event twice delivers it once.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tidings.broker.journal_extension import redelivery_floor_row, redelivery_row
from tidings.engine.effects import ClientMoved, Effect, PublicationSettled, TopologyChanging, TopologySettled
from tidings.engine.operations import SetLaggingBrokers
from tidings.engine.overlay.redelivery import RedeliveryState, RedeliveryTracker, ResendRange
from tidings.filters import ContextFilter
from tidings.journal import PUBLISH
from tidings.model.errors import OffsetGoneError, TidingsError
from tidings.model.event import Event

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_MAX_PIECE = 256  # publications of a piece, at most
_MAX_ROWS_READ = 10_000  # journal rows that are read for a piece, at most
_MIN_JOURNAL_SECONDS = 1.0  # seconds between two rows with the redelivery state, at least

ReadResult = tuple[list[tuple[int, Event]], int]  # publications with their offsets, and the end of what was read


class Resender:
    """Drives redelivery for one broker. A broker without a journal has nothing to resend, and owes nothing.

    `state` is the redelivery state that was read from the journal.
    """

    def __init__(self, broker: "Broker", state: RedeliveryState | None) -> None:
        self._broker = broker
        journal_store = broker.node.journal_store
        self.is_possible = journal_store is not None
        self.tracker = RedeliveryTracker(broker.name, state, 0 if journal_store is None else journal_store.journal.next)
        if not broker.configuration.links:  # without links the tables are complete from the start
            self.tracker.topology_settled(frozenset({broker.name}), broker.clock.now())
        self._is_reading = False
        self._journaled_state = self.tracker.state()
        self._next_journal_time = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is owed to brokers that can be reached, and all publications are settled."""
        return not self.is_possible or (self.tracker.is_settled and not self._is_reading)

    def on_published(self, event: Event, offset: int) -> None:
        """Track a client's event that was appended to the journal at this offset."""
        if self.is_possible:
            self.tracker.published(offset, event, goes_on=bool(self._broker.node.engine.neighbours))

    def apply_effect(self, effect: Effect) -> bool:
        """Apply an effect of the engine about settlement, topology or moved clients; return False if it is another one.

        It must be called before the next publication is handled, which must not overtake what is owed from now on.
        """
        tracker, now = self.tracker, self._broker.clock.now()
        match effect:
            case PublicationSettled(event, round):
                if tracker.settled(event, round):
                    self._broker.node.publish_handler.send_settled_receipt(event)
            case TopologyChanging(brokers):
                tracker.topology_changing(brokers)
                if tracker.known != self._journaled_state.known:  # journal new brokers before anything is sent to them
                    self._broker.defer_to_turn_end(self.write_redelivery_state)
            case TopologySettled(brokers):
                tracker.topology_settled(brokers, now)
            case ClientMoved(client, broker, session):
                if self.is_possible:
                    tracker.moved(client, broker, session, now)
            case _:
                return False
        self._update_lagging_brokers()
        return True

    def _update_lagging_brokers(self) -> None:
        """Tell the engine which brokers are being sent older publications, so that it sends them no new ones yet."""
        engine, lagging = self._broker.node.engine, self.tracker.lagging
        if lagging != engine.convergence.lagging:
            engine.handle(SetLaggingBrokers(lagging), self._broker.clock.now())

    def is_unsettled(self, offset: int) -> bool:
        """Return whether the publication at this offset is not settled yet."""
        return self.is_possible and self.tracker.is_waiting(offset)

    def tick(self) -> None:
        """Called at every heartbeat: notice publications that do not settle, resend, and journal the progress."""
        if self.is_possible:
            self.tracker.tick(self._broker.clock.now())
            self.send_next()
            self._journal_if_due()

    def forget(self, broker: str) -> None:
        """Owe nothing more to a broker that will not come back."""
        self.tracker.forget(broker)
        self.write_redelivery_state()

    # Resending

    def send_next(self) -> None:
        """Begin to read and send the next piece, if something is owed and the broker is not full."""
        if not self.is_possible:
            return
        self._update_lagging_brokers()
        broker = self._broker
        if self._is_reading or broker.is_full or broker.is_stopping or not self.tracker.has_to_send:
            return
        piece = self.tracker.next_range(broker.clock.now())
        if piece is not None:
            self._is_reading = True
            done = asyncio.get_running_loop().run_in_executor(broker.readers, self._read, piece)
            done.add_done_callback(lambda read: self._send(piece, read))

    def _read(self, piece: ResendRange) -> ReadResult:
        """Read the publications of a piece from the journal, and up to which offset it was read. Runs in a thread."""
        journal_store = self._broker.node.journal_store
        publications: list[tuple[int, Event]] = []
        if journal_store is None:
            return publications, piece.stop
        journal_store.sync(piece.stop)
        position = piece.start
        try:
            for record in journal_store.journal.read(piece.start, piece.stop):
                position, row = record.offset + 1, record.operation
                if row.kind == PUBLISH and row.publisher != self._broker.name:
                    publications.append((record.offset, row.event(ContextFilter.parse)))
                if len(publications) >= _MAX_PIECE or position - piece.start >= _MAX_ROWS_READ:
                    return publications, position
        except OffsetGoneError as gone:
            brokers = ", ".join(piece.brokers)
            self._broker.node.log_line(f"what {brokers} missed before offset {gone.first} is not kept any more")
            return publications, min(gone.first, piece.stop)
        return publications, piece.stop

    def _send(self, piece: ResendRange, done: "asyncio.Future[ReadResult]") -> None:
        """Publish the events of a piece again, unless the topology has changed since it was read."""
        self._is_reading = False
        error = done.exception()
        if isinstance(error, TidingsError):
            self._broker.node.log_line(f"what {', '.join(piece.brokers)} has missed cannot be read: {error}")
            return
        events, reached = done.result()
        if not self.tracker.is_owed(piece):
            self.send_next()
            return  # the topology has changed meanwhile
        now = self._broker.clock.now()
        for offset, event in events:
            self._broker.node.drive(self.tracker.republish(piece, offset, event, now))
        self.tracker.reached(piece, reached)
        self._update_lagging_brokers()
        self.send_next()
        self._broker.flush()

    # Journal

    def _journal_if_due(self) -> None:
        """Journal the redelivery state from time to time. An older state only makes the broker resend more."""
        if self._broker.now() >= self._next_journal_time and self.tracker.state() != self._journaled_state:
            self.write_redelivery_state()

    def write_redelivery_state(self) -> None:
        """Append the redelivery state to the journal."""
        node = self._broker.node
        if node.journal_store is not None:
            self._next_journal_time, self._journaled_state = (
                self._broker.now() + _MIN_JOURNAL_SECONDS,
                self.tracker.state(),
            )
            node.write(redelivery_row(self._journaled_state))

    def before_sync(self) -> None:
        """Append the redelivery state, if it has changed, to the rows that are about to be synced.

        After a power cut, settled publications would otherwise be resent, and matched with the subscriptions and
        contexts of that later time.
        """
        node = self._broker.node
        if not node.engine.neighbours:
            return
        state = self.tracker.state()
        if state != self._journaled_state:
            only_floor = state == msgspec.structs.replace(self._journaled_state, floor=state.floor)
            self._journaled_state = state
            node.write(redelivery_floor_row(state.floor) if only_floor else redelivery_row(state))
