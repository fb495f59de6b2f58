"""Write the attributes of many notifications as JSON text without building objects.

The members of an object are written once per event; each notification's text joins those members that its
transformation leaves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.transformations import Transformation
from tidings.matching.index.kernels.json_join import weave

Ints = npt.NDArray[np.int64]
_QUOTED = r'["\\\x00-\x1f]'  # characters that JSON escapes


def members(name: str, column: pa.Array) -> pa.Array:
    """Return for each row the text `"name":value`, or null without a value. It distinguishes 1, 1.0 and true."""
    return pc.binary_join_element_wise(f"{_json(name)}:", _values(column), "")


def members_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return the same as `members`, by name, for rows that are dictionaries."""
    columns: dict[str, list[str | None]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = [None] * len(rows)
            column[number] = f"{_json(name)}:{_json(value)}"
    return {name: pa.array(column, pa.string()) for name, column in columns.items()}


class JsonJoiner:
    """Joins the members of rows into JSON objects; `columns` has the members by name."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._numbers = {name: number for number, name in enumerate(columns)}

    def join(self, rows: Ints, shapes: npt.NDArray[np.int32], transformations: list[Transformation]) -> pa.Array:
        """Return the JSON object of each row in `rows`, transformed by the shape of the same position.

        Raises a `pyarrow.ArrowCapacityError` if the texts have more than 2 GiB.
        """
        distinct, inverse = np.unique(shapes, return_inverse=True)
        lists, added = [], list[str]()
        for number in distinct.tolist():
            transformation = transformations[number]
            lists.append(self._kept_columns(transformation))
            for name, value in transformation.added:
                lists[-1].append(len(self._columns) + len(added))
                added.append(f"{_json(name)}:{_json(value)}")
        columns = [column.fill_null("") for column in self._columns.values()]
        texts = pa.concat_arrays([*columns, pa.array(added, pa.string())])
        ends, text = _buffers(texts)
        first = np.cumsum([0, *map(len, lists)])
        member = np.array([column for each in lists for column in each], np.int64)
        stops, out = weave(inverse.astype(np.int64), rows, first, member, ends, self._rows, len(columns), text)
        if stops[-1] > np.iinfo(np.int32).max:
            raise pa.ArrowCapacityError(
                "the attributes of a batch's notifications have more than 2 GiB: smaller batches"
            )
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(stops.astype(np.int32)), pa.py_buffer(out))

    def _kept_columns(self, transformation: Transformation) -> list[int]:
        """Return the columns that a transformation leaves, in order, without those that it replaces by added values."""
        removed = transformation.removes | {name for name, _ in transformation.added}
        if transformation.keeps is None:
            return [number for name, number in self._numbers.items() if name not in removed]
        names = transformation.keeps - removed
        return sorted(self._numbers[name] for name in names if name in self._numbers)


def _buffers(texts: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets and the bytes of texts. Both are copies, since kernels may write to their arguments."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()


def _values(column: pa.Array) -> pa.Array:
    """Return the values of a column as JSON; null stays null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        texts = column.cast(pa.float64()).cast(pa.string())
        is_whole_number = pc.invert(pc.match_substring_regex(texts, "[.e]"))
        return pc.if_else(is_whole_number, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.cast(pa.string())  # booleans and integers
    texts = pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    odd = pc.match_substring_regex(column, _QUOTED).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    return pc.replace_with_mask(texts, odd, pa.array(list(map(_json, column.filter(odd).to_pylist())), pa.string()))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
