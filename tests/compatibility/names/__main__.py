"""Rewrites the golden files: `python -m tests.compatibility.names [SUBJECT ...]`."""

import sys
from collections.abc import Iterable

from tests.compatibility.names import BYTES, COLUMNS, SUBJECTS, batch, encoded_samples, golden_path, in_order


def main(wanted: list[str]) -> None:
    for subject in wanted or [*SUBJECTS, BYTES, COLUMNS]:
        golden_path(subject).write_text("".join(f"{line}\n" for line in in_order(_collected(subject))))


def _collected(subject: str) -> Iterable[str]:
    if subject == BYTES:
        return encoded_samples()
    return _columns() if subject == COLUMNS else SUBJECTS[subject]()


def _columns() -> Iterable[str]:
    from tidings.spark import session

    spark = session("tidings-names", "local[1]")
    try:
        return list(batch.column_lines(spark))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
