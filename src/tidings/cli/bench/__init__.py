"""What is measured, and how it is told: a table for people, JSON for machines."""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tidings.cli.terminal import out, print_json, progress

T = TypeVar("T")


class Measurement(NamedTuple):
    what: str
    value: float
    unit: str
    goal: str = ""
    beside: str = ""  # the same with what one would use instead, and the ratio


def timed(work: Callable[[], Any]) -> float:
    """Seconds, without the garbage of what came before."""
    return each_timed(lambda _: work(), [None])[0]


def each_timed(work: Callable[[T], Any], rounds: Iterable[T]) -> list[float]:
    """Seconds of the work on each of the rounds, which may differ so that no round knows what the one before saw."""
    found = []
    gc.collect()
    for one in rounds:
        begin = time.perf_counter()
        work(one)
        found.append(time.perf_counter() - begin)
    return found


def processor_seconds(work: Callable[[], Any]) -> float:
    """Seconds of processor time of this process: what others do on the machine is not in them."""
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def median(seconds: Iterable[float]) -> float:
    return statistics.median(seconds)


@contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """Progress of long work: what is called with the name of each step before it begins."""
    with progress() as bar:
        task = bar.add_task("", total=total)
        begun = iter(range(total))
        yield lambda what: bar.update(task, completed=next(begun), description=what)


def report(measurements: list[Measurement], as_json: bool) -> None:
    if as_json:
        print_json([measurement._asdict() for measurement in measurements])
        return
    from rich.table import Table

    table = Table("what", "measured", "goal", "beside it", box=None, pad_edge=False)
    for one in measurements:
        table.add_row(one.what, f"{number(one.value)} {one.unit}", one.goal, one.beside)
    out.print(table)


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
