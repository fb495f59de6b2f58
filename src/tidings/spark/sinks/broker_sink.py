"""A `foreachBatch` sink that publishes rows through a live broker, from the executors.

Rules:

1. Every partition of a micro-batch publishes as a client of its own, so that the rows of a partition stay in order.
2. A micro-batch that Spark repeats is divided into as many partitions as before, and each partition has the same rows
   in the same order with the same event ids.
3. A repeated micro-batch publishes nothing twice. A file beside the checkpoint (`PositionFile`) stores the client's
   sequence number from before the batch, and the rows are numbered from there; rows with a number up to the client's
   last one at the broker have been published, and are skipped. Where numbers no longer correspond to rows (the broker's
   disk was full for a time), the broker refuses duplicates by event id.
"""

import logging
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidings.client.identity import TlsIdentity
from tidings.client.resumable_publisher import MOST_REASONS, ResumablePublisher, SeriesEvent, SeriesResult
from tidings.configuration import at_least_one, one_of
from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, SecurityError, TidingsError
from tidings.model.event import checked_client
from tidings.spark.sinks.publish_rows import EventIds, normalise_rows, parse_object, refuse_sealed, sort_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAFE = ("accepted", "journaled", "settled")
PARTITION = "{partition}"  # in names of certificate files: replaced by the partition's number
_DONE = "done string"
_LOG = logging.getLogger("tidings")


class BrokerClients(msgspec.Struct, frozen=True, kw_only=True):
    """The clients that publish for a sink: their broker, names, credentials, and the requested durability.

    The clients are `name/0`, `name/1` and so on, or `name` if there is one partition. No other client may have these
    names.
    """

    addresses: str
    name: str = "pipeline"
    partitions: int | None = None  # None: as many as Spark's shuffle partitions
    safe: str = "journaled"
    patience: float = 60.0  # seconds to wait for an answer of the broker
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        checked_client(self.name)
        one_of("safe", self.safe, SAFE)
        at_least_one("partitions", self.partitions)
        if not self.patience > 0:
            raise InvalidValueError("patience: more than 0 seconds")
        if self.authority is None and (self.certificate or self.key):
            raise InvalidValueError("authority: is missing; it names the certificates that brokers are trusted by")

    def named(self, partition: int, partitions: int) -> str:
        """Return the name of the client of a partition."""
        return self.name if partitions == 1 else f"{self.name}/{partition}"

    def publisher(self, partition: int, partitions: int) -> ResumablePublisher:
        """Return the publisher of a partition, with the partition's certificate files."""
        files = [
            None if path is None else path.replace(PARTITION, str(partition))
            for path in (self.authority, self.certificate, self.key)
        ]
        identity = None if files[0] is None else TlsIdentity(files[0], files[1], files[2])
        name = self.named(partition, partitions)
        return ResumablePublisher(self.addresses, name, identity, safe=self.safe, patience=self.patience)


def to_broker(
    addresses: str | Iterable[str], name: str = "pipeline", *, folder: str | Path, by: str | None = None, **how: Any
) -> "BrokerSink":
    """Return a function for `writeStream.foreachBatch` that publishes the rows of each batch through a live broker.

    Rows have the columns of events, as `to_hub` takes them; `publisher` and `context` are ignored, since the sink's own
    clients publish.

    Args:
        addresses: Addresses of brokers to try, or several in one text, separated by commas.
        name: The name of the clients; see `BrokerClients`.
        folder: A folder beside the checkpoint that the driver and all executors see; it stores the positions.
        by: Rows with the same value of this column are published by one client, in order. None: rows with the same id
            and attributes.
        how: The other fields of `BrokerClients`.
    """
    address_list = addresses if isinstance(addresses, str) else ",".join(addresses)
    return BrokerSink(BrokerClients(addresses=address_list, name=name, **how), str(folder), by)


