"""The state of a shard between micro-batches: its engine, pending changes, and how both are stored in files.

Rules:

1. A shard's state is a base (a saved engine) and a sequence of versions. A version is a folder with the changes that
   one task applied since the version before, the changes that are still pending, and what the engine remembers of
   events.
2. Files are never overwritten: a task that is repeated writes a version of its own, and the ledger names the version
   that counts.
3. If the versions since the base are many or large, a task writes a new base.
4. A process caches the states of its last tasks. A cached state is used only if its version is one of those that lead
   to the requested one; then only the later versions are applied.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.mapped_table import load, save
from tidings.journal.disk import Disk
from tidings.spark.events import KEY, ORDER, REPORTED, SCHEDULED
from tidings.spark.shards.trusted_keys import TrustedKeys

MAX_VERSIONS = 32  # versions after a base, before a new base is written
MAX_CHANGES = 20_000  # changes after a base, or a quarter of the subscriptions if that is more
_MAX_CACHED_SUBSCRIPTIONS = 2_000_000  # in all states that a process caches
_CHANGES, _PENDING, _MEMORY, _BASE = "changes.arrow", "pending.arrow", "memory", "base"
ROW = pa.schema(
    [
        (KEY, pa.string()),
        ("timestamp", pa.int64()),
        ("kind", pa.string()),
        ("client", pa.string()),
        ("id", pa.string()),
        ("body", pa.string()),
        (ORDER, pa.int32()),
        (SCHEDULED, pa.bool_()),
        (REPORTED, pa.bool_()),
        ("token", pa.binary()),  # of a subscription
        ("payload", pa.binary()),  # of a row about secure topics
    ]
)


class ShardCheckpoint(msgspec.Struct, frozen=True):
    """The files of a shard's state: the base, and the versions since in order."""

    base: str
    versions: tuple[str, ...] = ()
    changes: int = 0  # in all versions

    def under(self, folder: Path) -> "ShardCheckpoint":
        """Return the checkpoint with absolute paths, from paths relative to `folder`, which may have been moved."""
        return msgspec.structs.replace(
            self, base=str(folder / self.base), versions=tuple(str(folder / version) for version in self.versions)
        )

    def within(self, folder: Path) -> "ShardCheckpoint":
        """Return the checkpoint with paths relative to `folder`."""
        return msgspec.structs.replace(
            self,
            base=str(Path(self.base).relative_to(folder)),
            versions=tuple(str(Path(version).relative_to(folder)) for version in self.versions),
        )


class _Memory(msgspec.Struct, frozen=True):
    """What the engine remembers of events: reported policy conflicts, and the sequence number of its meta-events."""

    conflicts: list[tuple[str, str, str]]
    sequence: int


