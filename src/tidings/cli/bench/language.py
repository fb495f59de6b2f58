"""How fast filters are read, in bulk and cold, beside two parsers that a user might take instead."""

from collections.abc import Callable
from random import Random
from typing import Any

from tidings.cli.bench import Measurement, median, timed
from tidings.cli.bench.comparison import is_installed
from tidings.filters import Filter
from tidings.language.sql import forget_templates

_TEMPLATES = 20
_COLD_ROUNDS = 300


def subscriptions(count: int) -> list[str]:
    """Texts of twenty shapes with four predicates each; the same ones every time."""
    random = Random(1)  # noqa: S311 - a workload, not a secret
    return [_subscription(i % _TEMPLATES, random) for i in range(count)]


def _subscription(shape: int, random: Random) -> str:
    low = random.uniform(0, 1000)
    return (
        f"class = 'c{random.randrange(100)}' and a{shape} > {random.randrange(10_000)} "
        f"and b{shape} between {low!r} and {low + 250!r} and c = 'v{random.randrange(20)}'"
    )


def measure(count: int) -> list[Measurement]:
    texts = subscriptions(count)
    Filter.parse("warm = 1")
    forget_templates()
    bulk = median(timed(lambda: Filter.parse_many(texts)) for _ in range(3))
    few = texts[:_COLD_ROUNDS]
    cold, others = _cold(few), [(name, _each(parse, few)) for name, parse in _parsers()]
    in_bulk = f"parse {count:,} subscriptions of {_TEMPLATES} shapes"
    return [
        Measurement(in_bulk, bulk, "s", f"{2 * count / 100_000:g} s", _beside(others, bulk / count)),
        Measurement("parse one of a new shape (4 predicates)", cold * 1e6, "us", "300 us", _beside(others, cold)),
    ]


def _cold(texts: list[str]) -> float:
    def parse_anew(text: str) -> None:
        forget_templates()
        Filter.parse(text)

    return _each(parse_anew, texts)


def _beside(others: list[tuple[str, float]], ours: float) -> str:
    """The speeds of other parsers, with their ratios to ours. They remember no shapes, so a few texts are enough."""
    return "; ".join(f"{name} {seconds * 1e6:,.0f} us each ({seconds / ours:.1f}x)" for name, seconds in others)


def _each(parse: Callable[[str], Any], texts: list[str]) -> float:
    return median(timed(lambda: [parse(text) for text in texts]) for _ in range(3)) / len(texts)


def _parsers() -> list[tuple[str, Callable[[str], Any]]]:
    found: list[tuple[str, Callable[[str], Any]]] = []
    if is_installed("sqlglot"):
        import sqlglot

        found.append(("sqlglot", lambda text: sqlglot.parse_one(text)))
    if is_installed("rule_engine"):
        import rule_engine

        def rule(text: str) -> Any:
            # It has no BETWEEN: the same range, said in its own words.
            head, rest = text.split(" between ")
            name = head.rsplit(" ", 1)[1]
            low, high, tail = rest.split(" and ", 2)
            return rule_engine.Rule(f"{head} >= {low} and {name} <= {high} and {tail}".replace(" = ", " == "))

        found.append(("rule-engine", rule))
    return found
