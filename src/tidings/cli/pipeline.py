"""`tidings pipeline`: runs a pipeline and shows how it goes; asks a ledger how another one is."""

import datetime as dt
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from tidings.cli.terminal import err, out, print_json
from tidings.journal.lock import holder
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.backlog import Backlog, Waiting
from tidings.spark.pipeline.configuration import AVAILABLE_NOW, read
from tidings.spark.pipeline.failure import reason_of
from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.pipeline.pipeline import Pipeline, in_use
from tidings.spark.pipeline.progress import WAITING, Progress
from tidings.spark.pipeline.status import Status, checkpoint_of, seconds_since, status_of
from tidings.spark.tally import Tally

_LOOK_SECONDS = 0.25
_SHOWN_REFUSALS = 10
_WIDTH = 13  # of the names before what is said of them
_COUNTED = ("events", "changes", "matched", "matches", "rejected", "late", "meta_events")


def run(path: Path, *, once: bool, as_json: bool) -> None:
    file, configuration = read(path)  # before Java is started: mistakes are told at once
    checkpoint = checkpoint_of(path)
    if (process := holder(checkpoint)) is not None:
        raise in_use(checkpoint, process)
    began, last = time.monotonic(), Ledger(checkpoint).last()
    before = Tally() if last is None else last.so_far
    with _asked_to_stop() as stops:
        with _clearly(str(path)):
            pipeline = Pipeline.from_file(path, trigger=AVAILABLE_NOW if once else None)
            pipeline.start()
            stops.take()  # till now Ctrl-C ended everything at once; Spark's own way would cancel the batch under way
        shown = _Shown(Backlog(configuration, file.path.absolute().parent))
        failed = _watch(pipeline, shown, stops)
    status = status_of(checkpoint)
    _summarise(status, before, time.monotonic() - began, as_json=as_json)
    if failed is not None:
        raise TidingsError(f"{path}: a batch failed: {failed}")


def status(place: Path, *, as_json: bool) -> None:
    found = status_of(checkpoint_of(place))
    if as_json:
        print_json(_said(found))
        return
    running = {None: "no", 0: "yes"}.get(found.process, f"yes, in process {found.process}")
    _print_rows(
        ("running", running),
        ("last batch", "none yet" if found.batch is None else f"{found.batch}, {_ago(found.ended)}"),
        *((name.replace("_", "-"), f"{count:,}") for name, count in _counts(found).items()),
        ("events/s", _rate(found.per_second)),
        ("watermark", _moment(found.watermark)),
        ("shards", str(found.shards)),
        ("state", _size(found.state_bytes)),
    )
    _complain(found)


# While it runs


class _Stops:
    """Ctrl-C, or the system's polite request: the first ends the pipeline after its batch, the second at once."""

    def __init__(self) -> None:
        self.asked = 0
        self._before: dict[int, Any] = {}

    def take(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            found = signal.signal(number, self._ask)
            self._before.setdefault(number, found)

    def give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: Any) -> None:
        self.asked += 1


@contextmanager
def _asked_to_stop() -> Iterator[_Stops]:
    stops = _Stops()
    try:
        yield stops
    finally:
        stops.give_back()


