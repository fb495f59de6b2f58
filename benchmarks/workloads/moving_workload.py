"""The moving workload: clients in a square of 1,000 km that subscribe to events from a box of 40 km around them.

The content asks for one of four kinds and for 40 % of the levels. So 10 % of the subscriptions match an event by its
content, and 0.16 % of these also by its position.
"""

from typing import Any

import numpy as np
import pyarrow as pa

SQUARE, HALF, KINDS, LEVELS = 1000.0, 20, 4, 100.0
BOX = f"x between this.x - {HALF} and this.x + {HALF} and y between this.y - {HALF} and this.y + {HALF}"
# Equivalent to BOX for all positions of the workload, but not recognised as a box, so that the index uses no grid.
HIDDEN_BOX = f"({BOX}) or x < -1e300"


def subscriptions(count: int, publishers: str | None, a_client: int = 1, seed: int = 1) -> pa.Table:
    """Return subscriptions as a table for bulk loading.

    Args:
        count: The number of subscriptions.
        publishers: The filter of publishers' contexts; None: none.
        a_client: The number of subscriptions per client.
        seed: The seed of the random numbers.
    """
    names = [f"s{i}" for i in range(count)]
    clients = [f"c{i // a_client}" for i in range(count)]
    columns = {"id": names, "content": contents(count, seed), "subscriber": clients}
    return pa.table(columns if publishers is None else {**columns, "publishers": pa.repeat(publishers, count)})


def box(x: float, y: float) -> str:
    """Return the box around a position as a filter with constants, for clients that do not use `this.`."""
    return f"x between {x - HALF!r} and {x + HALF!r} and y between {y - HALF!r} and {y + HALF!r}"


def contents(count: int, seed: int = 1) -> list[str]:
    """Return the content filters of the subscriptions."""
    draw = np.random.default_rng([seed, 8])
    kinds, low = draw.integers(0, KINDS, count), draw.random(count) * 0.6 * LEVELS
    rows = zip(kinds.tolist(), low.tolist(), (low + 0.4 * LEVELS).tolist(), strict=True)
    return [f"kind = 'k{kind}' and level between {lo!r} and {hi!r}" for kind, lo, hi in rows]


def events(count: int, seed: int = 1) -> pa.Table:
    """Return events with the publisher's position as context."""
    draw = np.random.default_rng([seed, 9])
    x, y = (pa.array(draw.random(count) * SQUARE) for _ in range(2))
    kinds = [f"k{kind}" for kind in draw.integers(0, KINDS, count).tolist()]
    context = pa.StructArray.from_arrays([x, y], ["x", "y"])
    return pa.table({"kind": kinds, "level": draw.random(count) * LEVELS, "context": context})


def everyone(clients: int, seed: int = 1) -> pa.Table:
    """Return a first position for each client."""
    return _positions([f"c{i}" for i in range(clients)], np.random.default_rng([seed, 10]))


def moves(count: int, clients: int, seed: int = 1) -> pa.Table:
    """Return new positions in order of arrival; a client may move several times or not at all."""
    draw = np.random.default_rng([seed, 11])
    return _positions([f"c{i}" for i in draw.integers(0, clients, count).tolist()], draw)


def _positions(clients: list[str], draw: Any) -> pa.Table:
    x, y = (draw.random(len(clients)) * SQUARE for _ in range(2))
    return pa.table({"client": clients, "x": x, "y": y})
