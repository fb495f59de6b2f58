"""Publications as a table, a row each: validated and read in columns, and turned into `Event` objects where needed.

Columns: `id` (text or 16 bytes), `timestamp` (microseconds, or an Arrow timestamp), `publisher`, and optionally
`sequence`, `subject`, `payload`, `context` (struct, map or JSON text), `subscribers` and `policy` (texts), `token` and
`signature`. Attributes are all other columns, or one column `attributes` (struct, map or JSON text).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.json_text import JsonJoiner
from tidings.engine.batch.value_columns import Bools, ValueColumns
from tidings.filters import ContextFilter
from tidings.matching.index.arrow_tables import ATTRIBUTES, CONTEXT, SUBSCRIBERS, unreadable, whole
from tidings.model.errors import FilterError, InvalidValueError
from tidings.model.event import Event
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.identity import uuid_of
from tidings.model.limits import (
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    MAX_POLICY_CHARACTERS,
    MAX_SIGNATURE_BYTES,
    MAX_SUBJECT_CHARACTERS,
    MAX_TOKEN_BYTES,
)
from tidings.model.values import Attributes, Context

if TYPE_CHECKING:
    from tidings.security.batch_verifier import Claim
    from tidings.security.sealing.attribute_merkle import LeafContents

_NEEDED = ("id", "timestamp", "publisher")
_TEXTS = {"publisher": MAX_NAME_CHARACTERS, "subject": MAX_SUBJECT_CHARACTERS, "policy": MAX_POLICY_CHARACTERS}
_BYTES = {"payload": MAX_PAYLOAD_BYTES, "token": MAX_TOKEN_BYTES, "signature": MAX_SIGNATURE_BYTES}
FIELDS = (*_NEEDED, "sequence", "subject", "payload", CONTEXT, SUBSCRIBERS, "policy", "token", "signature")
JOURNAL = ("journal", "offset", "kind", "client", "published", "body")  # further columns of journal rows
_NO_CONTEXT = Context()
_UUID7 = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"


Text = TypeVar("Text", str, bytes)


class TextCodes(Generic[Text]):
    """A column of texts as numbers: -1 is null, others are positions in `texts`."""

    def __init__(self, column: pa.Array | None, rows: int) -> None:
        self.texts: list[Text] = []
        self.codes: npt.NDArray[np.int64] = np.full(rows, -1)
        if column is not None and column.null_count < len(column):
            encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
            self.texts = encoded.dictionary.to_pylist()
            self.codes = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1))

    def __getitem__(self, row: int) -> Text | None:
        code = self.codes[row]
        return None if code < 0 else self.texts[code]

    def values(self, answers: list[Any] | None = None) -> list[Any]:
        """Return for each row its text, or the item of `answers` for its text; None for null."""
        return list(map([*(self.texts if answers is None else answers), None].__getitem__, self.codes.tolist()))

    def lookup(self, answers: list[Any], otherwise: Any, kind: Any) -> Any:
        """Return an array of the type `kind` with the item of `answers` for each row's text; `otherwise` for null."""
        return np.array([*answers, otherwise], kind)[self.codes]


class _Lists(NamedTuple):
    """The fields of all events, a list per field."""

    ids: list[bytes]
    publishers: list[str]
    times: list[int]
    sequences: list[int | None]
    subjects: list[str | None]
    payloads: list[bytes | None]
    receivers: list[ContextFilter | None]
    policies: list[str | None]
    tokens: list[bytes | None]
    seals: list[bytes | None]


