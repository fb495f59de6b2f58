"""A pipeline's file: every mistake is named by file and line, and what it describes is what runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidings.model.errors import InvalidValueError
from tidings.spark.pipeline.configuration import read

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

GOOD = """\
checkpoint = "checkpoint"
trigger = "available-now"

[events]
path = "events"

[subscriptions]
path = "subscriptions"
follow = false

[spark]
spark.ui.enabled = false

[[sinks]]
format = "parquet"
what = "matches"
path = "matches"

[[sinks]]
format = "parquet"
what = "rejected"
path = "rejected"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        (
            'format = "parquet"\nwhat = "rej',
            'format = "xml"\nwhat = "rej',
            20,
            "sinks[1].format: 'xml' is none of parquet",
        ),
        ('what = "matches"', 'what = "love"', 16, "sinks[0].what: 'love' is none of matches, notifications"),
        ('path = "matches"', "", 14, "sinks[0].path: is missing"),
        ('path = "matches"', 'path = "m"\nrows = 5', 18, "sinks[0].rows: is for console alone, not for parquet"),
        ('path = "events"', 'pth = "events"', 5, "events.pth: there is no such key"),
        ('path = "events"', "", 4, "events.path: is missing"),
        ('path = "events"', 'format = "rate"\nschema = "a int"', 6, "events.schema: the rate source has its own"),
        ("follow = false", 'follow = "no"', 9, "subscriptions.follow: expected `bool`, got `str`"),
        ("follow = false", "max_files_per_batch = 0", 9, "subscriptions.max_files_per_batch: must be at least 1"),
        ('trigger = "available-now"', 'trigger = "soon"', 2, "trigger: a number and a unit"),
        ('trigger = "available-now"', "shards = 0", 2, "shards: must be at least 1"),
        ('trigger = "available-now"', "# this\nshards = [\n1]", 3, "shards: expected `int | null`, got `array`"),
        ('checkpoint = "checkpoint"', "", 1, "checkpoint: is missing"),
        ("spark.ui.enabled", "ui.enabled", 11, "spark: 'ui.enabled' is neither master nor a setting"),
        ("[spark]", "[engine]\nlarge_message_bytes = 0\n[spark]", 12, "engine.large_message_bytes: must be at least 1"),
        ("[spark]", "[engine]\nnme = 'x'\n[spark]", 12, "engine.nme: there is no such key"),
        ("[spark]", "[spark", 11, "Expected ']' at the end of a table declaration"),
        ("[spark]", "[journal]\npath = 'j'\n[spark]", None, "a pipeline has [events] or a [journal]"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path: Path, before: str, after: str, line: int | None, told: str) -> None:
    assert before in GOOD
    path = written(tmp_path, GOOD.replace(before, after, 1))
    with pytest.raises(InvalidValueError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: {told}" if line else f"{path}: {told}")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidValueError, match="is not UTF-8 text"):
        read(tmp_path / "bytes.toml")


def folders(base: Path, **files: str) -> None:
    """Each a file of a folder: `events__json` is events/1.json."""
    for name, text in files.items():
        folder, suffix = name.split("__")
        (base / folder).mkdir(exist_ok=True)
        (base / folder / f"1.{suffix}").write_text(text)


def lines(*rows: Any) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def ran(spark: "SparkSession", base: Path, text: str) -> Any:
    """The counts of all batches."""
    from tidings.spark import Pipeline

    pipeline = Pipeline.from_file(written(base, text), spark)
    pipeline.start().await_termination()
    last = pipeline.ledger.last()
    assert last is not None
    return last.so_far


def rows(spark: "SparkSession", folder: Path) -> "list[Row]":
    found: list[Row] = spark.read.parquet(str(folder)).collect()
    return found


def matched(spark: "SparkSession", base: Path) -> dict[str, list[str]]:
    return {row["event_id"]: sorted(row["subscriptions"]) for row in rows(spark, base / "matches")}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "line", "told"),
    [
        (('path = "events"', 'path = "nowhere"'), 5, "events.path: there is no folder"),
        (('path = "subscriptions"', 'path = "no.json"'), 8, "subscriptions.path: there is neither a file nor a folder"),
        (('path = "events"', 'path = "events"\nschema = "id strng"'), 6, "events.schema: "),
        (('path = "events"', 'path = "events"\ncolumns = {id = "nme"}'), 6, "events.columns.id: "),
        (
            ('path = "events"', 'path = "events"\nschema = "id string"'),
            4,
            "events: there is no column timestamp; there are id",
        ),
        (('path = "events"', 'path = "empty"\nformat = "csv"'), 5, "events.path: there is no csv file in"),
        (("follow = false", "follow = true\nwith_policies = true\n"), 1, ""),
    ],
)
def test_what_spark_finds_wrong_is_named_by_line(
    spark: "SparkSession", tmp_path: Path, change: tuple[str, str], line: int, told: str
) -> None:
    from tidings.spark import Pipeline

    folders(tmp_path, events__json="", subscriptions__json="")
    (tmp_path / "empty").mkdir()
    text = GOOD.replace(*change, 1)
    text = text if told else f"shards = 3\n{text}"
    with pytest.raises(InvalidValueError) as caught:
        Pipeline.from_file(written(tmp_path, text), spark)
    assert str(caught.value).startswith(f"{tmp_path}/pipeline.toml:{line}: {told or 'shards: where policies'}")
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_exact_lines_keep_their_types_and_bad_ones_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    def event(id: str, **attributes: Any) -> dict[str, Any]:  # noqa: A002
        return {"id": id, "timestamp": 10, "publisher": "p", "attributes": attributes}

    bad = [
        '{"id": "broken", "timestamp": 10, "attributes": {"n": 1}',
        "null",
        "7",
        {"id": "flat", "timestamp": 10, "n": 1},
        {"timestamp": 10, "attributes": {"n": 1}},
        {"id": "when", "timestamp": "soon", "attributes": {"n": 1}},
        {"id": "far", "timestamp": "9999-01-01T00:00:00Z", "attributes": {"n": 1}},
        {"id": "list", "timestamp": 10, "attributes": [1]},
        {"id": "context", "timestamp": 10, "attributes": {"n": 1}, "context": "x"},
        {"id": "nested", "timestamp": 10, "attributes": {"n": {"m": [1]}}},
        {**event("policy", n=1), "policy": "PolicyStatement {}"},
    ]
    good = [event("int", n=1), event("float", n=1.0), event("text", n="1"), event("none", m=1)]
    folders(
        tmp_path,
        events__json=lines(*good, *bad, ""),
        subscriptions__json=lines({"id": "s", "content": "n = 1"}, {"id": "bad", "content": "n ="}, "{"),
    )
    counts = ran(spark, tmp_path, GOOD)
    assert matched(spark, tmp_path) == {"int": ["s"], "float": ["s"]}
    told = [(row["event_id"], row["reason"]) for row in rows(spark, tmp_path / "rejected")]
    assert counts.events == len(good) + len(bad)
    assert len(told) == len(bad)
    reasons = dict(told)
    assert reasons["flat"].startswith("there is no `attributes`")
    assert reasons["policy"].startswith("it brings a policy of its own")
    assert sum(reason.startswith("a line of 1.json cannot be read: ") for _, reason in told) == 3
    assert counts.rejected == len(bad) + 2  # and two subscriptions, which are known before the first batch


