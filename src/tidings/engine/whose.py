"""Whose a filter is. Very many are of clients like any other, and share what says so."""

from functools import lru_cache
from typing import NamedTuple

from tidings.model.limits import MAX_CACHED_PLACES


class Whose(NamedTuple):
    origin: str  # the broker whose client's it is
    is_own: bool  # that broker's itself
    governs: bool  # whether its owner's rules may decide for others


@lru_cache(MAX_CACHED_PLACES)
def whose(origin: str, is_own: bool, governs: bool) -> Whose:
    return Whose(origin, is_own, governs)
