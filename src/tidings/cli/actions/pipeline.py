"""The commands of `tidings pipeline`: run a Spark pipeline and show its progress; print a pipeline's status from its
ledger.

Stopping: the first Ctrl-C or SIGTERM lets the current micro-batch finish, the second stops the pipeline at once.
Spark's own handler would cancel the current micro-batch, so the handlers are installed once the pipeline has started.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from tidings.cli.output import err, out, print_json, time_text
from tidings.journal.lock import holder
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import AVAILABLE_NOW, read
from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.pipeline.pipeline import Pipeline, in_use_error
from tidings.spark.pipeline.progress import (
    WAITING,
    BacklogSize,
    Progress,
    SourceBacklog,
    Status,
    checkpoint_of,
    seconds_since,
    status_of,
)
from tidings.spark.session import reason_of

_LOOK_SECONDS = 0.25
_SHOWN_REFUSALS = 10
_WIDTH = 13  # of the column of names
_COUNTERS = ("events", "changes", "matched", "matches", "rejected", "late", "meta_events")


def run(path: Path, *, once: bool, as_json: bool) -> None:
    """Run a pipeline until it is stopped, or with `once` until its input is used up; then print a summary.

    Raises TidingsError if the pipeline's file is invalid, if its checkpoint is in use, or if a micro-batch fails.
    """
    file, configuration = read(path)  # before Java starts, so that a mistake in the file is reported at once
    checkpoint = checkpoint_of(path)
    if (process := holder(checkpoint)) is not None:
        raise in_use_error(checkpoint, process)
    begin, last_entry = time.monotonic(), Ledger(checkpoint).last()
    totals_before = {} if last_entry is None else {name: getattr(last_entry.so_far, name) for name in _COUNTERS}
    with _stop_signals() as stops:
        with _spark_errors(str(path)):
            pipeline = Pipeline.from_file(path, trigger=AVAILABLE_NOW if once else None)
            pipeline.start()
            stops.install()  # from here on in place of Spark's handler, which cancels the current micro-batch
        display = _ProgressDisplay(SourceBacklog(configuration, file.path.absolute().parent))
        failure = _watch(pipeline, display, stops)
    status = status_of(checkpoint)
    _summarise(status, totals_before, time.monotonic() - begin, as_json=as_json)
    if failure is not None:
        raise TidingsError(f"{path}: a batch failed: {failure}")


def status(place: Path, *, as_json: bool) -> None:
    """Print the status of a pipeline, running or not, from the ledger in its checkpoint. Needs no Spark."""
    current = status_of(checkpoint_of(place))
    if as_json:
        print_json(_status_json(current))
        return
    running = {None: "no", 0: "yes"}.get(current.process, f"yes, in process {current.process}")
    _print_rows(
        ("running", running),
        ("last batch", "none yet" if current.batch is None else f"{current.batch}, {_ago(current.ended)}"),
        *((name.replace("_", "-"), f"{count:,}") for name, count in _counts(current).items()),
        ("events/s", _rate(current.per_second)),
        ("watermark", _moment(current.watermark)),
        ("shards", str(current.shards)),
        ("state", _size(current.state_bytes)),
    )
    _print_refusals(current)


# While the pipeline runs


class _StopSignals:
    """Count SIGINT and SIGTERM: the first ends the pipeline after its current micro-batch, the second at once."""

    def __init__(self) -> None:
        self.count = 0
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.signal(number, self._on_signal)
            self._previous.setdefault(number, handler)

    def restore(self) -> None:
        """Restore the signal handlers of before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, *_: Any) -> None:
        self.count += 1


@contextmanager
def _stop_signals() -> Iterator[_StopSignals]:
    """Yield a counter of stop signals, and restore the signal handlers at the end."""
    stops = _StopSignals()
    try:
        yield stops
    finally:
        stops.restore()


