"""The range workload: subscriptions of ranges only, without equality. Its tables have the same form as workload W's.

There are fourteen numbers in [0, 10000). A subscription has ranges of two, three or four of them; an event has seven to
fourteen of them. However many ranges it has, a subscription matches 0.07 % of the events on average.
"""

from math import comb
from typing import Any

import numpy as np

ATTRIBUTES, DOMAIN, SELECTIVITY = 14, 10_000.0, 0.0007
SLOTS = 4
_FEWEST = 7  # least number of attributes of an event


def subscriptions(count: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """Return the attribute (-1: unused slot), low bound and high bound of each slot of each subscription."""
    draw = np.random.default_rng([seed, 2])
    ranges_of = draw.choice([2, 3, 4], count, p=[0.25, 0.5, 0.25])
    attribute = np.argsort(draw.random((count, ATTRIBUTES), dtype=np.float32), axis=1)[:, :SLOTS].astype(np.int16)
    attribute[np.arange(SLOTS) >= ranges_of[:, None]] = -1
    width = np.array([0, 0, *(_width(ranges) for ranges in (2, 3, 4))])[ranges_of]
    widths = DOMAIN * width[:, None] * draw.uniform(0.5, 1.5, (count, SLOTS))
    low = draw.random((count, SLOTS)) * (DOMAIN - widths)
    return attribute, low, low + widths


def events(count: int, seed: int = 1) -> Any:
    """Return events as rows, NaN where an attribute is missing."""
    draw = np.random.default_rng([seed, 3])
    rank = np.argsort(np.argsort(draw.random((count, ATTRIBUTES)), axis=1), axis=1)
    present = rank < draw.integers(_FEWEST, ATTRIBUTES + 1, count)[:, None]
    return np.where(present, draw.random((count, ATTRIBUTES)) * DOMAIN, np.nan)


def _width(ranges: int) -> float:
    """Return the width of each range, as a share of the domain, so that a subscription matches `SELECTIVITY` of the
    events."""
    sizes = range(_FEWEST, ATTRIBUTES + 1)
    all_present = sum(comb(size, ranges) for size in sizes) / len(sizes) / comb(ATTRIBUTES, ranges)
    return float((SELECTIVITY / all_present) ** (1 / ranges))
