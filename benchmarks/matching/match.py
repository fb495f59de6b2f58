"""Measure matching with the index, compared with alternatives on the same subscriptions and events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import drawing
from benchmarks.comparison import is_installed
from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, median, time_each, time_once
from tidings.cli.output import progress
from tidings.filters import Filter
from tidings.text_index import Index

_ONE_BY_ONE = 5_000
_BATCH = 20_000
_QUERIES = 200


def measure(count: int, plot: Path | None) -> list[Measurement]:
    """Measure the events per second of each engine on workload W. Slow engines get fewer events, at the same rate."""
    slots, rows = workload.subscriptions(count), workload.events(_BATCH)
    texts = workload.texts(*slots)
    with progress() as bar:
        task = bar.add_task("loading the index", total=9)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        index = Index()
        loading = time_once(lambda: index.add_many(pa.table({"id": [f"s{i}" for i in range(count)], "content": texts})))
        measurements = [
            Measurement(f"load {count:,} subscriptions from text", loading, "s", f"{35 * count / 1e6:g} s"),
            Measurement("arrays", index.stats().array_bytes / count, "bytes a subscription", "250"),
        ]
        measurements += [
            Measurement(f"{what} query, {count:,} subscriptions", _covering_seconds(ask, width) * 1e6, "us", "1,000")
            for what, ask, width in (("covering", index.covering, 0.05), ("covered by", index.covered_by, 0.6))
        ]
        rates: dict[str, float] = {}
        table, events = workload.table(rows), workload.dicts(rows[:_ONE_BY_ONE])
        index.match_batch(table.slice(0, 64))
        index.match(events[0])
        step("index, in batches")
        rates["tidings, batches from Arrow"] = _BATCH / median(
            time_once(lambda: index.match_batch(table)) for _ in range(3)
        )
        step("index, one by one")
        rates["tidings, match_positions of a dict"] = _rate(index.match_positions, events)
        rates["tidings, match of a dict"] = _rate(index.match, events)
        for name, engine in _engines(slots, texts, rows).items():
            step(name)
            rates[name] = engine()
    best = rates["tidings, batches from Arrow"]
    for name, rate in rates.items():
        comparison = "" if name.startswith("tidings") else f"tidings in batches is {best / rate:,.0f}x as fast"
        measurements.append(Measurement(name, rate, "events/s", _GOALS.get((name, count), ""), comparison))
    if plot is not None:
        label = f"events a second, {count:,} subscriptions, one core (longer is better)"
        drawing.bars(rates, label, plot)
    return measurements


_GOALS = {
    ("tidings, batches from Arrow", 100_000): "150,000",
    ("tidings, batches from Arrow", 1_000_000): "20,000",
    ("tidings, match_positions of a dict", 100_000): "50,000",
    ("tidings, match of a dict", 100_000): "25,000",
}


def _rate(match: Callable[[Any], Any], events: list[Any]) -> float:
    return len(events) / time_once(lambda: [match(event) for event in events])


def _covering_seconds(ask: Callable[[Any], Any], width: float) -> float:
    """Return the seconds that a covering query takes, with filters like the subscriptions but of another range
    width."""
    filters = Filter.parse_many(workload.texts(*workload.subscriptions(_QUERIES, seed=2, width=width)))
    ask(filters[0])
    return median(time_each(ask, filters))


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
    return _rate(lambda event: [parsed for parsed in filters if parsed.matches(event)], events)


def _lambdas(slots: Any, events: list[Any]) -> float:
    """Measure what a user may write by hand: one compiled function per subscription, in a dictionary by class."""
    by_class: dict[float, list[Callable[[Any], bool]]] = {}
    for attributes, lows, highs in zip(*(column.tolist() for column in slots), strict=True):
        tests = [
            f"e.get('a{a}', {lo - 1!r}) == {lo!r}" if lo == hi else f"{lo!r} <= e.get('a{a}', -1.0) <= {hi!r}"
            for a, lo, hi in zip(attributes, lows, highs, strict=True)
            if a > 0
        ]
        # S307: the text contains only the numbers above.
        by_class.setdefault(lows[0], []).append(eval(f"lambda e: {' and '.join(tests)}"))  # noqa: S307
    return _rate(lambda event: [matches for matches in by_class.get(event["a0"], ()) if matches(event)], events)


def _wide(slots: Any) -> dict[str, Any]:
    """Return a column table of the subscriptions, with two columns per attribute for its bounds, NaN where it has
    none."""
    attribute, low, high = slots
    columns: dict[str, Any] = {"id": np.arange(len(attribute)), "class": low[:, 0]}
    for a in range(1, workload.ATTRIBUTES):
        is_attribute = attribute == a
        used = is_attribute.any(axis=1)
        columns[f"low{a}"] = np.where(used, (low * is_attribute).sum(axis=1), np.nan)
        columns[f"high{a}"] = np.where(used, (high * is_attribute).sum(axis=1), np.nan)
    return columns


def _polars(slots: Any, rows: Any) -> float:
    import polars as pl

    bounds = [f"{end}{a}" for a in range(1, workload.ATTRIBUTES) for end in ("low", "high")]
    frame = pl.DataFrame(_wide(slots)).with_columns(pl.col(bounds).fill_nan(None))
    events_frame = pl.from_arrow(workload.table(rows[:400])).with_row_index("event")
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

    match(events_frame.head(10))
    return 400 / time_once(lambda: [match(part) for part in events_frame.iter_slices(100)])


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
    # S608: the text contains only the numbers of attributes.
    query = f"select e.event, s.id from events e join subscriptions s on e.a0 = s.class where {tests}"  # noqa: S608
    return 400 / time_once(lambda: connection.sql(query).to_arrow_table())


def _rule_engine(slots: Any, events: list[Any]) -> float:
    """Measure rule-engine on a thousandth of the subscriptions, and scale to all: it evaluates every rule for each
    event."""
    import rule_engine

    count = len(slots[0])
    few = max(1, count // 1000)
    context = rule_engine.Context(default_value=None)
    rules = []
    for attributes, lows, highs in zip(*(column[:few].tolist() for column in slots), strict=True):
        tests = [
            f"a{a} == {lo!r}" if lo == hi else f"a{a} != null and a{a} >= {lo!r} and a{a} <= {hi!r}"
            for a, lo, hi in zip(attributes, lows, highs, strict=True)
            if a >= 0
        ]
        rules.append(rule_engine.Rule(" and ".join(tests), context=context))
    return _rate(lambda event: [rule for rule in rules if rule.matches(event)], events * 20) * few / count
