"""Every source that a pipeline's file may name has what docs/contributing/specifications.md asks of one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest

from tidings.model.errors import InvalidValueError
from tidings.spark.pipeline.configuration import JournalSourceTable, PipelineConfiguration, SourceTable, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "pipeline-file.md").read_text()
_HINTS = {name: get_args(hint) for name, hint in get_type_hints(PipelineConfiguration).items()}
TABLES: dict[str, Any] = {
    name: kinds[0]
    for name, kinds in _HINTS.items()
    if kinds and isinstance(kinds[0], type) and issubclass(kinds[0], SourceTable | JournalSourceTable)
}
GOOD: dict[str, dict[str, Any]] = {  # a row of each table
    "events": {"id": "e1", "timestamp": "1", "publisher": "p", "attributes": {"n": 1}},
    "subscriptions": {"id": "s1", "subscriber": "ann", "content": "n > 0"},
    "contexts": {"client": "ann", "timestamp": "1", "context": {"x": 1}},
    "policies": {"id": "s1", "policy": "PolicyStatement { }", "by": "ann"},
    "advertisements": {"id": "a1", "publisher": "p", "content": ""},
    "schemas": {"subject": "/news", "versions": "[]"},
}


def formats(name: str) -> tuple[str, ...]:
    return ("journal",) if TABLES[name] is JournalSourceTable else TABLES[name].formats()


PAIRS = [(name, format_name) for name in TABLES for format_name in formats(name)]
WITH_PATH = [(name, format_name) for name, format_name in PAIRS if format_name != "rate"]
every_source = pytest.mark.parametrize("name", TABLES)
every_format = pytest.mark.parametrize(("name", "format_name"), PAIRS)


def write_file(folder: Path, name: str, *lines: str) -> Path:
    """Write a pipeline's file with the table in lines 4 and following, and what a pipeline needs beside it."""
    table = "\n".join([f"[{name}]", *lines])
    others = "" if name in ("events", "journal") else '\n[events]\nformat = "rate"\n'
    path = folder / "pipeline.toml"
    path.write_text(f'checkpoint = "c"\nsinks = [{{format = "console"}}]\n\n{table}\n{others}')
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidValueError) as caught:
        read(path)
    return str(caught.value)


def test_there_is_a_good_row_of_every_table_of_files() -> None:
    assert {name for name in TABLES if TABLES[name] is not JournalSourceTable} == GOOD.keys()


@every_format
def test_mistakes_in_a_source_are_named_by_line_and_key(tmp_path: Path, name: str, format_name: str) -> None:
    said = [f'format = "{format_name}"']
    if format_name == "rate":
        assert refusal(write_file(tmp_path, name, *said, 'path = "in"')).endswith("path: the rate source has none")
    else:
        assert refusal(write_file(tmp_path, name, *said)).startswith(f"{tmp_path}/pipeline.toml:4: {name}.path: ")
        said.append('path = "in"')
    where = f"{tmp_path}/pipeline.toml:{4 + len(said) + 1}: {name}"
    assert refusal(write_file(tmp_path, name, *said, "odd = 1")).startswith(f"{where}.odd: there is no such key")
    limit = "max_rows_per_batch" if format_name == "journal" else "max_files_per_batch"
    assert refusal(write_file(tmp_path, name, *said, f"{limit} = 0")) == f"{where}.{limit}: must be at least 1"
    assert isinstance(read(write_file(tmp_path, name, *said, f"{limit} = 1"))[1], PipelineConfiguration)


@every_source
def test_an_unknown_format_is_refused_with_those_that_there_are(tmp_path: Path, name: str) -> None:
    text = refusal(write_file(tmp_path, name, 'path = "in"', 'format = "xml"'))
    assert text == f"{tmp_path}/pipeline.toml:6: {name}.format: 'xml' is none of {', '.join(formats(name))}"


@every_source
def test_a_source_has_the_options_of_all_and_is_documented(name: str) -> None:
    assert {"path", "format", "options"} <= set(TABLES[name].__struct_fields__)
    assert f"`[{name}]`" in PAGE
    assert [key for key in TABLES[name].__struct_fields__ if f"`{key}`" not in PAGE] == []
    assert [one for one in formats(name) if f"`{one}`" not in PAGE] == []


@pytest.mark.spark
@pytest.mark.parametrize(("name", "format_name"), WITH_PATH)
def test_a_folder_that_is_not_there_is_named_at_the_start(
    spark: "SparkSession", tmp_path: Path, name: str, format_name: str
) -> None:
    from tidings.spark import Pipeline

    path = write_file(tmp_path, name, 'path = "in"', f'format = "{format_name}"')
    with pytest.raises(InvalidValueError) as caught:
        Pipeline.from_file(path, spark)
    assert str(caught.value).startswith(f"{path}:5: {name}.path: there is n")
    assert str(tmp_path / "in") in str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize("name", GOOD)
def test_a_line_that_cannot_be_read_stays_with_its_reason(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    from tidings.spark.events import PROBLEM
    from tidings.spark.pipeline.sources import Sources

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(json.dumps(GOOD[name]) + "\n{broken\n")
    follow = ["follow = false"] if "follow" in TABLES[name].__struct_fields__ else []
    file, configuration = read(write_file(tmp_path, name, 'path = "in"', *follow))
    rows = collected(Sources(spark, file, configuration).frames()[name], tmp_path)
    assert len(rows) == 2, "no row is lost"
    problems = [row[PROBLEM] for row in rows]
    assert problems.count(None) == 1
    assert any("a line of 1.json cannot be read: {broken" in problem for problem in problems if problem)


def collected(frame: "DataFrame", folder: Path) -> list[Any]:
    if not frame.isStreaming:
        return list(frame.collect())
    query = frame.writeStream.format("memory").queryName("rows").trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "rows")).start().awaitTermination()
    return list(frame.sparkSession.table("rows").collect())
