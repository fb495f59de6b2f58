"""Clients that move: each subscription is for publishers in a box of 40 km around its client, in a square of 1,000 km.

The content asks for one of four kinds and 40 % of the levels, so that 10 % of the subscriptions match an event by its
content, and 0.16 % of those by where it comes from.
"""

from typing import Any

import numpy as np
import pyarrow as pa

SQUARE, HALF, KINDS, LEVELS = 1000.0, 20, 4, 100.0
BOX = f"x between this.x - {HALF} and this.x + {HALF} and y between this.y - {HALF} and this.y + {HALF}"
# The same for all positions that there are; but it is no plain box, so that no grid can be asked for it.
HIDDEN_BOX = f"({BOX}) or x < -1e300"


def subscriptions(count: int, publishers: str | None, a_client: int = 1, seed: int = 1) -> pa.Table:
    """As the index takes them in bulk; so many of them belong to a client."""
    names = [f"s{i}" for i in range(count)]
    clients = [f"c{i // a_client}" for i in range(count)]
    columns = {"id": names, "content": contents(count, seed), "subscriber": clients}
    return pa.table(columns if publishers is None else {**columns, "publishers": pa.repeat(publishers, count)})


def box(x: float, y: float) -> str:
    """The box around a client that is there, for those who have no `this.`."""
    return f"x between {x - HALF!r} and {x + HALF!r} and y between {y - HALF!r} and {y + HALF!r}"


def contents(count: int, seed: int = 1) -> list[str]:
    draw = np.random.default_rng([seed, 8])
    kinds, low = draw.integers(0, KINDS, count), draw.random(count) * 0.6 * LEVELS
    rows = zip(kinds.tolist(), low.tolist(), (low + 0.4 * LEVELS).tolist(), strict=True)
    return [f"kind = 'k{kind}' and level between {lo!r} and {hi!r}" for kind, lo, hi in rows]


def events(count: int, seed: int = 1) -> pa.Table:
    """With the publisher's position as its context."""
    draw = np.random.default_rng([seed, 9])
    x, y = (pa.array(draw.random(count) * SQUARE) for _ in range(2))
    kinds = [f"k{kind}" for kind in draw.integers(0, KINDS, count).tolist()]
    context = pa.StructArray.from_arrays([x, y], ["x", "y"])
    return pa.table({"kind": kinds, "level": draw.random(count) * LEVELS, "context": context})


def everyone(clients: int, seed: int = 1) -> pa.Table:
    """A position for each client."""
    return _positions([f"c{i}" for i in range(clients)], np.random.default_rng([seed, 10]))


def moves(count: int, clients: int, seed: int = 1) -> pa.Table:
    """New positions, in the order in which they come in; a client may be heard of more than once, or not at all."""
    draw = np.random.default_rng([seed, 11])
    return _positions([f"c{i}" for i in draw.integers(0, clients, count).tolist()], draw)


def _positions(clients: list[str], draw: Any) -> pa.Table:
    x, y = (draw.random(len(clients)) * SQUARE for _ in range(2))
    return pa.table({"client": clients, "x": x, "y": y})
