"""Attributes of many notifications as JSON text, of which none is made from an object: members are written once an
event, and what rules leave of an event is woven out of these."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.shapes import Shaping
from tidings.matching.index.weaving import weave

Ints = npt.NDArray[np.int64]
_QUOTED = r'["\\\x00-\x1f]'  # what JSON does not take as it is


def members(name: str, column: pa.Array) -> pa.Array:
    """Of each row `"name":value`, or null where it has none. It tells 1, 1.0 and true apart."""
    return pc.binary_join_element_wise(f"{_written(name)}:", _values(column), "")


def members_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """The same, by name, of rows that bring their own names."""
    found: dict[str, list[str | None]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            column = found.get(name)
            if column is None:
                column = found[name] = [None] * len(rows)
            column[number] = f"{_written(name)}:{_written(value)}"
    return {name: pa.array(column, pa.string()) for name, column in found.items()}


class Weaver:
    """Members by name, of so many rows."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._numbers = {name: number for number, name in enumerate(columns)}

    def woven(self, rows: Ints, shapes: npt.NDArray[np.int32], known: list[Shaping]) -> pa.Array:
        """What each shape, by its number, leaves of a row and adds to it."""
        used, which = np.unique(shapes, return_inverse=True)
        lists, added = [], list[str]()
        for number in used.tolist():
            shaping = known[number]
            lists.append(self._left_by(shaping))
            for name, value in shaping.added:
                lists[-1].append(len(self._columns) + len(added))
                added.append(f"{_written(name)}:{_written(value)}")
        columns = [column.fill_null("") for column in self._columns.values()]
        whole = pa.concat_arrays([*columns, pa.array(added, pa.string())])
        ends, text = _buffers(whole)
        first = np.cumsum([0, *map(len, lists)])
        member = np.array([one for each in lists for one in each], np.int64)
        stops, out = weave(which.astype(np.int64), rows, first, member, ends, self._rows, len(columns), text)
        if stops[-1] > np.iinfo(np.int32).max:
            raise pa.ArrowCapacityError(
                "the attributes of a batch's notifications have more than 2 GiB: smaller batches"
            )
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(stops.astype(np.int32)), pa.py_buffer(out))

    def _left_by(self, shaping: Shaping) -> list[int]:
        """The columns of which something is left, in their order; what is added takes the place of what was there."""
        gone = shaping.removes | {name for name, _ in shaping.added}
        if shaping.keeps is None:
            return [number for name, number in self._numbers.items() if name not in gone]
        kept = shaping.keeps - gone
        return sorted(self._numbers[name] for name in kept if name in self._numbers)


def _buffers(texts: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where each text ends, and the bytes; kernels may write, so these are copies."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()


def _values(column: pa.Array) -> pa.Array:
    """JSON of the values of a column; null stays null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        texts = column.cast(pa.float64()).cast(pa.string())
        whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
        return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.cast(pa.string())  # booleans and integers
    texts = pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    odd = pc.match_substring_regex(column, _QUOTED).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    return pc.replace_with_mask(texts, odd, pa.array(list(map(_written, column.filter(odd).to_pylist())), pa.string()))


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()
