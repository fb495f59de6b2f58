"""The archive: a hub's journal, how its state is read from it again, and the snapshots that make this quick."""

import contextlib
import threading
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.engine import Engine, records
from tidings.engine.effects import Ask, Reject
from tidings.engine.operations import Operation, SetLoad, Subscribe, Trust
from tidings.filters import ContextFilter
from tidings.hub import due
from tidings.hub.backlog import Backlog
from tidings.hub.history import History
from tidings.hub.outcome import JUDGED, LOAD, TRUST
from tidings.hub.owing import OWED
from tidings.hub.receipts import First
from tidings.hub.roster import LIMIT
from tidings.hub.trust import Provider, asked
from tidings.journal import EVENTS, LOST, PUBLISH, Journal, JournalOptions, Record, Span
from tidings.journal import Operation as Row
from tidings.model.errors import InvalidValueError, JournalError, TidingsError
from tidings.model.schematext import schema_of, versions_of
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.hub.desk import Desk
    from tidings.hub.roster import Roster
    from tidings.journal.disk import Disk

CONTROL_ROWS = 5_000  # a snapshot is due after so many, or as many as there are subscriptions
ROWS = 100_000  # publications count too: their rows are read when the hub is opened


class SavedSubscription(msgspec.Struct, array_like=True):
    row: Row
    limit: int
    backlog: tuple[int, list[int], int, int] | None


class Saved(msgspec.Struct):
    """A snapshot: the engine's, and what the hub keeps beside it."""

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
    more: bytes = b""  # of a broker with links, what it keeps beside
    receipts: list[First] = []
    needed: int | None = None  # of a broker: from here on the journal may have to be read again


