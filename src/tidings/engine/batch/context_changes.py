"""Context changes in a batch: read in columns, and applied all at once or up to a position between publications.

The new context of a row is JSON text in its `body`, as in a journal, or else the value of the column `context` (struct,
map or JSON text), which has the publishers' contexts in rows of publications. Structs are the fastest.
"""

from itertools import compress
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.publication_columns import TextCodes
from tidings.engine.batch.results import ResultCollector
from tidings.engine.batch.value_columns import ValueColumns
from tidings.engine.matcher import FastMatcher
from tidings.engine.state.contexts import store_contexts
from tidings.engine.turn import Turn
from tidings.matching.index.arrow_tables import CONTEXT, mappings, whole
from tidings.matching.index.pending_context_changes import PendingContextChanges
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Context, Value, checked_name

Ints = npt.NDArray[np.int64]
Columns = dict[str, pa.Array | list[Value | None]]  # a list if values have several types
UNREADABLE = (TidingsError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # for rows and JSON
_TYPES = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def unreadable_reason(error: Exception) -> str:
    """Return the reason with which a row that cannot be read is refused."""
    message = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
    return f"the row says nothing that can be done: {message}"


class ContextChanges:
    """The rows of a span that set contexts. Matching sees each change at its place; engine and index get them later."""

    def __init__(
        self,
        turn: Turn,
        matcher: FastMatcher,
        table: pa.Table,
        numbers: Ints,
        before: Ints,
        results: ResultCollector,
    ) -> None:
        """Read and check the rows; refused rows are reported to `results`.

        Args:
            turn: The state of the broker, and the operation at hand.
            matcher: Its index.
            table: The rows that set contexts.
            numbers: Their row numbers in the batch.
            before: For each publication of the span, how many of the rows come before it.
            results: Collects the results.

        Raises:
            NotExpressible: The index has no room for so many context names. Nothing has changed then.
        """
        self._turn, self._matcher = turn, matcher
        client = whole(table["client"]).cast(pa.string()) if "client" in table.column_names else None
        clients = TextCodes(client, table.num_rows)
        self._rows_read = _ContextRows(table)
        refused = {**self._not_delegated(clients, table), **self._rows_read.problems, **self._invalid_clients(clients)}
        is_kept = np.ones(table.num_rows, bool)
        is_kept[list(refused)] = False
        if refused:
            self._rows_read.keep(is_kept)
        self._names, self._codes = clients.texts, clients.codes[is_kept]
        names = pa.DictionaryArray.from_arrays(self._codes, pa.array(clients.texts, pa.string()))
        changes_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kept)])[before]
        # A client with only refused rows must not be added to the index.
        self.pending: PendingContextChanges = matcher.moves(
            names.dictionary_decode() if refused else names, self._rows_read.columns, changes_before
        )
        self._applied = 0
        for row, reason in sorted(refused.items()):
            results.reject(int(numbers[row]), "admit", reason)

    def apply(self, until: int) -> None:
        """Apply the changes before the position `until` that are not applied yet, to the index and the engine."""
        if until <= self._applied:
            return
        changed = np.flatnonzero(self._matcher.move(self.pending, self._applied, until)) + self._applied
        self._applied = until
        last = dict(zip(self._codes[changed].tolist(), changed.tolist(), strict=True))  # ordered by first change
        contexts = self._rows_read.contexts(list(last.values()))
        store_contexts(self._turn.state.contexts, zip(map(self._names.__getitem__, last), contexts, strict=True))

    def apply_all(self) -> None:
        """Apply all changes that are not applied yet."""
        self.apply(len(self.pending))

    def _invalid_clients(self, clients: TextCodes[str]) -> dict[int, str]:
        """Return the rows whose client is missing or has an invalid name, with the reason."""
        reasons: dict[int, str] = {}
        unknown: set[str | None] = {*clients.texts, None} - self._turn.state.contexts.local.keys()
        for name in unknown:
            try:
                checked_client(name)
            except InvalidValueError as error:
                code = -1 if name is None else clients.texts.index(name)
                reasons.update(dict.fromkeys(np.flatnonzero(clients.codes == code).tolist(), unreadable_reason(error)))
        return reasons

    def _not_delegated(self, clients: TextCodes[str], table: pa.Table) -> dict[int, str]:
        """Return the rows that set another client's context without permission, with the reason of `Engine.handle`."""
        if "id" not in table.column_names:
            return {}
        reasons: dict[int, str] = {}
        others = whole(table["id"])
        for row in np.flatnonzero(np.asarray(pc.is_valid(others))).tolist():
            client, other = clients[row] or "", others[row].as_py()
            if other != client and other not in self._turn.state.contexts.delegates.get(client, ()):
                reasons[row] = f"{client} does not let {other} set its context"
        return reasons


