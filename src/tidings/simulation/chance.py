"""Chance: the only file of the simulation that draws numbers, every one of them determined by a seed."""

from random import Random as Random


def drawn_from(seed: int, purpose: str) -> Random:
    """A source of its own for each purpose: what is drawn for one does not change what is drawn for another."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - to be replayed, not to be secret
