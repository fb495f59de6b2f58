"""A hub's journal: appends rows, restores the hub's state from snapshot and rows, and writes snapshots.

Theory of operation. The newest snapshot holds the state of the engine and of the registry at an offset; the rows after
it are operations, events and acknowledgements. `restore` loads the snapshot and repeats the control operations in the
engine, with the load and the trust answers noted in their rows. Events are not matched again: the row of an event notes
what it delivered to durable subscriptions, so policies and trust answers of today do not change it. `rebuild_engine`
does the same for the engine alone, after an operation that could not be journaled. Snapshots are written by an upkeep
thread once enough rows have come, and when the hub closes.
"""

import contextlib
import threading
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.engine import Engine, journal_codec
from tidings.engine.effects import AskTrust, Reject
from tidings.engine.operations import Operation, SetLoad, Subscribe, Trust
from tidings.filters import ContextFilter
from tidings.hub.outcome import LOAD, MATCHED_AT, TRUST
from tidings.hub.subscription_registry import LIMIT
from tidings.journal import EVENTS, LOST, PUBLISH, Journal, JournalOptions, Record, Retention, Span
from tidings.journal import Operation as Row
from tidings.model.errors import InvalidValueError, JournalError, TidingsError
from tidings.model.schema import schema_of, versions_of
from tidings.model.values import Context
from tidings.runtime import delivery_record
from tidings.runtime.delivery_record import PENDING
from tidings.runtime.due_from_journal import JournalHistory
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.receipts import FirstReceipt
from tidings.runtime.trust import Provider, ask_provider

if TYPE_CHECKING:
    from tidings.hub.processor import Processor
    from tidings.hub.subscription_registry import SubscriptionRegistry
    from tidings.journal.disk import Disk

CONTROL_ROWS = 5_000  # a snapshot is due after so many control rows, but not fewer than there are subscriptions
ROWS = 100_000  # a snapshot is due after so many rows of any kind: opening the hub reads all rows after a snapshot


class SavedSubscription(msgspec.Struct, array_like=True):
    """A subscription in a snapshot: its row, the limit of its inbox, and the state of a durable inbox."""

    row: Row
    limit: int
    backlog: tuple[int, list[int], int, int] | None


class HubSnapshot(msgspec.Struct):
    """The content of a snapshot: the engine's state, and the hub's state beside it."""

    engine: bytes
    subscriptions: list[SavedSubscription]
    contexts: dict[str, dict[str, Any]]
    schemas: dict[str, list[dict[str, str]]]
    sequences: dict[str, int]
    remembered: list[str]
    stored: list[tuple[str, str]]
    load: float
    lost: int
    format: int = 1
    more: bytes = b""  # a broker's additional state
    receipts: list[FirstReceipt] = []
    needed: int | None = None  # a broker's: the lowest offset that neighbours or pending decisions may still need


