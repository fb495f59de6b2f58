"""The journal of a hub or a broker: appends rows, and restores the state from the newest snapshot and later rows.

Theory of operation. The newest snapshot holds the state of the engine and of the registry at an offset; the rows after
it are operations, events and acknowledgements. `restore` loads the snapshot and repeats the control operations in the
engine, with the load and the trust answers noted in their rows. Events are not matched again: the row of an event notes
what it delivered to durable subscriptions, so policies and trust answers of today do not change it. `rebuild_engine`
does the same for the engine alone, after an operation that could not be journaled. `upkeep` writes the snapshots.
"""

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING
from uuid import UUID

from tidings.engine import Engine, journal_codec
from tidings.engine.effects import AskTrust, Reject
from tidings.engine.operations import Operation, SetLoad, Trust
from tidings.filters import ContextFilter
from tidings.journal import EVENTS, LOST, PUBLISH, Journal, JournalOptions, Record, Span
from tidings.journal import Operation as Row
from tidings.model.errors import InvalidValueError, JournalError, JournalFullError
from tidings.runtime import delivery_record
from tidings.runtime.due_from_journal import JournalHistory
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.journal_upkeep import (
    JournaledState,
    JournalExtension,
    JournalUpkeep,
    decode_snapshot,
    restore_registry,
)
from tidings.runtime.outcome import LOAD, MATCHED_AT, TRUST
from tidings.runtime.trust import Provider, ask_provider

if TYPE_CHECKING:
    from tidings.journal.disk import Disk