class Archive:
    """`append` and `restore` are for who holds the hub's lock; everything else may be called by any thread."""

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
        self.history = History(self.journal)
        self.notes: list[str] = []
        self.lost = 0  # rows that repair could not save
        self._trust = trust
        self.rows_since_snapshot = self._control = 0  # the latter counts control rows alone
        self.rows_due = ROWS
        self.control_due = CONTROL_ROWS
        self._least = 0  # control rows between two snapshots: writing one costs as much as it holds subscriptions
        self._keeping: threading.Thread | None = None
        self._closing = False

    # Writing

    def append(self, rows: list[Row], now: int) -> Span:
        span = self.journal.append(rows, now, essential=rows[0].kind not in EVENTS)
        self.rows_since_snapshot += len(rows)
        self._control += sum(row.kind not in EVENTS for row in rows)
        return span

    def sync(self, end: int) -> None:
        if self.journal.synced < end:
            self.journal.sync(end)

    @property
    def synced(self) -> int:
        return self.journal.synced

    # Reading it all again

    def restore(self, desk: "Desk") -> None:
        """Brings an empty desk to where the journal is."""
        records_after = self._start(desk)
        desk.engine.is_recalling = True
        for record in records_after:
            row, roster = record.operation, desk.roster
            self.rows_since_snapshot += 1
            if row.kind in EVENTS:
                self._published(row, record.offset, desk)
            elif row.kind == LOST:
                self.lost += 1
            elif row.kind in desk.own_kinds:
                desk.recall(row)
            elif row.kind == "persist":
                roster.stored.append((row.id or "", row.content()["message"]))
            elif row.kind == "acknowledge":
                held = roster.durable(row.client or "", row.id or "")
                if held is not None and isinstance(held.inbox, Backlog):
                    said = row.content()
                    held.inbox.recall_acknowledgement(said["offset"], said["beyond"], said["count"])
            else:
                self._control += 1
                operation = self._controlled(desk.engine, record)
                if operation is not None:
                    roster.book(operation, records.notes(row))
        desk.engine.is_recalling = False
        desk.passed(self.journal.timestamp, self.journal.next)
        if self.lost:
            self.notes.append(f"{self.lost} rows of the journal are lost; what they said is not known")

    def rebuilt(self, desk: "Desk") -> Engine:
        """An engine as the journal says that it is."""
        self.journal.sync()
        engine, rows = self._engine(desk)
        engine.is_recalling = True
        for record in rows:
            if record.operation.kind in EVENTS:
                _seen(engine, record.operation)
            elif record.operation.kind not in (LOST, "persist", "acknowledge", *desk.own_kinds):
                self._controlled(engine, record)
        engine.is_recalling = False
        return engine

    def _engine(self, desk: "Desk") -> tuple[Engine, Iterator[Record]]:
        snapshot, rows = self.journal.replay()
        if snapshot is None:
            return Engine(desk.settings, gate=desk.gate), rows
        return Engine.restore(desk.settings, _SAVED.decode(snapshot.data).engine, gate=desk.gate), rows

    def _start(self, desk: "Desk") -> Iterator[Record]:
        """The newest snapshot, put in place, and the records after it."""
        snapshot, rows = self.journal.replay()
        if snapshot is not None:
            saved = _SAVED.decode(snapshot.data)
            desk.engine = Engine.restore(desk.settings, saved.engine, gate=desk.gate)
            desk.engine.handle(SetLoad(saved.load), self.journal.timestamp)
            self.lost = saved.lost
            _fill(desk.roster, saved)
            desk.recall_more(saved.more)
        return rows

    def _published(self, row: Row, offset: int, desk: "Desk") -> None:
        if row.kind == PUBLISH and row.id is not None and row.publisher is not None:
            desk.roster.published(row.publisher, row.sequence or 0, UUID(row.id))
            if row.signature is not None:
                desk.roster.receipts.note(row.event(ContextFilter.parse), offset)
        elif row.id is not None:
            desk.roster.remember(UUID(row.id).int)
        notes = records.notes(row)
        for id in due.subscriptions(notes.get(due.DUE, ())):  # noqa: A001
            held = desk.roster.subscriptions.get(id)
            if held is not None and isinstance(held.inbox, Backlog):
                held.inbox.recall(offset)
                desk.recall_given(held, row)
        if OWED in notes:
            desk.recall_owed(row, offset)
        _seen(desk.engine, row)

    def _controlled(self, engine: Engine, record: Record) -> Operation | None:
        """Has the engine handle a control operation as it did then; nothing, if it refuses now."""
        operation, notes = records.operation(record.operation), records.notes(record.operation)
        now = record.timestamp
        if engine.load != notes.get(LOAD, 0.0):
            engine.handle(SetLoad(notes.get(LOAD, 0.0)), now)
        answers = {(party, group): (member, until) for party, group, member, until in notes.get(TRUST, ())}
        effects = engine.handle(operation, now)
        for effect in effects:  # grows while there are questions
            if isinstance(effect, Ask):
                question = effect.party, effect.group
                member, until = answers[question] if question in answers else asked(self._trust, *question, now)
                effects.extend(engine.handle(Trust(*question, member, until), now))
            elif isinstance(effect, Reject):
                self.notes.append(
                    f"the operation '{record.operation.kind}' at offset {record.offset} was accepted, and is refused "
                    f"now: {effect.reason}"
                )
                return None
        return operation

    # Upkeep, in a thread of its own: publishers do not wait for it

    @property
    def is_due(self) -> bool:
        return self._control >= max(self.control_due, self._least) or self.rows_since_snapshot >= self.rows_due

    def keep(self, desk: "Desk") -> None:
        """Begins to write a snapshot, and to roll logs that are full, if nobody does."""
        with desk.guard:
            if self._closing or (self._keeping is not None and self._keeping.is_alive()):
                return
            self._keeping = threading.Thread(target=self._keep, args=(desk,), name="tidings-upkeep", daemon=True)
            self._keeping.start()

    def await_upkeep(self) -> bool:
        """Returns when the upkeep that began last has ended; whether any has begun."""
        keeping = self._keeping
        if keeping is None:
            return False
        keeping.join()
        return True

    def _keep(self, desk: "Desk") -> None:
        try:
            self.snapshot(desk)
            if self.journal.unrolled:
                self.journal.roll(begin=False)
        except TidingsError as error:
            self._control = self.rows_since_snapshot = 0  # it is tried again after as many rows
            self.notes.append(f"upkeep failed: {error}")

    def snapshot(self, desk: "Desk") -> None:
        with desk.guard:
            offset, data = self.journal.next, _saved(desk, self.lost)
            self.rows_since_snapshot = self._control = 0
            self._least = len(desk.roster.subscriptions)
        self.sync(offset)
        self.journal.write_snapshot(offset, data)

    def retain(self, desk: "Desk", before: int | None, max_bytes: int | None) -> int:
        """Removes old segments, but none that a durable subscription has yet to read."""
        with desk.guard:
            inboxes, needed = [held.inbox for held in desk.roster.subscriptions.values()], desk.needed()
        floors = [inbox.state()[0] for inbox in inboxes if isinstance(inbox, Backlog) and inbox.state()[3]]
        if needed is not None:
            floors.append(needed)
        return self.journal.retain(before, max_bytes, keep_from=min(floors) if floors else None)

    def close(self, desk: "Desk") -> None:
        """Ends with a snapshot, so that the next opening is quick; if it cannot be written, it is read all the same."""
        with desk.guard:
            self._closing = True
        self.await_upkeep()
        try:
            if self.rows_since_snapshot and desk.failure is None:
                with contextlib.suppress(JournalError):
                    self.snapshot(desk)
        finally:
            self.history.close()
            self.journal.close()


