"""Matching with patterns: values that come again and again, and values that never do; beside a loop over a class."""

import pyarrow as pa

from tidings.cli.bench import Measurement, each_timed, median, steps, string_workload, timed
from tidings.index import Index

_EVENTS = 20_000
_LOOPED = 20
_ROUNDS = 3


def measure(count: int) -> list[Measurement]:
    size = min(_EVENTS, 20 * count)
    with steps(4) as step:
        step("loading the index")
        given = string_workload.subscriptions(count)
        index, table = Index(), string_workload.events(size)
        ids = [f"s{i}" for i in range(count)]
        index.add_many(pa.table({"id": ids, "content": string_workload.texts(given)}))
        step("values that come again")
        matches = index.match_batch(table).num_rows / size
        rate = size / median(each_timed(index.match_batch, [table] * _ROUNDS))
        step("values that never do")
        fresh = string_workload.distinct_events(_ROUNDS * size)
        parts = [fresh.slice(at * size, size) for at in range(_ROUNDS)]  # what came once would be known by the next
        distinct = size / median(each_timed(index.match_batch, parts))
        step("a loop")
        events = table.slice(0, _LOOPED).to_pylist()
        loop = _LOOPED / timed(lambda: [string_workload.answer(given, event) for event in events])

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
