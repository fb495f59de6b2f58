"""Measure signed events on Spark: how many a core verifies, with one signature each and in signed batches."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads.secure_workload import SUBSCRIBER, SecureTopic, event
from tidings.cli.measurement import Measurement, steps, time_once
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.spark import route, session
from tidings.spark.shards import trusted_keys

BATCH = 64
_PAYLOAD = 256  # bytes of payload
_ROUNDS = 3  # the best round counts
_SOME = 8  # events with one signature each are slower, so there are this many times fewer
_COLUMNS = pa.schema(
    [
        *(("id", pa.string()), ("timestamp", pa.int64()), ("publisher", pa.string()), ("sequence", pa.int64())),
        *(("payload", pa.binary()), ("token", pa.binary()), ("signature", pa.binary())),
        *(("topic", pa.string()), ("price", pa.float64()), ("number", pa.int64()), ("city", pa.string())),
    ]
)


def measure(events: int, cores: int) -> list[Measurement]:
    """Measure the rates per core of plain events, of events with one signature each, and of signed batches."""
    many = -(-events // BATCH) * BATCH
    counts = {"plain": many, "single": max(BATCH, many // _SOME), "batches": many}
    with steps(2 + len(counts)) as step, tempfile.TemporaryDirectory() as temporary:
        step("sealing")
        topic, folder = SecureTopic(), Path(temporary)
        for name, count in counts.items():
            pq.write_table(_table(_draw_events(topic, name, count)), folder / name)
        step("starting Spark")
        spark = session("tidings bench", f"local[{cores}]", **{"spark.sql.shuffle.partitions": cores})
        try:
            rates = {}
            for name, count in counts.items():
                step(name)
                frame = spark.read.parquet(str(folder / name))
                rates[name] = count / _gate_seconds(spark, topic, frame, folder, cores) / cores
        finally:
            spark.stop()
    return [
        Measurement("plain events, a core", rates["plain"], "events/s"),
        Measurement("a signature each, a core", rates["single"], "events/s", "4,000 events/s"),
        Measurement(f"signed batches of {BATCH}, a core", rates["batches"], "events/s", "50,000 events/s"),
    ]


def _draw_events(topic: SecureTopic, name: str, count: int) -> list[Event]:
    word = "plain" if name == "plain" else "sealed"
    events = [event(number, _PAYLOAD, topic.now + number, word) for number in range(count)]
    if name == "batches":
        parts = [events[first : first + BATCH] for first in range(0, count, BATCH)]
        return [event_ for part in parts for event_ in topic.publisher.seal_all(part, part[0].timestamp)]
    # `seal` leaves events on no secure topic as they are.
    return [topic.publisher.seal(event_, event_.timestamp) for event_ in events]


def _table(events: list[Event]) -> pa.Table:
    rows = [{**event_.attributes, **msgspec.structs.asdict(event_), "id": str(event_.id)} for event_ in events]
    return pa.Table.from_pylist(rows, _COLUMNS)


def _gate_seconds(spark: Any, topic: SecureTopic, events: Any, folder: Path, cores: int) -> float:
    """Return the seconds to route the events to an authorised subscriber whose filter matches none: the time of the
    gate.

    Raises TidingsError if an event is refused.
    """
    credentials = topic.credentials()
    credentials.heed(topic.notice, topic.now)
    token = topic.subscriber.token(topic.record.id)
    subscriptions = spark.createDataFrame(
        [("s", SUBSCRIBER, "price < 0", None if token is None else token.data)],
        "id string, subscriber string, content string, token binary",
    )
    cached = events.repartitionByRange(cores, "timestamp").cache()
    routed = route(
        cached, subscriptions, tokens=spark.createDataFrame(trusted_keys.rows(credentials), trusted_keys.DDL)
    )
    if refused := routed.rejected.count():
        raise TidingsError(f"{refused} events were refused")
    seconds = min(
        time_once(lambda: routed.rejected.write.mode("overwrite").parquet(str(folder / "refused")))
        for _ in range(_ROUNDS)
    )
    cached.unpersist()
    return seconds
