"""A sink into a hub: the rows of a stream, published in the driver's process into a hub that lives there.

It is for modest volume: every row passes through the driver, one at a time. A batch that Spark gives again, after a
crash or a restart, publishes nothing twice: how far the sink has come stands in the hub itself, as the context of a
client of the sink's name, and every event has an id that is the same each time.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import UUID

import msgspec

from tidings.model.errors import ClosedError, InvalidValueError, JournalError, PublishedBeforeError, TidingsError
from tidings.model.identity import ENTROPY_BYTES, uuid7

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK_ROWS = 256  # after so many rows the sink notes in the hub how far it has come
_TEXTS = ("publisher", "subject", "subscribers", "policy", "id")
_KNOWN = ("id", "timestamp", "publisher", "subject", "payload", "context", "subscribers", "policy")
_APART = ("token", "signature", "sequence", "published", "offset", "journal")  # of a journal; a hub gives its own
_LOG = logging.getLogger("tidings")

Refused = Callable[[Mapping[str, Any], TidingsError], None]


class Hub(Protocol):
    """What the sink asks of `tidings.Hub`."""

    @property
    def name(self) -> str: ...

    def client(self, name: str) -> Any: ...


def to_hub(
    hub: Hub, publisher: str | None = None, *, name: str = "spark-sink", on_refused: Refused | None = None
) -> "HubSink":
    """The function for `writeStream.foreachBatch` that publishes the rows of each batch into `hub`.

    Rows have the columns of events: `attributes` (struct, map, VARIANT or JSON text), or else every column that is not
    one of those below is an attribute; `publisher` (or the one given here, which is for rows without one), `subject`,
    `payload`, `subscribers`, `policy`, and `context`, which becomes the publisher's. `id` is the event's if it is a
    UUIDv7; from any other one is made, and from the row itself where there is none. They are published in the order
    of `timestamp`; the hub gives them its own times.

    `name` is the client under which the sink keeps its place: each stream into one hub has another. A row that the hub
    refuses is handed to `on_refused`, or logged; the others go on.
    """
    return HubSink(hub, publisher, name, on_refused)


class HubSink:
    """Counts what it did since it was made: `published`, `known` (were there before), `refused`."""

    def __init__(self, hub: Hub, publisher: str | None, name: str, on_refused: Refused | None) -> None:
        if name == hub.name or name == publisher:
            raise InvalidValueError(
                f"name: {name!r} is somebody else; the sink keeps its place under a name of its own"
            )
        self._hub, self._publisher, self._name = hub, publisher, name
        self._keeper = hub.client(name)
        self._on_refused = on_refused or self._log
        self.published = self.known = self.refused = 0

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        query = _query(batch)
        done = self._done(query, batch_id)
        if done is None:
            return
        number = 0
        for number, row in enumerate(_rows(batch, f"{self._name} {query} {batch_id}"), 1):
            if number > done:
                self._publish(row)
                if number % MARK_ROWS == 0:
                    self._note(query, batch_id, number, safe="accepted")
        # Waits for the disk, and with it for all that was published before.
        self._note(query, batch_id, -1, safe="journaled")

    def __reduce__(self) -> NoReturn:
        raise TidingsError(
            "a hub lives in one process and cannot be sent to another: this sink works where the function of "
            "foreachBatch runs in the driver's process, and not under Spark Connect"
        )

    def _done(self, query: str, batch_id: int) -> int | None:
        """How many rows of the batch have been published, or nothing if all have."""
        place = self._keeper.context
        if place.get("query") != query or not isinstance(place.get("batch"), int):
            return 0
        batch, rows = place["batch"], place.get("rows", 0)
        if batch_id != batch:
            return None if batch_id < batch else 0
        return None if rows < 0 else int(rows)

    def _note(self, query: str, batch_id: int, rows: int, safe: str) -> None:
        self._keeper.set_context({"query": query, "batch": batch_id, "rows": rows}, safe=safe)

    def _publish(self, row: dict[str, Any]) -> None:
        try:
            client = self._hub.client(row["publisher"] or self._publisher or "")
            if row["context"] is not None:
                client.set_context(_mapping(row["context"], "context"), safe="accepted")
            client.publish(
                _mapping(row["attributes"], "attributes"),
                subscribers=row["subscribers"],
                payload=row["payload"],
                subject=row["subject"],
                policy=row["policy"],
                id=row["id"],
                safe="accepted",
            )
        except PublishedBeforeError:
            self.known += 1
        except (ClosedError, JournalError):
            raise  # nothing is wrong with the row: it is published when the hub takes events again
        except TidingsError as error:
            self.refused += 1
            self._on_refused(row, error)
        else:
            self.published += 1

    def _log(self, row: Mapping[str, Any], error: TidingsError) -> None:
        _LOG.warning("%s: the event %s was not published: %s", self._name, row["id"], error)


def _query(batch: "DataFrame") -> str:
    """The id of the streaming query, which a new checkpoint changes; batches are counted from 0 in each."""
    try:
        return batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except Exception:  # where there is no way to ask
        return ""


def _rows(batch: "DataFrame", where: str) -> Iterator[dict[str, Any]]:
    """In an order that is the same each time, with ids that are the same each time."""
    seen: Counter[bytes] = Counter()
    for row in _uniform(batch).toLocalIterator(prefetchPartitions=True):
        found: dict[str, Any] = row.asDict()
        found["payload"] = None if found["payload"] is None else bytes(found["payload"])
        found["id"] = _id(found, seen, where)
        yield found


def _uniform(batch: "DataFrame") -> "DataFrame":
    """The columns that are published, by one name and type each."""
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
    order = [name for name in ("timestamp", "journal", "offset", "sequence") if name in types]
    uniform = batch.select(*columns.values(), *(f.col(name).alias(f"order_{name}") for name in order))
    return (
        uniform.repartition(1)
        .sortWithinPartitions(*(f"order_{name}" for name in order), *sorted(columns))
        .select(*sorted(columns))
    )


def _json(name: str, types: Mapping[str, str]) -> "Column":
    from pyspark.sql import functions as f

    return (f.col(name) if types[name] in ("string", "varchar", "char") else f.to_json(name)).alias(name)


def _id(row: Mapping[str, Any], seen: Counter[bytes], where: str) -> UUID:
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
        digest = hashlib.sha256(msgspec.json.encode([where, row])).digest()
        seen[digest] += 1  # rows that are equal in everything are events of their own
        digest = hashlib.sha256(digest + seen[digest].to_bytes(8, "big")).digest()
    return uuid7(max(0, row["microseconds"] or 0) % (1000 << 48), digest[:ENTROPY_BYTES])


def _mapping(text: str | None, name: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"{name}: not a JSON object: {error}") from None
