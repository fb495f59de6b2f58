"""A `foreachBatch` sink that publishes rows into a hub in the driver's process.

It is for modest volume: every row passes through the driver, one at a time. A micro-batch that Spark repeats after a
crash or a restart publishes nothing twice: the sink stores the number of published rows in the hub, as the context of a
client of the sink's name, and every event has an id that is the same in each attempt.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tidings.model.errors import ClosedError, InvalidValueError, JournalError, PublishedBeforeError, TidingsError
from tidings.spark.sinks.publish_rows import EventIds, normalise_rows, parse_object, refuse_sealed, sort_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK_ROWS = 256  # the sink stores its position in the hub after so many rows
_LOG = logging.getLogger("tidings")

Refused = Callable[[Mapping[str, Any], TidingsError], None]


class HubPort(Protocol):
    """The part of `tidings.Hub` that the sink uses."""

    @property
    def name(self) -> str: ...

    def client(self, name: str) -> Any: ...


def to_hub(
    hub: HubPort, publisher: str | None = None, *, name: str = "spark-sink", on_refused: Refused | None = None
) -> "HubSink":
    """Return a function for `writeStream.foreachBatch` that publishes the rows of each micro-batch into `hub`.

    Rows have the columns of events: `attributes` (struct, map, VARIANT or JSON text; if it is missing, every column not
    named here is an attribute), `publisher`, `subject`, `payload`, `subscribers`, `policy`, and `context`, which
    becomes the publisher's context. An `id` that is a UUIDv7 is the event's id; otherwise one is derived from `id`, or
    from the row if there is no `id`. Rows are published in the order of `timestamp`; the hub assigns the acceptance
    times. A sealed event (a row with a `signature`) is refused.

    Args:
        hub: The hub, open in the driver's process.
        publisher: The publisher of rows without one.
        name: The client whose context stores the sink's position; each stream into a hub needs its own.
        on_refused: Called with each row that the hub refuses, and its error; the sink goes on with the next row. None:
            the error is logged.
    """
    return HubSink(hub, publisher, name, on_refused)


class HubSink:
    """The function that `to_hub` returns; it counts rows since it was created.

    `published` were published, `known` had been published by an earlier attempt, `refused` were refused by the hub.
    """

    def __init__(self, hub: HubPort, publisher: str | None, name: str, on_refused: Refused | None) -> None:
        if name == hub.name or name == publisher:
            raise InvalidValueError(
                f"name: {name!r} is somebody else; the sink keeps its place under a name of its own"
            )
        self._hub, self._publisher, self._name = hub, publisher, name
        self._position_client = hub.client(name)
        self._on_refused = on_refused or self._log
        self.published = self.known = self.refused = 0

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        query = _query(batch)
        published_rows = self._published_rows(query, batch_id)
        if published_rows is None:
            return
        number = 0
        for number, row in enumerate(_rows(batch, f"{self._name} {query} {batch_id}"), 1):
            if number > published_rows:
                self.publish_row(row)
                if number % MARK_ROWS == 0:
                    self._store_position(query, batch_id, number, safe="accepted")
        # `journaled` waits for the disk, and so for all events published before.
        self._store_position(query, batch_id, -1, safe="journaled")

    def __reduce__(self) -> NoReturn:
        raise TidingsError(
            "a hub lives in one process and cannot be sent to another: this sink works where the function of "
            "foreachBatch runs in the driver's process, and not under Spark Connect"
        )

    def _published_rows(self, query: str, batch_id: int) -> int | None:
        """Return how many rows of the micro-batch have been published; None if all have."""
        position = self._position_client.context
        if position.get("query") != query or not isinstance(position.get("batch"), int):
            return 0
        batch, rows = position["batch"], position.get("rows", 0)
        if batch_id != batch:
            return None if batch_id < batch else 0
        return None if rows < 0 else int(rows)

    def _store_position(self, query: str, batch_id: int, rows: int, safe: str) -> None:
        self._position_client.set_context({"query": query, "batch": batch_id, "rows": rows}, safe=safe)

    def publish_row(self, row: dict[str, Any]) -> None:
        """Set the publisher's context if the row has one, then publish the row's event, and count the result.

        Raises:
            ClosedError: The hub is closed; Spark repeats the batch later.
            JournalError: The hub's journal takes no records; Spark repeats the batch later.
        """
        try:
            refuse_sealed(row)
            client = self._hub.client(row["publisher"] or self._publisher or "")
            if row["context"] is not None:
                client.set_context(parse_object(row["context"], "context"), safe="accepted")
            client.publish(
                parse_object(row["attributes"], "attributes"),
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
            raise  # the hub fails, not the row: the repeated batch publishes it
        except TidingsError as error:
            self.refused += 1
            self._on_refused(row, error)
        else:
            self.published += 1

    def _log(self, row: Mapping[str, Any], error: TidingsError) -> None:
        _LOG.warning("%s: the event %s was not published: %s", self._name, row["id"], error)


def _query(batch: "DataFrame") -> str:
    """Return the id of the streaming query, or "" under Spark Connect. Batch numbers begin at 0 in each query."""
    try:
        return batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except Exception:  # Spark Connect has no `sparkContext`
        return ""


def _rows(batch: "DataFrame", where: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a micro-batch in an order, and with ids, that are the same in each attempt."""
    ids = EventIds(where)
    for row in sort_rows(normalise_rows(batch).repartition(1)).toLocalIterator(prefetchPartitions=True):
        fields: dict[str, Any] = row.asDict()
        fields["payload"] = None if fields["payload"] is None else bytes(fields["payload"])
        fields["id"] = ids.of(fields)
        yield fields
