"""Contexts that rows of a table set: read in columns, and made together, or up to where somebody looks at them.

What a row says stands in its `body` as JSON text, as a journal has it; where there is none, in the column `context`
(struct, map or JSON text), in which publications have their publishers'. Structs are the fastest.
"""

from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.named import Named
from tidings.engine.batch.publications import Codes
from tidings.engine.batch.record import Record
from tidings.engine.matcher import FastMatcher
from tidings.matching.index.moves import Moves
from tidings.matching.index.tables import CONTEXT, mappings, whole
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Context, Value, checked_name

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

Ints = npt.NDArray[np.int64]
Columns = dict[str, pa.Array | list[Value | None]]  # a list has values of several kinds
UNREADABLE = (TidingsError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of rows and JSON
_TYPES = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def unreadable(error: Exception) -> str:
    """Why a row that cannot be read is refused."""
    said = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
    return f"the row says nothing that can be done: {said}"


class ContextChanges:
    """Rows that set contexts; those of them that are refused go into the record."""

    def __init__(
        self, engine: "Engine", matcher: FastMatcher, table: pa.Table, numbers: Ints, before: Ints, record: Record
    ) -> None:
        """`numbers` are the rows in the batch; so many of them come `before` each publication.

        Raises `NotSayable` where the index has no room for so many names; nothing has happened then.
        """
        self._engine, self._matcher = engine, matcher
        client = whole(table["client"]).cast(pa.string()) if "client" in table.column_names else None
        clients = Codes(client, table.num_rows)
        self._said = _Said(table)
        refused = {**self._not_entrusted(clients, table), **self._said.problems, **self._nameless(clients)}
        kept = np.ones(table.num_rows, bool)
        kept[list(refused)] = False
        if refused:
            self._said.keep(kept)
        self._names, self._codes = clients.texts, clients.codes[kept]
        names = pa.DictionaryArray.from_arrays(self._codes, pa.array(clients.texts, pa.string()))
        kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[before]
        # Whoever is refused everything is not among the clients of the index.
        self.moves: Moves = matcher.moves(
            names.dictionary_decode() if refused else names, self._said.columns, kept_before
        )
        self._made = 0
        for row, reason in sorted(refused.items()):
            record.reject(int(numbers[row]), "admit", reason)

    def make(self, until: int) -> None:
        """Makes those that have not been made yet, up to that one."""
        if until <= self._made:
            return
        changed = np.flatnonzero(self._matcher.move(self.moves, self._made, until)) + self._made
        self._made = until
        last = dict(zip(self._codes[changed].tolist(), changed.tolist(), strict=True))  # in the order of the first
        contexts = self._said.contexts(list(last.values()))
        self._engine.contexts.update(zip(map(self._names.__getitem__, last), contexts, strict=True))

    def make_all(self) -> None:
        self.make(len(self.moves))

    def _nameless(self, clients: Codes[str]) -> dict[int, str]:
        """Rows whose client is none."""
        found: dict[int, str] = {}
        unknown: set[str | None] = {*clients.texts, None} - self._engine.contexts.keys()
        for name in unknown:
            try:
                checked_client(name)
            except InvalidValueError as error:
                code = -1 if name is None else clients.texts.index(name)
                found.update(dict.fromkeys(np.flatnonzero(clients.codes == code).tolist(), unreadable(error)))
        return found

    def _not_entrusted(self, clients: Codes[str], table: pa.Table) -> dict[int, str]:
        """Why some rows may not set somebody's context, in the words of `handle`."""
        if "id" not in table.column_names:
            return {}
        found: dict[int, str] = {}
        others = whole(table["id"])
        for row in np.flatnonzero(np.asarray(pc.is_valid(others))).tolist():
            client, other = clients[row] or "", others[row].as_py()
            if other != client and other not in self._engine.entrusted.get(client, ()):
                found[row] = f"{client} does not let {other} set its context"
        return found


class _Said:
    """What rows say: a column a name. `problems` are the reasons why there is no context in some of them."""

    def __init__(self, table: pa.Table) -> None:
        self.problems: dict[int, str] = {}
        self.columns: Columns = {}
        self._rows: list[dict[str, Any]] | None = None  # where each has brought its own names
        nothing = pa.nulls(table.num_rows)
        bodies = whole(table["body"]).cast(pa.string())
        given = whole(table[CONTEXT]) if CONTEXT in table.column_names else nothing
        if pa.types.is_string(given.type) or pa.types.is_large_string(given.type):
            bodies, given = pc.coalesce(bodies, given.cast(pa.string())), nothing
        if bodies.null_count == len(bodies) and pa.types.is_struct(given.type):
            named = Named.of(table.select([CONTEXT]), CONTEXT)
            self.columns.update(named.columns)
            for row in np.flatnonzero(named.doubtful).tolist():
                self._check(row, named.raw(row))
            return
        rows = self._read(bodies, given)
        if pc.any(pc.match_substring(bodies, '"$')).as_py():
            rows = [_without_notes(one) for one in rows]
        columns = _columns(rows)
        if columns is None:  # something is unusual: each row by itself
            rows = [self._check(row, one) for row, one in enumerate(rows)]
            columns = _columns_of(rows)
        self._rows, self.columns = rows, columns

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Only these rows count from now on."""
        chosen = kept.tolist()
        self.columns = {
            name: list(compress(one, chosen)) if isinstance(one, list) else one.filter(pa.array(kept))
            for name, one in self.columns.items()
        }
        if self._rows is not None:
            self._rows = list(compress(self._rows, chosen))

    def contexts(self, rows: list[int]) -> list[Context]:
        """Those of some rows."""
        if self._rows is not None:
            return [_context(self._rows[row]) for row in rows]
        chosen = pa.array(rows, pa.int64())
        columns = {name: one.take(chosen).to_pylist() for name, one in self.columns.items()}  # type: ignore[union-attr]
        return Context.trusted_columns(columns, len(rows))

    def _read(self, bodies: pa.Array, given: pa.Array) -> list[dict[str, Any]]:
        others: list[dict[str, Any]] = [{}] * len(given) if given.null_count == len(given) else mappings(given)
        rows = []
        for row, (text, other) in enumerate(zip(bodies.to_pylist(), others, strict=True)):
            try:
                rows.append(other if text is None else _decode(text))
            except (msgspec.MsgspecError, RecursionError) as error:
                self.problems[row] = unreadable(error)
                rows.append({})
        return rows

    def _check(self, row: int, values: dict[str, Any]) -> Context:
        try:
            return Context(values)
        except InvalidValueError as error:
            self.problems[row] = unreadable(error)
            return Context()


def _columns(rows: list[dict[str, Any]]) -> Columns | None:
    """A column a name; None if a row may be one that `Context` would refuse, or make another of."""
    found: Columns = {}
    for name in set[str]().union(*rows):
        values = [one.get(name) for one in rows]
        kinds = {*map(type, values)} - {type(None)}
        try:
            checked_name(name)
            [kind] = kinds or {float}
            column = pa.array(values, _TYPES[kind])
        except (InvalidValueError, ValueError, KeyError, OverflowError, pa.ArrowException):
            return None
        if kind is float and not np.isfinite(np.asarray(column.fill_null(0.0))).all():
            return None
        if kind is str and (pc.max(pc.utf8_length(column)).as_py() or 0) > MAX_STRING_CHARACTERS:
            return None
        found[name] = column
    return found


def _columns_of(contexts: list[dict[str, Any]]) -> Columns:
    """The same of rows that have been checked: lists, since values of one name may be of several kinds."""
    return {name: [one.get(name) for one in contexts] for name in set[str]().union(*contexts)}


def _without_notes(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("$")}


def _context(values: dict[str, Any]) -> Context:
    if type(values) is Context:
        return values
    if None in values.values():
        values = {name: value for name, value in values.items() if value is not None}
    return Context.trusted(values)
