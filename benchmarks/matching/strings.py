"""Measure matching of string patterns, with values that recur and values that do not, compared with a loop over a
class."""

import pyarrow as pa

from benchmarks.workloads import string_workload
from tidings.cli.measurement import Measurement, median, steps, time_each, time_once
from tidings.text_index import Index

_EVENTS = 20_000
_LOOPED = 20
_ROUNDS = 3


def measure(count: int) -> list[Measurement]:
    """Measure matching in batches on `count` subscriptions of the string workload."""
    size = min(_EVENTS, 20 * count)
    with steps(4) as step:
        step("loading the index")
        subscriptions = string_workload.subscriptions(count)
        index, table = Index(), string_workload.events(size)
        ids = [f"s{i}" for i in range(count)]
        index.add_many(pa.table({"id": ids, "content": string_workload.texts(subscriptions)}))
        step("values that come again")
        matches = index.match_batch(table).num_rows / size
        rate = size / median(time_each(index.match_batch, [table] * _ROUNDS))
        step("values that never do")
        distinct_events = string_workload.distinct_events(_ROUNDS * size)
        parts = [distinct_events.slice(at * size, size) for at in range(_ROUNDS)]  # no value is cached
        distinct = size / median(time_each(index.match_batch, parts))
        step("a loop")
        events = table.slice(0, _LOOPED).to_pylist()
        loop = _LOOPED / time_once(lambda: [string_workload.answer(subscriptions, event) for event in events])

    goal = "60,000" if count == 100_000 else ""
    what = f"patterns of 3 strings, {count:,} subscriptions"
    by_hand = f"a loop over the class {loop:,.0f} events/s"
    return [
        Measurement(
            f"{what}, 10,000 values each", rate, "events/s", goal,
            f"{matches:,.3g} matches an event; {by_hand} ({rate / loop:,.0f}x)",
        ),
        Measurement(f"{what}, every value new", distinct, "events/s", "", f"{by_hand} ({distinct / loop:,.0f}x)"),
    ]  # fmt: skip