class _ContextRows:
    """The contexts in some rows, as a column per name; `problems` has the reasons why rows cannot be read."""

    def __init__(self, table: pa.Table) -> None:
        self.problems: dict[int, str] = {}
        self.columns: Columns = {}
        self._rows: list[dict[str, Any]] | None = None  # a dictionary per row, if rows have their own names
        nothing = pa.nulls(table.num_rows)
        bodies = whole(table["body"]).cast(pa.string())
        contexts = whole(table[CONTEXT]) if CONTEXT in table.column_names else nothing
        if pa.types.is_string(contexts.type) or pa.types.is_large_string(contexts.type):
            bodies, contexts = pc.coalesce(bodies, contexts.cast(pa.string())), nothing
        if bodies.null_count == len(bodies) and pa.types.is_struct(contexts.type):
            values = ValueColumns.of(table.select([CONTEXT]), CONTEXT)
            self.columns.update(values.columns)
            for row in np.flatnonzero(values.doubtful).tolist():
                self._check(row, values.raw(row))
            return
        rows = self._read(bodies, contexts)
        if pc.any(pc.match_substring(bodies, '"$')).as_py():
            rows = [_without_hub_fields(row) for row in rows]
        columns = _columns(rows)
        if columns is None:  # a value may be invalid: check row by row
            rows = [self._check(row, one) for row, one in enumerate(rows)]
            columns = _columns_of(rows)
        self._rows, self.columns = rows, columns

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> None:
        """Keep only these rows."""
        chosen = is_kept.tolist()
        self.columns = {
            name: list(compress(column, chosen)) if isinstance(column, list) else column.filter(pa.array(is_kept))
            for name, column in self.columns.items()
        }
        if self._rows is not None:
            self._rows = list(compress(self._rows, chosen))

    def contexts(self, rows: list[int]) -> list[Context]:
        """Return the contexts of these rows."""
        if self._rows is not None:
            return [_context(self._rows[row]) for row in rows]
        chosen = pa.array(rows, pa.int64())
        columns = {name: column.take(chosen).to_pylist() for name, column in self.columns.items()}  # type: ignore[union-attr]
        return Context.trusted_columns(columns, len(rows))

    def _read(self, bodies: pa.Array, contexts: pa.Array) -> list[dict[str, Any]]:
        others: list[dict[str, Any]] = (
            [{}] * len(contexts) if contexts.null_count == len(contexts) else mappings(contexts)
        )
        rows = []
        for row, (text, other) in enumerate(zip(bodies.to_pylist(), others, strict=True)):
            try:
                rows.append(other if text is None else _decode(text))
            except (msgspec.MsgspecError, RecursionError) as error:
                self.problems[row] = unreadable_reason(error)
                rows.append({})
        return rows

    def _check(self, row: int, values: dict[str, Any]) -> Context:
        try:
            return Context(values)
        except InvalidValueError as error:
            self.problems[row] = unreadable_reason(error)
            return Context()


def _columns(rows: list[dict[str, Any]]) -> Columns | None:
    """Return a column per name; None if `Context` might refuse or normalise a value."""
    columns: Columns = {}
    for name in set[str]().union(*rows):
        values = [row.get(name) for row in rows]
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
        columns[name] = column
    return columns


def _columns_of(contexts: list[dict[str, Any]]) -> Columns:
    """Return a list per name from checked rows, since values of one name may have several types."""
    return {name: [context.get(name) for context in contexts] for name in set[str]().union(*contexts)}


def _without_hub_fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("$")}


def _context(values: dict[str, Any]) -> Context:
    if type(values) is Context:
        return values
    if None in values.values():
        values = {name: value for name, value in values.items() if value is not None}
    return Context.trusted(values)