@contextmanager
def _clearly(path: str) -> Iterator[None]:
    """Errors of Spark become ours, in one line."""
    try:
        yield
    except (TidingsError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise TidingsError(f"{path}: {reason_of(error)}") from error


def _watch(pipeline: Pipeline, shown: "_Shown", stops: _Stops) -> str | None:
    """Until it has ended; why it failed, if it did."""
    with shown:
        done: int | None = None
        try:
            while not pipeline.await_termination(_LOOK_SECONDS):
                progress = pipeline.progress()
                shown.show(progress)
                if stops.asked and done is None:
                    done = -1 if progress.batch is None else progress.batch
                    shown.say("ends after this batch; Ctrl-C again ends it at once")
                if stops.asked > 1 or (done is not None and _is_between(progress, done)):
                    pipeline.stop()
                    break
        except TidingsError:
            raise
        except Exception as error:
            return reason_of(error)
        shown.show(pipeline.progress())
    return None


def _is_between(progress: Progress, done: int) -> bool:
    """Whether no batch is under way, or another than the one that was to end."""
    following = progress.batch is not None and progress.batch > done and progress.stage != "writing"
    return progress.stage == WAITING or following


class _Shown:
    """A table that changes, in a terminal; elsewhere a line a batch. On standard error, either way."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog, self._waiting = backlog, Waiting()
        self._batch: int | None = None
        self._said = ""
        self._live = Live(console=err, transient=True, auto_refresh=False) if err.is_terminal else None

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self._said = text
        if self._live is None:
            err.print(text, markup=False)

    def show(self, progress: Progress) -> None:
        new = progress.batch is not None and progress.batch != self._batch and progress.stage != "writing"
        if new:
            self._batch = progress.batch
            self._waiting = self._backlog.waiting(progress.offsets)
        if self._live is not None:
            self._live.update(self._table(progress), refresh=True)
        elif new:
            counts = progress.counts
            err.print(
                f"batch {progress.batch}: {counts.events:,} events, {counts.changes:,} changes, "
                f"{counts.matches:,} matches, {counts.rejected:,} rejected, {_seconds(progress)}, "
                f"backlog {_backlog(self._waiting)}",
                markup=False,
                soft_wrap=True,
            )

    def _table(self, progress: Progress) -> Table:
        table = Table(show_header=False, box=None, pad_edge=False)
        for name in _COUNTED[:5]:
            table.add_row(name, f"{getattr(progress.so_far, name):,}")
        table.add_row("rows/s", _rate(progress.per_second))
        table.add_row("last batch", f"{'-' if progress.batch is None else progress.batch}, {_seconds(progress)}")
        spent = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in progress.stages.items())
        table.add_row("of which", spent or "-")
        table.add_row("backlog", _backlog(self._waiting))
        table.add_row("now", self._said or progress.stage)
        return table


# What is said at the end


def _summarise(status: Status, before: Tally, seconds: float, *, as_json: bool) -> None:
    counts = {name: count - getattr(before, name) for name, count in _counts(status).items()}
    if as_json:
        print_json({**_said(status), "run": {**counts, "seconds": round(seconds, 3)}})
        return
    out.print(f"{'':<{_WIDTH}}{'this run':>14}{'in all':>14}", markup=False)
    for name, count in _counts(status).items():
        out.print(f"{name.replace('_', '-'):<{_WIDTH}}{counts[name]:>14,}{count:>14,}", markup=False)
    _print_rows(
        ("last batch", "-" if status.batch is None else str(status.batch)),
        ("events/s", f"{_rate(status.per_second)} while it worked"),
        ("watermark", _moment(status.watermark)),
        ("state", _size(status.state_bytes)),
    )
    _complain(status)


def _complain(status: Status) -> None:
    for name, reason in status.refused[:_SHOWN_REFUSALS]:
        err.print(f"refused at the start: {name or 'a row without an id'}: {reason}", markup=False, soft_wrap=True)
    if len(status.refused) > _SHOWN_REFUSALS:
        err.print(f"and {len(status.refused) - _SHOWN_REFUSALS:,} more; --json lists them", markup=False)


def _said(status: Status) -> dict[str, Any]:
    return {
        "checkpoint": status.checkpoint,
        "running": status.process is not None,
        "process": status.process or None,
        "batch": status.batch,
        "seconds_ago": None if status.ended is None else round(seconds_since(status.ended), 1),
        "last": {name: getattr(status.counts, name) for name in _COUNTED},
        "so_far": _counts(status),
        "events_per_second": None if status.per_second is None else round(status.per_second, 1),
        "watermark": None if status.watermark is None else _moment(status.watermark),
        "shards": status.shards,
        "state_bytes": status.state_bytes,
        "refused": [{"id": name, "reason": reason} for name, reason in status.refused],
    }


def _counts(status: Status) -> dict[str, int]:
    return {name: getattr(status.so_far, name) for name in _COUNTED}


def _print_rows(*rows: tuple[str, str]) -> None:
    for name, told in rows:
        out.print(f"{name:<{_WIDTH}}{told}", markup=False, soft_wrap=True)


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.0f}"


def _seconds(progress: Progress) -> str:
    return "-" if progress.seconds is None else f"{progress.seconds:.1f} s"


def _backlog(waiting: Waiting) -> str:
    parts = [
        f"{count:,} {what}" for count, what in ((waiting.files, "files"), (waiting.rows, "rows")) if count is not None
    ]
    return ", ".join(parts) or "not known"


def _ago(moment: float | None) -> str:
    if moment is None:
        return "-"
    seconds = seconds_since(moment)
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _moment(microseconds: int | None) -> str:
    if microseconds is None:
        return "-"
    found = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
