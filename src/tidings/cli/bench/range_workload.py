"""Subscriptions of ranges alone, with nothing to look up: in the shape of workload W, so its texts and tables serve.

Fourteen numbers in [0, 10000). A subscription asks for ranges of two, three or four of them, an event has seven to all
of them. However many ranges it asks for, a subscription matches 0.07 % of the events on average.
"""

from math import comb
from typing import Any

import numpy as np

ATTRIBUTES, DOMAIN, SELECTIVITY = 14, 10_000.0, 0.0007
SLOTS = 4
_FEWEST = 7  # attributes of an event


def subscriptions(count: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """Attribute (-1: slot unused), low and high bound of each slot."""
    draw = np.random.default_rng([seed, 2])
    asked = draw.choice([2, 3, 4], count, p=[0.25, 0.5, 0.25])
    attribute = np.argsort(draw.random((count, ATTRIBUTES), dtype=np.float32), axis=1)[:, :SLOTS].astype(np.int16)
    attribute[np.arange(SLOTS) >= asked[:, None]] = -1
    width = np.array([0, 0, *(_width(ranges) for ranges in (2, 3, 4))])[asked]
    wide = DOMAIN * width[:, None] * draw.uniform(0.5, 1.5, (count, SLOTS))
    low = draw.random((count, SLOTS)) * (DOMAIN - wide)
    return attribute, low, low + wide


def events(count: int, seed: int = 1) -> Any:
    """A row an event, NaN where an attribute is missing."""
    draw = np.random.default_rng([seed, 3])
    rank = np.argsort(np.argsort(draw.random((count, ATTRIBUTES)), axis=1), axis=1)
    present = rank < draw.integers(_FEWEST, ATTRIBUTES + 1, count)[:, None]
    return np.where(present, draw.random((count, ATTRIBUTES)) * DOMAIN, np.nan)


def _width(ranges: int) -> float:
    """How wide each range is, as a share of the domain, so that together they leave `SELECTIVITY`."""
    sizes = range(_FEWEST, ATTRIBUTES + 1)
    all_present = sum(comb(size, ranges) for size in sizes) / len(sizes) / comb(ATTRIBUTES, ranges)
    return float((SELECTIVITY / all_present) ** (1 / ranges))
