"""`Pipeline`: streaming sources, a `MicroBatch` for each batch of rows, and sinks."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.journal.lock import FolderLock
from tidings.model.errors import InvalidValueError, JournalLockedError, TidingsError
from tidings.model.packages import optional_packages
from tidings.spark.events import prepare_events
from tidings.spark.pipeline.configuration import microseconds_of
from tidings.spark.pipeline.ledger import BOOTSTRAP, Ledger, LedgerEntry
from tidings.spark.pipeline.micro_batch import BatchSettings, GracefulStop, MicroBatch, result_of
from tidings.spark.pipeline.progress import Progress, progress_of
from tidings.spark.pipeline.sinks import HubFolder, IntoBroker, Sink
from tidings.spark.route import shard_plan, with_policies
from tidings.spark.shards import operation_rows
from tidings.spark.shards.output_rows import TaskCounts
from tidings.spark.shards.registry import MAX_REPORTED, MetaEventScope, build_registry, scope_of_subscriptions
from tidings.spark.shards.shard_state import ShardCheckpoint
from tidings.spark.shards.trusted_keys import TrustedKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AVAILABLE_NOW = "available-now"


class Pipeline:
    """Routes a stream of events with Spark Structured Streaming, and passes the results to sinks.

    Subscriptions, contexts and policies that are streaming DataFrames may change while the pipeline runs and take
    effect at their event time; the others are loaded at the start. A pipeline with the checkpoint of an earlier one
    continues where that one stopped.

    Args:
        events: A streaming DataFrame of events; `tidings.spark.events` names the columns. Either `events` or `journal`.
        subscriptions: Subscriptions, streaming or not.
        contexts: Changes of clients' contexts, streaming or not.
        advertisements: Advertisements; they cannot stream.
        policies: Policies by `id`, streaming or not; streaming ones need the column `by`, the owner or the operator.
        schemas: Schemas of subjects; they cannot stream.
        tokens: Keys for sealed events, as `tidings.spark.shards.trusted_keys` describes them; for a journal, the
            authority's certificate is enough.
        journal: The rows of a hub's or broker's journal as a streaming DataFrame.
        checkpoint: A folder that the driver and all executors see.
        sinks: What to call with each `MicroBatchResult`; at least one.
        trigger: The interval between batches, or `available-now` to process what is there and stop.
        watermark: By how much events may be late before they are rejected.
        ahead: By how much the time of an event may lie in the future.
        shards: The number of shards. None: as many as shuffle partitions. There is only one if nothing changes over
            time, or if rules may emit meta-events.
        settings: The engine's settings.
        name: The name of the streaming query.

    Raises:
        InvalidValueError: The sources, sinks or options do not fit together.
    """

    def __init__(
        self,
        events: "DataFrame | None" = None,
        subscriptions: "DataFrame | None" = None,
        contexts: "DataFrame | None" = None,
        advertisements: "DataFrame | None" = None,
        policies: "DataFrame | None" = None,
        schemas: "DataFrame | None" = None,
        tokens: "DataFrame | None" = None,
        *,
        journal: "DataFrame | None" = None,
        checkpoint: str | Path,
        sinks: Iterable[Sink],
        trigger: str = "1 second",
        watermark: str = "0 seconds",
        ahead: str = "1 day",
        shards: int | None = None,
        settings: Settings | None = None,
        name: str = "tidings",
    ) -> None:
        streams = {"events": events, "journal": journal}
        inputs = {name: frame for name, frame in streams.items() if frame is not None}
        if len(inputs) != 1:
            raise InvalidValueError("a pipeline has events or a journal: one of the two, and not both")
        ((kind, stream),) = inputs.items()
        if not stream.isStreaming:
            raise InvalidValueError(f"{kind}: not a stream; spark.readStream makes one, and `route` takes what is not")
        self._sinks = list(sinks)
        if not self._sinks:
            raise InvalidValueError("sinks: a pipeline without any gives nothing; Folder(path=...) is one")
        self._spark: SparkSession = stream.sparkSession
        self._events, self._journal = events, journal
        self._subscriptions, self._contexts, self._policies = subscriptions, contexts, policies
        self._advertisements, self._schemas = advertisements, schemas
        for input_name, frame in (("advertisements", advertisements), ("schemas", schemas)):
            if frame is not None and frame.isStreaming:
                raise InvalidValueError(f"{input_name}: these cannot stream; in a journal they may change")
        self._checkpoint = Path(checkpoint).absolute()
        self._trigger, self._name = trigger, name
        self._settings = settings or Settings(name="spark")
        scope = self._meta_event_scope(shards)
        self._shards = 1 if scope else shards
        if policies is not None and policies.isStreaming and not self._has_timed_policies():
            raise InvalidValueError(
                "policies: there is no column by, which says who sets them: the owner or the operator"
            )
        changing = [
            frame
            for frame in (subscriptions, policies)
            if frame is not None and (frame.isStreaming or operation_rows.has_windows(frame))
        ]
        self._batch_settings = BatchSettings(
            folder=str(self._checkpoint),
            settings=self._settings,
            in_order=scope is MetaEventScope.ONCE or contexts is not None or bool(changing),
            fills_contexts=events is not None and contexts is not None and "context" not in events.columns,
            notifications=any(sink.what == "notifications" for sink in self._sinks),
            watermark=microseconds_of(watermark, "watermark"),
            ahead=microseconds_of(ahead, "ahead"),
            trust=None if tokens is None else TrustedKeys.of(tokens),
        )
        self._graceful_stop = GracefulStop()
        self._query: StreamingQuery | None = None
        self._lock: FolderLock | None = None

    def _meta_event_scope(self, shards: int | None) -> MetaEventScope:
        """Return the scope of the meta-events that rules may emit; raise `InvalidValueError` if it needs one shard."""
        has_rules = any(frame is not None for frame in (self._journal, self._policies, self._advertisements))
        has_rules = has_rules or (self._events is not None and "policy" in self._events.columns)
        scope = MetaEventScope.ONCE if has_rules else scope_of_subscriptions(self._subscriptions, self._settings)
        if shards is not None and shards > 1 and scope:
            raise InvalidValueError(
                "shards: where policies may tell meta-events, which are for everyone, there is one shard; "
                "leave `shards` out, or the policies"
            )
        return scope

    @classmethod
    @optional_packages()
    def from_file(
        cls, path: str | Path, spark: "SparkSession | None" = None, *, trigger: str | None = None
    ) -> "Pipeline":
        """Create the pipeline that a TOML file describes; `trigger` overrides the file's.

        Without `spark` a session is started. Raises an `InvalidValueError` that names the file and the line.
        """
        from tidings.spark.pipeline.sources import read_pipeline_file

        file, parts = read_pipeline_file(path, spark, trigger)
        try:
            return cls(**parts)
        except InvalidValueError as error:
            raise InvalidValueError(file.place(str(error))) from None

    # Running

    @optional_packages()
    def start(self) -> "Pipeline":
        """Start the pipeline in the background, from its checkpoint if there is one; `query` is the streaming query.

        Raises:
            InvalidValueError: This object has been started before.
            TidingsError: Another process runs a pipeline with this checkpoint.
        """
        if self._query is not None:
            raise InvalidValueError(
                "the pipeline has been started before; make another one to go on from its checkpoint"
            )
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        self._lock = self._acquire_lock()
        try:
            _remove_unfinished_logs(self._checkpoint / "spark")
            self._prepare()
            micro_batch = MicroBatch(self._batch_settings, self._sinks, self._graceful_stop)
            writer = self._input_rows().writeStream.foreachBatch(micro_batch).queryName(self._name)
            writer = writer.option("checkpointLocation", str(self._checkpoint / "spark"))
            self._query = writer.trigger(**self._trigger_options()).start()
        except BaseException:
            self._lock.release()
            raise
        return self

    @property
    def query(self) -> "StreamingQuery":
        """The running streaming query. Raises a `TidingsError` before `start`."""
        if self._query is None:
            raise TidingsError("the pipeline has not been started")
        return self._query

    @property
    def ledger(self) -> Ledger:
        """The ledger in the checkpoint folder."""
        return Ledger(self._checkpoint)

    def progress(self) -> Progress:
        """Return the progress of the running pipeline, from the ledger and Spark's report."""
        return progress_of(self.query, self.ledger)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline has ended, or for `timeout` seconds, and return whether it has ended.

        An error in a batch is raised here.
        """
        try:
            ended = self.query.awaitTermination(timeout) if timeout is not None else self._wait_until_ended()
        except BaseException:
            self._release()
            raise
        if ended:
            self._release()
        return bool(ended)

    def stop(self) -> None:
        """Stop the pipeline after the current batch, and close its hubs."""
        self._graceful_stop.request_stop()
        self.query.stop()
        self._release()

    def _wait_until_ended(self) -> bool:
        self.query.awaitTermination()
        return True

    def _release(self) -> None:
        for sink in self._sinks:
            if isinstance(sink, HubFolder):
                sink.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _acquire_lock(self) -> FolderLock:
        try:
            return FolderLock(self._checkpoint)
        except JournalLockedError as error:
            raise in_use_error(self._checkpoint, error.process) from None

    def _trigger_options(self) -> dict[str, Any]:
        return {"availableNow": True} if self._trigger == AVAILABLE_NOW else {"processingTime": self._trigger}

    # Input

    def _input_rows(self) -> "DataFrame":
        if not self._batch_settings.in_order:
            return prepare_events(self._events)
        rows = [operation_rows.event_rows(self._events)] if self._events is not None else []
        rows += (
            [
                operation_rows.journal_rows(
                    self._without_own_events(self._journal), secured=self._batch_settings.trust is not None
                )
            ]
            if self._journal is not None
            else []
        )
        return operation_rows.union_rows([*rows, *self._change_rows(streaming=True)])

    def _without_own_events(self, journal: "DataFrame") -> "DataFrame":
        """Return the journal's rows without the events that this pipeline's sinks published, which would loop."""
        from pyspark.sql import functions as f

        for sink in self._sinks:
            if isinstance(sink, IntoBroker):
                journal = journal.filter(~sink.has_published(f.col("publisher")))
        return journal

    def _change_rows(self, *, streaming: bool) -> "list[DataFrame]":
        """Return the changes as rows: those of streaming DataFrames, or those of DataFrames known at the start."""
        makers = {
            operation_rows.context_rows: self._contexts,
            operation_rows.subscription_rows: self._subscriptions,
            operation_rows.policy_rows: self._policies if self._has_timed_policies() else None,
        }
        frames = {make: frame for make, frame in makers.items() if frame is not None and frame.isStreaming == streaming}
        if not streaming and operation_rows.subscription_rows in frames:
            frames[operation_rows.subscription_rows] = operation_rows.later_changes(
                frames[operation_rows.subscription_rows]
            )
        return [make(frame) for make, frame in frames.items()]

    def _prepare(self) -> None:
        """Write the ledger entry that the first batch starts from, with shards built from what is known now."""
        ledger = self.ledger
        last = ledger.last()
        if last is not None and self._batch_settings.in_order:
            return  # continue from the state in the last entry
        number = 1 + max((int(folder.name) for folder in ledger.path("registry").glob("*")), default=-1)
        places, refused = self._build_shards(str(ledger.path("registry", str(number))))
        if last is not None:  # the subscriptions are the only state: read them anew
            ledger.write(msgspec.structs.replace(last, places=places, refused=refused))
            return
        now = dt.datetime.now(dt.UTC).timestamp()
        entry = LedgerEntry(
            batch=BOOTSTRAP,
            places=places,
            watermark=0,
            counts=TaskCounts(),
            so_far=TaskCounts(rejected=len(refused)),
            started=now,
            ended=now,
        )
        initial_changes = self._change_rows(streaming=False) if self._batch_settings.in_order else []
        if initial_changes:
            rows = operation_rows.union_rows(initial_changes).selectExpr(
                "* EXCEPT (`$scheduled`)", "true AS `$scheduled`"
            )
            entry = MicroBatch(self._batch_settings, []).run(rows, entry, BOOTSTRAP)
            rejected = result_of(self._spark, ledger, entry).rejected.limit(MAX_REPORTED).collect()
            refused = [*refused, *((row["event_id"] or "", row["reason"]) for row in rejected)]
        ledger.write(msgspec.structs.replace(entry, refused=refused))

    def _build_shards(self, folder: str) -> tuple[list[ShardCheckpoint], list[tuple[str, str]]]:
        """Build the shards from the subscriptions known at the start.

        Returns the shards' checkpoints, and the refused subscriptions with reasons.
        """
        policies = None if self._has_timed_policies() else self._policies
        plan = shard_plan(folder, self._settings, self._advertisements, policies, self._schemas)
        subscriptions = self._subscriptions
        if subscriptions is None or subscriptions.isStreaming:
            subscriptions = self._spark.createDataFrame([], "id string, subscriber string, content string")
        registry = build_registry(
            operation_rows.initial_subscriptions(with_policies(subscriptions, policies)), plan, self._shard_count()
        )
        return [ShardCheckpoint(str(registry.shard(number))) for number in range(registry.shards)], registry.rejected

    def _shard_count(self) -> int:
        if not self._batch_settings.in_order:
            return 1
        return self._shards or max(1, int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))

    def _has_timed_policies(self) -> bool:
        """Return whether policies are operations with times of their own, not initial policies of filters."""
        return self._policies is not None and "by" in self._policies.columns


def in_use_error(checkpoint: Path, process: int | None) -> TidingsError:
    """Return the error that a pipeline with this checkpoint runs already, in the process `process` if that is known."""
    holder = f"process {process}" if process else "another process"
    return TidingsError(
        f"{checkpoint}: a pipeline with this checkpoint runs in {holder}; stop it, or take another folder"
    )


def _remove_unfinished_logs(folder: Path) -> None:
    """Remove the temporary files that a pipeline left in Spark's logs when it was killed during its first batch.

    Spark does not start a first batch while these folders have any file. The files are hidden until they are complete.
    """
    for log in (folder / "offsets", folder / "commits"):
        files = list(log.glob("*"))
        if all(file.name.startswith(".") for file in files):
            for file in files:
                file.unlink()
