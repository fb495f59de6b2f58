"""Named values of many events, their attributes or their contexts: as columns, or where each row brings its own names,
row by row."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.texts import members, members_of
from tidings.matching.index.tables import columns_of, mappings, whole
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_ATTRIBUTES, MAX_INTEGER, MAX_STRING_CHARACTERS
from tidings.model.values import Attributes, checked_name

Bools = npt.NDArray[np.bool_]
Kind = TypeVar("Kind", bound=Attributes)


class Named:
    """`doubtful` are the rows of which the door has yet to say whether they may pass."""

    def __init__(self, rows: int, columns: Mapping[str, pa.Array] | None, mapped: list[dict[str, Any]] | None) -> None:
        self._rows = rows
        self._columns, self._mapped = columns, mapped
        self._made: list[Any] | None = None  # all rows of columns, of one kind
        self._present: dict[str, Bools] = {}
        self.doubtful = np.zeros(rows, bool)
        if columns is not None:
            for name, array in columns.items():
                checked_name(name)
                self.doubtful |= _doubtful(name, array)
            if len(columns) > MAX_ATTRIBUTES:
                self.doubtful |= self.counts > MAX_ATTRIBUTES
        else:
            self.doubtful[:] = True

    @classmethod
    def of(cls, table: pa.Table, whole_row: str) -> "Named":
        """Of a table without other columns; the column `whole_row`, if there is one, stands for all that is in it."""
        if whole_row not in table.column_names:
            return cls(table.num_rows, columns_of(table, whole_row), None)
        if table.num_columns > 1:
            other = next(name for name in table.column_names if name != whole_row)
            raise InvalidValueError(f"a table has a column {whole_row} or one column a name, not both: {other}")
        column = whole(table[whole_row])
        if pa.types.is_struct(column.type):
            return cls(table.num_rows, columns_of(table, whole_row), None)
        return cls(table.num_rows, None, mappings(column))

    @property
    def columns(self) -> Mapping[str, pa.Array]:
        """Where a row does not bring its own names."""
        return self._columns or {}

    def settle(self, row: int, values: Attributes) -> None:
        """What the door made of a row that brought its own names."""
        if self._mapped is not None:
            self._mapped[row] = values

    def at(self, row: int, kind: type[Kind]) -> Kind:
        """The values of a row that is not doubtful."""
        if self._mapped is not None:
            given = self._mapped[row]
            return given if type(given) is kind else kind(given)
        if self._made is not None and type(self._made[row]) is kind:
            made: Kind = self._made[row]
            return made
        return kind.trusted(self.raw(row))

    def raw(self, row: int) -> dict[str, Any]:
        if self._mapped is not None:
            return self._mapped[row]
        if self._made is not None:
            return dict(self._made[row])  # as it came: nobody has checked it
        found = {name: array[row].as_py() for name, array in (self._columns or {}).items()}
        return {name: value for name, value in found.items() if value is not None}

    def read_all(self, kind: type[Attributes]) -> None:
        """Before many rows are asked for, one by one."""
        if self._columns is not None and self._made is None:
            lists = {name: array.to_pylist() for name, array in self._columns.items()}
            self._made = kind.trusted_columns(lists, self._rows)

    def members(self) -> dict[str, pa.Array]:
        """By name, the values as members of JSON objects."""
        if self._mapped is not None:
            return members_of(self._mapped)
        return {name: members(name, array) for name, array in (self._columns or {}).items()}

    def present(self, name: str) -> Bools:
        """The rows that have a value of that name."""
        known = self._present.get(name)
        if known is None:
            if self._mapped is not None:
                known = np.fromiter((name in one for one in self._mapped), bool, self._rows)
            elif self._columns is not None and name in self._columns:
                known = np.asarray(pc.is_valid(self._columns[name]))
            else:
                known = np.zeros(self._rows, bool)
            self._present[name] = known
        return known

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many values each row has."""
        if self._mapped is not None:
            return np.fromiter(map(len, self._mapped), np.int64, self._rows)
        found = np.zeros(self._rows, np.int64)
        for name in self._columns or ():
            found += self.present(name)
        return found

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """About how many bytes: as `size_of` counts them."""
        if self._mapped is not None:
            return np.fromiter(map(_size, self._mapped), np.int64, self._rows)
        found = np.zeros(self._rows, np.int64)
        for name, array in (self._columns or {}).items():
            if _is_string(array.type):
                lengths = pc.utf8_length(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
                found += np.where(self.present(name), len(name) + np.asarray(lengths.fill_null(0)), 0)
            else:
                found += np.where(self.present(name), len(name) + 8, 0)
        return found

    def any_of(self, name: str, texts: frozenset[str]) -> Bools:
        """The rows whose value of that name is one of these texts."""
        if self._mapped is not None:
            return np.fromiter((one.get(name) in texts for one in self._mapped), bool, self._rows)
        array = (self._columns or {}).get(name)
        if array is None or not _is_string(array.type):
            return np.zeros(self._rows, bool)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return np.asarray(pc.is_in(array, pa.array(sorted(texts), array.type)))

    def may_be(self, name: str, texts: Collection[str]) -> Bools:
        """The rows whose value of that name is one of these texts, or no text at all."""
        if self._mapped is not None:
            given = (one.get(name) for one in self._mapped)
            return np.fromiter(
                (one is not None and (not isinstance(one, str) or one in texts) for one in given), bool, self._rows
            )
        array = (self._columns or {}).get(name)
        is_text = array is not None and _is_string(array.type)
        return self.any_of(name, frozenset(texts)) if is_text else self.present(name)

    def unlike(self, names: Mapping[str, type]) -> Bools:
        """The rows that may have another name than these, or a value of another kind."""
        if self._mapped is not None:
            return np.ones(self._rows, bool)
        found = np.zeros(self._rows, bool)
        for name, array in (self._columns or {}).items():
            if names.get(name) is not _kind(array.type):
                found |= self.present(name)
        return found


def _size(values: Mapping[str, Any]) -> int:
    return sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in values.items())


def _is_string(given: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given))


def _kind(given: pa.DataType) -> type | None:
    if pa.types.is_dictionary(given):
        given = given.value_type
    if _is_string(given):
        return str
    return bool if pa.types.is_boolean(given) else int if pa.types.is_integer(given) else float


def _doubtful(name: str, array: pa.Array) -> Any:
    """The rows of a column whose values might be refused."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        if not _is_string(kind):
            raise InvalidValueError(f"{name}: a column is of booleans, numbers or strings, not {kind}")
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return False
    if pa.types.is_integer(kind):
        return np.asarray(pc.greater(array, MAX_INTEGER).fill_null(False)) if kind == pa.uint64() else False
    if pa.types.is_floating(kind):
        values = np.asarray(array.cast(pa.float64()).fill_null(0.0))
        return ~np.isfinite(values)
    if _is_string(kind):
        longest = pc.max(pc.binary_length(array)).as_py()
        if longest is None or longest <= MAX_STRING_CHARACTERS:
            return False
        return np.asarray(pc.greater(pc.utf8_length(array), MAX_STRING_CHARACTERS).fill_null(False))
    raise InvalidValueError(f"{name}: a column is of booleans, numbers or strings, not {kind}")
