"""The sink that publishes rows of a query at a running broker: each once, and what is wrong is told."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.test_beside import broker
from tidings.client import connect_sync
from tidings.model.errors import InvalidValueError
from tidings.spark.pipeline.configuration import read
from tidings.spark.sinks.broker_sink import BrokerSink, to_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def sunk(spark: "SparkSession", rows: list[dict[str, Any]], sink: BrokerSink, batch: int = 0) -> None:
    sink(spark.createDataFrame(rows, "street string, cars long"), batch)


def test_rows_of_any_query_are_published_once(spark: "SparkSession", tmp_path: Path) -> None:
    rows = [{"street": f"s{number % 7}", "cars": number % 3} for number in range(50)]
    with broker(tmp_path) as child, connect_sync(child.address, "d") as client:
        inbox = client.subscribe("cars >= 0")
        sink = to_broker(child.address, "counts", folder=tmp_path / "marks", by="street", partitions=2)
        for batch in (0, 0, 1):
            sunk(spark, rows, sink, batch)
        assert (sink.published, sink.known, sink.refused) == (100, 50, 0)
        told = Counter((note.attributes["street"], note.attributes["cars"]) for note in inbox.take())
        assert told == Counter({(row["street"], row["cars"]): 2 * rows.count(row) for row in rows})


def test_rows_that_the_broker_refuses_are_told(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as child:
        sink = to_broker(child.address, "p", folder=tmp_path / "marks", partitions=1)
        sink(spark.createDataFrame([('{"n":1}',), ("[1]",)], "attributes string"), 0)
        assert (sink.published, sink.refused) == (1, 1)
        assert "attributes: not a JSON object" in caplog.text


def test_a_broker_that_is_not_there_ends_the_batch_with_its_address(spark: "SparkSession", tmp_path: Path) -> None:
    sink = to_broker("tidings://127.0.0.1:9", folder=tmp_path, partitions=1, patience=0.5)
    with pytest.raises(Exception, match=r"UnreachableError: no broker could be reached: tidings://127\.0\.0\.1:9"):
        sunk(spark, [{"street": "s", "cars": 1}], sink)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("", "address: is missing"),
        ('address = "http://x"', "address: .* is not an address"),
        ('address = "b:1"\nsafe = "very"', "safe: 'very' is none of accepted, journaled, settled"),
        ('address = "b:1"\npartitions = 0', "partitions: must be at least 1"),
        ('address = "b:1"\npatience = "soon"', "patience: a number and a unit"),
        ('address = "b:1"\nkey = "k.pem"', "authority: is missing"),
        ('address = "b:1"\npath = "p"', "path: is for parquet and json and hub alone"),
        ('address = "b:1"\nwhat = "matches"', "what: 'matches' is none of notifications"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, said: str, wrong: str) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(f'checkpoint = "c"\n[journal]\npath = "j"\n[[sinks]]\nformat = "broker"\n{said}\n')
    with pytest.raises(InvalidValueError, match=wrong):
        read(path)
