"""Measure the cost of an event as the number of subscriptions grows while the number of matches stays the same."""

from pathlib import Path

from benchmarks import drawing
from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, median, number, steps, time_each
from tidings.text_index import Index

_EVENTS = 10_000
# With these widths, 1 %, 0.1 % and 0.01 % of the subscriptions match an event: at each size, about as many.
_WIDTHS = {100: 0.755, 10: 0.25, 1: 0.0875}


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """Measure matching at a hundredth, a tenth and all of `count` subscriptions."""
    table = workload.table(workload.events(_EVENTS))
    measurements, us = [], {}
    with steps(2 * len(_WIDTHS)) as step:
        for part, width in _WIDTHS.items():
            size = max(1, count // part)
            step(f"loading {size:,} subscriptions")
            index = Index()
            index.add_many(workload.loadable(*workload.subscriptions(size, width=width)))
            step(f"matching {size:,} subscriptions")
            matches = index.match_batch(table).num_rows / _EVENTS
            us[size] = median(time_each(index.match_batch, [table] * 3)) / _EVENTS * 1e6
            comparison = f"{matches:,.3g} matches an event"
            measurements.append(Measurement(f"{size:,} subscriptions", us[size], "us an event", "", comparison))
    sizes = sorted(us)
    grown = f"{sizes[-1]:,} / {sizes[0]:,} subscriptions"
    goal = "10" if count == 1_000_000 else ""
    measurements.append(Measurement(grown, us[sizes[-1]] / us[sizes[0]], "times", goal))
    if plot is not None:
        drawing.curve(us, "subscriptions", f"us an event, about {number(count / 10_000)} matches each", plot)
    return measurements
