"""What runs on executors when a journal is retraced: its rows, in their order, through the batch twin of the engine."""

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.effects import Reject
from tidings.engine.operations import Advertise
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.errors import RefusedError
from tidings.spark.events import EVERYWHERE, KEY, ORDER, SHARD
from tidings.spark.physical import physical
from tidings.spark.trust import Trust
from tidings.spark.worker import gathered

JOURNAL = "journal"
TRIAL = "$trial"  # the id of the broker's own advertisement that holds a policy for everything
META = "meta"  # the `kind` of what meta-events brought


class Retracer:
    """Called with all rows of some shards, each in its order; every journal and shard has an engine of its own.

    With `policy`, a broker has that one for everything from the beginning. Without `governed` there are no policies.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        notifications: bool = False,
        policy: str | None = None,
        governed: bool = True,
        trust: Trust | None = None,
    ) -> None:
        self._settings = msgspec.json.encode(settings)
        self._notifications, self._policy, self._governed, self._trust = notifications, policy, governed, trust

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine, now = None, None
        for journal, shard, rows in by_engine(batches):
            if engine is None or (journal, shard) != now:
                engine, now = self._engine(journal), (journal, shard)
            yield from self._routed(engine, rows, shard).to_batches()

    def _engine(self, journal: str) -> Engine:
        settings = msgspec.json.decode(self._settings, type=Settings)
        gate = None if self._trust is None else self._trust.gate()
        engine = Engine(msgspec.structs.replace(settings, name=journal), gate=gate)
        if self._policy is not None:
            everything = Advertisement.of(Filter.parse(""), id=TRIAL, publisher=journal, policy=self._policy)
            for effect in engine.handle(Advertise(everything), 0):
                if isinstance(effect, Reject):
                    raise RefusedError(effect.step, effect.reason)
        return engine

    def _routed(self, engine: Engine, rows: pa.Table, shard: int) -> pa.Table:
        if not self._governed:
            rows = _ungoverned(rows)
        batch = engine.batch(rows.drop_columns([KEY, SHARD, ORDER]))
        found = physical(batch, rows, notifications=self._notifications, first=True)
        if shard:  # what every shard sees is refused by each alike: the first one says so
            refused = pc.is_in(found["kind"], pa.array(EVERYWHERE))
            found = found.filter(pc.invert(refused))
        if not batch.meta_events.num_rows:
            return found
        meta = pc.is_in(found["event_id"], batch.meta_events["id"].combine_chunks())
        kinds = pc.if_else(meta, META, found["kind"])
        return found.set_column(found.schema.get_field_index("kind"), "kind", kinds)


def by_engine(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.Table]]:
    """The rows of a journal and a shard, which stand together, in tables of some size."""
    for table in gathered(batches):
        keys = table.select([JOURNAL, SHARD]).group_by([JOURNAL, SHARD], use_threads=False).aggregate([]).to_pylist()
        for key in keys:
            mine = pc.and_(pc.equal(table[JOURNAL], key[JOURNAL]), pc.equal(table[SHARD], key[SHARD]))
            yield key[JOURNAL], key[SHARD], table.filter(mine)


def _ungoverned(rows: pa.Table) -> pa.Table:
    """The same, had nobody ever given a policy."""
    rows = rows.filter(pc.not_equal(rows["kind"], "set_policy"))
    bodies = [body if body is None or '"policy"' not in body else _without(body) for body in rows["body"].to_pylist()]
    rows = rows.set_column(rows.schema.get_field_index("body"), "body", pa.array(bodies, pa.string()))
    return rows.set_column(rows.schema.get_field_index("policy"), "policy", pa.nulls(rows.num_rows, pa.string()))


def _without(body: str) -> str:
    said = msgspec.json.decode(body)
    return msgspec.json.encode({name: value for name, value in said.items() if name != "policy"}).decode()
