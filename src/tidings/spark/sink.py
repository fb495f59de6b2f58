"""A sink into a hub: the rows of a stream, published in the driver's process into a hub that lives there.

It is for modest volume: every row passes through the driver, one at a time. A batch that Spark gives again, after a
crash or a restart, publishes nothing twice: how far the sink has come stands in the hub itself, as the context of a
client of the sink's name, and every event has an id that is the same each time.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tidings.model.errors import ClosedError, InvalidValueError, JournalError, PublishedBeforeError, TidingsError
from tidings.spark.rows import EventIds, check_plain, mapping, ordered, uniform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK_ROWS = 256  # after so many rows the sink notes in the hub how far it has come
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
    refuses is handed to `on_refused`, or logged; the others go on. So is a row of a sealed event, which has a
    `signature`.
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
                self.publish_row(row)
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

    def publish_row(self, row: dict[str, Any]) -> None:
        """Publishes the event of one row, after the change of its publisher's context."""
        try:
            check_plain(row)
            client = self._hub.client(row["publisher"] or self._publisher or "")
            if row["context"] is not None:
                client.set_context(mapping(row["context"], "context"), safe="accepted")
            client.publish(
                mapping(row["attributes"], "attributes"),
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
    ids = EventIds(where)
    for row in ordered(uniform(batch).repartition(1)).toLocalIterator(prefetchPartitions=True):
        found: dict[str, Any] = row.asDict()
        found["payload"] = None if found["payload"] is None else bytes(found["payload"])
        found["id"] = ids.of(found)
        yield found
