"""An overlay of simulated brokers, in memory and in virtual time, for tests."""

from collections.abc import Callable
from typing import Any, Literal

from tidings.model.errors import InvalidValueError
from tidings.simulation import World
from tidings.simulation.topologies import Topology, line, ring, star, tree

_SHAPES: dict[str, Callable[[int], Topology]] = {"line": line, "ring": ring, "star": star, "tree": tree}


def overlay(
    brokers: int = 3, topology: Literal["line", "ring", "star", "tree"] | Topology = "line", **options: Any
) -> World:
    """Create an overlay of brokers b1, b2, ... in this process, whose routing tables are complete.

    Nothing waits and nothing is random: time passes in `run` and `settle`, and the same calls give the same run.

    Args:
        brokers: The number of brokers, where `topology` is the name of a shape.
        topology: How they are linked.
        options: Those of `tidings.simulation.World`: `strategy`, `seed`, `loss`, `settings`, `trust`, ...
    """
    if isinstance(topology, str) and topology not in _SHAPES:
        raise InvalidValueError(f"topology: {topology!r} is none of {', '.join(_SHAPES)}, and no Topology")
    world = World(_SHAPES[topology](brokers) if isinstance(topology, str) else topology, **options)
    world.settle()
    return world