@contextmanager
def _spark_errors(path: str) -> Iterator[None]:
    """Turn exceptions of Spark into a TidingsError with a message of one line."""
    try:
        yield
    except (TidingsError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise TidingsError(f"{path}: {reason_of(error)}") from error


def _watch(pipeline: Pipeline, display: "_ProgressDisplay", stops: _StopSignals) -> str | None:
    """Show the progress until the pipeline has ended or was stopped. Return the reason if it failed, else None."""
    with display:
        last_batch: int | None = None
        try:
            while not pipeline.await_termination(_LOOK_SECONDS):
                progress = pipeline.progress()
                display.show(progress)
                if stops.count and last_batch is None:
                    last_batch = -1 if progress.batch is None else progress.batch
                    display.show_message("ends after this batch; Ctrl-C again ends it at once")
                if stops.count > 1 or (last_batch is not None and _can_stop(progress, last_batch)):
                    pipeline.stop()
                    break
        except TidingsError:
            raise
        except Exception as error:
            return reason_of(error)
        display.show(pipeline.progress())
    return None


def _can_stop(progress: Progress, last_batch: int) -> bool:
    """Return whether the pipeline can stop without interrupting a micro-batch.

    `last_batch` is the last completed micro-batch when the stop was requested. Either no micro-batch is running, or a
    later one has completed and its successor does not write yet.
    """
    is_later_completed = progress.batch is not None and progress.batch > last_batch and progress.stage != "writing"
    return progress.stage == WAITING or is_later_completed


class _ProgressDisplay:
    """Show progress on standard error: a live table in a terminal, else one line per micro-batch."""

    def __init__(self, backlog: SourceBacklog) -> None:
        self._backlog, self._waiting = backlog, BacklogSize()
        self._batch: int | None = None
        self._message = ""
        self._live = Live(console=err, transient=True, auto_refresh=False) if err.is_terminal else None

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_message(self, text: str) -> None:
        self._message = text
        if self._live is None:
            err.print(text, markup=False)

    def show(self, progress: Progress) -> None:
        new = progress.batch is not None and progress.batch != self._batch and progress.stage != "writing"
        if new:
            self._batch = progress.batch
            self._waiting = self._backlog.measure(progress.offsets)
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
        for name in _COUNTERS[:5]:
            table.add_row(name, f"{getattr(progress.so_far, name):,}")
        table.add_row("rows/s", _rate(progress.per_second))
        table.add_row("last batch", f"{'-' if progress.batch is None else progress.batch}, {_seconds(progress)}")
        spent = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in progress.stages.items())
        table.add_row("of which", spent or "-")
        table.add_row("backlog", _backlog(self._waiting))
        table.add_row("now", self._message or progress.stage)
        return table


# Summary and status


def _summarise(status: Status, totals_before: dict[str, int], seconds: float, *, as_json: bool) -> None:
    """Print the counts of this run and in total. `totals_before` are the totals when the run began."""
    counts = {name: count - totals_before.get(name, 0) for name, count in _counts(status).items()}
    if as_json:
        print_json({**_status_json(status), "run": {**counts, "seconds": round(seconds, 3)}})
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
    _print_refusals(status)


def _print_refusals(status: Status) -> None:
    """Print the subscriptions that the pipeline refused at its start."""
    for name, reason in status.refused[:_SHOWN_REFUSALS]:
        err.print(f"refused at the start: {name or 'a row without an id'}: {reason}", markup=False, soft_wrap=True)
    if len(status.refused) > _SHOWN_REFUSALS:
        err.print(f"and {len(status.refused) - _SHOWN_REFUSALS:,} more; --json lists them", markup=False)


def _status_json(status: Status) -> dict[str, Any]:
    """Return the status as a dictionary for JSON."""
    return {
        "checkpoint": status.checkpoint,
        "running": status.process is not None,
        "process": status.process or None,
        "batch": status.batch,
        "seconds_ago": None if status.ended is None else round(seconds_since(status.ended), 1),
        "last": {name: getattr(status.counts, name) for name in _COUNTERS},
        "so_far": _counts(status),
        "events_per_second": None if status.per_second is None else round(status.per_second, 1),
        "watermark": None if status.watermark is None else _moment(status.watermark),
        "shards": status.shards,
        "state_bytes": status.state_bytes,
        "refused": [{"id": name, "reason": reason} for name, reason in status.refused],
    }


def _counts(status: Status) -> dict[str, int]:
    return {name: getattr(status.so_far, name) for name in _COUNTERS}


def _print_rows(*rows: tuple[str, str]) -> None:
    for name, value in rows:
        out.print(f"{name:<{_WIDTH}}{value}", markup=False, soft_wrap=True)


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.0f}"


def _seconds(progress: Progress) -> str:
    return "-" if progress.seconds is None else f"{progress.seconds:.1f} s"


def _backlog(waiting: BacklogSize) -> str:
    parts = [
        f"{count:,} {unit}" for count, unit in ((waiting.files, "files"), (waiting.rows, "rows")) if count is not None
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
    return time_text(microseconds)


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
