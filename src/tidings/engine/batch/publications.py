"""Publications as a table: one row an event, read in columns as far as that goes, and as events where one is needed.

Columns: `id` (text or 16 bytes), `timestamp` (microseconds, or an Arrow timestamp), `publisher`, and where there are
any `sequence`, `subject`, `payload`, `context` (struct, map or JSON text), `subscribers` and `policy` (texts), `token`
and `signature`. Every other column is an attribute, or one column `attributes` holds them (struct, map or JSON text).
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

from tidings.engine.batch.named import Bools, Named
from tidings.engine.batch.texts import Weaver
from tidings.filters import ContextFilter
from tidings.matching.index.tables import ATTRIBUTES, CONTEXT, SUBSCRIBERS, unreadable, whole
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
    from tidings.security.inspection import Claim
    from tidings.security.root import Told

_NEEDED = ("id", "timestamp", "publisher")
_TEXTS = {"publisher": MAX_NAME_CHARACTERS, "subject": MAX_SUBJECT_CHARACTERS, "policy": MAX_POLICY_CHARACTERS}
_BYTES = {"payload": MAX_PAYLOAD_BYTES, "token": MAX_TOKEN_BYTES, "signature": MAX_SIGNATURE_BYTES}
FIELDS = (*_NEEDED, "sequence", "subject", "payload", CONTEXT, SUBSCRIBERS, "policy", "token", "signature")
JOURNAL = ("journal", "offset", "kind", "client", "published", "body")  # what rows of a journal have beside them
_NO_CONTEXT = Context()
_UUID7 = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"


Text = TypeVar("Text", str, bytes)


class Codes(Generic[Text]):
    """A column of texts as numbers: -1 is null, others are places in `texts`."""

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

    def all(self, answers: list[Any] | None = None) -> list[Any]:
        """By row its text, or what was answered for it; None where there is none."""
        return list(map([*(self.texts if answers is None else answers), None].__getitem__, self.codes.tolist()))

    def each(self, answers: list[Any], otherwise: Any, kind: Any) -> Any:
        """By row what was answered for its text."""
        return np.array([*answers, otherwise], kind)[self.codes]


class _Lists(NamedTuple):
    """What events say, each in a list as long as the table."""

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


class Publications:
    """The rows of a table; `problems` says of some why there is no event in them."""

    def __init__(self, table: pa.Table, now: int | None = None) -> None:
        for name in _NEEDED:
            if name not in table.column_names:
                raise InvalidValueError(f"the table of publications has no column {name}")
        is_journal = "kind" in table.column_names and "body" in table.column_names
        named = table.drop_columns(
            [one for one in table.column_names if one in FIELDS or (is_journal and one in JOURNAL)]
        )
        self.count = table.num_rows
        self._given = {name: whole(table[name]) for name in FIELDS if name in table.column_names}
        self._unread: dict[int, str] = {}  # rows whose texts are no JSON objects
        for name in (*_TEXTS, SUBSCRIBERS):
            self._given.update({name: _text(name, self._given[name])} if name in self._given else {})
        accepted = _microseconds("timestamp", self._given["timestamp"])
        self.now = accepted if now is None else np.full(self.count, now)
        published = table["published"] if is_journal and "published" in table.column_names else None
        self.timestamps = accepted if published is None else _microseconds("published", whole(published))
        self._named, self.attributes = self._read(named, ATTRIBUTES)
        self.context: Named | None = None
        if CONTEXT in table.column_names:
            contexts, self.context = self._read(table.select([CONTEXT]), CONTEXT)
            self._given[CONTEXT] = whole(contexts[CONTEXT])
        self.publishers, self.subjects = self._codes("publisher"), self._codes("subject")
        self.policies, self.subscribers = self._codes("policy"), self._codes(SUBSCRIBERS)
        self._filters: list[ContextFilter | None] = []
        self._events: dict[int, Event] = {}
        self._fields: dict[str, list[Any]] = {}
        self._lists: _Lists | None = None
        self._weaver: Weaver | None = None
        self.problems = self._refused(self._doubtful())

    @staticmethod
    def times(table: pa.Table, column: str = "timestamp") -> npt.NDArray[np.int64]:
        """When each row of a table was accepted, in microseconds."""
        return _microseconds(column, whole(table[column]))

    def event(self, row: int) -> Event:
        """The event of a row that has no problem."""
        known = self._events.get(row)
        if known is None:
            known = self._events[row] = self.made(row)
        return known

    def made(self, row: int) -> Event:
        """The same, for who looks at very many of them once: if all stayed, Python's collector would look at each again
        and again."""
        if self._lists is not None:
            lists: tuple[list[Any], ...] = self._lists
            data, publisher, time, sequence, subject, payload, receivers, policy, token, seal = map(
                itemgetter(row), lists
            )
            name = uuid_of(data)
        else:
            name, publisher, time = self._uuid(row), self.publishers[row] or "", int(self.timestamps[row])
            sequence, subject, policy = self._value("sequence", row), self.subjects[row], self.policies[row]
            payload, token, seal = (_bytes(self._value(one, row)) for one in _BYTES)
            code = self.subscribers.codes[row]
            receivers = None if code < 0 else self._filters[code]
        return Event(
            id=name,
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
    def sealed(self) -> Bools:
        """The rows that have a token, or a signature."""
        found: Bools = np.zeros(self.count, bool)
        for name in ("token", "signature"):
            if name in self._given:
                found |= np.asarray(pc.is_valid(self._given[name]))
        return found

    @cached_property
    def tokens(self) -> Codes[bytes]:
        """They are few, and long: each is read once."""
        given = self._given.get("token")
        return Codes(None if given is None else given.cast(pa.binary()), self.count)

    def claims(self, rows: list[int]) -> "Iterator[Claim]":
        """These rows as an inspection wants them, which never asks for an event."""
        lists = self._listed()
        texts = [None if one is None else str(one) for one in self._filters]
        columns: tuple[list[Any], ...] = (
            *(lists.ids, lists.publishers, lists.subjects, lists.payloads, self.subscribers.all(texts), lists.policies),
            *(lists.tokens, lists.seals, self.now.tolist()),
        )
        chosen = columns if len(rows) == self.count else [map(one.__getitem__, rows) for one in columns]
        return zip(*chosen, *self._told(rows), strict=True)

    def _told(self, rows: list[int]) -> "tuple[Iterable[Mapping[str, Any]], Iterable[Told]]":
        """Attributes, and with the context as leaves have them: column by column where there are columns."""
        from tidings.security import root  # with it come ciphers: only for those who have sealed events

        columns = self.attributes.columns
        if columns and self.context is None:
            whole = len(rows) == self.count
            lists = {
                name: (array if whole else array.take(pa.array(rows))).to_pylist() for name, array in columns.items()
            }
            names = tuple(lists)
            made = (dict(zip(names, row, strict=True)) for row in zip(*lists.values(), strict=True))
            return made, root.told_in_columns(lists)
        attributes = [self.attributes.at(row, Attributes) for row in rows]
        contexts = [_NO_CONTEXT if self.context is None else self.context.at(row, Context) for row in rows]
        return attributes, map(root.told, attributes, contexts)

    def read_all(self) -> None:
        """Before many rows are asked for as events."""
        self._listed()
        self.attributes.read_all(Attributes)
        if self.context is not None:
            self.context.read_all(Context)

    def _listed(self) -> _Lists:
        if self._lists is not None:
            return self._lists
        for name in ("id", "sequence", *_BYTES):
            if name not in self._given:
                self._fields[name] = [None] * self.count
            elif name == "token":
                self._fields[name] = self.tokens.all()
            elif name in _BYTES:
                self._fields[name] = self._given[name].cast(pa.large_binary()).to_pylist()
            else:
                self._fields[name] = self._given[name].to_pylist()
        self._lists = _Lists(
            *(self._ids(), self.publishers.all(), self.timestamps.tolist(), self._fields["sequence"]),
            *(self.subjects.all(), self._fields["payload"], self.subscribers.all(self._filters)),
            *(self.policies.all(), self._fields["token"], self._fields["signature"]),
        )
        return self._lists

    @property
    def weaver(self) -> Weaver:
        """Of the attributes, as JSON text."""
        if self._weaver is None:
            self._weaver = Weaver(self.attributes.members(), self.count)
        return self._weaver

    def payloads(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        if "payload" not in self._given:
            return pa.nulls(len(rows), pa.binary())
        return self._given["payload"].cast(pa.binary()).take(pa.array(rows))

    def matchable(self, rows: Any, *, payload: bool, subscribers: bool = True) -> pa.Table:
        """These rows (None: all) as an index wants them; with payloads only if some filter looks into them."""
        made = {name: self._named[name] for name in self._named.column_names}
        made[SUBJECT] = self._given.get("subject", pa.nulls(self.count, pa.string()))
        made[PUBLISHER] = self._given["publisher"]
        if payload and "payload" in self._given:
            made[PAYLOAD] = self._given["payload"].cast(pa.binary())
        if CONTEXT in self._given:
            made[CONTEXT] = self._given[CONTEXT]
        if subscribers and self.subscribers.texts:
            made[SUBSCRIBERS] = self._given[SUBSCRIBERS]
        table = pa.table(made)
        return table if rows is None else table.take(pa.array(rows))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """About how many bytes each event has."""
        found = self.attributes.sizes
        if "payload" in self._given:
            found = found + np.asarray(pc.binary_length(self._given["payload"]).fill_null(0))
        return found

    # The door

    def _read(self, table: pa.Table, column: str) -> tuple[pa.Table, Named]:
        """A text that cannot be read is the problem of its row alone; everybody else sees it as empty."""
        try:
            return table, Named.of(table, column)
        except InvalidValueError:
            if column not in table.column_names or not pa.types.is_string(table.schema.field(column).type):
                raise
        texts = whole(table[column])
        found = unreadable(texts)
        self._unread.update({row: f"{column}: {why}" for row, why in found.items()})
        is_bad = np.isin(np.arange(table.num_rows), list(found))
        cleared = table.set_column(
            table.column_names.index(column), column, pc.if_else(pa.array(is_bad), pa.scalar(None, pa.string()), texts)
        )
        return cleared, Named.of(cleared, column)

    def _doubtful(self) -> Bools:
        """Rows that might be refused: few, where a column as a whole can be judged."""
        found: Bools
        found = self.attributes.doubtful | (self.timestamps < 0) | ~np.asarray(pc.is_valid(self._given["timestamp"]))
        if self.context is not None:
            found |= self.context.doubtful
        found |= self.publishers.codes < 0
        for name, limit in _TEXTS.items():
            codes: Codes[str] = {"publisher": self.publishers, "subject": self.subjects, "policy": self.policies}[name]
            odd = [not 0 < len(text) <= limit for text in codes.texts]
            if any(odd):
                found |= codes.each(odd, False, bool)
        for name, most in _BYTES.items():
            if name in self._given:
                found |= np.asarray(pc.greater(pc.binary_length(self._given[name]), most).fill_null(False))
        if "sequence" in self._given:
            found |= np.asarray(pc.less(self._given["sequence"], 0).fill_null(False))
        for text in self.subscribers.texts:
            try:
                self._filters.append(ContextFilter.parse(text))
            except FilterError:
                self._filters.append(None)
        if None in self._filters:
            found |= self.subscribers.each([one is None for one in self._filters], False, bool)
        found |= ~self._named_well
        return found

    @cached_property
    def _named_well(self) -> Bools:
        """The rows whose id is a UUIDv7."""
        ids = self._given["id"]
        found: Bools
        if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            found = np.asarray(pc.match_substring_regex(ids, _UUID7).fill_null(False))
            return found
        if not (pa.types.is_binary(ids.type) or ids.type == pa.binary(16)):
            raise InvalidValueError(f"id: a column of texts or of 16 bytes each, not {ids.type}")
        given = ids.cast(pa.binary())
        version = pc.is_in(pc.binary_slice(given, 6, 7), pa.array([bytes([one]) for one in range(0x70, 0x80)]))
        variant = pc.is_in(pc.binary_slice(given, 8, 9), pa.array([bytes([one]) for one in range(0x80, 0xC0)]))
        sized = pc.equal(pc.binary_length(given), 16).fill_null(False)
        found = np.asarray(version) & np.asarray(variant) & np.asarray(sized)
        return found

    def _refused(self, doubtful: Bools) -> dict[int, str]:
        problems = {}
        rows = np.flatnonzero(doubtful).tolist()
        if len(rows) > 64:
            self.read_all()
        for row in rows:
            if row in self._unread:
                problems[row] = self._unread[row]
                continue
            try:
                event = self._checked(row)
            except (InvalidValueError, FilterError) as error:
                problems[row] = str(error)
            else:
                self._events[row] = event
                self.attributes.settle(row, event.attributes)
                if self.context is not None:
                    self.context.settle(row, event.context)
        return problems

    def _checked(self, row: int) -> Event:
        text = self.subscribers[row]
        sequence = self._value("sequence", row)
        valid = self._given["timestamp"][row].is_valid
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
        given = self._value("id", row)
        try:
            return UUID(bytes=given) if isinstance(given, bytes) else UUID(given)
        except (ValueError, TypeError, AttributeError):
            raise InvalidValueError("id: an event is named by a UUIDv7") from None

    def _ids(self) -> list[bytes]:
        """Of all rows that have a UUIDv7, its bytes."""
        well = self._named_well
        ids = self._given["id"].filter(pa.array(well))
        if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            data = bytes.fromhex("".join(ids.to_pylist()).replace("-", ""))
        else:
            data = b"".join(ids.to_pylist())
        ends = (np.cumsum(well) * 16).tolist()
        return [data[end - 16 : end] if is_one else b"" for end, is_one in zip(ends, well.tolist(), strict=True)]

    def _value(self, name: str, row: int) -> Any:
        if name in self._fields:
            return self._fields[name][row]
        return self._given[name][row].as_py() if name in self._given else None

    def _codes(self, name: str) -> Codes[str]:
        return Codes(self._given.get(name), self.count)


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


def _bytes(given: Any) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
