"""Where a filter was sent. Very many were sent the same ways, and share what says so."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tidings.model.limits import MAX_CACHED_PLACES


class Placed(NamedTuple):
    """The neighbours that have it from here; those that a rule, not the strategy, wants to have it; and all that should
    have it, each with whether it is scoped there."""

    sent: frozenset[str] = frozenset()
    flooded: frozenset[str] = frozenset()
    toward: Mapping[str, bool] = {}


NOWHERE = Placed()


def placed(sent: frozenset[str], flooded: frozenset[str], toward: Mapping[str, bool]) -> Placed:
    return _shared(sent, flooded, tuple(toward.items())) if sent or flooded or toward else NOWHERE


@lru_cache(MAX_CACHED_PLACES)
def _shared(sent: frozenset[str], flooded: frozenset[str], toward: tuple[tuple[str, bool], ...]) -> Placed:
    return Placed(sent, flooded, dict(toward))


@lru_cache(MAX_CACHED_PLACES)
def among(brokers: frozenset[str]) -> frozenset[str]:
    """One set for all filters that came from the same brokers."""
    return brokers
