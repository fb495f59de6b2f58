"""Measure events for subscribers nearby: with the grid of boxes, with a check of each context, and without a box."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import drawing
from benchmarks.workloads import moving_workload
from tidings.cli.measurement import Measurement, median, steps, time_each, time_once
from tidings.text_index import Index

_EVENTS = 500
_CASES = {
    "tidings, boxes": moving_workload.BOX,
    "the same boxes, each candidate's context looked at": moving_workload.HIDDEN_BOX,
    "content alone": None,
}


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """Measure matching in microseconds per event. Raises RuntimeError if the grid changes the matches."""
    table = moving_workload.events(_EVENTS)
    batches: dict[str, float] = {}
    singles: dict[str, float] = {}
    matches: dict[str, pa.Table] = {}
    with steps(2 * len(_CASES)) as step:
        for name, publishers in _CASES.items():
            step(f"loading: {name}")
            index = _index(count, publishers)
            step(f"matching: {name}")
            matches[name] = index.match_batch(table)
            batches[name] = median(time_each(index.match_batch, [table] * 3)) / _EVENTS * 1e6
            singles[name] = _single_us(index, table)
    boxes, hidden, _ = _CASES
    if _pairs(matches[boxes]) != _pairs(matches[hidden]):
        raise RuntimeError("the index found other subscriptions by their boxes than by each candidate's context")
    if plot is not None:
        drawing.bars(batches, f"us an event in batches, {count:,} subscriptions (shorter is better)", plot)
    goals = {boxes: "4x faster than the next row, not slower than content alone" if count == 80_000 else ""}
    return [
        Measurement(
            f"{name}, {way}",
            us[name],
            "us an event",
            goals.get(name, ""),
            _comparison(us[name] / us[boxes], matches[name]),
        )
        for way, us in (("batches", batches), ("one by one", singles))
        for name in _CASES
    ]


def _index(count: int, publishers: str | None) -> Index:
    index = Index()
    index.add_many(moving_workload.subscriptions(count, publishers))
    index.set_contexts(moving_workload.everyone(count, seed=1))
    index.set_contexts(moving_workload.everyone(count, seed=2))  # every client has moved once
    return index


def _single_us(index: Index, table: pa.Table) -> float:
    events = [({name: row[name] for name in ("kind", "level")}, row["context"]) for row in table.to_pylist()]
    index.match_positions(events[0][0], context=events[0][1])
    seconds = time_once(lambda: [index.match_positions(event, context=context) for event, context in events])
    return seconds / len(events) * 1e6


def _pairs(table: pa.Table) -> set[tuple[Any, Any]]:
    return set(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def _comparison(times: float, matches: pa.Table) -> str:
    return f"{times:.3g}x the time with boxes; {matches.num_rows / _EVENTS:,.3g} matches an event"
