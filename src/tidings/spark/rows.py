"""Rows that are to be published: the columns of events by one name and type each, in an order, and with ids, that are
the same each time that they are given."""

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

SEALED = "sealed"  # whether a row is of an event that somebody has sealed
COLUMNS = ("attributes", "context", "id", "microseconds", "payload", "policy", "publisher", "subject", "subscribers")
_TEXTS = ("publisher", "subject", "subscribers", "policy", "id")
_KNOWN = ("id", "timestamp", "publisher", "subject", "payload", "context", "subscribers", "policy")
_APART = ("token", "signature", "sequence", "published", "offset", "journal")  # of a journal; who publishes has its own
_ORDER = ("timestamp", "journal", "offset", "sequence")
_ORDERED = "order_"


def uniform(batch: "DataFrame", *more: str) -> "DataFrame":
    """`COLUMNS`, `SEALED`, what they are ordered by, and `more` of the batch's columns as they are."""
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
        others = [name for name in types if name not in (*_KNOWN, *_APART)]
        given = f.to_json(f.struct(*others)) if others else f.lit("{}")
        columns["attributes"] = given.alias("attributes")
    order = [f.col(name).alias(f"{_ORDERED}{name}") for name in _ORDER if name in types]
    sealed = f.col("signature").isNotNull() if "signature" in types else f.lit(False)
    return batch.select(*(columns[name] for name in COLUMNS), sealed.alias(SEALED), *order, *more)


def ordered(rows: "DataFrame") -> "DataFrame":
    """`COLUMNS` and `SEALED` of uniform rows, each partition in its order, to the last tie."""
    order = [f"{_ORDERED}{name}" for name in _ORDER if f"{_ORDERED}{name}" in rows.columns]
    return rows.sortWithinPartitions(*order, *COLUMNS).select(*COLUMNS, SEALED)


def check_plain(row: Mapping[str, Any]) -> None:
    """What is sealed is not published by somebody else: its attributes would be in the clear for all, and its payload
    for nobody."""
    if row[SEALED]:
        raise SecurityError(
            "seal",
            "the event is sealed, and what is told of it here would be in the clear: only its publisher can publish it."
            " Its receivers subscribe to its topic themselves, with tokens",
        )


class EventIds:
    """`where` is what tells rows without an id apart from the same ones elsewhere."""

    def __init__(self, where: str) -> None:
        self._where, self._seen = where, Counter[bytes]()

    def of(self, row: Mapping[str, Any]) -> UUID:
        """The id if it is a UUIDv7; from any other one is made, and from the row itself where there is none."""
        given = row["id"]
        if given is not None:
            try:
                found = UUID(given)
            except ValueError:
                found = None
            if found is not None and found.version == 7:
                return found
            digest = hashlib.sha256(given.encode()).digest()
        else:
            said = {name: row[name] for name in COLUMNS}
            digest = hashlib.sha256(msgspec.json.encode([self._where, said])).digest()
            self._seen[digest] += 1  # rows that are equal in everything are events of their own
            digest = hashlib.sha256(digest + self._seen[digest].to_bytes(8, "big")).digest()
        return uuid7(max(0, row["microseconds"] or 0) % (1000 << 48), digest[:ENTROPY_BYTES])


def mapping(text: str | None, name: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"{name}: not a JSON object: {error}") from None


def _json(name: str, types: Mapping[str, str]) -> "Column":
    from pyspark.sql import functions as f

    return (f.col(name) if types[name] in ("string", "varchar", "char") else f.to_json(name)).alias(name)
