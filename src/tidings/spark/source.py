"""The Spark data source `tidings`: reads the journal of a hub or a broker as a DataFrame, in batch and as a stream.

It takes no lock and reads only what is durable, also while the journal is being written. Each segment is a partition,
and so is each range of a log; rows leave Python as Arrow batches.

Streaming offsets are journal offsets. The end offset of a micro-batch also states where the batch begins: for the first
batch of a query Spark stores only the end, and after a restart it asks for the beginning anew, when the oldest or the
latest record may be another one. So a batch depends on its end offset alone and can be read again.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidings.journal.reader import JournalReader, OffsetRange, RecordSelection
from tidings.journal.segment import SCHEMA
from tidings.model.errors import InvalidValueError, JournalError
from tidings.model.limits import MAX_INTEGER

NAME = "tidings"
MAX_ROWS_PER_BATCH = 200_000
_EARLIEST, _LATEST = "earliest", "latest"
_OF_BOTH = {"path", "startingoffset", "since", "kinds"}
_OF_BATCH = {"endingoffset", "until"}
_OF_STREAMS = {"maxrowsperbatch"}
_OPTION_NAMES = {
    name.lower(): name for name in ("startingOffset", "endingOffset", "since", "until", "kinds", "maxRowsPerBatch")
}


class JournalSource(DataSource):
    """The data source `format("tidings")`, with readers for batch and streaming queries."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(SourceOptions(self.options, _OF_BOTH | _OF_BATCH), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        return StreamReader(SourceOptions(self.options, _OF_BOTH | _OF_STREAMS), schema)


class JournalPartition(InputPartition):
    """The range of journal offsets that one task reads."""

    def __init__(self, offset_range: OffsetRange) -> None:
        self.offset_range = offset_range


class _Rows:
    """What the batch and the stream reader share: the journal, and the columns and rows selected from it."""

    def __init__(self, options: "SourceOptions", schema: StructType) -> None:
        self._journal = JournalReader(options.folder)
        self._arrow_schema = _arrow_schema(schema)
        self._selection = RecordSelection(tuple(self._arrow_schema.names), options.kinds, options.since, options.until)
        self._start = options.starting

    def _first(self) -> int:
        if self._start == _EARLIEST:
            return self._journal.first
        return self._journal.end if self._start == _LATEST else int(self._start)

    def _partitions(self, start: int, end: int) -> list[InputPartition]:
        return [JournalPartition(offset_range) for offset_range in self._journal.stretches(start, end, self._selection)]

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, JournalPartition):
            return  # Spark passes a partition of its own if `partitions` returned none
        for batch in self._journal.batches(partition.offset_range, self._selection):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._arrow_schema)


class BatchReader(_Rows, DataSourceReader):
    """Reads the durable records of a journal, up to the end offset when the query is planned, or a range of them.

    It does not implement `pushFilters`: where one DataFrame is used twice in a query with two filters, Spark 4.3 reads
    both with the filter pushed last, and rows are missing. Options select the rows instead.
    """

    def __init__(self, options: "SourceOptions", schema: StructType) -> None:
        super().__init__(options, schema)
        self._end = options.ending

    def partitions(self) -> Sequence[InputPartition]:
        start, end = self._first(), self._journal.end
        if self._end != _LATEST:
            end = min(end, int(self._end))
        return self._partitions(start, end) if start < end else []


class StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a journal as a stream of micro-batches; the module docstring says what the offsets hold."""

    def __init__(self, options: "SourceOptions", schema: StructType) -> None:
        super().__init__(options, schema)
        self._limit = options.rows
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        first = self._first()
        return self._stream_offset(first, first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin, end = self._offset_range(start)[1], self._journal.end
        if end < begin:
            raise JournalError(
                f"{self._journal.folder} ends at offset {end}, and the stream is to go on at {begin}: is it another "
                "journal, or an older copy? After a power cut, open it once in its hub or broker",
                self._journal.folder,
            )
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return (
            self._stream_offset(begin, end) if begin < end else start
        )  # the same value, else Spark plans an empty batch

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        end = self._journal.end
        return self._stream_offset(end, end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._journal.end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        begin, until = self._offset_range(end)
        return self._partitions(begin, until) if begin < until else []

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: retention is configured by the journal's owner."""

    def _stream_offset(self, begin: int, offset: int) -> dict[str, Any]:
        return {"journal": self._journal.name, "begin": begin, "offset": offset}

    def _offset_range(self, offset: Mapping[str, Any]) -> tuple[int, int]:
        if offset["journal"] != self._journal.name:
            raise JournalError(
                f"the checkpoint is of the journal {offset['journal']!r}, and {self._journal.folder} is that of "
                f"{self._journal.name!r}; each stream has a checkpoint of its own",
                self._journal.folder,
            )
        return int(offset["begin"]), int(offset["offset"])


class SourceOptions:
    """The options of `spark.read` and `spark.readStream`, checked.

    Raises an `InvalidValueError` for an unknown option, a missing folder, or a value that cannot be read.
    """

    def __init__(self, options: Mapping[str, str], allowed: set[str]) -> None:
        for name in options:
            if name.lower() not in allowed:
                names = ", ".join(sorted(_OPTION_NAMES[name] for name in allowed if name in _OPTION_NAMES))
                raise InvalidValueError(
                    f"option {_OPTION_NAMES.get(name.lower(), name)!r} is not for this; there are: {names}"
                )
        folder = options.get("path")
        if not folder:
            raise InvalidValueError('the folder of the journal is missing: load("folder")')
        self.folder = _folder(folder)
        self.starting = _offset(options, "startingOffset", _EARLIEST)
        self.ending = _offset(options, "endingOffset", _LATEST)
        self.since = _time(options, "since")
        self.until = _time(options, "until")
        kinds = options.get("kinds")
        self.kinds = None if kinds is None else frozenset(filter(None, (kind.strip() for kind in kinds.split(","))))
        self.rows = _number(options, "maxRowsPerBatch", MAX_ROWS_PER_BATCH, minimum=1)


def microseconds(time: dt.datetime) -> int:
    """Return a time as microseconds since the Unix epoch; a time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def _arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of the columns that Spark asks for.

    Raises an `InvalidValueError` for a column that a journal does not have, or that has another type.
    """
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for field in arrow_schema:
        if field.name not in SCHEMA.names:
            raise InvalidValueError(f"a journal has no column {field.name!r}; there are: {', '.join(SCHEMA.names)}")
        expected = SCHEMA.field(field.name).type
        if field.type != expected:
            raise InvalidValueError(f"the column {field.name!r} is of the type {expected}, not {field.type}")
    return arrow_schema


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme not in ("", "file"):
        raise InvalidValueError(
            f"{text}: a journal is read from a folder that every worker sees, not from {parts.scheme}:"
        )
    return Path(unquote(parts.path) if parts.scheme else text).absolute()


def _offset(options: Mapping[str, str], name: str, default: str) -> int | str:
    text = options.get(name, default).strip().lower()
    return text if text in (_EARLIEST, _LATEST) else _number(options, name, 0)


def _number(options: Mapping[str, str], name: str, default: int, *, minimum: int = 0) -> int:
    text = options.get(name, str(default)).strip()
    if not text.isdecimal() or not minimum <= int(text) <= MAX_INTEGER:
        raise InvalidValueError(f"option {name!r}: {text!r} is not a whole number from {minimum}")
    return int(text)


def _time(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    try:
        return microseconds(dt.datetime.fromisoformat(text.strip()))
    except ValueError:
        raise InvalidValueError(
            f"option {name!r}: {text!r} is neither a time such as 2026-01-31T12:00:00Z nor a number of microseconds"
        ) from None


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
