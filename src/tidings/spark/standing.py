"""Where a shard stands: its engine after all that has happened so far, and how that is kept in files.

A version is a folder that one task wrote, with the changes since the version before it. What is too long a way from
its base gets a new one. Nothing is ever written twice: a task that is repeated writes a version of its own.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.shelf import put_up, taken_down
from tidings.journal.disk import Disk
from tidings.spark.events import KEY, ORDER, SCHEDULED, TOLD
from tidings.spark.trust import Trust

MOST_VERSIONS = 32  # then there is a new base
MOST_CHANGES = 20_000  # or after so many changes, if they are more than a quarter of the subscriptions
_KEPT_SUBSCRIPTIONS = 2_000_000  # of the standings that a process keeps in memory
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
        (TOLD, pa.bool_()),
        ("token", pa.binary()),  # of a subscription
        ("payload", pa.binary()),  # what is told of secure topics
    ]
)


class Place(msgspec.Struct, frozen=True):
    """The way to a standing: an engine on a shelf, and the versions since."""

    base: str
    versions: tuple[str, ...] = ()
    changes: int = 0  # in them all

    def under(self, folder: Path) -> "Place":
        """The whole paths of a way that was kept `within` a folder, which may have been moved since."""
        return msgspec.structs.replace(
            self, base=str(folder / self.base), versions=tuple(str(folder / one) for one in self.versions)
        )

    def within(self, folder: Path) -> "Place":
        return msgspec.structs.replace(
            self,
            base=str(Path(self.base).relative_to(folder)),
            versions=tuple(str(Path(one).relative_to(folder)) for one in self.versions),
        )


class _Memory(msgspec.Struct, frozen=True):
    """What events leave behind in an engine."""

    conflicts: list[tuple[str, str, str]]
    sequence: int


class Standing:
    def __init__(self, settings: Settings, base: str, trust: Trust | None = None) -> None:
        self.engine = taken_down(settings, Path(base), gate=None if trust is None else trust.gate())
        self.pending = ROW.empty_table()  # changes that are not due yet, in their order
        self.at = base
        self._kept_pending, self._kept_memory = self.pending, self._memory()
        self._carried = ROW.empty_table()
        self._policies: dict[tuple[str, str], dict[str, Any]] = {}  # set on filters that a base has without them

    @classmethod
    def reached(
        cls, settings: Settings, place: Place, held: "Standing | None" = None, trust: Trust | None = None
    ) -> "Standing":
        """From what is held, if that lies on the way, and else from the base."""
        way = [place.base, *place.versions]
        standing = held if held is not None and held.at in way else cls(settings, place.base, trust)
        for version in way[way.index(standing.at) + 1 :]:
            standing._go_on(Path(version))
        return standing

    def with_due(self, table: pa.Table) -> pa.Table:
        """Rows in their order, and what is due up to the last of them."""
        time, order = table["timestamp"][-1].as_py(), table[ORDER][-1].as_py()
        at_once = pc.and_(pc.equal(self.pending["timestamp"], time), pc.less_equal(self.pending[ORDER], order))
        is_due = pc.or_(pc.less(self.pending["timestamp"], time), at_once)
        if not pc.any(is_due).as_py():
            return table
        due, self.pending = self.pending.filter(is_due), self.pending.filter(pc.invert(is_due))
        return merged(due, table)

    def has_moved(self) -> bool:
        """Whether there is anything to be kept since `at`, beside changes."""
        return self._memory() != self._kept_memory or not self.pending.equals(self._kept_pending)

    def note(self, changes: pa.Table) -> None:
        """Changes that the engine has made."""
        few = changes.filter(pc.is_in(changes["kind"], pa.array(_ABOUT_POLICIES)))
        for row in few.to_pylist():
            if row["kind"] == "set_policy":
                self._policies[row["client"], row["id"]] = row
            else:  # the owner's went with what it was set on; the operator's stays
                self._policies.pop((row["client"], row["id"]), None)

    def rebased(self, folder: Path, place: Place, changes: int) -> str | None:
        """A new base, if it is a long way from that of `place`."""
        is_long = place.changes + changes > max(MOST_CHANGES, len(self.engine.subscriptions) // 4)
        if not is_long and len(place.versions) < MOST_VERSIONS:
            return None
        base = folder / _BASE
        base.mkdir(parents=True)
        put_up(self.engine, base)
        self._carried = _carried(self._policies, self.engine)
        return str(base)

    def write(self, folder: Path, place: Place, changes: pa.Table, base: str | None) -> Place:
        """A version after `place`, or after the new base."""
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / _CHANGES, changes if base is None else self._carried)
        _write(folder / _PENDING, self.pending)
        Disk().create(folder / _MEMORY, msgspec.msgpack.encode(self._memory()))
        self._is_at(folder)
        if base is not None:
            return Place(base, (self.at,))
        return Place(place.base, (*place.versions, self.at), place.changes + changes.num_rows)

    def _go_on(self, version: Path) -> None:
        changes = _read(version / _CHANGES)
        if changes.num_rows:
            self.engine.batch(changes.drop_columns([KEY, ORDER, SCHEDULED, TOLD]))
            self.note(changes)
        self.pending = _read(version / _PENDING)
        memory = msgspec.msgpack.decode((version / _MEMORY).read_bytes(), type=_Memory)
        self.engine.remember(memory.conflicts)
        self.engine.sequence = memory.sequence
        self._is_at(version)

    def _is_at(self, version: Path) -> None:
        self.at = str(version)
        self._kept_pending, self._kept_memory = self.pending, self._memory()

    def _memory(self) -> _Memory:
        return _Memory(list(self.engine.news), self.engine.sequence)


def _carried(policies: dict[tuple[str, str], dict[str, Any]], engine: Engine) -> pa.Table:
    """An index keeps the policies that subscriptions came with; others are set again."""
    known = engine.subscriptions, engine.advertisements
    rows = [row for (_, id), row in policies.items() if any(one.get(id) is not None for one in known)]  # noqa: A001
    return pa.Table.from_pylist(rows, ROW)


_ABOUT_POLICIES = ["set_policy", "subscribe", "advertise", "unsubscribe", "unadvertise"]


class Standings:
    """Those that a process keeps from one task to the next, by their shard."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int], Standing] = OrderedDict()

    def take(self, folder: str, shard: int) -> Standing | None:
        """Out of here: a task that fails leaves nothing half done."""
        return self._held.pop((folder, shard), None)

    def put(self, folder: str, shard: int, standing: Standing) -> None:
        self._held[folder, shard] = standing
        while len(self._held) > 1 and sum(len(one.engine.subscriptions) for one in self._held.values()) > (
            _KEPT_SUBSCRIPTIONS
        ):
            self._held.popitem(last=False)


def merged(one: pa.Table, other: pa.Table) -> pa.Table:
    """Rows of both in the order of time; at the same place those of the first come first."""
    both = pa.concat_tables([one, other], promote_options="default")
    return both.take(pc.sort_indices(both, [("timestamp", "ascending"), (ORDER, "ascending")]))


def as_changes(table: pa.Table, *, told: bool = False) -> pa.Table:
    """The rows of a table, which are changes, as they are kept."""
    if told or TOLD not in table.column_names:
        others = [name for name in table.column_names if name != TOLD]
        table = table.select(others).append_column(TOLD, pa.repeat(told, table.num_rows))
    missing = [one for one in ROW if one.name not in table.column_names]
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
