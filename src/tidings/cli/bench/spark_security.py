"""Signed events on Spark: how many a core checks, with a signature each and in signed batches; beside plain ones."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, steps, timed
from tidings.cli.bench.secure_workload import SUBSCRIBER, SecureTopic, event
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.spark import route, session, trust

BATCH = 64
_PAYLOAD = 256  # bytes
_ROUNDS = 3  # of which the best counts
_SOME = 8  # of so many events one has a signature of its own: they take longer
_COLUMNS = pa.schema(
    [
        *(("id", pa.string()), ("timestamp", pa.int64()), ("publisher", pa.string()), ("sequence", pa.int64())),
        *(("payload", pa.binary()), ("token", pa.binary()), ("signature", pa.binary())),
        *(("topic", pa.string()), ("price", pa.float64()), ("number", pa.int64()), ("city", pa.string())),
    ]
)


def measure(events: int, cores: int) -> list[Measurement]:
    """The rates are those of one core; what is not security costs plain events too."""
    many = -(-events // BATCH) * BATCH
    counts = {"plain": many, "single": max(BATCH, many // _SOME), "batches": many}
    with steps(2 + len(counts)) as step, tempfile.TemporaryDirectory() as made:
        step("sealing")
        topic, folder = SecureTopic(), Path(made)
        for name, count in counts.items():
            pq.write_table(_table(_made(topic, name, count)), folder / name)
        step("starting Spark")
        spark = session("tidings bench", f"local[{cores}]", **{"spark.sql.shuffle.partitions": cores})
        try:
            rates = {}
            for name, count in counts.items():
                step(name)
                given = spark.read.parquet(str(folder / name))
                rates[name] = count / _seconds(spark, topic, given, folder, cores) / cores
        finally:
            spark.stop()
    return [
        Measurement("plain events, a core", rates["plain"], "events/s"),
        Measurement("a signature each, a core", rates["single"], "events/s", "4,000 events/s"),
        Measurement(f"signed batches of {BATCH}, a core", rates["batches"], "events/s", "50,000 events/s"),
    ]


def _made(topic: SecureTopic, name: str, count: int) -> list[Event]:
    word = "plain" if name == "plain" else "sealed"
    given = [event(number, _PAYLOAD, topic.now + number, word) for number in range(count)]
    if name == "batches":
        parts = [given[first : first + BATCH] for first in range(0, count, BATCH)]
        return [one for some in parts for one in topic.publisher.seal_all(some, some[0].timestamp)]
    return [topic.publisher.seal(one, one.timestamp) for one in given]  # what is on no secure topic stays as it is


def _table(events: list[Event]) -> pa.Table:
    rows = [{**one.attributes, **msgspec.structs.asdict(one), "id": str(one.id)} for one in events]
    return pa.Table.from_pylist(rows, _COLUMNS)


def _seconds(spark: Any, topic: SecureTopic, events: Any, folder: Path, cores: int) -> float:
    """For one who is entitled and wants none of them: what is measured is letting them in."""
    credentials = topic.credentials()
    credentials.heed(topic.notice, topic.now)
    token = topic.subscriber.token(topic.record.id)
    wanted = spark.createDataFrame(
        [("s", SUBSCRIBER, "price < 0", None if token is None else token.data)],
        "id string, subscriber string, content string, token binary",
    )
    given = events.repartitionByRange(cores, "timestamp").cache()
    routed = route(given, wanted, tokens=spark.createDataFrame(trust.rows(credentials), trust.DDL))
    if refused := routed.rejected.count():
        raise TidingsError(f"{refused} events were refused")
    seconds = min(
        timed(lambda: routed.rejected.write.mode("overwrite").parquet(str(folder / "refused"))) for _ in range(_ROUNDS)
    )
    given.unpersist()
    return seconds