class JournalStore:
    """A hub's journal and its upkeep. `append` and `restore` need the hub's lock; other methods are thread-safe."""

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
        self.lost = 0  # rows that the journal's repair could not recover
        self._trust = trust
        self.rows_since_snapshot = self._control_rows = 0  # `_control_rows` counts control rows only
        self.rows_due = ROWS
        self.control_due = CONTROL_ROWS
        self._control_rows_min = 0  # minimum of control rows between snapshots, in proportion to the cost of one
        self._upkeep: threading.Thread | None = None
        self._closing = False

    # Writing

    def append(self, rows: list[Row], now: int) -> Span:
        """Append rows at time `now`; return their span of offsets. The rows are not synced."""
        span = self.journal.append(rows, now, essential=rows[0].kind not in EVENTS)
        self.rows_since_snapshot += len(rows)
        self._control_rows += sum(row.kind not in EVENTS for row in rows)
        return span

    def sync(self, end: int) -> None:
        """Make the journal durable up to the offset `end`."""
        if self.journal.synced < end:
            self.journal.sync(end)

    @property
    def synced(self) -> int:
        """The offset up to which the journal is durable."""
        return self.journal.synced

    # Restoring

    def restore(self, processor: "Processor") -> None:
        """Restore the state of a new processor from the newest snapshot and the rows after it."""
        records_after = self._load_snapshot(processor)
        processor.engine.is_replaying = True
        for record in records_after:
            row, registry = record.operation, processor.registry
            self.rows_since_snapshot += 1
            if row.kind in EVENTS:
                self._restore_event(row, record.offset, processor)
            elif row.kind == LOST:
                self.lost += 1
            elif row.kind in processor.own_kinds:
                processor.restore_row(row)
            elif row.kind == "persist":
                registry.stored.append((row.id or "", row.content()["message"]))
            elif row.kind == "acknowledge":
                subscription = registry.find_durable(row.client or "", row.id or "")
                if subscription is not None and isinstance(subscription.inbox, DurableInbox):
                    body = row.content()
                    subscription.inbox.restore_acknowledgement(body["offset"], body["beyond"], body["count"])
            else:
                self._control_rows += 1
                operation = self._restore_control(processor.engine, record)
                if operation is not None:
                    registry.apply(operation, journal_codec.driver_notes(row))
        processor.engine.is_replaying = False
        processor.resume_at(self.journal.timestamp, self.journal.next)
        if self.lost:
            self.notes.append(f"{self.lost} rows of the journal are lost; what they said is not known")

    def rebuild_engine(self, processor: "Processor") -> Engine:
        """Return a new engine with the state that the journal describes, to replace an engine ahead of the journal."""
        self.journal.sync()
        engine, rows = self._snapshot_engine(processor)
        engine.is_replaying = True
        for record in rows:
            if record.operation.kind in EVENTS:
                _restore_publication(engine, record.operation)
            elif record.operation.kind not in (LOST, "persist", "acknowledge", *processor.own_kinds):
                self._restore_control(engine, record)
        engine.is_replaying = False
        return engine

    def _snapshot_engine(self, processor: "Processor") -> tuple[Engine, Iterator[Record]]:
        snapshot, rows = self.journal.replay()
        if snapshot is None:
            return Engine(processor.settings, gate=processor.gate), rows
        return Engine.restore(
            processor.settings, _SNAPSHOT_DECODER.decode(snapshot.data).engine, gate=processor.gate
        ), rows

    def _load_snapshot(self, processor: "Processor") -> Iterator[Record]:
        """Load the newest snapshot into the processor; return the records after it."""
        snapshot, rows = self.journal.replay()
        if snapshot is not None:
            hub_snapshot = _SNAPSHOT_DECODER.decode(snapshot.data)
            processor.engine = Engine.restore(processor.settings, hub_snapshot.engine, gate=processor.gate)
            processor.engine.handle(SetLoad(hub_snapshot.load), self.journal.timestamp)
            self.lost = hub_snapshot.lost
            _restore_registry(processor.registry, hub_snapshot)
            processor.restore_extension(hub_snapshot.more)
        return rows

    def _restore_event(self, row: Row, offset: int, processor: "Processor") -> None:
        """Restore the state that an event's row holds: the event's id and receipt, and its place in durable inboxes."""
        if row.kind == PUBLISH and row.id is not None and row.publisher is not None:
            processor.registry.record_event(row.publisher, row.sequence or 0, UUID(row.id))
            if row.signature is not None:
                processor.registry.receipts.record(row.event(ContextFilter.parse), offset)
        elif row.id is not None:
            processor.registry.remember_id(UUID(row.id).int)
        row_notes = journal_codec.driver_notes(row)
        for id in delivery_record.subscriptions(row_notes.get(delivery_record.DUE, ())):  # noqa: A001
            subscription = processor.registry.subscriptions.get(id)
            if subscription is not None and isinstance(subscription.inbox, DurableInbox):
                subscription.inbox.restore_due(offset)
                processor.restore_delivery(subscription, row)
        if PENDING in row_notes:
            processor.restore_pending_decisions(row, offset)
        _restore_publication(processor.engine, row)

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

    # Upkeep, in a separate thread, so that publishers do not wait for it

    @property
    def is_due(self) -> bool:
        """Whether enough rows have come since the last snapshot."""
        return (
            self._control_rows >= max(self.control_due, self._control_rows_min)
            or self.rows_since_snapshot >= self.rows_due
        )

    def start_upkeep(self, processor: "Processor") -> None:
        """Start the upkeep thread, which writes a snapshot and rolls full segments, unless one is running."""
        with processor.lock:
            if self._closing or (self._upkeep is not None and self._upkeep.is_alive()):
                return
            self._upkeep = threading.Thread(
                target=self._run_upkeep, args=(processor,), name="tidings-upkeep", daemon=True
            )
            self._upkeep.start()

    def await_upkeep(self) -> bool:
        """Wait for the upkeep thread that was started last; return whether one was ever started."""
        upkeep = self._upkeep
        if upkeep is None:
            return False
        upkeep.join()
        return True

    def _run_upkeep(self, processor: "Processor") -> None:
        try:
            self.snapshot(processor)
            if self.journal.unrolled:
                self.journal.roll(begin=False)
        except TidingsError as error:
            self._control_rows = self.rows_since_snapshot = 0  # retry after as many rows again
            self.notes.append(f"upkeep failed: {error}")

    def snapshot(self, processor: "Processor") -> None:
        """Write a snapshot of the processor's present state."""
        with processor.lock:
            offset, data = self.journal.next, _encode_snapshot(processor, self.lost)
            self.rows_since_snapshot = self._control_rows = 0
            self._control_rows_min = len(processor.registry.subscriptions)
        self.sync(offset)
        self.journal.write_snapshot(offset, data)

    def retain(self, processor: "Processor", before: int | None, max_bytes: int | None) -> int:
        """Remove old segments, but none that a durable subscription or a broker's neighbour still needs.

        Returns the number of segments removed.
        """
        with processor.lock:
            inboxes, needed = (
                [subscription.inbox for subscription in processor.registry.subscriptions.values()],
                processor.needed(),
            )
        floors = [inbox.state()[0] for inbox in inboxes if isinstance(inbox, DurableInbox) and inbox.state()[3]]
        if needed is not None:
            floors.append(needed)
        return self.journal.retain(before, max_bytes, keep_from=min(floors) if floors else None)

    def close(self, processor: "Processor") -> None:
        """Write a final snapshot, so that the next opening is quick, and close the journal.

        If the snapshot cannot be written, the next opening reads the rows instead.
        """
        with processor.lock:
            self._closing = True
        self.await_upkeep()
        try:
            if self.rows_since_snapshot and processor.failure is None:
                with contextlib.suppress(JournalError):
                    self.snapshot(processor)
        finally:
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


