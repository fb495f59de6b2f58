"""A shard that is run in batches, some of them in vain, is an engine that was run once. No Spark is needed for it."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential.test_batch import History, engine, is_row, journal_table
from tests.histories import histories, own_elements
from tests.sizes import examples
from tidings.engine.mapped_table import save
from tidings.engine.operations import Publish
from tidings.spark.events import KEY, ORDER, SCHEDULED, SHARD
from tidings.spark.shards import shard_state, shard_worker
from tidings.spark.shards.output_rows import TaskCounts, physical_rows
from tidings.spark.shards.shard_state import ShardCheckpoint, ShardStateCache
from tidings.spark.shards.shard_worker import ShardTask, ShardWorker

SETTINGS = engine().state.settings


@pytest.fixture(scope="module", autouse=True)
def _own_elements() -> Iterator[None]:
    with own_elements():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that knows nothing yet."""
    folder = tmp_path_factory.mktemp("base") / "0"
    folder.mkdir()
    save(engine(), folder)
    return folder


def rows(history: History) -> pa.Table:
    table = journal_table(history).drop_columns(["journal", "offset"])
    table = table.set_column(0, "timestamp", pa.array([now for now, _ in history], pa.int64()))
    published = table["published"].cast(pa.int64())
    table = table.set_column(table.column_names.index("published"), "published", published)
    order = [2 if kind == "publish" else 1 for kind in table["kind"].to_pylist()]
    count = table.num_rows
    key = [name or client for name, client in zip(table["id"].to_pylist(), table["client"].to_pylist(), strict=True)]
    for name, column in {
        KEY: pa.array(key, pa.string()),
        SHARD: pa.array([0] * count, pa.int32()),
        ORDER: pa.array(order, pa.int32()),
        SCHEDULED: pa.array([False] * count),
    }.items():
        table = table.append_column(name, column)
    return table


def counted(tables: list[pa.Table]) -> Counter[Any]:
    """What physical rows say, whatever their order, and that of attributes: which columns a table has depends on its
    other rows."""
    found: Counter[Any] = Counter()
    for table in tables:
        for row in table.to_pylist():
            if row["state"] is None:
                notes = row.pop("notes") or []
                found.update((row["event_id"], str(_ordered(note))) for note in notes)
                if row["step"] or row["meta"]:
                    found[str(row)] += 1
    return found


def _ordered(note: dict[str, Any]) -> dict[str, Any]:
    attributes = note["attributes"]
    if attributes is None:
        return note
    return {**note, "attributes": sorted(msgspec.json.decode(attributes).items())}


def routed(table: pa.Table) -> pa.Table:
    """The same by an engine, all at once."""
    batch = engine().batch(table.drop_columns([KEY, SHARD, ORDER, SCHEDULED]))
    return physical_rows(batch, table, notifications=True, first=True)


class Stream:
    """The batches of a shard, one after the other, as a pipeline would run them."""

    def __init__(self, base: Path, folder: Path, *, watermark: int = 0) -> None:
        self.place, self.folder, self.batch = ShardCheckpoint(str(base)), folder, 0
        self.out: list[pa.Table] = []
        self.delay, self.watermark = watermark, 0
        self.tallies: list[TaskCounts] = []

    def run(self, table: pa.Table, *, in_vain: bool = False) -> None:
        task = ShardTask(
            checkpoints=[self.place],
            folder=str(self.folder),
            batch=self.batch,
            late_before=self.watermark,
            final_until=self.watermark if self.delay else None,
        )
        made = list(ShardWorker("", SETTINGS, task=task, notifications=True)(iter(table.to_batches())))
        if in_vain:
            return
        out = pa.Table.from_batches(made)
        (state,) = out["state"].drop_null().to_pylist()
        tally = msgspec.json.decode(state, type=TaskCounts)
        assert tally.place is not None
        self.place = tally.place
        self.out.append(out)
        self.tallies.append(tally)
        self.batch += 1
        if tally.latest is not None:
            self.watermark = max(self.watermark, tally.latest - self.delay)


@given(
    histories(), st.lists(st.integers(0, 40), max_size=6), st.randoms(use_true_random=False), st.sampled_from([1, 32])
)
@examples(12, 160)
def test_batches_are_the_whole(
    base: Path, tmp_path_factory: pytest.TempPathFactory, history: History, cuts: list[int], random: Any, versions: int
) -> None:
    shard_state.MAX_VERSIONS = versions
    table = rows([one for one in history if is_row(one[1])])
    if table.num_rows == 0:
        return
    whole = routed(table)
    folder = tmp_path_factory.mktemp("state")
    stream = Stream(base, folder)
    ends = sorted({min(cut, table.num_rows) for cut in cuts} | {table.num_rows})
    for first, end in zip([0, *ends], ends, strict=False):
        part = table.slice(first, end - first)
        if part.num_rows:
            if random.random() < 0.3:
                stream.run(part, in_vain=True)  # it failed after all, and is repeated
            if random.random() < 0.3:
                shard_worker.shard_states = ShardStateCache()  # by another process
            stream.run(part)
    assert counted(stream.out) == counted([whole])
    assert sum(one.matches for one in stream.tallies) == sum(len(one or []) for one in whole["notes"].to_pylist())
    shutil.rmtree(folder)


def without_meta(tables: list[pa.Table]) -> list[pa.Table]:
    """What is told but once is told of the first event that comes, which need not be the earliest."""
    told = {name for one in tables for name in one["event_id"].filter(pc.is_valid(one["meta"])).to_pylist()}
    names = pa.array(sorted(told), pa.string())
    return [one.filter(pc.invert(pc.is_in(one["event_id"], names))) for one in tables]


@given(histories(), st.integers(0, 30), st.lists(st.integers(0, 60), min_size=60, max_size=60), st.integers(1, 12))
@examples(12, 150)
def test_events_that_come_late_meet_what_was_then(
    base: Path,
    tmp_path_factory: pytest.TempPathFactory,
    history: History,
    delay: int,
    lateness: list[int],
    a_batch: int,
) -> None:
    """Changes come in time, events some time after theirs: within the watermark nothing is lost by that."""
    operations = [one for one in history if is_row(one[1])]
    table = rows(operations)
    if table.num_rows == 0:
        return
    arrivals: list[tuple[int, int]] = []
    for number, (now, operation) in enumerate(operations):
        is_event = isinstance(operation, Publish)
        arrivals.append((now + (lateness[number % 60] if is_event else 0), number))
    arrivals.sort()
    folder = tmp_path_factory.mktemp("state")
    stream = Stream(base, folder, watermark=delay)
    late: set[int] = set()
    for first in range(0, len(arrivals), a_batch):
        part = sorted(number for _, number in arrivals[first : first + a_batch])
        publications = [number for number in part if isinstance(operations[number][1], Publish)]
        late |= {number for number in publications if operations[number][0] < stream.watermark}
        stream.run(table.take(pa.array(part)))
    in_time = [one for number, one in enumerate(operations) if number not in late]
    whole = [routed(rows(in_time))] if in_time else []
    got = [one.filter(pc.invert(pc.equal(one["step"], "late").fill_null(False))) for one in stream.out]
    assert counted(without_meta(got)) == counted(without_meta(whole))
    assert sum(one.late for one in stream.tallies) == len(late)
    shutil.rmtree(folder)
