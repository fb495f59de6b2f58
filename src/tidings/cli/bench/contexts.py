"""A change of context, one by one and in bulk, in small and large indexes; beside leaving and subscribing anew."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tidings.cli.bench import Measurement, drawing, each_timed, median, moving_workload, steps, timed
from tidings.index import Index

_A_CLIENT = 10  # subscriptions
_CHANGES = 100_000  # in a table; a fifth of them one by one
_ROUNDS = 3
_ANEW = 200  # clients
_FILTERS = {"": moving_workload.HIDDEN_BOX, ", with boxes": moving_workload.BOX}


class Cost(NamedTuple):
    """Seconds a change."""

    single: float
    bulk: float
    encoded: float


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """At a hundredth of the subscriptions, a tenth, and all of them: ten a client, everyone equally likely to move."""
    sizes = [_size(count // 100), _size(count // 10), _size(count)]
    costs: dict[tuple[str, int], Cost] = {}
    with steps(2 * len(sizes) + 1) as step:
        # The index without boxes comes last, since clients that subscribe anew would not have any.
        for kind, publishers in reversed(_FILTERS.items()):
            for size in sizes:
                step(f"{size:,} subscriptions{kind}")
                index = _index(size, publishers)
                costs[kind, size] = _cost(index, size // _A_CLIENT, min(_CHANGES, 10 * count))
        step("subscribing anew")
        anew = _anew(index, sizes[-1])
    found = [one for kind in _FILTERS for one in _changes(costs, kind, sizes)]
    plain, boxes = (costs[kind, sizes[-1]] for kind in _FILTERS)
    what = f"leave and subscribe anew, {_A_CLIENT} subscriptions a client"
    found += [
        Measurement(what, anew * 1e6, "us"),
        Measurement("that / set_context", anew / plain.single, "times", "150", _with_boxes(anew / boxes.single)),
        Measurement("that / set_contexts", anew / plain.bulk, "times", "1,000", _with_boxes(anew / boxes.bulk)),
    ]
    if plot is not None:
        drawn = {
            "tidings, set_context": plain.single,
            "tidings, set_context with boxes": boxes.single,
            "tidings, set_contexts": plain.bulk,
            "tidings, set_contexts with boxes": boxes.bulk,
            what: anew,
        }
        label = f"us a change, {sizes[-1]:,} subscriptions (shorter is better)"
        drawing.bars({name: seconds * 1e6 for name, seconds in drawn.items()}, label, plot)
    return found


def _size(count: int) -> int:
    return max(1, count // _A_CLIENT) * _A_CLIENT


def _index(size: int, publishers: str) -> Index:
    index = Index()
    index.add_many(moving_workload.subscriptions(size, publishers, _A_CLIENT))
    index.set_contexts(moving_workload.everyone(size // _A_CLIENT))
    return index


def _cost(index: Index, clients: int, changes: int) -> Cost:
    tables = [moving_workload.moves(changes, clients, seed=seed) for seed in range(_ROUNDS)]
    encoded = [table.set_column(0, "client", table["client"].dictionary_encode()) for table in tables]
    few = [table.slice(0, changes // 5).to_pylist() for table in tables]
    lists = [[(row["client"], {"x": row["x"], "y": row["y"]}) for row in rows] for rows in few]

    def one_by_one(moves: list[tuple[str, dict[str, Any]]]) -> None:
        for client, context in moves:
            index.set_context(client, context)

    def in_bulk(tables: list[pa.Table]) -> float:
        return median(each_timed(index.set_contexts, tables)) / changes

    single = median(each_timed(one_by_one, lists)) / (changes // 5)
    return Cost(single, in_bulk(tables), in_bulk(encoded))


def _anew(index: Index, size: int) -> float:
    """Seconds a client that has no context, and so has to put its box into the content whenever it moves."""
    clients = min(_ANEW, size // _A_CLIENT)
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

    return timed(again) / clients


def _changes(costs: dict[tuple[str, int], Cost], kind: str, sizes: list[int]) -> list[Measurement]:
    goal = "3 us" if kind else "2 us"
    found = []
    for size in sizes:
        single, bulk, encoded = costs[kind, size]
        where = f"{size:,} subscriptions{kind}"
        found += [
            Measurement(f"set_context, {where}", single * 1e6, "us", goal),
            Measurement(
                f"set_contexts, {where}",
                bulk * 1e9,
                "ns",
                "150 ns",
                f"clients dictionary-encoded {encoded * 1e9:,.0f} ns",
            ),
        ]
    small, large = costs[kind, sizes[0]], costs[kind, sizes[-1]]
    grown = f"{sizes[-1]:,} / {sizes[0]:,} subscriptions{kind}"
    return [
        *found,
        Measurement(f"set_context, {grown}", large.single / small.single, "times", "1.3"),
        Measurement(f"set_contexts, {grown}", large.bulk / small.bulk, "times", "1.3"),
    ]


def _with_boxes(times: float) -> str:
    return f"with boxes {times:,.0f} times"
