"""Writes the classes that Spark loads in every session to an archive, from which Java loads them in less time.

`make test` runs this once, as it compiles the kernels once: tests start Java about ten times, and up to its first
query Java spends half of its processor time on loading and checking the same classes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.sharing import ROOT
from tests.spark.settings import ARCHIVE, JAVA, SETTINGS

_OPTIONS = "spark.driver.extraJavaOptions"


def write(archive: Path) -> None:
    """Submits this file to a Java that writes the archive when it ends."""
    archive.unlink(missing_ok=True)
    options = f"{JAVA} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    settings = [f"--conf={name}={value}" for name, value in {**SETTINGS, _OPTIONS: options}.items()]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", *settings, __file__]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
    done = subprocess.run(submit, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not archive.exists():
        sys.stderr.write(f"Java has written no archive of classes; the tests take longer without it.\n{done.stderr}")


def load_classes() -> None:
    """Does what most tests do, in the session of the program that was submitted."""
    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(100).selectExpr("id", "id % 7 as key", "cast(id as string) as text")
        rows.write.partitionBy("key").parquet(f"{folder}/rows")
        rows.write.json(f"{folder}/json")
        stored = spark.read.parquet(f"{folder}/rows")
        stored.join(rows, "id").groupBy(rows.key).count().orderBy("count").toArrow()
        stored.mapInArrow(_same, stored.schema).collect()
        stored.createOrReplaceTempView("stored")
        spark.sql("select key, row_number() over (partition by key order by id) as n from stored").collect()
        stream = spark.readStream.schema("id long, key long, text string").json(f"{folder}/json")
        writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        writer.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(f"{folder}/out")).start()
        for query in spark.streams.active:
            query.awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        load_classes()
    else:
        write(ARCHIVE)
