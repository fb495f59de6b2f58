"""Snapshots of a hub's or a broker's state, the upkeep of its journal, and what only brokers add to both.

A snapshot holds the state of the engine and of the registry at an offset. The upkeep thread writes one once enough rows
have come, so that publishers do not wait for it; another one is written when the journal is closed.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tidings.engine import journal_codec
from tidings.engine.operations import Subscribe
from tidings.journal import Journal, Retention
from tidings.journal import Operation as Row
from tidings.model.errors import JournalError, TidingsError
from tidings.model.schema import schema_of, versions_of
from tidings.model.values import Context
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.receipts import FirstReceipt
from tidings.runtime.subscription_registry import LIMIT, RegisteredSubscription, SubscriptionRegistry

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tidings.engine import Engine
    from tidings.engine.settings import Settings
    from tidings.security.gate import Gate

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


class JournaledState(Protocol):
    """The state that a journal holds: a `Processor`, whose engine and registry are restored and saved."""

    settings: "Settings"
    gate: "Gate | None"
    engine: "Engine"
    load: float
    failure: TidingsError | None

    @property
    def registry(self) -> SubscriptionRegistry[Any]: ...

    @property
    def lock(self) -> "AbstractContextManager[None]": ...

    def resume_at(self, timestamp: int, offset: int) -> None:
        """Continue after the journal's last timestamp, with `offset` as the next offset."""


class JournalExtension(Protocol):
    """What a broker adds to the journal: rows of its own kinds, and a part of the snapshots."""

    row_kinds: frozenset[str]  # the kinds of rows that `restore_row` reads

    def restore_row(self, row: Row) -> None:
        """Restore from a row of one of `row_kinds`."""

    def restore_event(self, row: Row, offset: int, subscriptions: Iterable[RegisteredSubscription]) -> None:
        """Restore from the row of an event, which was delivered to these durable subscriptions."""

    def snapshot(self, subscriptions: Mapping[str, RegisteredSubscription]) -> bytes:
        """Return the extension's state for a snapshot. The processor's lock is held."""
        ...

    def restore_snapshot(self, saved: bytes, subscriptions: Mapping[str, RegisteredSubscription]) -> None:
        """Restore what `snapshot` has returned."""

    def needed(self, subscriptions: Mapping[str, RegisteredSubscription]) -> int | None:
        """Return the lowest offset that neighbours or pending decisions still need; None if none.

        The processor's lock is held.
        """
        ...

    def disk_changed(self, error: JournalError | None) -> None:
        """Called with the error when the disk has become full, and with None when it has room again."""

    def journal_failed(self, error: JournalError) -> None:
        """Called when rows could not be appended for another reason than a full disk."""