def _seen(engine: Engine, row: Row) -> None:
    """What an engine remembers of a publication: how far its own have been counted, whom it trusts, that a sealed one
    must not be accepted again, and that clients here have got it, if it comes again: contexts and subscriptions may be
    others by then."""
    if row.publisher == engine.name:
        engine.sequence = max(engine.sequence, row.sequence or 0)
    notes = records.notes(row)
    if JUDGED in notes and row.id is not None:
        engine.passages.note(UUID(row.id), notes[JUDGED], flood=False)
    if row.kind == PUBLISH and row.signature is not None and engine.assurance is not None:
        engine.assurance.recall_event(row.event(ContextFilter.parse), row.published or 0)
    for answer in notes.get(TRUST, ()):
        engine.handle(Trust(*answer), row.published or 0)


_SAVED = msgspec.msgpack.Decoder(Saved)


def _saved(desk: "Desk", lost: int) -> bytes:
    roster = desk.roster
    subscriptions = [
        SavedSubscription(
            records.row(Subscribe(held.subscription)),
            held.inbox.limit,
            held.inbox.state() if isinstance(held.inbox, Backlog) else None,
        )
        for held in roster.subscriptions.values()
    ]
    saved = Saved(
        desk.engine.save(),
        subscriptions,
        {client: dict(context) for client, context in roster.contexts.items()},
        {subject: versions_of(schema) for subject, schema in roster.schemas.items()},
        roster.sequences,
        [f"{event:x}" for event in roster.remembered],
        list(roster.stored),
        desk.load,
        lost,
        more=desk.more(),
        receipts=roster.receipts.state(),
        needed=desk.needed(),
    )
    return msgspec.msgpack.encode(saved)


def _fill(roster: "Roster", saved: Saved) -> None:
    for one in saved.subscriptions:
        roster.book(records.operation(one.row), {LIMIT: one.limit})
        held = roster.subscriptions[one.row.id or ""]
        if one.backlog is not None and isinstance(held.inbox, Backlog):
            held.inbox.restore(*one.backlog)
    roster.contexts.update({client: Context(context) for client, context in saved.contexts.items()})
    roster.schemas.update({subject: schema_of(subject, versions) for subject, versions in saved.schemas.items()})
    roster.sequences.update(saved.sequences)
    for event in saved.remembered:
        roster.remember(int(event, 16))
    roster.stored.extend(saved.stored)
    roster.receipts.restore(saved.receipts)
