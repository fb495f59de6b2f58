"""Segments, as someone reads them who has only a Parquet reader."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.journal.cases import NOW, event, segments_of
from tidings import ContextFilter
from tidings.journal import Journal, Operation, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "journal": "string",
    "offset": "int64",
    "timestamp": "timestamp[us, tz=UTC]",
    "kind": "string",
    "id": "string",
    "client": "string",
    "publisher": "string",
    "sequence": "int64",
    "published": "timestamp[us, tz=UTC]",
    "subject": "string",
    "attributes": "string",
    "payload": "binary",
    "context": "string",
    "subscribers": "string",
    "policy": "string",
    "token": "binary",
    "signature": "binary",
    "body": "string",
}


def rolled(folder: Path) -> None:
    subscribers = ContextFilter.parse("x < 100")
    with Journal.open(folder, name="b1") as journal:
        first = event(1, subject="road", payload=b"\0\xff", context={"x": 1.5}, subscribers=subscribers, policy="p")
        journal.append([Operation.publication(first)], NOW)
        journal.append([Operation.control("set_context", client="car-1", body={"x": 1, "y": 1.0, "z": True})], NOW)
        journal.roll()


def test_the_columns_are_the_documented_ones(tmp_path: Path) -> None:
    rolled(tmp_path)
    table = pq.read_table(segments_of(tmp_path)[0])
    assert {field.name: str(field.type) for field in table.schema} == COLUMNS
    publication, control = table.to_pylist()
    assert publication["journal"] == control["journal"] == "b1"
    assert (publication["kind"], publication["publisher"], publication["subject"]) == ("publish", "cam-1", "road")
    assert publication["id"] == str(event(1).id)
    assert json.loads(publication["attributes"]) == {"n": 1, "f": 1.0, "b": True, "s": "ä\0001"}
    assert (publication["payload"], publication["subscribers"]) == (b"\0\xff", "x < 100")
    assert (control["kind"], control["client"]) == ("set_context", "car-1")
    assert control["body"] == '{"x":1,"y":1.0,"z":true}'
    assert [row.timestamp() * 1e6 for row in table["timestamp"].to_pylist()] == [NOW, NOW + 1]


def test_only_segments_stand_in_their_folder(tmp_path: Path) -> None:
    rolled(tmp_path)
    table = pq.read_table(tmp_path / "segments")
    assert table.num_rows == 2


def test_row_groups_end_by_rows_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ROWS", 10)
    monkeypatch.setattr(segment, "_GROUP_BYTES", 500)
    with Journal.open(tmp_path) as journal:
        journal.append([Operation.control("k", payload=bytes(number)) for number in range(100)], NOW)
        journal.roll()
        held = list(journal.read())
        assert [len(record.operation.payload or b"") for record in held] == list(range(100))
        assert [record.offset for record in journal.read(57, 61)] == [57, 58, 59, 60]
        assert list(journal.read(33)) == held[33:]
    metadata = pq.read_metadata(segments_of(tmp_path)[0])
    assert metadata.num_row_groups > 10


@pytest.mark.spark
def test_spark_reads_them_as_they_are(tmp_path: Path, spark: "SparkSession") -> None:
    rolled(tmp_path)
    frame = spark.read.parquet(str(tmp_path / "segments"))
    assert dict(frame.dtypes) == {
        name: {"int64": "bigint", "timestamp[us, tz=UTC]": "timestamp"}.get(kind, kind)
        for name, kind in COLUMNS.items()
    }
    published = frame.where("kind = 'publish'").selectExpr(
        "publisher",
        "unix_micros(timestamp)",
        "payload",
        "from_json(attributes, 'n BIGINT, f DOUBLE, b BOOLEAN, s STRING') a",
    )
    assert [tuple(row) for row in published.select("*", "a.*").drop("a").collect()] == [
        ("cam-1", NOW, b"\0\xff", 1, 1.0, True, "ä\0001")
    ]
    contexts = frame.where("kind = 'set_context'").selectExpr("client", "body AS context")
    assert [tuple(row) for row in contexts.collect()] == [("car-1", '{"x":1,"y":1.0,"z":true}')]


def test_what_is_salvaged_has_the_columns_that_were_written(tmp_path: Path) -> None:
    """One flipped bit of a footer makes bytes of texts; its pages are sound."""
    rolled(tmp_path)
    path = segments_of(tmp_path)[0]
    name = segment.SegmentName.of(path)
    assert name is not None
    table = pq.read_table(path)
    assert len(list(segment.salvage_segment(path, name))) == 2
    kind = table.schema.get_field_index("kind")
    changed = table.set_column(kind, pa.field("kind", pa.binary(), nullable=False), table["kind"].cast(pa.binary()))
    pq.write_table(changed, path, write_page_checksum=True)
    assert list(segment.salvage_segment(path, name)) == []
    pq.write_table(table.slice(0, 1), path, write_page_checksum=True)
    assert list(segment.salvage_segment(path, name)) == []