class JournalStore:
    """The journal of one state. `append` and `restore` need the processor's lock; other methods are thread-safe."""

    def __init__(
        self,
        folder: str | PathLike[str],
        name: str | None,
        salt: bytes,
        trust: Provider | None,
        options: JournalOptions | None = None,
        disk: "Disk | None" = None,
    ) -> None:
        options = options or JournalOptions(convert=False)
        self.journal = Journal.open(folder, name=name or "hub", salt=salt, options=options, disk=disk)
        if name is not None and name != self.journal.name:
            self.journal.close()
            raise InvalidValueError(f"the journal in {folder} is that of {self.journal.name}, not of {name}")
        self.history = JournalHistory(self.journal)
        self.notes: list[str] = []
        self.upkeep = JournalUpkeep(self.journal, self.notes)
        self._trust = trust
        self._state: JournaledState
        self._extension: JournalExtension | None = None
        self._is_full = False  # the last publication did not fit on the disk

    # Writing

    def append(self, rows: list[Row], now: int) -> Span:
        """Append rows at time `now`; return their span of offsets. The rows are not synced."""
        try:
            span = self.journal.append(rows, now, essential=rows[0].kind not in EVENTS)
        except JournalError as error:
            self._report(error)
            raise
        self.upkeep.rows_since_snapshot += len(rows)
        for row in rows:
            if row.kind not in EVENTS:
                self.upkeep.control_rows += 1
        if self._is_full and any(row.kind == PUBLISH for row in rows):  # other rows are taken from a reserve
            self._is_full = False
            if self._extension is not None:
                self._extension.disk_changed(None)
        return span

    def _report(self, error: JournalError) -> None:
        """Report once that the disk has become full, or that the journal has failed."""
        if self._extension is None:
            return
        if not isinstance(error, JournalFullError):
            self._extension.journal_failed(error)
        elif not self._is_full:
            self._is_full = True
            self._extension.disk_changed(error)

    def sync(self, end: int) -> None:
        """Make the journal durable up to the offset `end`."""
        if self.journal.synced < end:
            self.journal.sync(end)

    @property
    def synced(self) -> int:
        """The offset up to which the journal is durable."""
        return self.journal.synced

    # Restoring

    def restore(self, state: JournaledState, extension: JournalExtension | None) -> None:
        """Restore a new state from the newest snapshot and the rows after it, and journal that state from now on."""
        self._state, self._extension = state, extension
        self.upkeep.begin(state, extension)
        records_after = self._load_snapshot(state, extension)
        state.engine.is_replaying = True
        for record in records_after:
            row, registry = record.operation, state.registry
            self.upkeep.rows_since_snapshot += 1
            if row.kind in EVENTS:
                self._restore_event(row, record.offset, state)
            elif row.kind == LOST:
                self.upkeep.lost += 1
            elif extension is not None and row.kind in extension.row_kinds:
                extension.restore_row(row)
            elif row.kind == "persist":
                registry.stored.append((row.id or "", row.content()["message"]))
            elif row.kind == "acknowledge":
                subscription = registry.find_durable(row.client or "", row.id or "")
                if subscription is not None and isinstance(subscription.inbox, DurableInbox):
                    body = row.content()
                    subscription.inbox.restore_acknowledgement(body["offset"], body["beyond"], body["count"])
            else:
                self.upkeep.control_rows += 1
                operation = self._restore_control(state.engine, record)
                if operation is not None:
                    registry.apply(operation, journal_codec.driver_notes(row))
        state.engine.is_replaying = False
        state.resume_at(self.journal.timestamp, self.journal.next)
        if self.upkeep.lost:
            self.notes.append(f"{self.upkeep.lost} rows of the journal are lost; what they said is not known")

    def rebuild_engine(self) -> Engine:
        """Return a new engine with the state that the journal describes, to replace an engine ahead of the journal."""
        self.journal.sync()
        engine, rows = self._snapshot_engine(self._state)
        engine.is_replaying = True
        own_kinds = () if self._extension is None else self._extension.row_kinds
        for record in rows:
            if record.operation.kind in EVENTS:
                _restore_publication(engine, record.operation)
            elif record.operation.kind not in (LOST, "persist", "acknowledge", *own_kinds):
                self._restore_control(engine, record)
        engine.is_replaying = False
        return engine

    def _snapshot_engine(self, state: JournaledState) -> tuple[Engine, Iterator[Record]]:
        snapshot, rows = self.journal.replay()
        if snapshot is None:
            return Engine(state.settings, gate=state.gate), rows
        return Engine.restore(state.settings, decode_snapshot(snapshot.data).engine, gate=state.gate), rows

    def _load_snapshot(self, state: JournaledState, extension: JournalExtension | None) -> Iterator[Record]:
        """Load the newest snapshot into the state; return the records after it."""
        snapshot, rows = self.journal.replay()
        if snapshot is not None:
            hub_snapshot = decode_snapshot(snapshot.data)
            state.engine = Engine.restore(state.settings, hub_snapshot.engine, gate=state.gate)
            state.engine.handle(SetLoad(hub_snapshot.load), self.journal.timestamp)
            self.upkeep.lost = hub_snapshot.lost
            restore_registry(state.registry, hub_snapshot)
            if extension is not None:
                extension.restore_snapshot(hub_snapshot.more, state.registry.subscriptions)
        return rows

    def _restore_event(self, row: Row, offset: int, state: JournaledState) -> None:
        """Restore the state that an event's row holds: the event's id and receipt, and its place in durable inboxes."""
        registry = state.registry
        if row.kind == PUBLISH and row.id is not None and row.publisher is not None:
            registry.events.record(row.publisher, row.sequence or 0, UUID(row.id))
            if row.signature is not None:
                registry.receipts.record(row.event(ContextFilter.parse), offset)
        elif row.id is not None:
            registry.events.remember_id(UUID(row.id).int)
        row_notes, due = journal_codec.driver_notes(row), []
        for id in delivery_record.subscriptions(row_notes.get(delivery_record.DUE, ())):  # noqa: A001
            subscription = registry.subscriptions.get(id)
            if subscription is not None and isinstance(subscription.inbox, DurableInbox):
                subscription.inbox.restore_due(offset)
                due.append(subscription)
        if self._extension is not None and (due or delivery_record.PENDING in row_notes):
            self._extension.restore_event(row, offset, due)
        _restore_publication(state.engine, row)

    def _restore_control(self, engine: Engine, record: Record) -> Operation | None:
        """Have the engine repeat a control operation with its load and trust answers; None if the engine refuses it."""
        operation, row_notes = journal_codec.operation(record.operation), journal_codec.driver_notes(record.operation)
        now = record.timestamp
        if engine.state.rules.load != row_notes.get(LOAD, 0.0):
            engine.handle(SetLoad(row_notes.get(LOAD, 0.0)), now)
        answers = {(party, group): (member, until) for party, group, member, until in row_notes.get(TRUST, ())}
        effects = engine.handle(operation, now)
        for effect in effects:  # grows when a trust answer causes more effects
            if isinstance(effect, AskTrust):
                question = effect.party, effect.group
                member, until = answers[question] if question in answers else ask_provider(self._trust, *question, now)
                effects.extend(engine.handle(Trust(*question, member, until), now))
            elif isinstance(effect, Reject):
                self.notes.append(
                    f"the operation '{record.operation.kind}' at offset {record.offset} was accepted, and is refused "
                    f"now: {effect.reason}"
                )
                return None
        return operation

    def close(self) -> None:
        """Write a final snapshot, so that the next opening is quick, and close the journal."""
        try:
            self.upkeep.close()
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the journal without a snapshot."""
        self.history.close()
        self.journal.close()


def _restore_publication(engine: Engine, row: Row) -> None:
    """Restore the engine's memory of a publication: its own sequence, deduplication, replay protection, trust answers.

    That another broker's event was delivered to clients here is restored, too: if the event arrives again, contexts and
    subscriptions may have changed, and it must not be matched again for them.
    """
    if row.publisher == engine.state.name:
        engine.state.rules.meta_events.sequence = max(engine.state.rules.meta_events.sequence, row.sequence or 0)
    row_notes = journal_codec.driver_notes(row)
    if MATCHED_AT in row_notes and row.id is not None:
        engine.state.seen_events.note(UUID(row.id), row_notes[MATCHED_AT], flood=False)
    if row.kind == PUBLISH and row.signature is not None and engine.topic_gossip is not None:
        engine.topic_gossip.recall_event(row.event(ContextFilter.parse), row.published or 0)
    for answer in row_notes.get(TRUST, ()):
        engine.handle(Trust(*answer), row.published or 0)
