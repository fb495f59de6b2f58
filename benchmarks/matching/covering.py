"""Measure how fast filters are compared (covering, overlap) and merged."""

from itertools import product

from benchmarks.matching.language import subscriptions
from tidings.cli.measurement import Measurement, time_once
from tidings.filters import Filter, merge


def measure(count: int) -> list[Measurement]:
    """Measure covering and overlap of pairs of filters, and the merging of about `count` adjacent filters."""
    filters = Filter.parse_many(subscriptions(count))
    pairs = list(product(filters[:100], repeat=2))
    covers = time_once(lambda: [one.covers(other) for one, other in pairs]) / len(pairs)
    overlaps = time_once(lambda: [one.overlaps(other) for one, other in pairs]) / len(pairs)
    cells = [
        Filter.parse(f"x between {i} and {i + 1} and y between {j} and {j + 1} and kind = 'k{(i + j) % 3}'")
        for i, j in product(range(max(2, int(count**0.5))), repeat=2)
    ]
    seconds = time_once(lambda: merge(cells))
    return [
        Measurement("covers, two filters of 4 predicates", covers * 1e6, "us"),
        Measurement("overlaps, two filters of 4 predicates", overlaps * 1e6, "us"),
        Measurement(f"merge {len(cells)} filters into {len(merge(cells))}", seconds * 1e3, "ms"),
    ]
