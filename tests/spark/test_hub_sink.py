"""A stream into a hub publishes every row once, whatever comes again."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidings as td
from tidings.spark.sinks.hub_sink import to_hub

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def lines(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first


def run(spark: "SparkSession", folder: Path, schema: str, sink: Any, checkpoint: str = "checkpoint") -> None:
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


class Stopping:
    """Stops after the sink has taken a batch, before Spark knows: the batch comes again."""

    def __init__(self, sink: Any, at: int) -> None:
        self.sink, self.at = sink, at

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        self.sink(frame, batch_id)
        if batch_id == self.at:
            raise RuntimeError("the power went")


SCHEMA = "id string, timestamp timestamp, publisher string, subject string, payload binary, context string, n bigint"


def test_rows_become_events_in_order_and_once(spark: "SparkSession", tmp_path: Path) -> None:
    def row(number: int) -> dict[str, Any]:
        time = f"2026-01-01T00:00:{59 - number % 60:02d}Z"
        return {"id": f"e{number}", "timestamp": time, "publisher": "cam", "n": number, "context": f'{{"x":{number}}}'}

    for batch in range(3):
        lines(tmp_path / "in", batch, [row(10 * batch + one) for one in range(10)])
    with td.Hub(tmp_path / "hub") as hub:
        hub.client("car").subscribe("n >= 0", durable="all")
        sink = to_hub(hub)
        with pytest.raises(Exception, match="the power went"):
            run(spark, tmp_path, SCHEMA, Stopping(sink, 1))
        assert sink.published == 20
    with td.Hub(tmp_path / "hub") as hub:  # another process, as it were
        sink = to_hub(hub)
        run(spark, tmp_path, SCHEMA, sink)
        assert (sink.published, sink.known, sink.refused) == (10, 0, 0)
        notes = hub.client("car").subscribe("n >= 0", durable="all").take()
        assert [note.attributes["n"] for note in notes] == [*range(9, -1, -1), *range(19, 9, -1), *range(29, 19, -1)]
        assert notes[0].event.context == {"x": 9}
        assert {note.event.publisher for note in notes} == {"cam"}


def test_a_batch_that_was_published_in_part_is_finished(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.spark.sinks.hub_sink.MARK_ROWS", 4)
    lines(tmp_path / "in", 0, [{"n": number % 5} for number in range(15)])  # no ids, and rows that are equal
    with td.Hub(tmp_path / "hub") as hub:
        got = hub.client("car").subscribe("n >= 0")
        for stop in (0, 6, 3):  # each in a new process, as it were: 0, 6 and 7 of the 15 are there then
            sink = to_hub(hub, publisher="spark")
            publish, seen = sink.publish_row, list[Any]()

            def failing(row: dict[str, Any], publish: Any = publish, seen: list[Any] = seen, stop: int = stop) -> None:
                if len(seen) == stop:
                    raise RuntimeError("the power went")
                seen.append(row)
                publish(row)

            sink.publish_row = failing  # type: ignore[method-assign]
            with pytest.raises(Exception, match="the power went"):
                run(spark, tmp_path, "n bigint", sink)
        sink = to_hub(hub, publisher="spark")
        run(spark, tmp_path, "n bigint", sink)
        assert sorted(note.attributes["n"] for note in got.take()) == sorted(number % 5 for number in range(15))


def test_a_new_checkpoint_is_a_new_stream(spark: "SparkSession", tmp_path: Path) -> None:
    lines(tmp_path / "in", 0, [{"n": 1}])
    with td.Hub() as hub:
        sink = to_hub(hub, publisher="spark")
        run(spark, tmp_path, "n bigint", sink)
        run(spark, tmp_path, "n bigint", sink, checkpoint="another")
        assert sink.published == 2


def test_what_the_hub_refuses_is_told_and_the_rest_goes_on(spark: "SparkSession", tmp_path: Path) -> None:
    schema = "attributes string, publisher string, subscribers string"
    rows = [
        {"attributes": '{"n":1}'},
        {"attributes": "broken"},
        {"attributes": '{"n":2}', "subscribers": "x >"},
        {"attributes": '{"n":3}', "publisher": ""},
    ]
    lines(tmp_path / "in", 0, rows)
    refused: list[str] = []
    with td.Hub() as hub:
        sink = to_hub(hub, "spark", on_refused=lambda row, error: refused.append(str(error).splitlines()[0]))
        run(spark, tmp_path, schema, sink)
        assert (sink.published, sink.refused) == (2, 2)
    assert any("attributes: not a JSON object" in one for one in refused)


def test_attributes_of_every_shape(spark: "SparkSession") -> None:
    shapes = {
        "columns": "1 AS n, 1.5D AS f, true AS b, 'x' AS s, CAST(NULL AS string) AS missing",
        "struct": "named_struct('n', 1, 'f', 1.5D, 'b', true, 's', 'x') AS attributes",
        "json": """'{"n":1,"f":1.5,"b":true,"s":"x"}' AS attributes""",
        "variant": """parse_json('{"n":1,"f":1.5,"b":true,"s":"x"}') AS attributes""",
    }
    with td.Hub() as hub:
        got = hub.client("car").subscribe("n = 1")
        for number, shape in enumerate(shapes.values()):
            to_hub(hub, "spark", name=f"sink-{number}")(spark.sql(f"SELECT {shape}"), 0)
        assert [dict(note.attributes) for note in got.take()] == [{"n": 1, "f": 1.5, "b": True, "s": "x"}] * 4


def test_a_sink_stays_in_its_process() -> None:
    import pickle

    with td.Hub() as hub, pytest.raises(td.TidingsError, match="not under Spark Connect"):
        pickle.dumps(to_hub(hub))