class ShardState:
    """The engine of a shard after the version `at`, and the changes that take effect later (`pending`).

    It is created at a base; `at_checkpoint` applies the versions of a checkpoint.
    """

    def __init__(self, settings: Settings, base: str, trust: TrustedKeys | None = None) -> None:
        self.engine = load(settings, Path(base), gate=None if trust is None else trust.gate())
        self.pending = ROW.empty_table()  # changes whose time has not come, in order
        self.at = base
        self._stored_pending, self._stored_memory = self.pending, self._memory()
        self._carried_policies = ROW.empty_table()
        self._policies: dict[tuple[str, str], dict[str, Any]] = {}  # set_policy rows, which a base does not contain

    @classmethod
    def at_checkpoint(
        cls,
        settings: Settings,
        checkpoint: ShardCheckpoint,
        cached: "ShardState | None" = None,
        trust: TrustedKeys | None = None,
    ) -> "ShardState":
        """Return the state at a checkpoint.

        Args:
            settings: The engine's settings.
            checkpoint: The checkpoint.
            cached: A cached state; it is used if its version is one of the checkpoint's, and else the base is loaded.
            trust: The keys with which sealed events are checked, or None.
        """
        versions = [checkpoint.base, *checkpoint.versions]
        state = cached if cached is not None and cached.at in versions else cls(settings, checkpoint.base, trust)
        for version in versions[versions.index(state.at) + 1 :]:
            state._apply_version(Path(version))
        return state

    def with_due(self, table: pa.Table) -> pa.Table:
        """Return rows merged with the pending changes up to the time of the last row; these are no longer pending."""
        time, order = table["timestamp"][-1].as_py(), table[ORDER][-1].as_py()
        at_once = pc.and_(pc.equal(self.pending["timestamp"], time), pc.less_equal(self.pending[ORDER], order))
        is_due = pc.or_(pc.less(self.pending["timestamp"], time), at_once)
        if not pc.any(is_due).as_py():
            return table
        due, self.pending = self.pending.filter(is_due), self.pending.filter(pc.invert(is_due))
        return merge_rows(due, table)

    def has_changed(self) -> bool:
        """Return whether pending changes or the engine's memory differ from those stored in the version `at`."""
        return self._memory() != self._stored_memory or not self.pending.equals(self._stored_pending)

    def record_policies(self, changes: pa.Table) -> None:
        """Record policies among changes that the engine has applied; a new base has to set them again."""
        policy_changes = changes.filter(pc.is_in(changes["kind"], pa.array(_POLICY_KINDS)))
        for row in policy_changes.to_pylist():
            if row["kind"] == "set_policy":
                self._policies[row["client"], row["id"]] = row
            else:  # a replaced or removed filter loses its owner's policy, not the operator's
                self._policies.pop((row["client"], row["id"]), None)

    def write_base(self, folder: Path, checkpoint: ShardCheckpoint, changes: int) -> str | None:
        """Save the engine as a new base and return its path, if the versions since the old base are many or large.

        Returns None if the old base is still good. `changes` is the number of changes since `checkpoint`.
        """
        is_long = checkpoint.changes + changes > max(MAX_CHANGES, len(self.engine.state.filters.subscriptions) // 4)
        if not is_long and len(checkpoint.versions) < MAX_VERSIONS:
            return None
        base = folder / _BASE
        base.mkdir(parents=True)
        save(self.engine, base)
        self._carried_policies = policies_to_carry(self._policies, self.engine)
        return str(base)

    def write(self, folder: Path, checkpoint: ShardCheckpoint, changes: pa.Table, base: str | None) -> ShardCheckpoint:
        """Write a version after `checkpoint`, or after the new base, and return the checkpoint with it.

        Args:
            folder: The folder of the version; this task attempt's own.
            checkpoint: The checkpoint that the changes follow.
            changes: The changes that the engine has applied since `checkpoint`.
            base: The new base that `write_base` returned, or None.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / _CHANGES, changes if base is None else self._carried_policies)
        _write(folder / _PENDING, self.pending)
        Disk().create(folder / _MEMORY, msgspec.msgpack.encode(self._memory()))
        self._mark_stored(folder)
        if base is not None:
            return ShardCheckpoint(base, (self.at,))
        return ShardCheckpoint(checkpoint.base, (*checkpoint.versions, self.at), checkpoint.changes + changes.num_rows)

    def _apply_version(self, version: Path) -> None:
        changes = _read(version / _CHANGES)
        if changes.num_rows:
            self.engine.batch(changes.drop_columns([KEY, ORDER, SCHEDULED, REPORTED]))
            self.record_policies(changes)
        self.pending = _read(version / _PENDING)
        memory = msgspec.msgpack.decode((version / _MEMORY).read_bytes(), type=_Memory)
        self.engine.state.rules.conflicts.restore(memory.conflicts)
        self.engine.state.rules.meta_events.sequence = memory.sequence
        self._mark_stored(version)

    def _mark_stored(self, version: Path) -> None:
        self.at = str(version)
        self._stored_pending, self._stored_memory = self.pending, self._memory()

    def _memory(self) -> _Memory:
        return _Memory(self.engine.state.rules.conflicts.reported(), self.engine.state.rules.meta_events.sequence)


def policies_to_carry(policies: dict[tuple[str, str], dict[str, Any]], engine: Engine) -> pa.Table:
    """Return the set_policy rows that a new base lacks; its index has the policies sent with subscriptions."""
    tables = engine.state.filters.subscriptions, engine.state.filters.advertisements
    rows = [row for (_, id), row in policies.items() if any(table.get(id) is not None for table in tables)]  # noqa: A001
    return pa.Table.from_pylist(rows, ROW)


_POLICY_KINDS = ["set_policy", "subscribe", "advertise", "unsubscribe", "unadvertise"]


class ShardStateCache:
    """Caches the states of shards in a worker process from one micro-batch to the next."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, int], ShardState] = OrderedDict()

    def take(self, folder: str, shard: int) -> ShardState | None:
        """Remove and return the state of a shard, or None; a task that fails leaves no inconsistent state behind."""
        return self._states.pop((folder, shard), None)

    def put(self, folder: str, shard: int, state: ShardState) -> None:
        """Cache the state of a shard; the least recently used ones are dropped beyond two million subscriptions."""
        self._states[folder, shard] = state
        while len(self._states) > 1 and sum(
            len(cached.engine.state.filters.subscriptions) for cached in self._states.values()
        ) > (_MAX_CACHED_SUBSCRIPTIONS):
            self._states.popitem(last=False)


def merge_rows(left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the rows of both tables in the order of time and `$order`; at ties those of the first come first."""
    rows = pa.concat_tables([left, right], promote_options="default")
    return rows.take(pc.sort_indices(rows, [("timestamp", "ascending"), (ORDER, "ascending")]))


def as_changes(table: pa.Table, *, reported: bool = False) -> pa.Table:
    """Return changes with the columns of `ROW`; `reported` marks changes whose effects have been reported."""
    if reported or REPORTED not in table.column_names:
        others = [name for name in table.column_names if name != REPORTED]
        table = table.select(others).append_column(REPORTED, pa.repeat(reported, table.num_rows))
    missing = [field for field in ROW if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(ROW.names).cast(ROW)


def _write(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    Disk().create(path, sink.getvalue().to_pybytes())


def _read(path: Path) -> pa.Table:
    with pa.ipc.open_file(path.read_bytes()) as reader:
        return reader.read_all()
