"""Read Arrow tables of events for the index.

A table has one column for each attribute, or one column `attributes` with all of them (structs, maps or JSON text).
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.payloads import text_of
from tidings.matching.reference import Scope
from tidings.model.errors import InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.limits import MAX_TEXT_BYTES
from tidings.model.values import Attributes

ATTRIBUTES, CONTEXT, SUBSCRIBERS = "attributes", "context", "subscribers"
RESERVED = (CONTEXT, SUBSCRIBERS)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary)
_TEXTS = (pa.types.is_string, pa.types.is_large_string)


def has_rows_of_names(table: pa.Table, column: str = ATTRIBUTES) -> bool:
    """Return whether each row of the column has its own names: a map or JSON text, whose values may be of any kind."""
    return column in table.column_names and not pa.types.is_struct(table.schema.field(column).type)


def attribute_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Return the attributes' columns by name, of a table whose columns have one kind each."""
    return columns_of(table.drop_columns([name for name in RESERVED if name in table.column_names]), ATTRIBUTES)


def columns_of(table: pa.Table, whole_row: str) -> dict[str, pa.Array]:
    """Return the table's columns by name, with structs flattened to dotted names.

    The fields of the column `whole_row` are named without its prefix.
    """
    columns: dict[str, pa.Array] = {}
    for name in table.column_names:
        columns.update(_flat("" if name == whole_row else name, whole(table[name])))
    return columns


def attribute_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return each event's attributes and system attributes, of a table whose rows have their own names."""
    rows: list[dict[str, Any]] = [dict(Attributes.of(mapping)) for mapping in mappings(table[ATTRIBUTES])]
    for name in (SUBJECT, PUBLISHER, PAYLOAD):
        if name in table.column_names:
            for row, value in zip(rows, table[name].to_pylist(), strict=True):
                row[name] = value
    return rows


def mappings(array: pa.Array | pa.ChunkedArray) -> list[dict[str, Any]]:
    """Return a column of structs, maps or JSON texts as dicts; null is an empty dict.

    Raises `InvalidValueError` for a column of another type, and for text that is not a JSON object.
    """
    array = whole(array)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return [_parsed(text, row) for row, text in enumerate(array.to_pylist())]
    if pa.types.is_map(array.type):
        return [dict(pairs or ()) for pairs in array.to_pylist()]
    if pa.types.is_struct(array.type):
        return [row or {} for row in array.to_pylist()]
    raise InvalidValueError(f"a column of named values is a struct, a map or JSON text, not {array.type}")


def unreadable(array: pa.Array | pa.ChunkedArray) -> dict[int, str]:
    """Return the rows of a column of JSON texts that `mappings` cannot read, each with the reason."""
    reasons = {}
    for row, text in enumerate(whole(array).to_pylist()):
        try:
            _parsed(text, row)
        except InvalidValueError as error:
            reasons[row] = str(error).removeprefix(f"row {row}: ")
    return reasons


def scope_of(row: Mapping[str, Any]) -> Scope:
    """Return an event's row as the reference takes it, with the system attributes apart from the others."""
    attributes = {name: value for name, value in row.items() if value is not None and not name.startswith("$")}
    payload = row.get(PAYLOAD)
    encoded = payload.encode() if isinstance(payload, str) else payload
    return Scope(Attributes.of(attributes), {}, row.get(SUBJECT), encoded, row.get(PUBLISHER))


def row_of(columns: Mapping[str, pa.Array], number: int) -> dict[str, Any]:
    """Return one row of some columns as Python values."""
    return {name: array[number].as_py() for name, array in columns.items()}


def with_text(row: dict[str, Any]) -> dict[str, Any]:
    """Return an event with its payload as text, as patterns read it."""
    payload = row.get(PAYLOAD)
    return row if payload is None else {**row, PAYLOAD: text_of(payload)}


def as_text(payloads: pa.Array) -> pa.Array:
    """Return a column of payloads as text, as patterns read it: null for a payload that is not text."""
    if pa.types.is_dictionary(payloads.type):
        payloads = payloads.dictionary_decode()
    if not any(is_one(payloads.type) for is_one in (*_BYTES, *_TEXTS)):
        return payloads
    longest = pc.max(pc.binary_length(payloads)).as_py() or 0
    if longest <= MAX_TEXT_BYTES and any(is_one(payloads.type) for is_one in _TEXTS):
        return payloads
    return pa.array([text_of(payload) for payload in payloads.to_pylist()], pa.string())


def _flat(prefix: str, array: pa.Array) -> dict[str, pa.Array]:
    """Flatten a struct column to columns with dotted names."""
    if not pa.types.is_struct(array.type):
        return {prefix: array}
    columns: dict[str, pa.Array] = {}
    for field in array.type:
        inner = pc.struct_field(array, field.name)
        columns.update(_flat(f"{prefix}.{field.name}" if prefix else field.name, inner))
    return columns


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    combined = array.combine_chunks()
    return combined if not isinstance(combined, pa.ChunkedArray) else pa.concat_arrays(combined.chunks)


def _parsed(text: str | None, number: int) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"row {number}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidValueError(f"row {number}: must be a JSON object")
    return value
