"""Normalise rows that a sink publishes: fixed columns and types, and an order and event ids that repeat exactly."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.identity import ENTROPY_BYTES, uuid7

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEALED = "sealed"  # the column that says whether the row's event is sealed
COLUMNS = ("attributes", "context", "id", "microseconds", "payload", "policy", "publisher", "subject", "subscribers")
_TEXTS = ("publisher", "subject", "subscribers", "policy", "id")
_SYSTEM_COLUMNS = ("id", "timestamp", "publisher", "subject", "payload", "context", "subscribers", "policy")
_NOT_COPIED = (
    "token",
    "signature",
    "sequence",
    "published",
    "offset",
    "journal",
)  # not copied: publishing assigns new ones
_ORDER = ("timestamp", "journal", "offset", "sequence")
_ORDERED = "order_"


def normalise_rows(batch: "DataFrame", *more: str) -> "DataFrame":
    """Return the columns `COLUMNS`, `SEALED`, those that order the rows, and the batch's columns `more`."""
    from pyspark.sql import functions as f

    columns: dict[str, Column] = {name: f.lit(None).cast("string").alias(name) for name in _TEXTS}
    columns["payload"] = f.lit(None).cast("binary").alias("payload")
    columns["context"] = f.lit(None).cast("string").alias("context")
    columns["microseconds"] = f.lit(0).cast("bigint").alias("microseconds")
    types = {field.name: field.dataType.typeName() for field in batch.schema.fields}
    for name in {*_TEXTS, "payload"} & types.keys():
        columns[name] = f.col(name)
    if "context" in types:
        columns["context"] = _json("context", types)
    if types.get("timestamp") == "timestamp":
        columns["microseconds"] = f.unix_micros("timestamp").alias("microseconds")
    if "attributes" in types:
        columns["attributes"] = _json("attributes", types)
    else:
        others = [name for name in types if name not in (*_SYSTEM_COLUMNS, *_NOT_COPIED)]
        attributes = f.to_json(f.struct(*others)) if others else f.lit("{}")
        columns["attributes"] = attributes.alias("attributes")
    order = [f.col(name).alias(f"{_ORDERED}{name}") for name in _ORDER if name in types]
    sealed = f.col("signature").isNotNull() if "signature" in types else f.lit(False)
    return batch.select(*(columns[name] for name in COLUMNS), sealed.alias(SEALED), *order, *more)


def sort_rows(rows: "DataFrame") -> "DataFrame":
    """Return `COLUMNS` and `SEALED` of uniform rows, with each partition sorted; ties are broken by all columns."""
    order = [f"{_ORDERED}{name}" for name in _ORDER if f"{_ORDERED}{name}" in rows.columns]
    return rows.sortWithinPartitions(*order, *COLUMNS).select(*COLUMNS, SEALED)


def refuse_sealed(row: Mapping[str, Any]) -> None:
    """Raise a `SecurityError` if the row's event is sealed.

    Another publisher cannot publish it: the attributes would be readable for everyone, and the payload for nobody.
    """
    if row[SEALED]:
        raise SecurityError(
            "seal",
            "the event is sealed, and what is told of it here would be in the clear: only its publisher can publish it."
            " Its receivers subscribe to its topic themselves, with tokens",
        )


class EventIds:
    """Assigns an id to each row, the same one whenever the rows are given again.

    `where` distinguishes rows without an id from equal rows elsewhere: the name of the stream and the batch's number.
    """

    def __init__(self, where: str) -> None:
        self._where, self._seen = where, Counter[bytes]()

    def of(self, row: Mapping[str, Any]) -> UUID:
        """Return the row's id if it is a UUIDv7, else one derived from that id, or from the row if it has no id."""
        row_id = row["id"]
        if row_id is not None:
            try:
                event_id = UUID(row_id)
            except ValueError:
                event_id = None
            if event_id is not None and event_id.version == 7:
                return event_id
            digest = hashlib.sha256(row_id.encode()).digest()
        else:
            values = {name: row[name] for name in COLUMNS}
            digest = hashlib.sha256(msgspec.json.encode([self._where, values])).digest()
            self._seen[digest] += 1  # equal rows are separate events, so they are numbered
            digest = hashlib.sha256(digest + self._seen[digest].to_bytes(8, "big")).digest()
        return uuid7(max(0, row["microseconds"] or 0) % (1000 << 48), digest[:ENTROPY_BYTES])


def parse_object(text: str | None, name: str) -> dict[str, Any]:
    """Parse a JSON object; None gives an empty one. Raises an `InvalidValueError` that names the column `name`."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"{name}: not a JSON object: {error}") from None


def _json(name: str, types: Mapping[str, str]) -> "Column":
    from pyspark.sql import functions as f

    return (f.col(name) if types[name] in ("string", "varchar", "char") else f.to_json(name)).alias(name)
