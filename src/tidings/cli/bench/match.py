"""Matching, side by side: the index, and what a user might pick instead; each is told the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidings.cli.bench import Measurement, drawing, each_timed, median, timed, workload
from tidings.cli.bench.comparison import is_installed
from tidings.cli.terminal import progress
from tidings.filters import Filter
from tidings.index import Index

_ONE_BY_ONE = 5_000
_BATCH = 20_000
_QUESTIONS = 200


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """Events a second of each engine on workload W; slow ones see fewer events, which does not change their speed."""
    slots, rows = workload.subscriptions(count), workload.events(_BATCH)
    texts = workload.texts(*slots)
    with progress() as bar:
        task = bar.add_task("loading the index", total=9)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        index = Index()
        loading = timed(lambda: index.add_many(pa.table({"id": [f"s{i}" for i in range(count)], "content": texts})))
        found = [
            Measurement(f"load {count:,} subscriptions from text", loading, "s", f"{35 * count / 1e6:g} s"),
            Measurement("arrays", index.stats().array_bytes / count, "bytes a subscription", "250"),
        ]
        found += [
            Measurement(f"{what} query, {count:,} subscriptions", _question(ask, width) * 1e6, "us", "1,000")
            for what, ask, width in (("covering", index.covering, 0.05), ("covered by", index.covered_by, 0.6))
        ]
        rates: dict[str, float] = {}
        table, events = workload.table(rows), workload.dicts(rows[:_ONE_BY_ONE])
        index.match_batch(table.slice(0, 64))
        index.match(events[0])
        step("index, in batches")
        rates["tidings, batches from Arrow"] = _BATCH / median(
            timed(lambda: index.match_batch(table)) for _ in range(3)
        )
        step("index, one by one")
        rates["tidings, match_positions of a dict"] = _rate(index.match_positions, events)
        rates["tidings, match of a dict"] = _rate(index.match, events)
        for name, engine in _engines(slots, texts, rows).items():
            step(name)
            rates[name] = engine()
    best = rates["tidings, batches from Arrow"]
    for name, rate in rates.items():
        beside = "" if name.startswith("tidings") else f"tidings in batches is {best / rate:,.0f}x as fast"
        found.append(Measurement(name, rate, "events/s", _GOALS.get((name, count), ""), beside))
    if plot is not None:
        label = f"events a second, {count:,} subscriptions, one core (longer is better)"
        drawing.bars(rates, label, plot)
    return found


_GOALS = {
    ("tidings, batches from Arrow", 100_000): "150,000",
    ("tidings, batches from Arrow", 1_000_000): "20,000",
    ("tidings, match_positions of a dict", 100_000): "50,000",
    ("tidings, match of a dict", 100_000): "25,000",
}


def _rate(match: Callable[[Any], Any], events: list[Any]) -> float:
    return len(events) / timed(lambda: [match(event) for event in events])


def _question(ask: Callable[[Any], Any], width: float) -> float:
    """Seconds that a covering query takes, of filters like the subscriptions but of another width."""
    filters = Filter.parse_many(workload.texts(*workload.subscriptions(_QUESTIONS, seed=2, width=width)))
    ask(filters[0])
    return median(each_timed(ask, filters))


def _engines(slots: Any, texts: list[str], rows: Any) -> dict[str, Callable[[], float]]:
    engines: dict[str, Callable[[], float]] = {
        "dict of compiled lambdas by class": lambda: _lambdas(slots, workload.dicts(rows[:50])),
        "the reference": lambda: _reference(texts, workload.dicts(rows[:2])),
    }
    for name, engine in (("polars", _polars), ("duckdb", _duckdb)):
        if is_installed(name):
            engines[f"{name} join"] = lambda engine=engine: engine(slots, rows)  # type: ignore[misc]
    if is_installed("rule_engine"):
        engines["rule-engine"] = lambda: _rule_engine(slots, workload.dicts(rows[:1]))
    return engines


def _reference(texts: list[str], events: list[Any]) -> float:
    filters = Filter.parse_many(texts)
    return _rate(lambda event: [one for one in filters if one.matches(event)], events)


def _lambdas(slots: Any, events: list[Any]) -> float:
    """What one writes by hand: a compiled function for each subscription, kept by class."""
    by_class: dict[float, list[Callable[[Any], bool]]] = {}
    for attributes, lows, highs in zip(*(one.tolist() for one in slots), strict=True):
        tests = [
            f"e.get('a{a}', {lo - 1!r}) == {lo!r}" if lo == hi else f"{lo!r} <= e.get('a{a}', -1.0) <= {hi!r}"
            for a, lo, hi in zip(attributes, lows, highs, strict=True)
            if a > 0
        ]
        # S307: made from the numbers above.
        by_class.setdefault(lows[0], []).append(eval(f"lambda e: {' and '.join(tests)}"))  # noqa: S307
    return _rate(lambda event: [one for one in by_class.get(event["a0"], ()) if one(event)], events)


def _wide(slots: Any) -> dict[str, Any]:
    """A row a subscription, two columns an attribute: its bounds, or nothing."""
    attribute, low, high = slots
    columns: dict[str, Any] = {"id": np.arange(len(attribute)), "class": low[:, 0]}
    for a in range(1, workload.ATTRIBUTES):
        asked = attribute == a
        used = asked.any(axis=1)
        columns[f"low{a}"] = np.where(used, (low * asked).sum(axis=1), np.nan)
        columns[f"high{a}"] = np.where(used, (high * asked).sum(axis=1), np.nan)
    return columns


def _polars(slots: Any, rows: Any) -> float:
    import polars as pl

    bounds = [f"{end}{a}" for a in range(1, workload.ATTRIBUTES) for end in ("low", "high")]
    frame = pl.DataFrame(_wide(slots)).with_columns(pl.col(bounds).fill_nan(None))
    given = pl.from_arrow(workload.table(rows[:400])).with_row_index("event")
    passed = pl.all_horizontal(
        pl.col(f"low{a}").is_null() | pl.col(f"a{a}").is_between(pl.col(f"low{a}"), pl.col(f"high{a}"))
        for a in range(1, workload.ATTRIBUTES)
    )

    def match(events: Any) -> Any:
        return (
            events.lazy()
            .join(frame.lazy(), left_on="a0", right_on="class")
            .filter(passed)
            .select("event", "id")
            .collect()
        )

    match(given.head(10))
    return 400 / timed(lambda: [match(part) for part in given.iter_slices(100)])


def _duckdb(slots: Any, rows: Any) -> float:
    import duckdb

    connection = duckdb.connect()
    subscriptions = pa.table({k: pa.array(v, from_pandas=True) for k, v in _wide(slots).items()})
    connection.register("given", subscriptions)
    connection.execute("create table subscriptions as select * from given")
    events = workload.table(rows[:400]).append_column("event", pa.array(range(400)))
    connection.register("events", events)
    tests = " and ".join(
        f"(s.low{a} is null or e.a{a} between s.low{a} and s.high{a})" for a in range(1, workload.ATTRIBUTES)
    )
    # S608: put together from the numbers of attributes.
    query = f"select e.event, s.id from events e join subscriptions s on e.a0 = s.class where {tests}"  # noqa: S608
    return 400 / timed(lambda: connection.sql(query).to_arrow_table())


def _rule_engine(slots: Any, events: list[Any]) -> float:
    """On a thousandth of the subscriptions, and counted as if it had had them all: it looks at each of them anyway."""
    import rule_engine

    count = len(slots[0])
    few = max(1, count // 1000)
    context = rule_engine.Context(default_value=None)
    rules = []
    for attributes, lows, highs in zip(*(one[:few].tolist() for one in slots), strict=True):
        tests = [
            f"a{a} == {lo!r}" if lo == hi else f"a{a} != null and a{a} >= {lo!r} and a{a} <= {hi!r}"
            for a, lo, hi in zip(attributes, lows, highs, strict=True)
            if a >= 0
        ]
        rules.append(rule_engine.Rule(" and ".join(tests), context=context))
    return _rate(lambda event: [rule for rule in rules if rule.matches(event)], events * 20) * few / count