@pytest.mark.spark
def test_flat_files_with_columns(spark: "SparkSession", tmp_path: Path) -> None:
    folders(
        tmp_path,
        events__csv=lines(
            "bus,at,speed,note",
            *("b1,2026-01-01 00:00:00,12.5,a", "b2,2026-01-01 00:00:01,x,b", "b3,2026-01-01 00:00:02,80,c"),
        ),
        subscriptions__csv="id,content\nfast,speed > 50\nany,note is not null\n",
    )
    text = GOOD.replace(
        'path = "events"',
        'path = "events"\nformat = "csv"\nschema = "bus string, at timestamp, speed double, note string"\n'
        'drop = ["at"]\n[events.columns]\nid = "concat(bus, \'-\', unix_seconds(at))"\n'
        'timestamp = "at"\npublisher = "bus"',
    ).replace('path = "subscriptions"', 'path = "subscriptions"\nformat = "csv"')
    counts = ran(spark, tmp_path, text)
    found = matched(spark, tmp_path)
    assert {name.split("-")[0]: ids for name, ids in found.items()} == {"b1": ["any"], "b3": ["any", "fast"]}
    (refused,) = rows(spark, tmp_path / "rejected")
    assert refused["reason"] == "a line of 1.csv cannot be read: b2,2026-01-01 00:00:01,x,b"
    assert (counts.events, counts.rejected) == (3, 1)


