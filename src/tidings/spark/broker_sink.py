"""A sink into a live broker: the rows of a stream become publications of its clients, made where the rows are.

Every partition has a client of its own, so that what it publishes has an order. A batch that Spark gives again
publishes nothing twice: beside the checkpoint stands after which number each partition began to count, and the broker
knows the last number that it has of each client; every event has an id, besides, that is the same each time.
"""

import logging
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidings.client.courier import MOST_REASONS, Courier, Delivered, Letter
from tidings.client.identity import Identity
from tidings.configuration.checks import at_least_one, one_of
from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, SecurityError, TidingsError
from tidings.model.event import checked_client
from tidings.spark.rows import EventIds, check_plain, mapping, ordered, uniform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAFE = ("accepted", "journaled", "settled")
PARTITION = "{partition}"  # in the names of files: the number of the partition that they are of
_DONE = "done string"
_LOG = logging.getLogger("tidings")


class BrokerClients(msgspec.Struct, frozen=True, kw_only=True):
    """Who publishes, where, and how safely. The clients are `name/0`, `name/1` and so on, or only `name` where there is
    one partition; nobody else has these names."""

    addresses: str
    name: str = "pipeline"
    partitions: int | None = None  # as many as Spark has shuffle partitions
    safe: str = "journaled"
    patience: float = 60.0  # seconds without an answer of a broker
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
        return self.name if partitions == 1 else f"{self.name}/{partition}"

    def courier(self, partition: int, partitions: int) -> Courier:
        files = [
            None if one is None else one.replace(PARTITION, str(partition))
            for one in (self.authority, self.certificate, self.key)
        ]
        identity = None if files[0] is None else Identity(files[0], files[1], files[2])
        name = self.named(partition, partitions)
        return Courier(self.addresses, name, identity, safe=self.safe, patience=self.patience)


def to_broker(
    addresses: str | Iterable[str], name: str = "pipeline", *, folder: str | Path, by: str | None = None, **how: Any
) -> "BrokerSink":
    """The function for `writeStream.foreachBatch` that publishes the rows of each batch through a live broker.

    Rows have the columns of events, as `to_hub` takes them; `publisher` and `context` are not looked at, since the
    sink's own clients publish. `folder` is beside the checkpoint, where the driver and all executors see it, and `how`
    are the other fields of `BrokerClients`. Rows with the same value of the column `by` are published by one client, in
    their order; without it, the same holds of rows with the same id.
    """
    written = addresses if isinstance(addresses, str) else ",".join(addresses)
    return BrokerSink(BrokerClients(addresses=written, name=name, **how), str(folder), by)


class BrokerSink:
    """Counts what it did since it was made: `published`, `known` (were there before), `refused`."""

    def __init__(self, clients: BrokerClients, folder: str, by: str | None = None) -> None:
        self._clients, self._folder, self._by = clients, folder, by
        self.published = self.known = self.refused = 0

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        folder, partitions = self._marks(batch, batch_id)
        together = ["id", "attributes"] if self._by is None else [self._by]
        rows = uniform(batch, *([] if self._by is None else [self._by])).repartition(partitions, *together)
        where = f"{self._clients.name} {batch_id}"
        delivery = _Delivery(self._clients, str(folder), partitions, where)
        for row in ordered(rows).mapInArrow(delivery, _DONE).collect():  # one a partition
            self._count(msgspec.json.decode(row["done"], type=Delivered))
        self._clean(batch_id)

    def _marks(self, batch: "DataFrame", batch_id: int) -> tuple[Path, int]:
        """Where the partitions of a batch keep their places; a batch that comes again has as many as before."""
        begun = next(Path(self._folder).glob(f"{batch_id}-*"), None)
        if begun is not None:
            return begun, int(begun.name.partition("-")[2])
        spread = batch.sparkSession.conf.get("spark.sql.shuffle.partitions")
        partitions = self._clients.partitions or max(1, int(spread or 1))
        made = Path(self._folder) / f"{batch_id}-{partitions}"
        made.mkdir(parents=True)
        return made, partitions

    def _clean(self, batch_id: int) -> None:
        """Removes the places of batches that cannot come again."""
        for one in Path(self._folder).iterdir():
            number = one.name.partition("-")[0]
            if number.isdecimal() and int(number) < batch_id:
                shutil.rmtree(one, ignore_errors=True)

    def _count(self, done: Delivered) -> None:
        self.published += done.published
        self.known += done.known
        self.refused += done.refused
        for reason in done.reasons:
            _LOG.warning("%s: not published: %s", self._clients.name, reason)
        if done.refused > MOST_REASONS:
            _LOG.warning("%s: and %d more were not published", self._clients.name, done.refused - MOST_REASONS)


class _Mark(msgspec.Struct, frozen=True):
    """After which number a partition counts; None where the numbers do not tell what was published."""

    start: int | None


class MarkFile:
    """The place of a partition of one batch, in a file that all executors see."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, last: int) -> int | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Mark).start
        except FileNotFoundError:
            self._write(_Mark(last))
            return last

    def lose_count(self) -> None:
        self._write(_Mark(None))

    def _write(self, mark: _Mark) -> None:
        Disk().create(self._path, msgspec.json.encode(mark))


class _Delivery:
    """Runs on executors, with the rows of a partition in their order."""

    def __init__(self, clients: BrokerClients, folder: str, partitions: int, where: str) -> None:
        self._clients, self._folder = clients, folder
        self._partitions, self._where = partitions, where

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        first = next((one for one in batches if one.num_rows), None)
        if first is None:
            return  # nobody has to be reached for nothing
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        courier = self._clients.courier(partition, self._partitions)
        done = courier.deliver(self._letters(first, batches), MarkFile(Path(self._folder) / str(partition)))
        yield pa.record_batch({"done": [msgspec.json.encode(done).decode()]})

    def _letters(self, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> Iterator[Letter | TidingsError]:
        ids = EventIds(self._where)
        for batch in chain([first], more):
            yield from (_letter(row, ids) for row in batch.to_pylist())


def _letter(row: dict[str, Any], ids: EventIds) -> Letter | TidingsError:
    id = ids.of(row)  # noqa: A001
    try:
        check_plain(row)
        attributes = mapping(row["attributes"], "attributes")
    except SecurityError as error:
        return SecurityError(error.check, f"{id}: {error.reason}")
    except TidingsError as error:
        return error
    return Letter(id, attributes, row["payload"], row["subject"], row["subscribers"], row["policy"])
