"""Random numbers of the simulation, all determined by a seed. No other file of the simulation draws any."""

from random import Random as Random


def seeded_random(seed: int, purpose: str) -> Random:
    """Return a random generator for one purpose. What is drawn for one purpose does not change what another one
    draws."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - to be replayed, not to be secret
