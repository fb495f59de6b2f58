"""Workload W: the subscriptions and events for measurements of matching. The same seed gives the same data everywhere.

There are twenty attributes: a0 is a class with 100 values and a Zipf distribution; a1 to a5 have 20 values each; a6 to
a19 are numbers in [0, 10000). A subscription asks for its class, every second one also for one of a1 to a5, and for two
or three ranges, each about a quarter of the domain wide. An event has its class and 9 to 19 of the other attributes.
About 0.1 % of the subscriptions match an event.
"""

from typing import Any

import numpy as np
import pyarrow as pa

CLASSES, CATEGORICAL, NUMERIC, VALUES, DOMAIN = 100, 5, 14, 20, 10_000.0
ATTRIBUTES = 1 + CATEGORICAL + NUMERIC
SLOTS = 5  # the class, a category, up to three ranges


def subscriptions(count: int, seed: int = 1, width: float = 0.25) -> tuple[Any, Any, Any]:
    """Return the attribute (-1: unused slot), low bound and high bound of each slot; equal bounds mean equality."""
    draw = np.random.default_rng([seed, 0])
    attribute = np.full((count, SLOTS), -1, np.int16)
    low, high = np.zeros((count, SLOTS)), np.zeros((count, SLOTS))
    attribute[:, 0] = 0
    low[:, 0] = high[:, 0] = draw.choice(CLASSES, count, p=zipf())
    second = draw.random(count) < 0.5
    attribute[second, 1] = 1 + draw.integers(0, CATEGORICAL, count)[second]
    low[:, 1] = high[:, 1] = draw.integers(0, VALUES, count)
    third = draw.random(count) < 0.3
    chosen = np.argsort(draw.random((count, NUMERIC), dtype=np.float32), axis=1)[:, :3]
    wide = DOMAIN * width * np.where(third, 1.6, 1.0)[:, None] * draw.uniform(0.5, 1.5, (count, 3))
    start = draw.random((count, 3)) * (DOMAIN - wide)
    for k in range(3):
        used = third if k == 2 else np.ones(count, bool)
        attribute[used, 2 + k] = 1 + CATEGORICAL + chosen[used, k]
        low[:, 2 + k], high[:, 2 + k] = start[:, k], start[:, k] + wide[:, k]
    return attribute, low, high


def events(count: int, seed: int = 1) -> Any:
    """Return events as rows, NaN where an attribute is missing."""
    draw = np.random.default_rng([seed, 1])
    rows = np.full((count, ATTRIBUTES), np.nan)
    rows[:, 0] = draw.choice(CLASSES, count, p=zipf())
    values = np.hstack([draw.integers(0, VALUES, (count, CATEGORICAL)), draw.random((count, NUMERIC)) * DOMAIN])
    rank = np.argsort(np.argsort(draw.random((count, ATTRIBUTES - 1)), axis=1), axis=1)
    present = rank < draw.integers(9, 20, count)[:, None]
    rows[:, 1:] = np.where(present, values, np.nan)
    return rows


def texts(attribute: Any, low: Any, high: Any) -> list[str]:
    """Return each subscription as a filter text."""
    return [_text(*slots) for slots in zip(attribute.tolist(), low.tolist(), high.tolist(), strict=True)]


def table(rows: Any) -> pa.Table:
    """Return events as an Arrow table with one column per attribute."""
    return pa.table({f"a{i}": pa.array(rows[:, i], from_pandas=True) for i in range(rows.shape[1])})


def published(count: int) -> pa.Table:
    """Return events as a table for Spark, with ids, and timestamps a microsecond apart."""
    rows = table(events(count)).append_column("id", pa.array([f"e{number}" for number in range(count)]))
    return rows.append_column("timestamp", pa.array(range(count)))


def dicts(rows: Any) -> list[dict[str, float]]:
    """Return events as dictionaries without the missing attributes."""
    return [{f"a{i}": value for i, value in enumerate(row) if value == value} for row in rows.tolist()]


def loadable(attribute: Any, low: Any, high: Any, chunk: int = 65_536, first: int = 0) -> pa.Table:
    """Return subscriptions as a table for bulk loading, without holding all texts as Python strings at the same time.

    Args:
        attribute: The attribute of each slot; -1: unused.
        low: The low bound of each slot.
        high: The high bound of each slot.
        chunk: The number of subscriptions converted at a time.
        first: The number in the id of the first subscription.
    """
    count = len(attribute)
    starts = range(0, count, chunk)
    content = [
        pa.array(texts(*(column[at : at + chunk] for column in (attribute, low, high))), pa.string()) for at in starts
    ]
    return pa.table(
        {"id": [f"s{i}" for i in range(first, first + count)], "content": pa.chunked_array(content, pa.string())}
    )


def answer(slots: tuple[Any, Any, Any], row: Any) -> Any:
    """Return the positions of the subscriptions that match an event, found by testing all of them."""
    attribute, low, high = slots
    value = row[np.maximum(attribute, 0)]
    return np.flatnonzero(((attribute < 0) | ((value >= low) & (value <= high))).all(axis=1))


def _text(attributes: list[int], lows: list[float], highs: list[float]) -> str:
    slots = [slot for slot in zip(attributes, lows, highs, strict=True) if slot[0] >= 0]
    return " and ".join(f"a{a} = {lo:.0f}" if lo == hi else f"a{a} between {lo!r} and {hi!r}" for a, lo, hi in slots)


def zipf() -> Any:
    """Return the probability of each class."""
    weight = 1 / np.arange(1, CLASSES + 1)
    return weight / weight.sum()
