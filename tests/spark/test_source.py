"""The data source gives what the journal holds: in batch and as a stream, beside a writer and after it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.journal.cases import NOW, fill, publication, subscribing
from tests.sizes import variants
from tidings.journal import Journal, JournalOptions
from tidings.journal.segment import SCHEMA, record_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROLLED = JournalOptions(roll_records=20)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Open, with three segments and a log: 75 records, every third a subscription."""
    with Journal.open(tmp_path / "journal", name="b1", options=ROLLED) as journal:
        for start in range(0, 75, 5):
            numbers = range(start, start + 5)
            journal.commit([publication(one) if one % 3 else subscribing(one) for one in numbers], NOW)
        yield journal


def held(journal: Journal) -> pa.Table:
    return pa.Table.from_batches([record_batch(list(journal.read()), journal.name)])


def load(spark: "SparkSession", journal: Journal, **options: Any) -> "DataFrame":
    return spark.read.format("tidings").options(**options).load(str(journal.folder))


def offsets(frame: "DataFrame") -> list[int]:
    return sorted(frame.select("offset").toArrow()["offset"].to_pylist())


def test_equal_to_what_the_journal_reads(spark: "SparkSession", journal: Journal) -> None:
    journal.append([publication(75)], NOW)  # not durable
    frame = load(spark, journal)
    assert frame.toArrow().cast(SCHEMA).sort_by("offset") == held(journal)
    assert frame.rdd.getNumPartitions() == 4
    as_it_is = spark.read.parquet(str(journal.folder / "segments"))
    assert [(one.name, one.dataType) for one in frame.schema] == [(one.name, one.dataType) for one in as_it_is.schema]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffset": 18, "endingOffset": 63}, range(18, 63)),
        ({"startingOffset": "earliest", "endingOffset": "latest", "kinds": "subscribe"}, range(0, 75, 3)),
        ({"kinds": "subscribe, publish", "since": NOW + 30}, range(30, 75)),
        ({"since": "2023-11-14T22:13:20.000019Z", "until": "2023-11-14T23:13:20.000041+01:00"}, range(19, 41)),
        ({"startingOffset": 75}, range(0)),
        ({"startingOffset": 30, "endingOffset": 10}, range(0)),
    ],
)
def test_options(spark: "SparkSession", journal: Journal, options: dict[str, Any], expected: range) -> None:
    assert offsets(load(spark, journal, **options)) == list(expected)


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_one_frame_with_two_filters_in_one_query(spark: "SparkSession", journal: Journal, pushdown: str) -> None:
    """Spark 4.3 would read both with the same filter if the reader took any."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = load(spark, journal)
        both = frame.where("kind = 'subscribe' AND offset < 10").union(frame.where("kind = 'publish' AND offset > 70"))
        assert offsets(both) == [0, 3, 6, 9, 71, 73, 74]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_each_load_sees_what_is_durable_then(spark: "SparkSession", journal: Journal) -> None:
    frame = load(spark, journal)
    assert frame.count() == 75
    fill(journal, 5)
    assert load(spark, journal).count() == 80
    assert frame.count() == 75


def test_a_given_schema_chooses_columns(spark: "SparkSession", journal: Journal) -> None:
    reader = spark.read.format("tidings")
    chosen = reader.schema("kind string, offset bigint").load(str(journal.folder))
    assert chosen.columns == ["kind", "offset"]
    assert offsets(chosen.where("kind = 'subscribe'")) == list(range(0, 75, 3))
    for schema, trouble in (("colour string", "no column 'colour'"), ("offset int", "'offset' is of the type int64")):
        with pytest.raises(Exception, match=trouble):
            reader.schema(schema).load(str(journal.folder)).count()


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        ({"startOffset": 1}, "option 'startoffset' is not for this; there are: endingOffset, kinds, since"),
        ({"maxRowsPerBatch": 1}, "option 'maxRowsPerBatch' is not for this"),
        ({"startingOffset": -1}, "'-1' is not a whole number"),
        ({"since": "yesterday"}, "'yesterday' is neither a time such as"),
    ],
)
def test_bad_options(spark: "SparkSession", journal: Journal, options: dict[str, Any], trouble: str) -> None:
    with pytest.raises(Exception, match=trouble):
        load(spark, journal, **options).count()


def test_troubles_of_a_journal_are_told_in_its_words(spark: "SparkSession", journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"JournalError: .* is not a journal: there is no journal\.toml"):
        spark.read.format("tidings").load(str(tmp_path)).count()
    planned = load(spark, journal)
    assert planned.rdd.getNumPartitions() == 4
    journal.retain(before_timestamp=NOW + 30, without_snapshot=True)
    with pytest.raises(Exception, match=r"OffsetGoneError: .* offset 0 is gone, retention .* the oldest there is 20"):
        planned.count()
    with pytest.raises(Exception, match="OffsetGoneError"):
        load(spark, journal, startingOffset=3).count()
    assert offsets(load(spark, journal)) == list(range(20, 75))
    segment = max((journal.folder / "segments").iterdir())
    data = segment.read_bytes()
    segment.write_bytes(data[:500] + b"?" + data[501:])
    with pytest.raises(Exception, match=r"JournalDamagedError: .* is not the one that was written"):
        load(spark, journal).count()


# Streams


class Batches:
    """What a stream gave, batch by batch; a batch that comes again must be the same."""

    def __init__(self) -> None:
        self.found: dict[int, list[int]] = {}
        self.fail_at = -1

    def __call__(self, frame: "DataFrame", number: int) -> None:
        seen = offsets(frame)
        assert self.found.setdefault(number, seen) == seen
        if number == self.fail_at:
            raise RuntimeError("the power went")

    @property
    def all(self) -> list[int]:
        return [offset for number in sorted(self.found) for offset in self.found[number]]


def stream(spark: "SparkSession", journal: Journal, sink: Batches, **options: Any) -> Any:
    """With the checkpoint beside the journal."""
    frame = spark.readStream.format("tidings").options(**options).load(str(journal.folder))
    checkpoint = str(journal.folder.parent / "checkpoint")
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)


def run(spark: "SparkSession", journal: Journal, sink: Batches, **options: Any) -> Any:
    """One run over what is there."""
    query = stream(spark, journal, sink, **options).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_stream_goes_on_from_its_checkpoint_with_the_same_batches(spark: "SparkSession", journal: Journal) -> None:
    sink = Batches()
    query = run(spark, journal, sink, maxRowsPerBatch=30)
    assert [len(sink.found[number]) for number in sorted(sink.found)] == [30, 30, 15]
    assert query.lastProgress.sources[0].endOffset == '{"journal": "b1", "begin": 60, "offset": 75}'
    assert query.lastProgress.sources[0].latestOffset == '{"journal": "b1", "begin": 75, "offset": 75}'
    fill(journal, 40)
    sink.fail_at = 3
    with pytest.raises(Exception, match="the power went"):
        run(spark, journal, sink, maxRowsPerBatch=30)
    journal.roll()  # the batch is now read from a segment
    fill(journal, 5)
    sink.fail_at = -1
    run(spark, journal, sink, maxRowsPerBatch=1000)
    assert [len(sink.found[number]) for number in sorted(sink.found)] == [30, 30, 15, 30, 15]
    assert sink.all == list(range(120))


def test_where_a_stream_starts_and_what_it_takes(spark: "SparkSession", journal: Journal) -> None:
    sink = Batches()
    run(spark, journal, sink, startingOffset=50, kinds="subscribe", since=NOW + 55)
    assert sink.all == [57, 60, 63, 66, 69, 72]


@pytest.mark.parametrize("start", variants(1, ["latest", "earliest"]))
def test_a_batch_is_the_same_when_it_comes_again(spark: "SparkSession", journal: Journal, start: str) -> None:
    sink = Batches()
    query = stream(spark, journal, sink, startingOffset=start).start()
    query.processAllAvailable()
    sink.fail_at = 1
    fill(journal, 10)
    with pytest.raises(Exception, match="the power went"):
        query.processAllAvailable()
    fill(journal, 10)
    sink.fail_at = -1
    run(spark, journal, sink, startingOffset=start)
    assert sink.all == list(range(75 if start == "latest" else 0, 95))


def test_a_stream_that_retention_overtakes_stops(spark: "SparkSession", journal: Journal) -> None:
    sink = Batches()
    sink.fail_at = 0
    with pytest.raises(Exception, match="the power went"):
        run(spark, journal, sink, maxRowsPerBatch=10)
    journal.retain(before_timestamp=NOW + 30, without_snapshot=True)
    with pytest.raises(Exception, match=r"OffsetGoneError: .* offset 0 is gone, retention has taken it away"):
        run(spark, journal, sink)


def test_a_checkpoint_is_of_one_journal(spark: "SparkSession", journal: Journal, tmp_path: Path) -> None:
    run(spark, journal, Batches())
    for name, trouble in (
        ("b2", "the checkpoint is of the journal 'b1'"),
        ("b1", "ends at offset 3, and the stream is to go on at 75"),
    ):
        with Journal.open(tmp_path / f"other-{name}", name=name) as other:
            fill(other, 3)
            with pytest.raises(Exception, match=trouble):
                run(spark, other, Batches())


WRITER = """
import sys
from tests.journal.cases import NOW, publication
from tidings.journal import Journal, JournalOptions
with Journal.open(sys.argv[1], options=JournalOptions(roll_records=700)) as journal:
    journal.commit([publication(0)], NOW)
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(40):
            journal.commit([publication(journal.next) for _ in range(10)], NOW)
        print(journal.synced, flush=True)
"""


def test_a_stream_beside_a_writer(spark: "SparkSession", tmp_path: Path) -> None:
    folder, sink = tmp_path / "journal", Batches()
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "ready\n"
        query = (
            spark.readStream.format("tidings")
            .load(str(folder))
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            for _ in range(5):
                print(file=writer.stdin, flush=True)
                end = int(writer.stdout.readline())
                query.processAllAvailable()
                assert sink.all == list(range(end))
        finally:
            query.stop()
            writer.stdin.close()
    assert writer.returncode == 0
    assert sink.all == list(range(2001))
