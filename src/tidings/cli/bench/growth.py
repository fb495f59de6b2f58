"""What an event costs as subscriptions grow in number and the matches do not."""

from pathlib import Path

from tidings.cli.bench import Measurement, drawing, each_timed, median, number, steps, workload
from tidings.index import Index

_EVENTS = 10_000
# With these widths, 1 %, 0.1 % and 0.01 % of workload W match an event: a hundred of 10,000 as of a million.
_WIDTHS = {100: 0.755, 10: 0.25, 1: 0.0875}


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """At a hundredth of the subscriptions, a tenth, and all of them."""
    table = workload.table(workload.events(_EVENTS))
    found, us = [], {}
    with steps(2 * len(_WIDTHS)) as step:
        for part, width in _WIDTHS.items():
            size = max(1, count // part)
            step(f"loading {size:,} subscriptions")
            index = Index()
            index.add_many(workload.loadable(*workload.subscriptions(size, width=width)))
            step(f"matching {size:,} subscriptions")
            matches = index.match_batch(table).num_rows / _EVENTS
            us[size] = median(each_timed(index.match_batch, [table] * 3)) / _EVENTS * 1e6
            beside = f"{matches:,.3g} matches an event"
            found.append(Measurement(f"{size:,} subscriptions", us[size], "us an event", "", beside))
    sizes = sorted(us)
    grown = f"{sizes[-1]:,} / {sizes[0]:,} subscriptions"
    goal = "10" if count == 1_000_000 else ""
    found.append(Measurement(grown, us[sizes[-1]] / us[sizes[0]], "times", goal))
    if plot is not None:
        drawing.curve(us, "subscriptions", f"us an event, about {number(count / 10_000)} matches each", plot)
    return found
