"""The session starts without noise, is shared, and says what to do where it cannot start."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.limits import PATIENCE
from tidings import TidingsError
from tidings.spark import daemon, session
from tidings.spark.session import check_java, java_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.process
def test_importing_tidings_on_spark_imports_no_pyspark() -> None:
    run = python(
        "import sys, tidings.spark; print([name for name in sys.modules if name.startswith(('pyspark', 'py4j'))])"
    )
    assert run.stdout == "[]\n"


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(TidingsError, match=r"pip install 'tidings\[spark\]'"):
        session()


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        (None, r"there is none in JAVA_HOME"),
        ("echo 'openjdk version \"1.8.0_292\"' >&2", "is Java 8"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
        ("echo 'The operation could not be completed.' >&2; exit 1", "does not run"),
    ],
)
def test_without_a_java_for_it_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, trouble: str
) -> None:
    if script is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TidingsError, match=trouble) as refused:
        check_java()
    assert "openjdk-17" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25"', 25),
        ("", None),
    ],
)
def test_version(told: str, version: int | None) -> None:
    assert java_version(told) == version


@pytest.mark.spark
def test_the_active_session_is_used_and_takes_what_may_change(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert session("other", "local[1]", **{"spark.sql.shuffle.partitions": 3, "spark.ui.enabled": True}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.sparkContext.uiWebUrl is None
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_starts_and_ends_in_silence_and_passes_on_what_workers_say() -> None:
    run = python("""if True:
        import sys
        from tidings.spark import daemon, session

        def speak(batches):
            print("a worker speaks", file=sys.stderr)
            yield from batches

        spark = session(master="local[2]")
        print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions"))
        print(spark.range(3, numPartitions=1).mapInArrow(speak, "id bigint").count())
        try:
            spark.range(1).selectExpr("nothing")
        except Exception as error:
            print(error.getCondition())
        spark.stop()
    """)
    assert run.stdout == "UTC 2\n3\nUNRESOLVED_COLUMN.WITH_SUGGESTION\n"
    assert run.stderr == "a worker speaks\n"


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.spark
def test_workers_of_a_local_session_have_tidings_loaded(spark: "SparkSession") -> None:
    def loaded(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            column = pa.array(["tidings.spark.shards.shard_worker" in sys.modules] * len(batch))
            yield pa.RecordBatch.from_arrays([column], ["loaded"])

    assert {row.loaded for row in spark.range(4).mapInArrow(loaded, "loaded boolean").collect()} == {True}


@pytest.mark.parametrize("module", daemon.MODULES)
def test_the_modules_that_workers_are_forked_with_exist(module: str) -> None:
    """A name that is wrong would go unnoticed: a worker imports what its daemon has not."""
    assert importlib.util.find_spec(module) is not None


def test_what_cannot_be_loaded_is_left_to_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    daemon.load()
    assert "pyspark.worker" in sys.modules
