"""Resend to other brokers the publications of this broker that they may have missed, read from its journal.

The `RedeliveryTracker` decides which publications are owed to which brokers. The resender feeds it the engine's
effects, reads the journal a piece at a time in another thread, publishes each event again for the brokers that may have
missed it, and journals how far it got. A broker that receives an event twice delivers it once.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import msgspec

from tidings import journal
from tidings.broker.journal_extension import redelivery_floor_row, redelivery_row
from tidings.broker.ports import NodePort, Scheduler
from tidings.engine.effects import ClientMoved, Effect, PublicationSettled, TopologyChanging, TopologySettled
from tidings.engine.operations import SetLaggingBrokers
from tidings.engine.overlay.redelivery import RedeliveryState, RedeliveryTracker, ResendRange
from tidings.filters import ContextFilter
from tidings.journal import PUBLISH
from tidings.model.errors import OffsetGoneError, TidingsError
from tidings.model.event import Event
from tidings.runtime.journal_store import JournalStore

_MAX_PIECE = 256  # publications of a piece, at most
_MAX_ROWS_READ = 10_000  # journal rows that are read for a piece, at most
_MIN_JOURNAL_SECONDS = 1.0  # seconds between two rows with the redelivery state, at least

ReadResult = tuple[list[tuple[int, Event]], int]  # publications with their offsets, and the end of what was read


class RedeliveryNode(NodePort, Protocol):
    """What redelivery needs of the node."""

    @property
    def journal_store(self) -> JournalStore | None:
        """The journal; None if the broker has none."""
        ...

    def write(self, row: journal.Operation) -> None:
        """Append a row of one of the broker's own kinds."""
        ...


