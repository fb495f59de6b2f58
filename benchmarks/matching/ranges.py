"""Measure matching of subscriptions that have ranges only and no equality, compared with a scan of all bounds in
NumPy."""

from benchmarks.workloads import range_workload, workload
from tidings.cli.measurement import Measurement, median, steps, time_each, time_once
from tidings.text_index import Index

_EVENTS = 20_000
_SCANNED = 50
_GOALS = {100_000: "60,000", 1_000_000: "8,000"}


def measure(count: int) -> list[Measurement]:
    """Measure matching in batches on `count` subscriptions of the range workload."""
    with steps(3) as step:
        step("loading the index")
        slots, rows = range_workload.subscriptions(count), range_workload.events(_EVENTS)
        index, table = Index(), workload.table(rows)
        index.add_many(workload.loadable(*slots))
        step("matching")
        matches = index.match_batch(table).num_rows / _EVENTS
        rate = _EVENTS / median(time_each(index.match_batch, [table] * 3))
        step("scanning")
        scan = _SCANNED / time_once(lambda: [workload.answer(slots, row) for row in rows[:_SCANNED]])
    comparison = f"{matches:,.3g} matches an event; a scan in NumPy {scan:,.0f} events/s ({rate / scan:,.0f}x)"
    what = f"ranges only, {count:,} subscriptions, batches"
    return [Measurement(what, rate, "events/s", _GOALS.get(count, ""), comparison)]
