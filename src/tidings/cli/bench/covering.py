"""How fast filters are compared and merged."""

from itertools import product

from tidings.cli.bench import Measurement, timed
from tidings.cli.bench.language import subscriptions
from tidings.filters import Filter, merge


def measure(count: int) -> list[Measurement]:
    filters = Filter.parse_many(subscriptions(count))
    pairs = list(product(filters[:100], repeat=2))
    covers = timed(lambda: [one.covers(other) for one, other in pairs]) / len(pairs)
    overlaps = timed(lambda: [one.overlaps(other) for one, other in pairs]) / len(pairs)
    cells = [
        Filter.parse(f"x between {i} and {i + 1} and y between {j} and {j + 1} and kind = 'k{(i + j) % 3}'")
        for i, j in product(range(max(2, int(count**0.5))), repeat=2)
    ]
    seconds = timed(lambda: merge(cells))
    return [
        Measurement("covers, two filters of 4 predicates", covers * 1e6, "us"),
        Measurement("overlaps, two filters of 4 predicates", overlaps * 1e6, "us"),
        Measurement(f"merge {len(cells)} filters into {len(merge(cells))}", seconds * 1e3, "ms"),
    ]