_SNAPSHOT_DECODER = msgspec.msgpack.Decoder(HubSnapshot)


def _encode_snapshot(processor: "Processor", lost: int) -> bytes:
    registry = processor.registry
    subscriptions = [
        SavedSubscription(
            journal_codec.row(Subscribe(subscription.subscription)),
            subscription.inbox.limit,
            subscription.inbox.state() if isinstance(subscription.inbox, DurableInbox) else None,
        )
        for subscription in registry.subscriptions.values()
    ]
    snapshot = HubSnapshot(
        processor.engine.save(),
        subscriptions,
        {client: dict(context) for client, context in registry.contexts.items()},
        {subject: versions_of(schema) for subject, schema in registry.schemas.items()},
        registry.sequences,
        [f"{event:x}" for event in registry.remembered],
        list(registry.stored),
        processor.load,
        lost,
        more=processor.snapshot_extension(),
        receipts=registry.receipts.state(),
        needed=processor.needed(),
    )
    return msgspec.msgpack.encode(snapshot)


def _restore_registry(registry: "SubscriptionRegistry", snapshot: HubSnapshot) -> None:
    for record in snapshot.subscriptions:
        registry.apply(journal_codec.operation(record.row), {LIMIT: record.limit})
        subscription = registry.subscriptions[record.row.id or ""]
        if record.backlog is not None and isinstance(subscription.inbox, DurableInbox):
            subscription.inbox.restore(*record.backlog)
    registry.contexts.update({client: Context(context) for client, context in snapshot.contexts.items()})
    registry.schemas.update({subject: schema_of(subject, versions) for subject, versions in snapshot.schemas.items()})
    registry.sequences.update(snapshot.sequences)
    for event in snapshot.remembered:
        registry.remember_id(int(event, 16))
    registry.stored.extend(snapshot.stored)
    registry.receipts.restore(snapshot.receipts)


def retain(journal: Journal, retention: Retention, now: int) -> int:
    """Remove the oldest files of a closed hub's journal that exceed its retention; return how many.

    Rows that a durable subscription or a broker still needs, according to the newest snapshot, stay. Since that
    snapshot subscribers can only have acknowledged more, and rows written later are not old enough to be removed.

    Raises:
        JournalError: The newest snapshot is not that of a hub or a broker.
    """
    latest = journal.latest_snapshot()
    keep_from = 0 if latest is None else _waiting_from(latest.data, journal)
    return journal.retain(*retention.limits(now), keep_from=keep_from)


def _waiting_from(data: bytes, journal: Journal) -> int | None:
    try:
        snapshot = _SNAPSHOT_DECODER.decode(data)
    except msgspec.MsgspecError:
        raise JournalError(
            f"{journal.folder}: its snapshots are not those of a hub or a broker; whoever wrote them knows what is "
            "still needed",
            journal.folder,
        ) from None
    backlogs = [subscription.backlog for subscription in snapshot.subscriptions if subscription.backlog is not None]
    floors = [floor for floor, _, _, pending in backlogs if pending]
    return min(floors if snapshot.needed is None else [*floors, snapshot.needed], default=None)
