"""The data source `tidings`: the journal of a hub or a broker as a DataFrame, in batch and as a stream.

It reads without a lock what is durable, also while the journal is written. Each segment is a partition, and so is each
stretch of a log; rows leave Python as Arrow batches.
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

from tidings.journal.reader import JournalReader, Stretch, Wanted
from tidings.journal.segment import SCHEMA
from tidings.model.errors import InvalidValueError, JournalError
from tidings.model.limits import MAX_INTEGER

NAME = "tidings"
MAX_ROWS_PER_BATCH = 200_000
_EARLIEST, _LATEST = "earliest", "latest"
_OF_BOTH = {"path", "startingoffset", "since", "kinds"}
_OF_BATCH = {"endingoffset", "until"}
_OF_STREAMS = {"maxrowsperbatch"}
_WRITTEN = {
    name.lower(): name for name in ("startingOffset", "endingOffset", "since", "until", "kinds", "maxRowsPerBatch")
}


class JournalSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(Options(self.options, _OF_BOTH | _OF_BATCH), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        return StreamReader(Options(self.options, _OF_BOTH | _OF_STREAMS), schema)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch


class _Rows:
    """What batch and stream share: a journal, and the rows that are asked of it."""

    def __init__(self, options: "Options", schema: StructType) -> None:
        self._journal = JournalReader(options.folder)
        self._shape = _shape(schema)
        self._wanted = Wanted(tuple(self._shape.names), options.kinds, options.since, options.until)
        self._start = options.starting

    def _first(self) -> int:
        if self._start == _EARLIEST:
            return self._journal.first
        return self._journal.end if self._start == _LATEST else int(self._start)

    def _parts(self, start: int, end: int) -> list[InputPartition]:
        return [Part(stretch) for stretch in self._journal.stretches(start, end, self._wanted)]

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, Part):
            return  # Spark's own, where there was nothing to read
        for batch in self._journal.batches(partition.stretch, self._wanted):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._shape)


class BatchReader(_Rows, DataSourceReader):
    """All of a journal that is durable when the query is planned, or a part of it.

    Filters are not taken over from Spark (`pushFilters`), although it offers it: where one DataFrame is used twice in a
    query, with two filters, Spark 4.3 reads both with the one that it handed over last, and rows are missing. What a
    reader shall leave out is said by options.
    """

    def __init__(self, options: "Options", schema: StructType) -> None:
        super().__init__(options, schema)
        self._end = options.ending

    def partitions(self) -> Sequence[InputPartition]:
        start, end = self._first(), self._journal.end
        if self._end != _LATEST:
            end = min(end, int(self._end))
        return self._parts(start, end) if start < end else []


class StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of the journal. A batch depends on its end alone, so that it can be read again.

    The end of a batch says where it begins: for the first batch of a query Spark keeps only the end, and asks for the
    beginning anew after a restart, when the oldest or the latest record may be another one.
    """

    def __init__(self, options: "Options", schema: StructType) -> None:
        super().__init__(options, schema)
        self._limit = options.rows
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        first = self._first()
        return self._told(first, first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin, end = self._said(start)[1], self._journal.end
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
        return self._told(begin, end) if begin < end else start  # as it is, or Spark takes it for something new

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        end = self._journal.end
        return self._told(end, end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._journal.end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        begin, until = self._said(end)
        return self._parts(begin, until) if begin < until else []

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: how long records stay is for their owner to say."""

    def _told(self, begin: int, offset: int) -> dict[str, Any]:
        return {"journal": self._journal.name, "begin": begin, "offset": offset}

    def _said(self, told: Mapping[str, Any]) -> tuple[int, int]:
        if told["journal"] != self._journal.name:
            raise JournalError(
                f"the checkpoint is of the journal {told['journal']!r}, and {self._journal.folder} is that of "
                f"{self._journal.name!r}; each stream has a checkpoint of its own",
                self._journal.folder,
            )
        return int(told["begin"]), int(told["offset"])


class Options:
    """What was said with `option(...)`, checked."""

    def __init__(self, given: Mapping[str, str], known: set[str]) -> None:
        for name in given:
            if name.lower() not in known:
                names = ", ".join(sorted(_WRITTEN[one] for one in known if one in _WRITTEN))
                raise InvalidValueError(
                    f"option {_WRITTEN.get(name.lower(), name)!r} is not for this; there are: {names}"
                )
        folder = given.get("path")
        if not folder:
            raise InvalidValueError('the folder of the journal is missing: load("folder")')
        self.folder = _folder(folder)
        self.starting = _offset(given, "startingOffset", _EARLIEST)
        self.ending = _offset(given, "endingOffset", _LATEST)
        self.since = _time(given, "since")
        self.until = _time(given, "until")
        kinds = given.get("kinds")
        self.kinds = None if kinds is None else frozenset(filter(None, (kind.strip() for kind in kinds.split(","))))
        self.rows = _number(given, "maxRowsPerBatch", MAX_ROWS_PER_BATCH, least=1)


def microseconds(time: dt.datetime) -> int:
    """Since the Unix epoch; a time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def _shape(schema: StructType) -> Any:
    """The Arrow schema of what Spark asks for: some columns of a journal, each of its own type."""
    shape = to_arrow_schema(schema, timezone="UTC")
    for field in shape:
        if field.name not in SCHEMA.names:
            raise InvalidValueError(f"a journal has no column {field.name!r}; there are: {', '.join(SCHEMA.names)}")
        expected = SCHEMA.field(field.name).type
        if field.type != expected:
            raise InvalidValueError(f"the column {field.name!r} is of the type {expected}, not {field.type}")
    return shape


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme not in ("", "file"):
        raise InvalidValueError(
            f"{text}: a journal is read from a folder that every worker sees, not from {parts.scheme}:"
        )
    return Path(unquote(parts.path) if parts.scheme else text).absolute()


def _offset(given: Mapping[str, str], name: str, otherwise: str) -> int | str:
    text = given.get(name, otherwise).strip().lower()
    return text if text in (_EARLIEST, _LATEST) else _number(given, name, 0)


def _number(given: Mapping[str, str], name: str, otherwise: int, *, least: int = 0) -> int:
    text = given.get(name, str(otherwise)).strip()
    if not text.isdecimal() or not least <= int(text) <= MAX_INTEGER:
        raise InvalidValueError(f"option {name!r}: {text!r} is not a whole number from {least}")
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
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
