"""The attributes or contexts of many events: as columns, or as a dictionary per row where rows have their own names."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.json_text import members, members_of
from tidings.matching.index.arrow_tables import columns_of, mappings, whole
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_ATTRIBUTES, MAX_INTEGER, MAX_STRING_CHARACTERS
from tidings.model.values import Attributes, checked_name

Bools = npt.NDArray[np.bool_]
Kind = TypeVar("Kind", bound=Attributes)


class ValueColumns:
    """Named values of many rows, in columns or in a dictionary per row (`mapped`).

    `doubtful` marks the rows whose values might be invalid and have yet to be checked.
    """

    def __init__(
        self, rows: int, columns: Mapping[str, pa.Array] | None, row_dicts: list[dict[str, Any]] | None
    ) -> None:
        self._rows = rows
        self._columns, self._row_dicts = columns, row_dicts
        self._objects: list[Any] | None = None  # all rows as objects of one class, once `read_all` made them
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
    def of(cls, table: pa.Table, whole_row: str) -> "ValueColumns":
        """Return the values in a table: those of the column `whole_row` if there is one, else of a column per name.

        Raises an `InvalidValueError` if the table has both.
        """
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
        """The columns by name; empty if rows have their own names."""
        return self._columns or {}

    def store(self, row: int, values: Attributes) -> None:
        """Store the checked values of a row, if rows have their own names."""
        if self._row_dicts is not None:
            self._row_dicts[row] = values

    def at(self, row: int, kind: type[Kind]) -> Kind:
        """Return the values of a row that is not doubtful, as an object of the class `kind`."""
        if self._row_dicts is not None:
            values = self._row_dicts[row]
            return values if type(values) is kind else kind(values)
        if self._objects is not None and type(self._objects[row]) is kind:
            stored: Kind = self._objects[row]
            return stored
        return kind.trusted(self.raw(row))

    def raw(self, row: int) -> dict[str, Any]:
        """Return the values of a row as a dictionary; they may be unchecked."""
        if self._row_dicts is not None:
            return self._row_dicts[row]
        if self._objects is not None:
            return dict(self._objects[row])  # unchecked
        values = {name: array[row].as_py() for name, array in (self._columns or {}).items()}
        return {name: value for name, value in values.items() if value is not None}

    def read_all(self, kind: type[Attributes]) -> None:
        """Make the objects of all rows at once, which is faster before many are asked for one by one."""
        if self._columns is not None and self._objects is None:
            lists = {name: array.to_pylist() for name, array in self._columns.items()}
            self._objects = kind.trusted_columns(lists, self._rows)

    def members(self) -> dict[str, pa.Array]:
        """Return by name the values of all rows as members of JSON objects."""
        if self._row_dicts is not None:
            return members_of(self._row_dicts)
        return {name: members(name, array) for name, array in (self._columns or {}).items()}

    def present(self, name: str) -> Bools:
        """Return the rows that have a value of this name."""
        is_present = self._present.get(name)
        if is_present is None:
            if self._row_dicts is not None:
                is_present = np.fromiter((name in row for row in self._row_dicts), bool, self._rows)
            elif self._columns is not None and name in self._columns:
                is_present = np.asarray(pc.is_valid(self._columns[name]))
            else:
                is_present = np.zeros(self._rows, bool)
            self._present[name] = is_present
        return is_present

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of values in each row."""
        if self._row_dicts is not None:
            return np.fromiter(map(len, self._row_dicts), np.int64, self._rows)
        counts = np.zeros(self._rows, np.int64)
        for name in self._columns or ():
            counts += self.present(name)
        return counts

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The approximate bytes of each row, counted as `size_of` does."""
        if self._row_dicts is not None:
            return np.fromiter(map(_size, self._row_dicts), np.int64, self._rows)
        sizes = np.zeros(self._rows, np.int64)
        for name, array in (self._columns or {}).items():
            if _is_string(array.type):
                lengths = pc.utf8_length(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
                sizes += np.where(self.present(name), len(name) + np.asarray(lengths.fill_null(0)), 0)
            else:
                sizes += np.where(self.present(name), len(name) + 8, 0)
        return sizes

    def any_of(self, name: str, texts: frozenset[str]) -> Bools:
        """Return the rows whose value of this name is one of these texts."""
        if self._row_dicts is not None:
            return np.fromiter((row.get(name) in texts for row in self._row_dicts), bool, self._rows)
        array = (self._columns or {}).get(name)
        if array is None or not _is_string(array.type):
            return np.zeros(self._rows, bool)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return np.asarray(pc.is_in(array, pa.array(sorted(texts), array.type)))

    def may_be(self, name: str, texts: Collection[str]) -> Bools:
        """Return the rows whose value of this name is one of these texts, or is not a text."""
        if self._row_dicts is not None:
            values = (row.get(name) for row in self._row_dicts)
            return np.fromiter(
                (value is not None and (not isinstance(value, str) or value in texts) for value in values),
                bool,
                self._rows,
            )
        array = (self._columns or {}).get(name)
        is_text = array is not None and _is_string(array.type)
        return self.any_of(name, frozenset(texts)) if is_text else self.present(name)

    def mismatching(self, names: Mapping[str, type]) -> Bools:
        """Return the rows that may have a name that is not in `names`, or a value of another type."""
        if self._row_dicts is not None:
            return np.ones(self._rows, bool)
        is_mismatching = np.zeros(self._rows, bool)
        for name, array in (self._columns or {}).items():
            if names.get(name) is not _kind(array.type):
                is_mismatching |= self.present(name)
        return is_mismatching


def _size(values: Mapping[str, Any]) -> int:
    return sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in values.items())


def _is_string(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _kind(type_: pa.DataType) -> type | None:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if _is_string(type_):
        return str
    return bool if pa.types.is_boolean(type_) else int if pa.types.is_integer(type_) else float


def _doubtful(name: str, array: pa.Array) -> Any:
    """Return the rows of a column whose values might be invalid."""
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
