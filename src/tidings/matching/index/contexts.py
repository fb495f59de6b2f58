"""Every client's context, as a table: one row for each client, one column for each name that some filter mentions.

A change of a context writes one row, however many subscriptions there are. Values that no filter mentions are stored
beside the table.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.index.columns import whole_numbers
from tidings.matching.index.kernels.programs import BOOLEAN, FLOAT, INT, NULL, STRING, NotExpressible, write_rows
from tidings.matching.index.pending_context_changes import ContextsAtEvents, PendingContextChanges
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_CONTEXT_COLUMNS, MAX_INTEGER, MIN_INTEGER
from tidings.model.values import Context, Value, checked_name, checked_value

_NO_COLUMN = 1 << 30  # a column number beyond every table
_COMPACTION_SLACK = 1024  # unused entries up to which nothing is compacted
_TYPES = (np.uint8, np.int64, np.float64)  # of kinds, of integers and string numbers, of floats
_ENCODED = np.dtype(list(zip(("kind", "whole", "number"), _TYPES, strict=True)))
_NO_EVENTS = np.empty(0, np.int64)


class Contexts:
    """The contexts of all clients, encoded for programs.

    A client has a row while it has a subscription or a context.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._clients: list[str] = []  # by row
        self._free_rows: list[int] = []
        self.columns: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self.renumber_count = 0  # how often the strings were renumbered
        self._compact_strings_above = _COMPACTION_SLACK  # the number of strings above which unused ones are dropped
        self._values_without_column: dict[int, dict[str, Value]] = {}  # values of names without a column, by row
        self._names_without_column: Counter[str] = Counter()
        self._tables: tuple[Any, Any, Any]
        self._table: tuple[Any, Any, Any]  # the same in two dimensions
        self._width: int
        self._kinds: Any
        self._ints: Any
        self._floats: Any
        self._users: Any  # the number of subscriptions of each row
        self._sizes: Any  # the number of values in each row of the table
        self._unchanged = np.empty(0, np.int64)
        self.write_count = 0  # how often contexts were written
        self._resize_tables(64, 4)

    # Clients

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def clients(self) -> list[str]:
        """The client of each row; a vacant row still has its former client."""
        return self._clients

    def row(self, client: str) -> int:
        """Return the client's row; a new client gets a row."""
        row = self._rows.get(client)
        if row is None:
            checked_client(client)
            row = self._rows[client] = self._free_rows.pop() if self._free_rows else len(self._clients)
            if row == len(self._clients):
                self._clients.append(client)
            self._clients[row] = client
            if row >= len(self._users):
                self._resize_tables(2 * len(self._users), self._width)
        return row

    def acquire(self, client: str) -> int:
        """Count one more subscription of a client; return its row."""
        row = self.row(client)
        self._users[row] += 1
        return row

    def release(self, row: int) -> None:
        """Count one subscription less; a client without subscriptions and without a context loses its row."""
        self._users[row] -= 1
        self._free_row_if_idle(row)

    def _free_row_if_idle(self, row: int) -> None:
        if not self._users[row] and not self._sizes[row] and row not in self._values_without_column:
            del self._rows[self._clients[row]]
            self._free_rows.append(row)

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return all stored contexts as arrays and JSON values, to save them with the index."""
        kinds, ints, floats = self.table
        arrays = {"context_kinds": kinds, "context_ints": ints, "context_floats": floats}
        arrays |= {"context_users": np.asarray(self._users), "context_sizes": np.asarray(self._sizes)}
        facts = {
            "clients": self._clients,
            "vacant": self._free_rows,
            "columns": list(self.columns),
            "strings": list(self._strings),
            "beside": [[row, values] for row, values in self._values_without_column.items()],
        }
        return arrays, facts

    def restore(self, array: Callable[[str], npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Load the arrays and values that `saved` returned."""
        self._clients, self._free_rows = facts["clients"], facts["vacant"]
        vacant = set(self._free_rows)
        self._rows = {client: row for row, client in enumerate(self._clients) if row not in vacant}
        self.columns = {name: column for column, name in enumerate(facts["columns"])}
        self._strings = {text: number for number, text in enumerate(facts["strings"])}
        for row, values in facts["beside"]:
            self._set_values_without_column(row, values)
        tables = [array(name).copy() for name in ("context_kinds", "context_ints", "context_floats")]
        self._set_tables(tables, array("context_users").copy(), array("context_sizes").copy())

    # Values

    def set(self, client: str, context: Mapping[str, Any]) -> int:
        """Replace a client's context; return its row if it differs from the previous one, else -1."""
        self.write_count += 1
        row = self._rows.get(client)
        if row is None:
            row = self.row(client)
        if not is_plain(context):
            context = Context.of(context)
        columns, kinds, ints, floats = self.columns, self._kinds, self._ints, self._floats
        first = row * self._width
        changed, size = False, 0
        without_column: dict[str, Value] | None = None
        for name, value in context.items():
            column = columns.get(name)
            if column is None:
                without_column = {} if without_column is None else without_column
                without_column[name] = value
                continue
            size += 1
            at = first + column
            if type(value) is float:
                if kinds[at] == FLOAT and floats[at] == value:
                    continue
                kind, whole, number = FLOAT, 0, value
            else:
                kind, whole, number = self.encode_value(value)
                if kinds[at] == kind and ints[at] == whole:
                    continue
            if kinds[at] == NULL:
                self._sizes[row] += 1
            kinds[at], ints[at], floats[at] = kind, whole, number
            changed = True
        if self._sizes[row] > size:
            self._clear(row, context)
            changed = True
        if without_column is not None or row in self._values_without_column:
            changed |= self._set_values_without_column(row, without_column)
        if not context:
            self._free_row_if_idle(row)
        if len(self._strings) > self._compact_strings_above:
            self._compact_strings()
        return row if changed else -1

    def set_many(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> npt.NDArray[np.int64]:
        """Replace the contexts of many clients, in order; return the rows of the changes that made a difference.

        The values come as a column for each name. Raises `NotExpressible` if there are too many names for the table.
        """
        moves = self.encode_changes(clients, values)
        return moves.rows[self.write(moves, 0, len(moves))]

    def encode_changes(
        self, clients: pa.Array, values: Mapping[str, pa.Array | list[Value | None]], before: Any = _NO_EVENTS
    ) -> PendingContextChanges:
        """Encode changes of contexts, to be written later by `write`.

        Raises `NotExpressible` if there are too many names for the table.

        Args:
            clients: The client of each change.
            values: For each name a column of new values, or a list where values are of several kinds.
            before: For each event of a table, how many of the changes come before it.
        """
        places = np.array([self.column(checked_name(name)) for name in values], np.int64)
        encoded = [np.empty((len(values), len(clients)), kind) for kind in _TYPES]
        for c, (name, column_values) in enumerate(values.items()):
            encoded_values = (
                self._encode_list(column_values)
                if isinstance(column_values, list)
                else self.encode_column(name, column_values)
            )
            encoded[0][c], encoded[1][c], encoded[2][c] = encoded_values
        return PendingContextChanges(self, self._rows_of(clients), places, encoded, before)

    def write(self, moves: PendingContextChanges, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Make the changes from `first` up to `end`; return which of them made a difference.

        Those before `first` must have been made already.
        """
        self.write_count += 1
        rows, encoded = moves.rows, moves.encoded
        if end - first < len(moves):
            rows, encoded = rows[first:end], [np.ascontiguousarray(array[:, first:end]) for array in encoded]
        changed: npt.NDArray[np.bool_]
        changed = write_rows(*self._tables, np.asarray(self._sizes), rows, moves.places, self._width, *encoded)
        if self._values_without_column:
            changed |= np.array(
                [
                    row in self._values_without_column and self._set_values_without_column(row, None)
                    for row in rows.tolist()
                ],
                bool,
            )
        if first < end == len(moves):  # not earlier: the later changes refer to these strings and rows
            self._drop_unused(moves.rows)
        return changed

    def _drop_unused(self, rows: npt.NDArray[np.int64]) -> None:
        if len(self._strings) > self._compact_strings_above:
            self._compact_strings()
        sizes, users = np.asarray(self._sizes), np.asarray(self._users)
        for row in np.unique(rows[(sizes[rows] == 0) & (users[rows] == 0)]).tolist():
            self._free_row_if_idle(row)

    def at_events(self, event: Any, client: Any) -> ContextsAtEvents:
        """Return the contexts of clients, one for each pair; without pending changes every event sees the same ones."""
        return ContextsAtEvents(self, client)

    def _rows_of(self, clients: pa.Array) -> npt.NDArray[np.int64]:
        if pa.types.is_dictionary(clients.type):
            return self._rows_of(clients.dictionary)[np.asarray(clients.indices)]  # type: ignore[no-any-return]
        names = clients.to_pylist()
        rows = list(map(self._rows.get, names))
        if None in rows:
            rows = [self.row(name) for name in names]
        return np.array(rows, np.int64)

    def encode_column(
        self, name: str, array: pa.Array, unknown_strings: dict[str, int] | None = None
    ) -> tuple[Any, Any, Any]:
        """Return kinds, integers and floats of an Arrow column.

        With `unknown_strings`, a string that no context or filter has is not added but numbered there, below zero.
        Raises `InvalidValueError` for a column of another type, and for numbers that are not finite or do not fit.
        """
        valid = np.asarray(pc.is_valid(array))
        nothing = np.zeros(len(array), np.int64)
        if pa.types.is_null(array.type):
            return nothing.astype(np.uint8), nothing, nothing.astype(np.float64)
        if pa.types.is_floating(array.type):
            number = np.asarray(array.cast(pa.float64()).fill_null(0.0))
            if not np.isfinite(number).all():
                raise InvalidValueError(f"{name}: has numbers that are not finite; they must be null instead")
            return np.where(valid, FLOAT, NULL).astype(np.uint8), nothing, number
        if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
            whole = np.asarray(whole_numbers(name, array))
            kind = BOOLEAN if pa.types.is_boolean(array.type) else INT
            number = np.zeros(len(whole)) if kind == BOOLEAN else whole.astype(np.float64)
            return np.where(valid, kind, NULL).astype(np.uint8), whole, number
        encoded_array = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        if not pa.types.is_string(encoded_array.type.value_type):
            raise InvalidValueError(f"{name}: a column is of booleans, numbers or strings, not {array.type}")
        texts = [checked_value(text, name) for text in encoded_array.dictionary.to_pylist()]
        encoded = [
            self.encode_value(text) if unknown_strings is None else self.encode_without_adding(text, unknown_strings)
            for text in texts
        ]
        distinct = [whole for _, whole, _ in encoded]
        whole = np.array([*distinct, 0])[np.asarray(encoded_array.indices.fill_null(-1))]
        return np.where(valid, STRING, NULL).astype(np.uint8), whole, nothing.astype(np.float64)

    def _encode_list(self, values: list[Value | None]) -> tuple[Any, Any, Any]:
        encoded = np.array([self.encode_value(value) for value in values], _ENCODED)
        return encoded["kind"], encoded["whole"], encoded["number"]

    def get(self, client: str) -> Context:
        """Return the client's context; it is empty if none was ever set."""
        row = self._rows.get(client)
        return Context() if row is None else self.at(row)

    def at(self, row: int) -> Context:
        """Return the context in a row."""
        return self.decode(self.table, row, self._values_without_column.get(row))

    def decode(
        self, table: tuple[Any, Any, Any], row: int, without_column: Mapping[str, Value] | None = None
    ) -> Context:
        """Return the context in a row of a table with the columns of this one, or the first few of them."""
        values: dict[str, Value] = dict(without_column or ())
        kinds, ints, floats = (array[row].tolist() for array in table)
        for (name, column), kind in zip(self.columns.items(), kinds, strict=False):
            if kind == FLOAT:
                values[name] = floats[column]
            elif kind == STRING:
                values[name] = self._strings_by_number()[ints[column]]
            elif kind != NULL:
                values[name] = bool(ints[column]) if kind == BOOLEAN else ints[column]
        return Context(values)

    @property
    def unchanged(self) -> npt.NDArray[np.int64]:
        """An array of -1 for every row, lent to the kernel `last_changes`, which restores it."""
        if len(self._unchanged) < len(self._users):
            self._unchanged = np.full(len(self._users), -1)
        return self._unchanged

    def all(self) -> dict[str, Context]:
        """Return the context of every client that has one."""
        return {client: context for client, row in self._rows.items() if (context := self.at(row))}

    def place(self, row: int, names: tuple[str, ...]) -> tuple[float, ...] | None:
        """Return some values of a row as floats; None unless all are numbers."""
        coordinates = []
        for name in names:
            at = row * self._width + self.columns[name]
            if self._kinds[at] not in (INT, FLOAT):
                return None
            coordinates.append(self._floats[at])
        return tuple(coordinates)

    def places(self, rows: npt.NDArray[np.int64], names: tuple[str, ...]) -> npt.NDArray[np.float64]:
        """Return some values of many rows as floats, NaN where a value is not a number."""
        columns = [self.columns[name] for name in names]
        kind, _, number = (table.reshape(-1, self._width)[rows][:, columns] for table in self._tables)
        coordinates: npt.NDArray[np.float64] = np.where((kind == INT) | (kind == FLOAT), number, np.nan)
        return coordinates

    def _clear(self, row: int, context: Mapping[str, Any]) -> None:
        """Remove the values of a row whose names the context does not have."""
        for name, column in self.columns.items():
            at = row * self._width + column
            if self._kinds[at] != NULL and name not in context:
                self._kinds[at] = self._ints[at] = NULL
                self._floats[at] = 0.0
                self._sizes[row] -= 1

    def _set_values_without_column(self, row: int, values: dict[str, Value] | None) -> bool:
        """Replace the values of a row that have no column; return whether they differ from the previous ones."""
        before, after = self._values_without_column.get(row, {}), values or {}
        self._names_without_column.subtract(before.keys())
        self._names_without_column.update(after.keys())
        if len(self._names_without_column) > 2 * len(self._values_without_column) + _COMPACTION_SLACK:
            self._names_without_column = +self._names_without_column
        if after:
            self._values_without_column[row] = after
        else:
            self._values_without_column.pop(row, None)
        return Context(before) != Context(after)

    def encode_value(self, value: Value | None) -> tuple[int, int, float]:
        """Return kind, integer and float of a value, as in the tables; a new string is added."""
        if isinstance(value, str):
            return STRING, self._strings.setdefault(value, len(self._strings)), 0.0
        return _number(value)

    def _strings_by_number(self) -> list[str]:
        return list(self._strings)  # in the order of their numbers

    def encode_without_adding(self, value: Value | None, unknown_strings: dict[str, int]) -> tuple[int, int, float]:
        """Return kind, integer and float of a value, and add nothing.

        A string that no context or filter has is numbered in `unknown_strings`, below zero.
        """
        if isinstance(value, str):
            number = self._strings.get(value)
            return (
                STRING,
                unknown_strings.setdefault(value, -1 - len(unknown_strings)) if number is None else number,
                0.0,
            )
        return _number(value)

    def _compact_strings(self) -> None:
        """Drop the strings that no context has, and renumber the others; filters add theirs again."""
        texts, kinds, ints, _ = self._strings_by_number(), *self._tables
        string_cells = np.flatnonzero(kinds == STRING)
        numbers, places = np.unique(ints[string_cells], return_inverse=True)
        self._strings = {texts[number]: new for new, number in enumerate(numbers.tolist())}
        ints[string_cells] = places
        self.renumber_count += 1
        self._compact_strings_above = 2 * len(self._strings) + _COMPACTION_SLACK

    def _resize_tables(self, rows: int, width: int) -> None:
        """Replace the tables by larger ones with the same contents."""
        tables = [np.zeros((rows, width), kind) for kind in _TYPES]
        users, sizes = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        if self._rows:
            for new, old in zip(tables, self._tables, strict=True):
                old_rows = old.reshape(-1, self._width)
                new[: len(old_rows), : self._width] = old_rows
            users[: len(self._users)], sizes[: len(self._sizes)] = self._users, self._sizes
        self._set_tables(tables, users, sizes)

    def _set_tables(self, tables: list[npt.NDArray[Any]], users: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> None:
        self._width = tables[0].shape[1]
        kinds, ints, floats = (table.reshape(-1) for table in tables)
        self._tables = kinds, ints, floats
        self._table = tables[0], tables[1], tables[2]
        # One value is read and written much faster through a memoryview than through an array.
        self._kinds, self._ints, self._floats = (memoryview(table) for table in self._tables)  # type: ignore[arg-type]
        self._users, self._sizes = memoryview(users), memoryview(sizes)  # type: ignore[arg-type]

    @property
    def table(self) -> tuple[Any, Any, Any]:
        """Kinds, integers and floats: a row for each client, a column for each name."""
        return self._table

    # Columns

    def column(self, name: str) -> int:
        """Return the column of a name; a new one is added. Raises `NotExpressible` if there are too many."""
        column = self.columns.get(name)
        if column is not None:
            return column
        if len(self.columns) >= MAX_CONTEXT_COLUMNS:
            raise NotExpressible
        if len(self.columns) == self._width:
            self._resize_tables(len(self._users), 2 * self._width)
        column = self.columns[name] = len(self.columns)
        if self._names_without_column[name] > 0:
            for row, values in list(self._values_without_column.items()):
                if name in values:
                    self._write(row, column, values[name])
                    self._set_values_without_column(
                        row, {other: value for other, value in values.items() if other != name}
                    )
        return column

    def known_column(self, name: str) -> int:
        """Return the column of a name for a filter that is not stored.

        One is added only if a client has such a value.
        """
        return self.column(name) if self._names_without_column[name] > 0 else self.columns.get(name, _NO_COLUMN)

    def _write(self, row: int, column: int, value: Value) -> None:
        at = row * self._width + column
        self._kinds[at], self._ints[at], self._floats[at] = self.encode_value(value)
        self._sizes[row] += 1


def is_plain(context: Mapping[str, Any]) -> bool:
    """Return whether `Context` would take these values unchanged: a quick check for the usual case.

    A False may also mean that it was not checked.
    """
    if type(context) is Context:
        return True
    if len(context) > 16:
        return False
    for name, value in context.items():
        kind = type(value)
        if not (
            (kind is float and value - value == 0.0)  # finite
            or (kind is int and MIN_INTEGER <= value <= MAX_INTEGER)
            or (kind is bool)
        ):
            return False
        if type(name) is not str or not name.isidentifier() or len(name) > 64:
            return False
    return True


def _number(value: bool | int | float | None) -> tuple[int, int, float]:
    if value is None:
        return NULL, 0, 0.0
    if isinstance(value, bool):
        return BOOLEAN, int(value), 0.0
    return (INT, value, float(value)) if isinstance(value, int) else (FLOAT, 0, value)