class Resender:
    """Drives redelivery for one broker. A broker without a journal has nothing to resend, and owes nothing.

    Args:
        name: The broker's name.
        state: The redelivery state that was read from the journal.
        has_links: Whether links are configured; without them the tables are complete from the start.
        node: Has the journal, and publishes events again.
        scheduler: The turns of the event loop.
        on_settled: Called with each event that is settled.
        is_full: Returns whether too much waits for the disk or for neighbours to send more.
    """

    def __init__(
        self,
        name: str,
        state: RedeliveryState | None,
        *,
        has_links: bool,
        node: RedeliveryNode,
        scheduler: Scheduler,
        on_settled: Callable[[UUID], None],
        is_full: Callable[[], bool],
    ) -> None:
        self._name, self._node, self._scheduler = name, node, scheduler
        self._on_settled, self._is_full = on_settled, is_full
        journal_store = node.journal_store
        self.is_possible = journal_store is not None
        self.tracker = RedeliveryTracker(name, state, 0 if journal_store is None else journal_store.journal.next)
        if not has_links:
            self.tracker.topology_settled(frozenset({name}), scheduler.clock.now())
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
            self.tracker.published(offset, event, goes_on=bool(self._node.engine.state.links.neighbours))

    def apply_effect(self, effect: Effect) -> bool:
        """Apply an effect of the engine about settlement, topology or moved clients; return False if it is another one.

        It must be called before the next publication is handled, which must not overtake what is owed from now on.
        """
        tracker, now = self.tracker, self._scheduler.clock.now()
        match effect:
            case PublicationSettled(event, round):
                if tracker.settled(event, round):
                    self._on_settled(event)
            case TopologyChanging(brokers):
                tracker.topology_changing(brokers)
                if tracker.known != self._journaled_state.known:  # journal new brokers before anything is sent to them
                    self._scheduler.defer_to_turn_end(self.write_redelivery_state)
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
        engine, lagging = self._node.engine, self.tracker.lagging
        if lagging != engine.settlement.lagging:
            engine.handle(SetLaggingBrokers(lagging), self._scheduler.clock.now())

    def is_unsettled(self, offset: int) -> bool:
        """Return whether the publication at this offset is not settled yet."""
        return self.is_possible and self.tracker.is_waiting(offset)

    def tick(self) -> None:
        """Called at every heartbeat: notice publications that do not settle, resend, and journal the progress."""
        if self.is_possible:
            self.tracker.tick(self._scheduler.clock.now())
            self.send_next()
            self._journal_if_due()

    def forget(self, broker: str) -> bool:
        """Owe nothing more to a broker that will not come back; return whether the broker was known."""
        was_known = broker in self.tracker.known
        self.tracker.forget(broker)
        self.write_redelivery_state()
        return was_known

    # Resending

    def send_next(self) -> None:
        """Begin to read and send the next piece, if something is owed and the broker is not full."""
        if not self.is_possible:
            return
        self._update_lagging_brokers()
        scheduler = self._scheduler
        if self._is_reading or self._is_full() or scheduler.is_stopping or not self.tracker.has_to_send:
            return
        piece = self.tracker.next_range(scheduler.clock.now())
        if piece is not None:
            self._is_reading = True
            done = asyncio.get_running_loop().run_in_executor(scheduler.readers, self._read, piece)
            done.add_done_callback(lambda read: self._send(piece, read))

    def _read(self, piece: ResendRange) -> ReadResult:
        """Read the publications of a piece from the journal, and up to which offset it was read. Runs in a thread."""
        journal_store = self._node.journal_store
        publications: list[tuple[int, Event]] = []
        if journal_store is None:
            return publications, piece.stop
        journal_store.sync(piece.stop)
        position = piece.start
        try:
            for record in journal_store.journal.read(piece.start, piece.stop):
                position, row = record.offset + 1, record.operation
                if row.kind == PUBLISH and row.publisher != self._name:
                    publications.append((record.offset, row.event(ContextFilter.parse)))
                if len(publications) >= _MAX_PIECE or position - piece.start >= _MAX_ROWS_READ:
                    return publications, position
        except OffsetGoneError as gone:
            brokers = ", ".join(piece.brokers)
            self._node.log_line(f"the journal no longer has what {brokers} missed before offset {gone.first}")
            return publications, min(gone.first, piece.stop)
        return publications, piece.stop

    def _send(self, piece: ResendRange, done: "asyncio.Future[ReadResult]") -> None:
        """Publish the events of a piece again, unless the topology has changed since it was read."""
        self._is_reading = False
        error = done.exception()
        if isinstance(error, TidingsError):
            self._node.log_line(f"publications that {', '.join(piece.brokers)} missed cannot be read: {error}")
            return
        events, reached = done.result()
        if not self.tracker.is_owed(piece):
            self.send_next()
            return  # the topology has changed meanwhile
        now = self._scheduler.clock.now()
        for offset, event in events:
            self._node.drive(self.tracker.republish(piece, offset, event, now))
        self.tracker.reached(piece, reached)
        self._update_lagging_brokers()
        self.send_next()
        self._scheduler.flush()

    # Journal

    def _journal_if_due(self) -> None:
        """Journal the redelivery state from time to time. An older state only makes the broker resend more."""
        if self._scheduler.now() >= self._next_journal_time and self.tracker.state() != self._journaled_state:
            self.write_redelivery_state()

    def write_redelivery_state(self) -> None:
        """Append the redelivery state to the journal."""
        node = self._node
        if node.journal_store is not None:
            self._next_journal_time, self._journaled_state = (
                self._scheduler.now() + _MIN_JOURNAL_SECONDS,
                self.tracker.state(),
            )
            node.write(redelivery_row(self._journaled_state))

    def before_sync(self) -> None:
        """Append the redelivery state, if it has changed, to the rows that are about to be synced.

        After a power cut, settled publications would otherwise be resent, and matched with the subscriptions and
        contexts of that later time.
        """
        node = self._node
        if not node.engine.state.links.neighbours:
            return
        state = self.tracker.state()
        if state != self._journaled_state:
            only_floor = state == msgspec.structs.replace(self._journaled_state, floor=state.floor)
            self._journaled_state = state
            node.write(redelivery_floor_row(state.floor) if only_floor else redelivery_row(state))