class BrokerSink:
    """The function that `to_broker` returns; it counts rows since it was created.

    `published` were published, `known` had been published by an earlier attempt, `refused` were refused by the broker.
    """

    def __init__(self, clients: BrokerClients, folder: str, by: str | None = None) -> None:
        self._clients, self._folder, self._by = clients, folder, by
        self.published = self.known = self.refused = 0

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        folder, partitions = self._positions(batch, batch_id)
        partition_columns = ["id", "attributes"] if self._by is None else [self._by]
        rows = normalise_rows(batch, *([] if self._by is None else [self._by])).repartition(
            partitions, *partition_columns
        )
        where = f"{self._clients.name} {batch_id}"
        delivery = _Delivery(self._clients, str(folder), partitions, where)
        for row in sort_rows(rows).mapInArrow(delivery, _DONE).collect():  # a row per partition
            self._count(msgspec.json.decode(row["done"], type=SeriesResult))
        self._clean(batch_id)

    def _positions(self, batch: "DataFrame", batch_id: int) -> tuple[Path, int]:
        """Return the folder of the batch's mark files and its number of partitions; a repeated batch gets the same."""
        existing = next(Path(self._folder).glob(f"{batch_id}-*"), None)
        if existing is not None:
            return existing, int(existing.name.partition("-")[2])
        spread = batch.sparkSession.conf.get("spark.sql.shuffle.partitions")
        partitions = self._clients.partitions or max(1, int(spread or 1))
        created = Path(self._folder) / f"{batch_id}-{partitions}"
        created.mkdir(parents=True)
        return created, partitions

    def _clean(self, batch_id: int) -> None:
        """Remove the mark files of earlier batches, which Spark does not repeat."""
        for folder in Path(self._folder).iterdir():
            number = folder.name.partition("-")[0]
            if number.isdecimal() and int(number) < batch_id:
                shutil.rmtree(folder, ignore_errors=True)

    def _count(self, result: SeriesResult) -> None:
        self.published += result.published
        self.known += result.known
        self.refused += result.refused
        for reason in result.reasons:
            _LOG.warning("%s: not published: %s", self._clients.name, reason)
        if result.refused > MOST_REASONS:
            _LOG.warning("%s: and %d more were not published", self._clients.name, result.refused - MOST_REASONS)


class _Position(msgspec.Struct, frozen=True):
    """The client's sequence number before a partition's first row; None if numbers no longer correspond to rows."""

    start: int | None


class PositionFile:
    """The position of a partition of one micro-batch, in a file that all executors see."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, last: int) -> int | None:
        """Return the client's sequence number before the partition's first row.

        In the first attempt `last`, the client's number now, is stored and returned. None: numbers no longer correspond
        to rows.
        """
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Position).start
        except FileNotFoundError:
            self._write(_Position(last))
            return last

    def lose_count(self) -> None:
        """Store that sequence numbers no longer correspond to rows."""
        self._write(_Position(None))

    def _write(self, position: _Position) -> None:
        Disk().create(self._path, msgspec.json.encode(position))


class _Delivery:
    """The function for `mapInArrow` that publishes the rows of a partition in their order, on an executor."""

    def __init__(self, clients: BrokerClients, folder: str, partitions: int, where: str) -> None:
        self._clients, self._folder = clients, folder
        self._partitions, self._where = partitions, where

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return  # no rows: do not connect to a broker
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        publisher = self._clients.publisher(partition, self._partitions)
        result = publisher.publish_series(
            self._events(first, batches), PositionFile(Path(self._folder) / str(partition))
        )
        yield pa.record_batch({"done": [msgspec.json.encode(result).decode()]})

    def _events(self, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> Iterator[SeriesEvent | TidingsError]:
        ids = EventIds(self._where)
        for batch in chain([first], more):
            yield from (_series_event(row, ids) for row in batch.to_pylist())


def _series_event(row: dict[str, Any], ids: EventIds) -> SeriesEvent | TidingsError:
    id = ids.of(row)  # noqa: A001
    try:
        refuse_sealed(row)
        attributes = parse_object(row["attributes"], "attributes")
    except SecurityError as error:
        return SecurityError(error.check, f"{id}: {error.reason}")
    except TidingsError as error:
        return error
    return SeriesEvent(id, attributes, row["payload"], row["subject"], row["subscribers"], row["policy"])
