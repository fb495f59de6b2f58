"""Everyone's context, as a table: one row a client, one column for each name that some filter asks about.

A change writes one row, whatever the client or anyone else subscribes to. Values that no filter asks about are kept
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
from tidings.matching.index.moves import Moves, Seen
from tidings.matching.index.programs import BOOLEAN, FLOAT, INT, NULL, STRING, NotSayable, write_rows
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_CONTEXT_COLUMNS, MAX_INTEGER, MIN_INTEGER
from tidings.model.values import Context, Value, checked_name, checked_value

_NOWHERE = 1 << 30  # a column that no row has
_SOME = 1024  # below it, nothing is tidied up
_TYPES = (np.uint8, np.int64, np.float64)  # of kinds, integers (and numbers of strings), floats
_ENCODED = np.dtype(list(zip(("kind", "whole", "number"), _TYPES, strict=True)))
_NO_EVENTS = np.empty(0, np.int64)


class Contexts:
    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._clients: list[str] = []  # by row
        self._vacant: list[int] = []
        self.columns: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self.renumbered = 0  # how often the strings got other numbers
        self._many_strings = _SOME  # when to look which ones are still in use
        self._beside: dict[int, dict[str, Value]] = {}  # what has no column, by row
        self._beside_names: Counter[str] = Counter()
        self._tables: tuple[Any, Any, Any]
        self._table: tuple[Any, Any, Any]  # the same in two dimensions
        self._width: int
        self._kinds: Any
        self._ints: Any
        self._floats: Any
        self._users: Any  # subscriptions, by row
        self._sizes: Any  # values in the table, by row
        self._unchanged = np.empty(0, np.int64)
        self.written = 0  # how often some were
        self._allot(64, 4)

    # Clients

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def clients(self) -> list[str]:
        """The client in each row; a vacant row has a former one."""
        return self._clients

    def row(self, client: str) -> int:
        """The client's row; a new one where it has none yet."""
        row = self._rows.get(client)
        if row is None:
            checked_client(client)
            row = self._rows[client] = self._vacant.pop() if self._vacant else len(self._clients)
            if row == len(self._clients):
                self._clients.append(client)
            self._clients[row] = client
            if row >= len(self._users):
                self._allot(2 * len(self._users), self._width)
        return row

    def enter(self, client: str) -> int:
        """The row of a client that has one subscription more."""
        row = self.row(client)
        self._users[row] += 1
        return row

    def leave(self, row: int) -> None:
        """The client has one subscription less; with none, and no context, it is forgotten."""
        self._users[row] -= 1
        self._forget_if_idle(row)

    def _forget_if_idle(self, row: int) -> None:
        if not self._users[row] and not self._sizes[row] and row not in self._beside:
            del self._rows[self._clients[row]]
            self._vacant.append(row)

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, as arrays and as facts that JSON can carry."""
        kinds, ints, floats = self.table
        arrays = {"context_kinds": kinds, "context_ints": ints, "context_floats": floats}
        arrays |= {"context_users": np.asarray(self._users), "context_sizes": np.asarray(self._sizes)}
        facts = {
            "clients": self._clients,
            "vacant": self._vacant,
            "columns": list(self.columns),
            "strings": list(self._strings),
            "beside": [[row, values] for row, values in self._beside.items()],
        }
        return arrays, facts

    def restore(self, array: Callable[[str], npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """What `saved` gave."""
        self._clients, self._vacant = facts["clients"], facts["vacant"]
        vacant = set(self._vacant)
        self._rows = {client: row for row, client in enumerate(self._clients) if row not in vacant}
        self.columns = {name: column for column, name in enumerate(facts["columns"])}
        self._strings = {text: number for number, text in enumerate(facts["strings"])}
        for row, values in facts["beside"]:
            self._put_beside(row, values)
        tables = [array(name).copy() for name in ("context_kinds", "context_ints", "context_floats")]
        self._take(tables, array("context_users").copy(), array("context_sizes").copy())

    # Values

    def set(self, client: str, context: Mapping[str, Any]) -> int:
        """The client's context from now on: its row if that differs from the one before, else -1."""
        self.written += 1
        row = self._rows.get(client)
        if row is None:
            row = self.row(client)
        if not is_plain(context):
            context = Context.of(context)
        columns, kinds, ints, floats = self.columns, self._kinds, self._ints, self._floats
        first = row * self._width
        changed, size = False, 0
        beside: dict[str, Value] | None = None
        for name, value in context.items():
            column = columns.get(name)
            if column is None:
                beside = {} if beside is None else beside
                beside[name] = value
                continue
            size += 1
            at = first + column
            if type(value) is float:
                if kinds[at] == FLOAT and floats[at] == value:
                    continue
                kind, whole, number = FLOAT, 0, value
            else:
                kind, whole, number = self.encoded(value)
                if kinds[at] == kind and ints[at] == whole:
                    continue
            if kinds[at] == NULL:
                self._sizes[row] += 1
            kinds[at], ints[at], floats[at] = kind, whole, number
            changed = True
        if self._sizes[row] > size:
            self._clear(row, context)
            changed = True
        if beside is not None or row in self._beside:
            changed |= self._put_beside(row, beside)
        if not context:
            self._forget_if_idle(row)
        if len(self._strings) > self._many_strings:
            self._forget_strings()
        return row if changed else -1

    def set_many(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> npt.NDArray[np.int64]:
        """The contexts of many clients, one after the other, a column a name: the rows of those that changed something.

        `NotSayable` if there are too many names for the table.
        """
        moves = self.moves(clients, values)
        return moves.rows[self.write(moves, 0, len(moves))]

    def moves(
        self, clients: pa.Array, values: Mapping[str, pa.Array | list[Value | None]], before: Any = _NO_EVENTS
    ) -> Moves:
        """The same, to be written later; so many of the changes come `before` each of some events. Values of several
        kinds come in a list."""
        places = np.array([self.column(checked_name(name)) for name in values], np.int64)
        encoded = [np.empty((len(values), len(clients)), kind) for kind in _TYPES]
        for c, (name, given) in enumerate(values.items()):
            found = self._encoded_list(given) if isinstance(given, list) else self.encoded_column(name, given)
            encoded[0][c], encoded[1][c], encoded[2][c] = found
        return Moves(self, self._rows_of(clients), places, encoded, before)

    def write(self, moves: Moves, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Makes some of the changes, those before them having been made; which ones changed something."""
        self.written += 1
        rows, encoded = moves.rows, moves.encoded
        if end - first < len(moves):
            rows, encoded = rows[first:end], [np.ascontiguousarray(one[:, first:end]) for one in encoded]
        changed: npt.NDArray[np.bool_]
        changed = write_rows(*self._tables, np.asarray(self._sizes), rows, moves.places, self._width, *encoded)
        if self._beside:
            changed |= np.array([row in self._beside and self._put_beside(row, None) for row in rows.tolist()], bool)
        if first < end == len(moves):  # only now: the others are encoded with these strings, for these rows
            self._tidy(moves.rows)
        return changed

    def _tidy(self, rows: npt.NDArray[np.int64]) -> None:
        if len(self._strings) > self._many_strings:
            self._forget_strings()
        sizes, users = np.asarray(self._sizes), np.asarray(self._users)
        for row in np.unique(rows[(sizes[rows] == 0) & (users[rows] == 0)]).tolist():
            self._forget_if_idle(row)

    def seen(self, _: Any, client: Any) -> Seen:
        """The contexts of clients, pair by pair, which are the same at every event; `Moves` has others."""
        return Seen(self, client)

    def _rows_of(self, clients: pa.Array) -> npt.NDArray[np.int64]:
        if pa.types.is_dictionary(clients.type):
            return self._rows_of(clients.dictionary)[np.asarray(clients.indices)]  # type: ignore[no-any-return]
        names = clients.to_pylist()
        rows = list(map(self._rows.get, names))
        if None in rows:
            rows = [self.row(name) for name in names]
        return np.array(rows, np.int64)

    def encoded_column(
        self, name: str, array: pa.Array, strangers: dict[str, int] | None = None
    ) -> tuple[Any, Any, Any]:
        """Kinds, integers and floats of a column of Arrow's. With `strangers`, strings are only looked up."""
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
        given = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        if not pa.types.is_string(given.type.value_type):
            raise InvalidValueError(f"{name}: a column is of booleans, numbers or strings, not {array.type}")
        texts = [checked_value(text, name) for text in given.dictionary.to_pylist()]
        encoded = [self.encoded(one) if strangers is None else self.looked_up(one, strangers) for one in texts]
        distinct = [whole for _, whole, _ in encoded]
        whole = np.array([*distinct, 0])[np.asarray(given.indices.fill_null(-1))]
        return np.where(valid, STRING, NULL).astype(np.uint8), whole, nothing.astype(np.float64)

    def _encoded_list(self, values: list[Value | None]) -> tuple[Any, Any, Any]:
        found = np.array([self.encoded(one) for one in values], _ENCODED)
        return found["kind"], found["whole"], found["number"]

    def get(self, client: str) -> Context:
        """The client's context; empty if nothing was ever said."""
        row = self._rows.get(client)
        return Context() if row is None else self.at(row)

    def at(self, row: int) -> Context:
        return self.decoded(self.table, row, self._beside.get(row))

    def decoded(self, table: tuple[Any, Any, Any], row: int, beside: Mapping[str, Value] | None = None) -> Context:
        """A row of a table that has the columns of this one, or some of them."""
        found: dict[str, Value] = dict(beside or ())
        kinds, ints, floats = (one[row].tolist() for one in table)
        for (name, column), kind in zip(self.columns.items(), kinds, strict=False):
            if kind == FLOAT:
                found[name] = floats[column]
            elif kind == STRING:
                found[name] = self._texts()[ints[column]]
            elif kind != NULL:
                found[name] = bool(ints[column]) if kind == BOOLEAN else ints[column]
        return Context(found)

    @property
    def unchanged(self) -> npt.NDArray[np.int64]:
        """-1 for every row: for those who note changes in it, and leave no trace."""
        if len(self._unchanged) < len(self._users):
            self._unchanged = np.full(len(self._users), -1)
        return self._unchanged

    def all(self) -> dict[str, Context]:
        """Everyone's context that has one."""
        return {client: context for client, row in self._rows.items() if (context := self.at(row))}

    def place(self, row: int, names: tuple[str, ...]) -> tuple[float, ...] | None:
        """Some values of a row as numbers, if they all are."""
        found = []
        for name in names:
            at = row * self._width + self.columns[name]
            if self._kinds[at] not in (INT, FLOAT):
                return None
            found.append(self._floats[at])
        return tuple(found)

    def places(self, rows: npt.NDArray[np.int64], names: tuple[str, ...]) -> npt.NDArray[np.float64]:
        """The same of many rows, NaN where there is no number."""
        columns = [self.columns[name] for name in names]
        kind, _, number = (table.reshape(-1, self._width)[rows][:, columns] for table in self._tables)
        found: npt.NDArray[np.float64] = np.where((kind == INT) | (kind == FLOAT), number, np.nan)
        return found

    def _clear(self, row: int, context: Mapping[str, Any]) -> None:
        """Takes away what the context does not name."""
        for name, column in self.columns.items():
            at = row * self._width + column
            if self._kinds[at] != NULL and name not in context:
                self._kinds[at] = self._ints[at] = NULL
                self._floats[at] = 0.0
                self._sizes[row] -= 1

    def _put_beside(self, row: int, values: dict[str, Value] | None) -> bool:
        before, after = self._beside.get(row, {}), values or {}
        self._beside_names.subtract(before.keys())
        self._beside_names.update(after.keys())
        if len(self._beside_names) > 2 * len(self._beside) + _SOME:
            self._beside_names = +self._beside_names
        if after:
            self._beside[row] = after
        else:
            self._beside.pop(row, None)
        return Context(before) != Context(after)

    def encoded(self, value: Value | None) -> tuple[int, int, float]:
        """Kind, integer and float of a value, as the tables hold them."""
        if isinstance(value, str):
            return STRING, self._strings.setdefault(value, len(self._strings)), 0.0
        return _number(value)

    def _texts(self) -> list[str]:
        return list(self._strings)  # in the order of their numbers

    def looked_up(self, value: Value | None, strangers: dict[str, int]) -> tuple[int, int, float]:
        """The same without keeping anything: a string that nobody has gets a number below zero."""
        if isinstance(value, str):
            known = self._strings.get(value)
            return STRING, strangers.setdefault(value, -1 - len(strangers)) if known is None else known, 0.0
        return _number(value)

    def _forget_strings(self) -> None:
        """Numbers the strings anew that some context or filter still has."""
        texts, kinds, ints, _ = self._texts(), *self._tables
        used = np.flatnonzero(kinds == STRING)
        numbers, places = np.unique(ints[used], return_inverse=True)
        self._strings = {texts[number]: new for new, number in enumerate(numbers.tolist())}
        ints[used] = places
        self.renumbered += 1
        self._many_strings = 2 * len(self._strings) + _SOME

    def _allot(self, rows: int, width: int) -> None:
        """Tables of another size, with what was in the old ones."""
        tables = [np.zeros((rows, width), kind) for kind in _TYPES]
        users, sizes = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        if self._rows:
            for new, old in zip(tables, self._tables, strict=True):
                given = old.reshape(-1, self._width)
                new[: len(given), : self._width] = given
            users[: len(self._users)], sizes[: len(self._sizes)] = self._users, self._sizes
        self._take(tables, users, sizes)

    def _take(self, tables: list[npt.NDArray[Any]], users: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> None:
        self._width = tables[0].shape[1]
        kinds, ints, floats = (table.reshape(-1) for table in tables)
        self._tables = kinds, ints, floats
        self._table = tables[0], tables[1], tables[2]
        # One value is read and written much faster through a memoryview than through an array.
        self._kinds, self._ints, self._floats = (memoryview(table) for table in self._tables)  # type: ignore[arg-type]
        self._users, self._sizes = memoryview(users), memoryview(sizes)  # type: ignore[arg-type]

    @property
    def table(self) -> tuple[Any, Any, Any]:
        """Kinds, integers and floats: a row a client, a column a name."""
        return self._table

    # Columns

    @property
    def width(self) -> int:
        return len(self.columns)

    def column(self, name: str) -> int:
        """The column of a name that a filter asks about; `NotSayable` if there are too many of them."""
        column = self.columns.get(name)
        if column is not None:
            return column
        if len(self.columns) >= MAX_CONTEXT_COLUMNS:
            raise NotSayable
        if len(self.columns) == self._width:
            self._allot(len(self._users), 2 * self._width)
        column = self.columns[name] = len(self.columns)
        if self._beside_names[name] > 0:
            for row, values in list(self._beside.items()):
                if name in values:
                    self._write(row, column, values[name])
                    self._put_beside(row, {other: value for other, value in values.items() if other != name})
        return column

    def known_column(self, name: str) -> int:
        """The same for a filter that only passes by: a column is made for it only if someone has such a value."""
        return self.column(name) if self._beside_names[name] > 0 else self.columns.get(name, _NOWHERE)

    def _write(self, row: int, column: int, value: Value) -> None:
        at = row * self._width + column
        self._kinds[at], self._ints[at], self._floats[at] = self.encoded(value)
        self._sizes[row] += 1


def is_plain(context: Mapping[str, Any]) -> bool:
    """Whether all that the door of `Context` would do is to let it pass: the usual case, found out quickly."""
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
