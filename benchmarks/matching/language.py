"""Measure filter parsing, in bulk and of new shapes, compared with two other parsers."""

from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.comparison import is_installed
from tidings.cli.measurement import Measurement, median, time_once
from tidings.filters import Filter
from tidings.language.sql import forget_templates

_TEMPLATES = 20
_COLD_ROUNDS = 300


def subscriptions(count: int) -> list[str]:
    """Return filter texts of twenty shapes with four predicates each, the same on every call."""
    random = Random(1)  # noqa: S311 - a workload, not a secret
    return [_subscription(i % _TEMPLATES, random) for i in range(count)]


def _subscription(shape: int, random: Random) -> str:
    low = random.uniform(0, 1000)
    return (
        f"class = 'c{random.randrange(100)}' and a{shape} > {random.randrange(10_000)} "
        f"and b{shape} between {low!r} and {low + 250!r} and c = 'v{random.randrange(20)}'"
    )


def measure(count: int) -> list[Measurement]:
    """Measure the parsing of `count` filter texts in bulk, and of a text whose shape was not parsed before."""
    texts = subscriptions(count)
    Filter.parse("warm = 1")
    forget_templates()
    bulk = median(time_once(lambda: Filter.parse_many(texts)) for _ in range(3))
    few = texts[:_COLD_ROUNDS]
    cold, others = _new_shape_seconds(few), [(name, _seconds_per_text(parse, few)) for name, parse in _parsers()]
    in_bulk = f"parse {count:,} subscriptions of {_TEMPLATES} shapes"
    return [
        Measurement(in_bulk, bulk, "s", f"{2 * count / 100_000:g} s", _comparison(others, bulk / count)),
        Measurement("parse one of a new shape (4 predicates)", cold * 1e6, "us", "300 us", _comparison(others, cold)),
    ]


def _new_shape_seconds(texts: list[str]) -> float:
    def parse_anew(text: str) -> None:
        forget_templates()
        Filter.parse(text)

    return _seconds_per_text(parse_anew, texts)


def _comparison(others: list[tuple[str, float]], ours: float) -> str:
    """Describe the speeds of other parsers, with their ratios to ours.

    They do not remember shapes, so a few texts are enough to measure them.
    """
    return "; ".join(f"{name} {seconds * 1e6:,.0f} us each ({seconds / ours:.1f}x)" for name, seconds in others)


def _seconds_per_text(parse: Callable[[str], Any], texts: list[str]) -> float:
    return median(time_once(lambda: [parse(text) for text in texts]) for _ in range(3)) / len(texts)


def _parsers() -> list[tuple[str, Callable[[str], Any]]]:
    parsers: list[tuple[str, Callable[[str], Any]]] = []
    if is_installed("sqlglot"):
        import sqlglot

        parsers.append(("sqlglot", lambda text: sqlglot.parse_one(text)))
    if is_installed("rule_engine"):
        import rule_engine

        def rule(text: str) -> Any:
            # rule-engine has no BETWEEN: write the range as two comparisons.
            head, rest = text.split(" between ")
            name = head.rsplit(" ", 1)[1]
            low, high, tail = rest.split(" and ", 2)
            return rule_engine.Rule(f"{head} >= {low} and {name} <= {high} and {tail}".replace(" = ", " == "))

        parsers.append(("rule-engine", rule))
    return parsers
