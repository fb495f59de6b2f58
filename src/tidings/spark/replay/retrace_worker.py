"""Replay a journal on executors: run its rows through `Engine.batch` in their order."""

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
from tidings.spark.shards.output_rows import physical_rows
from tidings.spark.shards.stateless_worker import combine_batches
from tidings.spark.shards.trusted_keys import TrustedKeys

JOURNAL = "journal"
TRIAL = "$trial"  # the id of the broker's own advertisement with the trial policy
META = "meta"  # the `kind` of physical rows about meta-events


class RetraceWorker:
    """The function for `mapInArrow` that replays all rows of some shards; each journal and shard has its own engine."""

    def __init__(
        self,
        settings: Settings,
        *,
        notifications: bool = False,
        policy: str | None = None,
        governed: bool = True,
        trust: TrustedKeys | None = None,
    ) -> None:
        """Create the worker; it is pickled and sent to the executors.

        Args:
            settings: The engine's settings; its name is that of the journal.
            notifications: Whether to emit notifications with attributes, or only matches.
            policy: A policy that the broker has on everything from the beginning, or None.
            governed: Whether the policies in the rows apply.
            trust: The keys with which tokens and sealed events are checked, or None.
        """
        self._settings = msgspec.json.encode(settings)
        self._notifications, self._policy, self._governed, self._trust = notifications, policy, governed, trust

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine, current = None, None
        for journal, shard, rows in by_engine(batches):
            if engine is None or (journal, shard) != current:
                engine, current = self._engine(journal), (journal, shard)
            yield from self._process(engine, rows, shard).to_batches()

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

    def _process(self, engine: Engine, rows: pa.Table, shard: int) -> pa.Table:
        if not self._governed:
            rows = _without_policies(rows)
        batch = engine.batch(rows.drop_columns([KEY, SHARD, ORDER]))
        physical = physical_rows(batch, rows, notifications=self._notifications, first=True)
        if shard:  # every shard rejects the rows that go to all shards: shard 0 reports it
            refused = pc.is_in(physical["kind"], pa.array(EVERYWHERE))
            physical = physical.filter(pc.invert(refused))
        if not batch.meta_events.num_rows:
            return physical
        meta = pc.is_in(physical["event_id"], batch.meta_events["id"].combine_chunks())
        kinds = pc.if_else(meta, META, physical["kind"])
        return physical.set_column(physical.schema.get_field_index("kind"), "kind", kinds)


def by_engine(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the rows of each journal and shard in tables. Rows of one journal and shard must be adjacent."""
    for table in combine_batches(batches):
        keys = table.select([JOURNAL, SHARD]).group_by([JOURNAL, SHARD], use_threads=False).aggregate([]).to_pylist()
        for key in keys:
            is_of_engine = pc.and_(pc.equal(table[JOURNAL], key[JOURNAL]), pc.equal(table[SHARD], key[SHARD]))
            yield key[JOURNAL], key[SHARD], table.filter(is_of_engine)


def _without_policies(rows: pa.Table) -> pa.Table:
    """Return the rows without any policy."""
    rows = rows.filter(pc.not_equal(rows["kind"], "set_policy"))
    bodies = [
        body if body is None or '"policy"' not in body else _without_policy(body) for body in rows["body"].to_pylist()
    ]
    rows = rows.set_column(rows.schema.get_field_index("body"), "body", pa.array(bodies, pa.string()))
    return rows.set_column(rows.schema.get_field_index("policy"), "policy", pa.nulls(rows.num_rows, pa.string()))


def _without_policy(body: str) -> str:
    fields = msgspec.json.decode(body)
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "policy"}).decode()