class PublicationColumns:
    """The publications in a table.

    `problems` has the reasons why rows are refused, by row. `now` are the acceptance times, or the time given for all;
    `timestamps` are the publishers' times. Raises an `InvalidValueError` if a column is missing or has a wrong type.
    """

    def __init__(self, table: pa.Table, now: int | None = None) -> None:
        for name in _NEEDED:
            if name not in table.column_names:
                raise InvalidValueError(f"the table of publications has no column {name}")
        is_journal = "kind" in table.column_names and "body" in table.column_names
        attributes = table.drop_columns(
            [name for name in table.column_names if name in FIELDS or (is_journal and name in JOURNAL)]
        )
        self.count = table.num_rows
        self._columns = {name: whole(table[name]) for name in FIELDS if name in table.column_names}
        self._unreadable: dict[int, str] = {}  # row -> why its text is not a JSON object
        for name in (*_TEXTS, SUBSCRIBERS):
            self._columns.update({name: _text(name, self._columns[name])} if name in self._columns else {})
        accepted = _microseconds("timestamp", self._columns["timestamp"])
        self.now = accepted if now is None else np.full(self.count, now)
        published = table["published"] if is_journal and "published" in table.column_names else None
        self.timestamps = accepted if published is None else _microseconds("published", whole(published))
        self._attribute_columns, self.attributes = self._read(attributes, ATTRIBUTES)
        self.context: ValueColumns | None = None
        if CONTEXT in table.column_names:
            contexts, self.context = self._read(table.select([CONTEXT]), CONTEXT)
            self._columns[CONTEXT] = whole(contexts[CONTEXT])
        self.publishers, self.subjects = self._codes("publisher"), self._codes("subject")
        self.policies, self.subscribers = self._codes("policy"), self._codes(SUBSCRIBERS)
        self._filters: list[ContextFilter | None] = []
        self._events: dict[int, Event] = {}
        self._fields: dict[str, list[Any]] = {}
        self._lists: _Lists | None = None
        self._json_joiner: JsonJoiner | None = None
        self.problems = self._check_doubtful(self._doubtful_rows())

    @staticmethod
    def times(table: pa.Table, column: str = "timestamp") -> npt.NDArray[np.int64]:
        """Return the times of a table's rows in microseconds; null becomes -1."""
        return _microseconds(column, whole(table[column]))

    def event(self, row: int) -> Event:
        """Return the event of a row that has no problem; it is cached."""
        event = self._events.get(row)
        if event is None:
            event = self._events[row] = self.uncached_event(row)
        return event

    def uncached_event(self, row: int) -> Event:
        """Return the event of a row that has no problem, without caching it.

        It is for visiting very many events once: cached ones would slow down Python's garbage collector.
        """
        if self._lists is not None:
            lists: tuple[list[Any], ...] = self._lists
            data, publisher, time, sequence, subject, payload, receivers, policy, token, seal = map(
                itemgetter(row), lists
            )
            event_id = uuid_of(data)
        else:
            event_id, publisher, time = self._uuid(row), self.publishers[row] or "", int(self.timestamps[row])
            sequence, subject, policy = self._value("sequence", row), self.subjects[row], self.policies[row]
            payload, token, seal = (_bytes(self._value(field, row)) for field in _BYTES)
            code = self.subscribers.codes[row]
            receivers = None if code < 0 else self._filters[code]
        return Event(
            id=event_id,
            publisher=publisher,
            timestamp=time,
            sequence=sequence or 0,
            attributes=self.attributes.at(row, Attributes),
            subject=subject,
            payload=payload,
            context=_NO_CONTEXT if self.context is None else self.context.at(row, Context),
            subscribers=receivers,
            policy=policy,
            token=token,
            signature=seal,
        )

    @cached_property
    def is_sealed(self) -> Bools:
        """The rows with a token or a signature."""
        is_sealed: Bools = np.zeros(self.count, bool)
        for name in ("token", "signature"):
            if name in self._columns:
                is_sealed |= np.asarray(pc.is_valid(self._columns[name]))
        return is_sealed

    @cached_property
    def tokens(self) -> TextCodes[bytes]:
        """The tokens as codes: there are few and they are long, so each is decoded once."""
        column = self._columns.get("token")
        return TextCodes(None if column is None else column.cast(pa.binary()), self.count)

    def claims(self, rows: list[int]) -> "Iterator[Claim]":
        """Return the fields of these rows as the batch verifier takes them, without making events."""
        lists = self._read_lists()
        texts = [None if context_filter is None else str(context_filter) for context_filter in self._filters]
        columns: tuple[list[Any], ...] = (
            *(
                lists.ids,
                lists.publishers,
                lists.subjects,
                lists.payloads,
                self.subscribers.values(texts),
                lists.policies,
            ),
            *(lists.tokens, lists.seals, self.now.tolist()),
        )
        chosen = columns if len(rows) == self.count else [map(column.__getitem__, rows) for column in columns]
        return zip(*chosen, *self._attributes_and_leaves(rows), strict=True)

    def _attributes_and_leaves(self, rows: list[int]) -> "tuple[Iterable[Mapping[str, Any]], Iterable[LeafContents]]":
        """Return the attributes of these rows, and the leaves of their Merkle trees from attributes and contexts."""
        from tidings.security.sealing import (
            attribute_merkle,  # imports ciphers: only with sealed events
        )

        columns = self.attributes.columns
        if columns and self.context is None:
            is_all = len(rows) == self.count
            lists = {
                name: (array if is_all else array.take(pa.array(rows))).to_pylist() for name, array in columns.items()
            }
            names = tuple(lists)
            attributes_by_row = (dict(zip(names, row, strict=True)) for row in zip(*lists.values(), strict=True))
            return attributes_by_row, attribute_merkle.leaf_contents_by_column(lists)
        attributes = [self.attributes.at(row, Attributes) for row in rows]
        contexts = [_NO_CONTEXT if self.context is None else self.context.at(row, Context) for row in rows]
        return attributes, map(attribute_merkle.leaf_contents, attributes, contexts)

    def read_all(self) -> None:
        """Read all rows at once, which is faster before many of them are asked for as events."""
        self._read_lists()
        self.attributes.read_all(Attributes)
        if self.context is not None:
            self.context.read_all(Context)

    def _read_lists(self) -> _Lists:
        if self._lists is not None:
            return self._lists
        for name in ("id", "sequence", *_BYTES):
            if name not in self._columns:
                self._fields[name] = [None] * self.count
            elif name == "token":
                self._fields[name] = self.tokens.values()
            elif name in _BYTES:
                self._fields[name] = self._columns[name].cast(pa.large_binary()).to_pylist()
            else:
                self._fields[name] = self._columns[name].to_pylist()
        self._lists = _Lists(
            *(self._ids(), self.publishers.values(), self.timestamps.tolist(), self._fields["sequence"]),
            *(self.subjects.values(), self._fields["payload"], self.subscribers.values(self._filters)),
            *(self.policies.values(), self._fields["token"], self._fields["signature"]),
        )
        return self._lists

    @property
    def json_joiner(self) -> JsonJoiner:
        """The joiner of the attributes' JSON texts."""
        if self._json_joiner is None:
            self._json_joiner = JsonJoiner(self.attributes.members(), self.count)
        return self._json_joiner

    def payloads(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return the payloads of these rows."""
        if "payload" not in self._columns:
            return pa.nulls(len(rows), pa.binary())
        return self._columns["payload"].cast(pa.binary()).take(pa.array(rows))

    def matcher_table(self, rows: Any, *, payload: bool, subscribers: bool = True) -> pa.Table:
        """Return these rows (None: all) as the index takes them.

        `payload`: whether a filter reads payloads. `subscribers`: whether to include the filters over subscribers'
        contexts.
        """
        columns = {name: self._attribute_columns[name] for name in self._attribute_columns.column_names}
        columns[SUBJECT] = self._columns.get("subject", pa.nulls(self.count, pa.string()))
        columns[PUBLISHER] = self._columns["publisher"]
        if payload and "payload" in self._columns:
            columns[PAYLOAD] = self._columns["payload"].cast(pa.binary())
        if CONTEXT in self._columns:
            columns[CONTEXT] = self._columns[CONTEXT]
        if subscribers and self.subscribers.texts:
            columns[SUBSCRIBERS] = self._columns[SUBSCRIBERS]
        table = pa.table(columns)
        return table if rows is None else table.take(pa.array(rows))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The approximate bytes of each event."""
        sizes = self.attributes.sizes
        if "payload" in self._columns:
            sizes = sizes + np.asarray(pc.binary_length(self._columns["payload"]).fill_null(0))
        return sizes

    # Validation

    def _read(self, table: pa.Table, column: str) -> tuple[pa.Table, ValueColumns]:
        """Read values from a table. A text that cannot be read is a problem of its row, and is read as empty."""
        try:
            return table, ValueColumns.of(table, column)
        except InvalidValueError:
            if column not in table.column_names or not pa.types.is_string(table.schema.field(column).type):
                raise
        texts = whole(table[column])
        reasons = unreadable(texts)
        self._unreadable.update({row: f"{column}: {reason}" for row, reason in reasons.items()})
        is_bad = np.isin(np.arange(table.num_rows), list(reasons))
        cleared = table.set_column(
            table.column_names.index(column), column, pc.if_else(pa.array(is_bad), pa.scalar(None, pa.string()), texts)
        )
        return cleared, ValueColumns.of(cleared, column)

    def _doubtful_rows(self) -> Bools:
        """Return the rows that might be refused; columns are checked as a whole, so there are few."""
        is_doubtful: Bools
        is_doubtful = (
            self.attributes.doubtful | (self.timestamps < 0) | ~np.asarray(pc.is_valid(self._columns["timestamp"]))
        )
        if self.context is not None:
            is_doubtful |= self.context.doubtful
        is_doubtful |= self.publishers.codes < 0
        for name, limit in _TEXTS.items():
            codes: TextCodes[str] = {"publisher": self.publishers, "subject": self.subjects, "policy": self.policies}[
                name
            ]
            is_invalid = [not 0 < len(text) <= limit for text in codes.texts]
            if any(is_invalid):
                is_doubtful |= codes.lookup(is_invalid, False, bool)
        for name, max_bytes in _BYTES.items():
            if name in self._columns:
                is_doubtful |= np.asarray(pc.greater(pc.binary_length(self._columns[name]), max_bytes).fill_null(False))
        if "sequence" in self._columns:
            is_doubtful |= np.asarray(pc.less(self._columns["sequence"], 0).fill_null(False))
        for text in self.subscribers.texts:
            try:
                self._filters.append(ContextFilter.parse(text))
            except FilterError:
                self._filters.append(None)
        if None in self._filters:
            is_doubtful |= self.subscribers.lookup(
                [context_filter is None for context_filter in self._filters], False, bool
            )
        is_doubtful |= ~self._has_uuid7
        return is_doubtful

    @cached_property
    def _has_uuid7(self) -> Bools:
        """The rows whose id is a UUIDv7."""
        ids = self._columns["id"]
        is_uuid7: Bools
        if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            is_uuid7 = np.asarray(pc.match_substring_regex(ids, _UUID7).fill_null(False))
            return is_uuid7
        if not (pa.types.is_binary(ids.type) or ids.type == pa.binary(16)):
            raise InvalidValueError(f"id: a column of texts or of 16 bytes each, not {ids.type}")
        binary = ids.cast(pa.binary())
        version = pc.is_in(pc.binary_slice(binary, 6, 7), pa.array([bytes([byte]) for byte in range(0x70, 0x80)]))
        variant = pc.is_in(pc.binary_slice(binary, 8, 9), pa.array([bytes([byte]) for byte in range(0x80, 0xC0)]))
        sized = pc.equal(pc.binary_length(binary), 16).fill_null(False)
        is_uuid7 = np.asarray(version) & np.asarray(variant) & np.asarray(sized)
        return is_uuid7

    def _check_doubtful(self, doubtful: Bools) -> dict[int, str]:
        """Check the doubtful rows one by one; return the reasons why rows are refused."""
        problems = {}
        rows = np.flatnonzero(doubtful).tolist()
        if len(rows) > 64:
            self.read_all()
        for row in rows:
            if row in self._unreadable:
                problems[row] = self._unreadable[row]
                continue
            try:
                event = self._checked_event(row)
            except (InvalidValueError, FilterError) as error:
                problems[row] = str(error)
            else:
                self._events[row] = event
                self.attributes.store(row, event.attributes)
                if self.context is not None:
                    self.context.store(row, event.context)
        return problems

    def _checked_event(self, row: int) -> Event:
        text = self.subscribers[row]
        sequence = self._value("sequence", row)
        valid = self._columns["timestamp"][row].is_valid
        return Event.of(
            self.attributes.raw(row),
            id=self._uuid(row),
            publisher=self.publishers[row] or "",
            timestamp=int(self.timestamps[row]) if valid else -1,
            sequence=0 if sequence is None else sequence,
            subject=self.subjects[row],
            payload=_bytes(self._value("payload", row)),
            context=None if self.context is None else self.context.raw(row),
            subscribers=None if text is None else ContextFilter.parse(text),
            policy=self.policies[row],
            token=_bytes(self._value("token", row)),
            signature=_bytes(self._value("signature", row)),
        )

    def _uuid(self, row: int) -> UUID:
        value = self._value("id", row)
        try:
            return UUID(bytes=value) if isinstance(value, bytes) else UUID(value)
        except (ValueError, TypeError, AttributeError):
            raise InvalidValueError("id: an event is named by a UUIDv7") from None

    def _ids(self) -> list[bytes]:
        """Return the bytes of each row's id; b"" if it is not a UUIDv7."""
        is_uuid7 = self._has_uuid7
        ids = self._columns["id"].filter(pa.array(is_uuid7))
        if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            data = bytes.fromhex("".join(ids.to_pylist()).replace("-", ""))
        else:
            data = b"".join(ids.to_pylist())
        ends = (np.cumsum(is_uuid7) * 16).tolist()
        return [data[end - 16 : end] if is_one else b"" for end, is_one in zip(ends, is_uuid7.tolist(), strict=True)]

    def _value(self, name: str, row: int) -> Any:
        if name in self._fields:
            return self._fields[name][row]
        return self._columns[name][row].as_py() if name in self._columns else None

    def _codes(self, name: str) -> TextCodes[str]:
        return TextCodes(self._columns.get(name), self.count)


def _text(name: str, column: pa.Array) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise InvalidValueError(f"{name}: a column of texts, not {column.type}")
    return column.cast(pa.string()) if column.type != pa.string() else column


def _microseconds(name: str, column: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise InvalidValueError(f"{name}: a column of microseconds or of timestamps, not {column.type}")
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(-1))


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