@pytest.mark.spark
def test_an_inferred_schema_stays(spark: "SparkSession", tmp_path: Path) -> None:
    folders(
        tmp_path,
        events__json=lines({"id": "e1", "timestamp": 1, "n": 1}),
        subscriptions__json=lines({"id": "s", "content": "n > 1.2"}),
    )
    text = GOOD.replace('path = "events"', 'path = "events"\nschema = "infer"')
    assert ran(spark, tmp_path, text).matches == 0
    (tmp_path / "events" / "2.json").write_text(
        lines({"id": "e2", "timestamp": 2, "n": 1.5}, {"id": "e3", "timestamp": 3, "n": 2})
    )
    counts = ran(spark, tmp_path, text)
    assert matched(spark, tmp_path) == {"e3": ["s"]}
    assert [row["reason"][:30] for row in rows(spark, tmp_path / "rejected")] == ["a line of 2.json cannot be rea"]
    assert (counts.events, counts.rejected) == (3, 1)


@pytest.mark.spark
def test_the_journal_of_a_hub_and_a_hub_as_sink(spark: "SparkSession", tmp_path: Path) -> None:
    import tidings as td

    with td.Hub(tmp_path / "from", name="from") as hub:
        hub.client("car").subscribe("n > 1")
        for n in range(4):
            hub.client("cam").publish({"n": n})
    text = f"""
        checkpoint = "checkpoint"
        trigger = "available-now"
        [engine]
        name = "from"
        [journal]
        path = "{tmp_path}/from"
        max_rows_per_batch = 3
        [[sinks]]
        format = "hub"
        path = "into"
    """
    counts = ran(spark, tmp_path, text)
    assert (counts.events, counts.matches, counts.rejected) == (4, 2, 0)
    with td.Hub(tmp_path / "into") as hub:  # it was closed, so that it can be opened again
        desk = hub.client("desk")
        desk.subscribe("subscriber = 'car'")
        assert sorted(str(note.attributes["n"]) for note in desk.replay()) == ["2", "3"]


@pytest.mark.spark
def test_rate_is_for_trials(spark: "SparkSession", tmp_path: Path) -> None:
    folders(tmp_path, subscriptions__json=lines({"id": "odd", "content": "odd = 1"}))
    text = GOOD.replace(
        'path = "events"',
        'format = "rate"\noptions = {rowsPerSecond = 50}\ndrop = ["value"]\n[events.columns]\nodd = "value % 2"',
    ).replace('"available-now"', '"200 milliseconds"')
    from tidings.spark import Pipeline

    pipeline = Pipeline.from_file(written(tmp_path, text), spark).start()
    while (progress := pipeline.progress()).so_far.matches == 0 or progress.stage == "writing":
        assert not pipeline.await_termination(0.2)
    pipeline.stop()
    last = pipeline.ledger.last()
    assert last is not None
    assert abs(last.so_far.events - 2 * last.so_far.matches) <= 1
    assert all(int(name) % 2 for name in matched(spark, tmp_path))