class JournalUpkeep:
    """Writes snapshots of a state, and removes old segments of its journal. Thread-safe.

    The journal store counts `rows_since_snapshot` and `control_rows`, under the processor's lock.
    """

    def __init__(self, journal: Journal, notes: list[str]) -> None:
        self._journal = journal
        self._notes = notes
        self._state: JournaledState
        self._extension: JournalExtension | None = None
        self.rows_since_snapshot = self.control_rows = 0  # `control_rows` counts control rows only
        self.rows_due = ROWS
        self.control_due = CONTROL_ROWS
        self._control_rows_min = 0  # minimum of control rows between snapshots, in proportion to the cost of one
        self.lost = 0  # rows that the journal's repair could not recover
        self._thread: threading.Thread | None = None
        self._closing = False

    def begin(self, state: JournaledState, extension: JournalExtension | None) -> None:
        """Take snapshots of this state from now on."""
        self._state, self._extension = state, extension

    @property
    def is_due(self) -> bool:
        """Whether enough rows have come since the last snapshot."""
        return self.rows_since_snapshot >= self.rows_due or self.control_rows >= max(
            self.control_due, self._control_rows_min
        )

    def start(self) -> None:
        """Start the upkeep thread, which writes a snapshot and rolls full segments, unless one is running."""
        with self._state.lock:
            if self._closing or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="tidings-upkeep", daemon=True)
            self._thread.start()

    def wait(self) -> bool:
        """Wait for the upkeep thread that was started last; return whether one was ever started."""
        if self._thread is None:
            return False
        self._thread.join()
        return True

    def _run(self) -> None:
        try:
            self.snapshot()
            if self._journal.unrolled:
                self._journal.roll(begin=False)
        except TidingsError as error:
            self._reset()  # retry after as many rows again
            self._notes.append(f"upkeep failed: {error}")

    def _reset(self) -> None:
        self.control_rows = self.rows_since_snapshot = 0

    def snapshot(self) -> None:
        """Write a snapshot of the present state."""
        state = self._state
        with state.lock:
            offset, data = self._journal.next, _encode_snapshot(state, self._extension, self.lost)
            self._reset()
            self._control_rows_min = len(state.registry.subscriptions)
        if self._journal.synced < offset:
            self._journal.sync(offset)
        self._journal.write_snapshot(offset, data)

    def retain(self, before: int | None, max_bytes: int | None) -> int:
        """Remove old segments, but none that a durable subscription or a broker's neighbour still needs.

        Returns the number of segments removed.
        """
        with self._state.lock:
            subscriptions = self._state.registry.subscriptions
            inboxes = [subscription.inbox for subscription in subscriptions.values()]
            needed = None if self._extension is None else self._extension.needed(subscriptions)
        floors = [inbox.state()[0] for inbox in inboxes if isinstance(inbox, DurableInbox) and inbox.state()[3]]
        if needed is not None:
            floors.append(needed)
        return self._journal.retain(before, max_bytes, keep_from=min(floors) if floors else None)

    def close(self) -> None:
        """Write a final snapshot, so that the next opening is quick.

        If the snapshot cannot be written, the next opening reads the rows instead.
        """
        with self._state.lock:
            self._closing = True
        self.wait()
        if self.rows_since_snapshot and self._state.failure is None:
            with contextlib.suppress(JournalError):
                self.snapshot()


_SNAPSHOT_DECODER = msgspec.msgpack.Decoder(HubSnapshot)


def decode_snapshot(data: bytes) -> HubSnapshot:
    """Decode a snapshot; raise a `msgspec.MsgspecError` if it is not that of a hub or a broker."""
    return _SNAPSHOT_DECODER.decode(data)


def _encode_snapshot(state: JournaledState, extension: JournalExtension | None, lost: int) -> bytes:
    registry = state.registry
    subscriptions = [
        SavedSubscription(
            journal_codec.row(Subscribe(subscription.subscription)),
            subscription.inbox.limit,
            subscription.inbox.state() if isinstance(subscription.inbox, DurableInbox) else None,
        )
        for subscription in registry.subscriptions.values()
    ]
    snapshot = HubSnapshot(
        state.engine.save(),
        subscriptions,
        {client: dict(context) for client, context in registry.contexts.items()},
        {subject: versions_of(schema) for subject, schema in registry.schemas.items()},
        registry.events.sequences,
        [f"{event:x}" for event in registry.events],
        list(registry.stored),
        state.load,
        lost,
        more=b"" if extension is None else extension.snapshot(registry.subscriptions),
        receipts=registry.receipts.state(),
        needed=None if extension is None else extension.needed(registry.subscriptions),
    )
    return msgspec.msgpack.encode(snapshot)


def restore_registry(registry: SubscriptionRegistry[Any], snapshot: HubSnapshot) -> None:
    """Restore subscriptions, contexts, schemas and events of a snapshot."""
    for record in snapshot.subscriptions:
        registry.apply(journal_codec.operation(record.row), {LIMIT: record.limit})
        subscription = registry.subscriptions[record.row.id or ""]
        if record.backlog is not None and isinstance(subscription.inbox, DurableInbox):
            subscription.inbox.restore(*record.backlog)
    registry.contexts.update({client: Context(context) for client, context in snapshot.contexts.items()})
    registry.schemas.update({subject: schema_of(subject, versions) for subject, versions in snapshot.schemas.items()})
    registry.events.restore(snapshot.sequences, (int(event, 16) for event in snapshot.remembered))
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
        snapshot = decode_snapshot(data)
    except msgspec.MsgspecError:
        raise JournalError(
            f"{journal.folder}: its snapshots are not those of a hub or a broker; whoever wrote them knows what is "
            "still needed",
            journal.folder,
        ) from None
    backlogs = [subscription.backlog for subscription in snapshot.subscriptions if subscription.backlog is not None]
    floors = [floor for floor, _, _, pending in backlogs if pending]
    return min(floors if snapshot.needed is None else [*floors, snapshot.needed], default=None)
