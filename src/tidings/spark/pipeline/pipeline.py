"""A pipeline: sources in, a step for each batch, sinks out."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.journal.lock import FolderLock
from tidings.model.errors import InvalidValueError, JournalLockedError, TidingsError
from tidings.model.packages import optional_packages
from tidings.spark import changes
from tidings.spark.events import prepared
from tidings.spark.pipeline.brake import Brake
from tidings.spark.pipeline.durations import microseconds_of
from tidings.spark.pipeline.ledger import BOOTSTRAP, Entry, Ledger
from tidings.spark.pipeline.progress import Progress, progress_of
from tidings.spark.pipeline.sinks import HubFolder, IntoBroker, Sink
from tidings.spark.pipeline.step import Rules, Step, outcome_of
from tidings.spark.registry import MOST_REPORTED, built
from tidings.spark.route import planned, with_policies
from tidings.spark.standing import Place
from tidings.spark.tally import Tally
from tidings.spark.telling import Telling, telling
from tidings.spark.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AVAILABLE_NOW = "available-now"


class Pipeline:
    """Routes a stream of events. `events` is a streaming DataFrame, or `journal` the rows of a hub's or broker's.

    Subscriptions, contexts and policies are DataFrames: those that stream may change while the pipeline runs, and take
    effect at their event time; the others are what it starts with. With `tokens`, as `tidings.spark.trust` describes
    them, sealed events are checked; of a journal the authority is enough. `checkpoint` is a folder that the driver and
    all executors see; with it a pipeline goes on where it stopped.
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
        given = {name: frame for name, frame in streams.items() if frame is not None}
        if len(given) != 1:
            raise InvalidValueError("a pipeline has events or a journal: one of the two, and not both")
        ((kind, stream),) = given.items()
        if not stream.isStreaming:
            raise InvalidValueError(f"{kind}: not a stream; spark.readStream makes one, and `route` takes what is not")
        self._sinks = list(sinks)
        if not self._sinks:
            raise InvalidValueError("sinks: a pipeline without any gives nothing; Folder(path=...) is one")
        self._spark: SparkSession = stream.sparkSession
        self._events, self._journal = events, journal
        self._subscriptions, self._contexts, self._policies = subscriptions, contexts, policies
        self._advertisements, self._schemas = advertisements, schemas
        for what, frame in (("advertisements", advertisements), ("schemas", schemas)):
            if frame is not None and frame.isStreaming:
                raise InvalidValueError(f"{what}: these cannot stream; in a journal they may change")
        self._checkpoint = Path(checkpoint).absolute()
        self._trigger, self._name = trigger, name
        self._settings = settings or Settings(name="spark")
        rules = any(one is not None for one in (journal, policies, advertisements))
        rules = rules or (events is not None and "policy" in events.columns)
        tells = Telling.ONCE if rules else telling(subscriptions, self._settings)
        if shards is not None and shards > 1 and tells:
            raise InvalidValueError(
                "shards: where policies may tell meta-events, which are for everyone, there is one shard; "
                "leave `shards` out, or the policies"
            )
        self._shards = 1 if tells else shards
        if policies is not None and policies.isStreaming and not self._set_later():
            raise InvalidValueError(
                "policies: there is no column by, which says who sets them: the owner or the operator"
            )
        changing = [
            one
            for one in (subscriptions, policies)
            if one is not None and (one.isStreaming or changes.has_windows(one))
        ]
        self._rules = Rules(
            folder=str(self._checkpoint),
            settings=self._settings,
            in_order=tells is Telling.ONCE or contexts is not None or bool(changing),
            fills_contexts=events is not None and contexts is not None and "context" not in events.columns,
            notifications=any(one.what == "notifications" for one in self._sinks),
            watermark=microseconds_of(watermark, "watermark"),
            ahead=microseconds_of(ahead, "ahead"),
            trust=None if tokens is None else Trust.of(tokens),
        )
        self._brake = Brake()
        self._query: StreamingQuery | None = None
        self._lock: FolderLock | None = None

    @classmethod
    @optional_packages()
    def from_file(
        cls, path: str | Path, spark: "SparkSession | None" = None, *, trigger: str | None = None
    ) -> "Pipeline":
        """As a TOML file describes it; `trigger` wins over the file's. Without `spark` a session is started."""
        from tidings.spark.pipeline.sources import opened

        file, parts = opened(path, spark, trigger)
        try:
            return cls(**parts)
        except InvalidValueError as error:
            raise InvalidValueError(file.place(str(error))) from None

    # Running

    @optional_packages()
    def start(self) -> "Pipeline":
        """Begins, or goes on where it stopped; what runs in the background is `query`."""
        if self._query is not None:
            raise InvalidValueError(
                "the pipeline has been started before; make another one to go on from its checkpoint"
            )
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        try:
            self._prepare()
            step = Step(self._rules, self._sinks, self._brake)
            written = self._stream().writeStream.foreachBatch(step).queryName(self._name)
            written = written.option("checkpointLocation", str(self._checkpoint / "spark"))
            self._query = written.trigger(**self._triggered()).start()
        except BaseException:
            self._lock.release()
            raise
        return self

    @property
    def query(self) -> "StreamingQuery":
        if self._query is None:
            raise TidingsError("the pipeline has not been started")
        return self._query

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._checkpoint)

    def progress(self) -> Progress:
        """How far it has come: what the ledger and Spark tell."""
        return progress_of(self.query, self.ledger)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Until it has ended, or for so many seconds; whether it has. An error in a batch is raised here."""
        try:
            ended = self.query.awaitTermination(timeout) if timeout is not None else self._ended()
        except BaseException:
            self._release()
            raise
        if ended:
            self._release()
        return bool(ended)

    def stop(self) -> None:
        """Ends it between two batches."""
        self._brake.pull()
        self.query.stop()
        self._release()

    def _ended(self) -> bool:
        self.query.awaitTermination()
        return True

    def _release(self) -> None:
        for sink in self._sinks:
            if isinstance(sink, HubFolder):
                sink.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _locked(self) -> FolderLock:
        try:
            return FolderLock(self._checkpoint)
        except JournalLockedError as error:
            raise in_use(self._checkpoint, error.process) from None

    def _triggered(self) -> dict[str, Any]:
        return {"availableNow": True} if self._trigger == AVAILABLE_NOW else {"processingTime": self._trigger}

    # What goes in

    def _stream(self) -> "DataFrame":
        if not self._rules.in_order:
            return prepared(self._events)
        rows = [changes.event_rows(self._events)] if self._events is not None else []
        rows += (
            [changes.journal_rows(self._of_others(self._journal), secured=self._rules.trust is not None)]
            if self._journal is not None
            else []
        )
        return changes.together([*rows, *self._changing(streaming=True)])

    def _of_others(self, journal: "DataFrame") -> "DataFrame":
        """The rows without what this pipeline has published itself: it would go round in circles."""
        from pyspark.sql import functions as f

        for sink in self._sinks:
            if isinstance(sink, IntoBroker):
                journal = journal.filter(~sink.has_published(f.col("publisher")))
        return journal

    def _changing(self, *, streaming: bool) -> "list[DataFrame]":
        """What changes, as rows: that which streams, or that which is known beforehand."""
        makers = {
            changes.context_rows: self._contexts,
            changes.subscription_rows: self._subscriptions,
            changes.policy_rows: self._policies if self._set_later() else None,
        }
        found = {make: one for make, one in makers.items() if one is not None and one.isStreaming == streaming}
        if not streaming and changes.subscription_rows in found:
            found[changes.subscription_rows] = changes.later(found[changes.subscription_rows])
        return [make(one) for make, one in found.items()]

    def _prepare(self) -> None:
        """The entry that the first batch starts from."""
        ledger = self.ledger
        last = ledger.last()
        if last is not None and self._rules.in_order:
            return  # it goes on with what has become of it
        number = 1 + max((int(one.name) for one in ledger.path("registry").glob("*")), default=-1)
        places, refused = self._built(str(ledger.path("registry", str(number))))
        if last is not None:  # nothing but the subscriptions is kept: they are read anew
            ledger.write(msgspec.structs.replace(last, places=places, refused=refused))
            return
        now = dt.datetime.now(dt.UTC).timestamp()
        entry = Entry(
            batch=BOOTSTRAP,
            places=places,
            watermark=0,
            counts=Tally(),
            so_far=Tally(rejected=len(refused)),
            started=now,
            ended=now,
        )
        known = self._changing(streaming=False) if self._rules.in_order else []
        if known:
            rows = changes.together(known).selectExpr("* EXCEPT (`$scheduled`)", "true AS `$scheduled`")
            entry = Step(self._rules, []).run(rows, entry, BOOTSTRAP)
            told = outcome_of(self._spark, ledger, entry).rejected.limit(MOST_REPORTED).collect()
            refused = [*refused, *((row["event_id"] or "", row["reason"]) for row in told)]
        ledger.write(msgspec.structs.replace(entry, refused=refused))

    def _built(self, folder: str) -> tuple[list[Place], list[tuple[str, str]]]:
        """The subscriptions that there are from the start, compiled; which of them could not be, and why."""
        policies = None if self._set_later() else self._policies
        plan = planned(folder, self._settings, self._advertisements, policies, self._schemas)
        known = self._subscriptions
        if known is None or known.isStreaming:
            known = self._spark.createDataFrame([], "id string, subscriber string, content string")
        registry = built(changes.from_the_start(with_policies(known, policies)), plan, self._count())
        return [Place(str(registry.shard(number))) for number in range(registry.shards)], registry.rejected

    def _count(self) -> int:
        if not self._rules.in_order:
            return 1
        return self._shards or max(1, int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))

    def _set_later(self) -> bool:
        """Whether policies are set at their times, and not simply what the subscriptions have."""
        return self._policies is not None and "by" in self._policies.columns


def in_use(checkpoint: Path, process: int | None) -> TidingsError:
    """What is told to whoever wants to run a pipeline that runs already."""
    who = f"process {process}" if process else "another process"
    return TidingsError(f"{checkpoint}: a pipeline with this checkpoint runs in {who}; stop it, or take another folder")
