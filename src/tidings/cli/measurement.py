"""Measure durations, and report measurements as a table or as JSON."""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tidings.cli.output import out, print_json, progress

T = TypeVar("T")


class Measurement(NamedTuple):
    """One measured value with its unit, its goal, and the value of an alternative for comparison."""

    name: str
    value: float
    unit: str
    goal: str = ""
    comparison: str = ""  # the value of an alternative implementation, and the ratio


def time_once(work: Callable[[], Any]) -> float:
    """Run `work` once, after a garbage collection, and return the seconds it took."""
    return time_each(lambda _: work(), [None])[0]


def time_each(work: Callable[[T], Any], rounds: Iterable[T]) -> list[float]:
    """Call `work` with each of `rounds`, after one garbage collection, and return the seconds of each call.

    Rounds may differ, so that no round profits from caches that the round before filled.
    """
    seconds = []
    gc.collect()
    for value in rounds:
        begin = time.perf_counter()
        work(value)
        seconds.append(time.perf_counter() - begin)
    return seconds


def processor_seconds(work: Callable[[], Any]) -> float:
    """Run `work` once and return the processor seconds that this process spent; other processes do not count."""
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def median(seconds: Iterable[float]) -> float:
    """Return the median of the seconds."""
    return statistics.median(seconds)


@contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar over `total` steps, and yield a function to call with the name of each step before it
    begins."""
    with progress() as bar:
        task = bar.add_task("", total=total)
        numbers = iter(range(total))
        yield lambda name: bar.update(task, completed=next(numbers), description=name)


def report(measurements: list[Measurement], as_json: bool) -> None:
    """Print measurements as a table, or as JSON."""
    if as_json:
        print_json([_json_row(measurement) for measurement in measurements])
        return
    from rich.table import Table

    table = Table("what", "measured", "goal", "beside it", box=None, pad_edge=False)
    for measurement in measurements:
        table.add_row(
            measurement.name,
            f"{number(measurement.value)} {measurement.unit}",
            measurement.goal,
            measurement.comparison,
        )
    out.print(table)


def _json_row(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as a dictionary for JSON."""
    return {
        "what": measurement.name,
        "value": measurement.value,
        "unit": measurement.unit,
        "goal": measurement.goal,
        "beside": measurement.comparison,
    }


def number(value: float) -> str:
    """Format a number with three significant digits, or with all digits before the point from 1,000 on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
