"""Measure context changes in small and large indexes, one by one and in bulk, compared with re-subscribing."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks import drawing
from benchmarks.workloads import moving_workload
from tidings.cli.measurement import Measurement, median, steps, time_each, time_once
from tidings.text_index import Index

_A_CLIENT = 10  # subscriptions per client
_CHANGES = 100_000  # rows of a table of changes; a fifth of them are also applied one by one
_ROUNDS = 3
_RESUBSCRIBING_CLIENTS = 200  # clients that re-subscribe
_FILTERS = {"": moving_workload.HIDDEN_BOX, ", with boxes": moving_workload.BOX}


class ContextChangeCost(NamedTuple):
    """Seconds per context change: one by one, in bulk, and in bulk with dictionary-encoded client names."""

    single: float
    bulk: float
    encoded: float


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """Measure context changes at a hundredth, a tenth and all of `count` subscriptions.

    Each client has ten subscriptions, and all clients are equally likely to move.
    """
    sizes = [_size(count // 100), _size(count // 10), _size(count)]
    costs: dict[tuple[str, int], ContextChangeCost] = {}
    with steps(2 * len(sizes) + 1) as step:
        # The index without boxes comes last: re-subscribing is measured on it, and needs none.
        for kind, publishers in reversed(_FILTERS.items()):
            for size in sizes:
                step(f"{size:,} subscriptions{kind}")
                index = _index(size, publishers)
                costs[kind, size] = _cost(index, size // _A_CLIENT, min(_CHANGES, 10 * count))
        step("subscribing anew")
        resubscribing = _resubscribing_seconds(index, sizes[-1])
    measurements = [measurement for kind in _FILTERS for measurement in _changes(costs, kind, sizes)]
    plain, boxes = (costs[kind, sizes[-1]] for kind in _FILTERS)
    what = f"leave and subscribe anew, {_A_CLIENT} subscriptions a client"
    measurements += [
        Measurement(what, resubscribing * 1e6, "us"),
        Measurement(
            "that / set_context",
            resubscribing / plain.single,
            "times",
            "150",
            _with_boxes(resubscribing / boxes.single),
        ),
        Measurement(
            "that / set_contexts", resubscribing / plain.bulk, "times", "1,000", _with_boxes(resubscribing / boxes.bulk)
        ),
    ]
    if plot is not None:
        bars = {
            "tidings, set_context": plain.single,
            "tidings, set_context with boxes": boxes.single,
            "tidings, set_contexts": plain.bulk,
            "tidings, set_contexts with boxes": boxes.bulk,
            what: resubscribing,
        }
        label = f"us a change, {sizes[-1]:,} subscriptions (shorter is better)"
        drawing.bars({name: seconds * 1e6 for name, seconds in bars.items()}, label, plot)
    return measurements


def _size(count: int) -> int:
    return max(1, count // _A_CLIENT) * _A_CLIENT


def _index(size: int, publishers: str) -> Index:
    index = Index()
    index.add_many(moving_workload.subscriptions(size, publishers, _A_CLIENT))
    index.set_contexts(moving_workload.everyone(size // _A_CLIENT))
    return index


def _cost(index: Index, clients: int, changes: int) -> ContextChangeCost:
    tables = [moving_workload.moves(changes, clients, seed=seed) for seed in range(_ROUNDS)]
    encoded = [table.set_column(0, "client", table["client"].dictionary_encode()) for table in tables]
    few = [table.slice(0, changes // 5).to_pylist() for table in tables]
    lists = [[(row["client"], {"x": row["x"], "y": row["y"]}) for row in rows] for rows in few]

    def one_by_one(moves: list[tuple[str, dict[str, Any]]]) -> None:
        for client, context in moves:
            index.set_context(client, context)

    def in_bulk(tables: list[pa.Table]) -> float:
        return median(time_each(index.set_contexts, tables)) / changes

    single = median(time_each(one_by_one, lists)) / (changes // 5)
    return ContextChangeCost(single, in_bulk(tables), in_bulk(encoded))


def _resubscribing_seconds(index: Index, size: int) -> float:
    """Return the seconds that re-subscribing takes a client without contexts, whose content contains its current
    box."""
    clients = min(_RESUBSCRIBING_CLIENTS, size // _A_CLIENT)
    places = moving_workload.everyone(clients, seed=3).to_pylist()
    contents = moving_workload.contents(clients * _A_CLIENT)
    texts = [
        f"{content} and {moving_workload.box(place['x'], place['y'])}"
        for content, place in zip(contents, (place for place in places for _ in range(_A_CLIENT)), strict=True)
    ]

    def again() -> None:
        for number, text in enumerate(texts):
            index.remove(f"s{number}")
            index.add(f"s{number}", text, subscriber=f"c{number // _A_CLIENT}")

    return time_once(again) / clients


def _changes(costs: dict[tuple[str, int], ContextChangeCost], kind: str, sizes: list[int]) -> list[Measurement]:
    goal = "3 us" if kind else "2 us"
    measurements = []
    for size in sizes:
        single, bulk, encoded = costs[kind, size]
        case = f"{size:,} subscriptions{kind}"
        measurements += [
            Measurement(f"set_context, {case}", single * 1e6, "us", goal),
            Measurement(
                f"set_contexts, {case}",
                bulk * 1e9,
                "ns",
                "150 ns",
                f"clients dictionary-encoded {encoded * 1e9:,.0f} ns",
            ),
        ]
    small, large = costs[kind, sizes[0]], costs[kind, sizes[-1]]
    grown = f"{sizes[-1]:,} / {sizes[0]:,} subscriptions{kind}"
    return [
        *measurements,
        Measurement(f"set_context, {grown}", large.single / small.single, "times", "1.3"),
        Measurement(f"set_contexts, {grown}", large.bulk / small.bulk, "times", "1.3"),
    ]


def _with_boxes(times: float) -> str:
    return f"with boxes {times:,.0f} times"
