"""The data source `tidings`: the journal of a hub or a broker as a DataFrame, in batch and as a stream.

It reads without a lock what is durable, also while the journal is written. Each segment is a partition, and so is each
stretch of a log; rows leave Python as Arrow batches.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
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

    def __init__(self, stretch: Stretch, wanted: Wanted) -> None:
        self.stretch, self.wanted = stretch, wanted


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

    def _parts(self, start: int, end: int, wanted: Wanted) -> list[InputPartition]:
        return [Part(stretch, wanted) for stretch in self._journal.stretches(start, end, wanted)]

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, Part):
            return  # Spark's own, where there was nothing to read
        for batch in self._journal.batches(partition.stretch, partition.wanted):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._shape)


class BatchReader(_Rows, DataSourceReader):
    """All of a journal that was durable when the query was planned, or a part of it."""

    def __init__(self, options: "Options", schema: StructType) -> None:
        super().__init__(options, schema)
        self._end = options.ending
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            narrowed = self._bounds.narrowed(one)
            if narrowed is None:
                yield one
                continue
            self._bounds = narrowed
            if one.attribute == ("timestamp",):
                yield one  # Spark looks again: a time in a filter is not told to the last detail

    def partitions(self) -> Sequence[InputPartition]:
        bounds, wanted = self._bounds, self._wanted
        end = self._journal.end
        if self._end != _LATEST:
            end = min(end, int(self._end))
        # What a filter leaves out is left out; what an option asks for and retention has taken away is told.
        start, end = max(self._first(), bounds.first), min(end, bounds.next)
        kinds = wanted.kinds if bounds.kinds is None else bounds.kinds & (wanted.kinds or bounds.kinds)
        narrowed = msgspec.structs.replace(
            wanted, kinds=kinds, since=_latest(wanted.since, bounds.since), until=_earliest(wanted.until, bounds.until)
        )
        return self._parts(start, end, narrowed) if start < end else []


class StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of the journal. What a batch holds depends on its two offsets alone, so it can be read again."""

    def __init__(self, options: "Options", schema: StructType) -> None:
        super().__init__(options, schema)
        self._limit = options.rows
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return self._told(self._first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin, end = self._said(start), self._journal.end
        if end < begin:
            raise JournalError(
                f"{self._journal.folder} ends at offset {end}, and the stream has read up to {begin}: is it another "
                "journal, or an older copy? After a power cut, open it once in its hub or broker",
                self._journal.folder,
            )
        if self._target is not None:
            end = max(begin, min(end, self._target))
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return self._told(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._told(self._journal.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._journal.end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = self._said(start), self._said(end)
        return self._parts(begin, until, self._wanted) if begin < until else []

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: how long records stay is for their owner to say."""

    def _told(self, offset: int) -> dict[str, Any]:
        return {"journal": self._journal.name, "offset": offset}

    def _said(self, told: Mapping[str, Any]) -> int:
        if told["journal"] != self._journal.name:
            raise JournalError(
                f"the checkpoint is of the journal {told['journal']!r}, and {self._journal.folder} is that of "
                f"{self._journal.name!r}; each stream has a checkpoint of its own",
                self._journal.folder,
            )
        return int(told["offset"])


class Options:
    """What was said with `option(...)`, checked."""

    def __init__(self, given: Mapping[str, str], known: set[str]) -> None:
        for name in given:
            if name.lower() not in known:
                names = ", ".join(sorted(_WRITTEN[one] for one in known if one in _WRITTEN))
                raise InvalidValueError(f"option {_WRITTEN.get(name.lower(), name)!r} is not for this; there are: {names}")
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


class Bounds(NamedTuple):
    """What pushed filters leave: offsets, times and kinds."""

    first: int = 0
    next: int = MAX_INTEGER
    since: int | None = None
    until: int | None = None
    kinds: frozenset[str] | None = None

    def narrowed(self, given: Any) -> "Bounds | None":
        """Narrower by this filter, or nothing if it is none of ours."""
        match given:
            case IsNotNull(("journal" | "offset" | "timestamp" | "kind",)):
                return self
            case EqualTo(("kind",), str() as kind):
                return self._of_kinds({kind})
            case In(("kind",), kinds) if all(isinstance(kind, str) for kind in kinds):
                return self._of_kinds(kinds)
            case EqualTo(("offset",), int() as value):
                return self._between(value, value)
            case GreaterThan(("offset",), int() as value):
                return self._between(value + 1, None)
            case GreaterThanOrEqual(("offset",), int() as value):
                return self._between(value, None)
            case LessThan(("offset",), int() as value):
                return self._between(None, value - 1)
            case LessThanOrEqual(("offset",), int() as value):
                return self._between(None, value)
            case EqualTo(("timestamp",), dt.datetime(tzinfo=dt.tzinfo()) as time):
                return self._at(time, time)
            case GreaterThan(("timestamp",), dt.datetime(tzinfo=dt.tzinfo()) as time):
                return self._at(time, None)
            case GreaterThanOrEqual(("timestamp",), dt.datetime(tzinfo=dt.tzinfo()) as time):
                return self._at(time, None)
            case LessThan(("timestamp",), dt.datetime(tzinfo=dt.tzinfo()) as time):
                return self._at(None, time)
            case LessThanOrEqual(("timestamp",), dt.datetime(tzinfo=dt.tzinfo()) as time):
                return self._at(None, time)
            case _:
                return None

    def _of_kinds(self, kinds: Iterable[str]) -> "Bounds":
        found = frozenset(kinds)
        return self._replace(kinds=found if self.kinds is None else self.kinds & found)

    def _between(self, first: int | None, last: int | None) -> "Bounds":
        low = self.first if first is None else max(self.first, first)
        return self._replace(first=low, next=self.next if last is None else min(self.next, last + 1))

    def _at(self, first: dt.datetime | None, last: dt.datetime | None) -> "Bounds":
        since = None if first is None else microseconds(first)
        until = None if last is None else microseconds(last) + 1
        return self._replace(since=_latest(self.since, since), until=_earliest(self.until, until))


def microseconds(time: dt.datetime) -> int:
    """Since the Unix epoch; a time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=dt.timezone.utc)
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
        raise InvalidValueError(f"{text}: a journal is read from a folder that every worker sees, not from {parts.scheme}:")
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


def _latest(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _earliest(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
