"""A history cut into files, one a batch, as streams read them."""

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def streams(spark: "SparkSession", folder: Path, schema: str) -> "DataFrame":
    """A file a batch, in the order in which `write` made them."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def write(folder: Path, schema: str, cuts: Iterable[list[Any]], start: int = 0) -> None:
    """JSON lines; Spark goes by the time of files, so that is what they get."""
    names = [one.split()[0] for one in schema.split(", ")]
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(cuts, start):
        path = folder / f"{number:04}.json"
        said = ({name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows)
        path.write_text("".join(json.dumps(one) + "\n" for one in said))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def cut(rows: list[Any], time: int, ends: list[int]) -> list[list[Any]]:
    """Rows by the first end that is later than their time, which is their field of that number."""
    pairs = pairwise([-1, *ends])
    return [[row for row in rows if low <= (row[time] if row[time] is not None else -1) < high] for low, high in pairs]
