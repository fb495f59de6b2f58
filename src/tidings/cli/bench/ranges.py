"""Matching where no subscription has an equality: only ranges, beside a scan of all their bounds in NumPy."""

from tidings.cli.bench import Measurement, each_timed, median, range_workload, steps, timed, workload
from tidings.index import Index

_EVENTS = 20_000
_SCANNED = 50
_GOALS = {100_000: "60,000", 1_000_000: "8,000"}


def measure(count: int) -> list[Measurement]:
    with steps(3) as step:
        step("loading the index")
        slots, rows = range_workload.subscriptions(count), range_workload.events(_EVENTS)
        index, table = Index(), workload.table(rows)
        index.add_many(workload.loadable(*slots))
        step("matching")
        matches = index.match_batch(table).num_rows / _EVENTS
        rate = _EVENTS / median(each_timed(index.match_batch, [table] * 3))
        step("scanning")
        scan = _SCANNED / timed(lambda: [workload.answer(slots, row) for row in rows[:_SCANNED]])
    beside = f"{matches:,.3g} matches an event; a scan in NumPy {scan:,.0f} events/s ({rate / scan:,.0f}x)"
    what = f"ranges only, {count:,} subscriptions, batches"
    return [Measurement(what, rate, "events/s", _GOALS.get(count, ""), beside)]
