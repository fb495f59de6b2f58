"""Is there a string in this interval that has all of these patterns and none of those?

Each pattern runs as a set of positions, kept as the bits of an integer, and all of them run side by side over every
string at once: a breadth-first search over the characters that make a difference. The answer is exact; past
MAX_PATTERN_STEPS it is a cautious yes.
"""

from functools import lru_cache
from typing import NamedTuple

from tidings.matching.strings import Interval, next_character
from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_PATTERN_STEPS
from tidings.model.patterns import Elements, Wild


@lru_cache(MAX_CACHED_PATTERNS)
def may_exist(interval: Interval, required: frozenset[Elements], excluded: frozenset[Elements]) -> bool:
    if required & excluded or any(_implies(one, other) for one in required for other in excluded):
        return False
    return _search(interval, required, excluded)


@lru_cache(MAX_CACHED_PATTERNS)
def _implies(one: Elements, other: Elements) -> bool:
    """Whether every string that has the one pattern has the other; seen early, it spares a longer search."""
    return not _search(("", None), frozenset({one}), frozenset({other}))


def _search(interval: Interval, required: frozenset[Elements], excluded: frozenset[Elements]) -> bool:
    low, high = interval
    wanted, unwanted = [_compile(one) for one in required], [_compile(one) for one in excluded]
    alphabet = _alphabet(low, high, required | excluded)
    start = _State(0, 0, tuple(one.start for one in wanted), tuple(one.start for one in unwanted))
    pending, seen, steps = [start], {start}, 0
    for state in pending:  # grows while it is walked
        if _accepts(state, low, high, wanted, unwanted):
            return True
        steps += len(alphabet)
        if steps > MAX_PATTERN_STEPS:
            return True
        for character in alphabet:
            following = _step(state, character, low, high, wanted, unwanted)
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return False


class _State(NamedTuple):
    """How far along everything is. A bound is followed while the string equals it so far; -1 is 'decided, and well'."""

    low: int
    high: int
    wanted: tuple[int, ...]
    unwanted: tuple[int, ...]


class _Automaton(NamedTuple):
    start: int
    accept: int
    steps: dict[str, int]  # character -> positions that it alone moves on
    any: int  # positions that any character moves on
    run: int  # positions that any character leaves
    level: int  # positions that any character but a slash leaves

    def after(self, positions: int, character: str) -> int:
        stay = self.run if character == "/" else self.run | self.level
        moved = (positions & (self.steps.get(character, 0) | self.any)) << 1 | positions & stay
        return _skipped(moved, self.run | self.level)


def _skipped(positions: int, empty: int) -> int:
    """Runs may be empty: whoever stands before one stands behind it too."""
    while (further := positions | (positions & empty) << 1) != positions:
        positions = further
    return positions


@lru_cache(MAX_CACHED_PATTERNS)
def _compile(elements: Elements) -> _Automaton:
    steps: dict[str, int] = {}
    wild = dict.fromkeys(Wild, 0)
    for place, element in enumerate(elements):
        if isinstance(element, Wild):
            wild[element] |= 1 << place
        else:
            steps[element] = steps.get(element, 0) | 1 << place
    run, level = wild[Wild.RUN], wild[Wild.LEVEL]
    return _Automaton(_skipped(1, run | level), 1 << len(elements), steps, wild[Wild.ANY], run, level)


def _alphabet(low: str, high: str | None, patterns: frozenset[Elements]) -> list[str]:
    """Every character that is mentioned, and one for each stretch of characters between them that is not."""
    mentioned = {element for elements in patterns for element in elements if isinstance(element, str)}
    mentioned.update(low, high or "")
    if any(Wild.LEVEL in elements for elements in patterns):
        mentioned.add("/")
    between = {"\0"} | {next_character(one) for one in mentioned if one != chr(0x10FFFF)}
    return sorted(mentioned | between)


def _step(
    state: _State, character: str, low: str, high: str | None, wanted: list[_Automaton], unwanted: list[_Automaton]
) -> _State | None:
    low_at, high_at = state.low, state.high
    if 0 <= low_at < len(low):
        if character < low[low_at]:
            return None
        low_at = low_at + 1 if character == low[low_at] else -1
    if high is not None and high_at >= 0:
        if character > high[high_at] or (character == high[high_at] and high_at + 1 == len(high)):
            return None
        high_at = high_at + 1 if character == high[high_at] else -1
    required = tuple(one.after(positions, character) for one, positions in zip(wanted, state.wanted, strict=True))
    if 0 in required:
        return None
    excluded = tuple(one.after(positions, character) for one, positions in zip(unwanted, state.unwanted, strict=True))
    return _State(low_at if low_at < len(low) else -1, high_at, required, excluded)


def _accepts(state: _State, low: str, high: str | None, wanted: list[_Automaton], unwanted: list[_Automaton]) -> bool:
    return (
        (state.low < 0 or state.low == len(low))
        and high != ""
        and all(positions & one.accept for one, positions in zip(wanted, state.wanted, strict=True))
        and not any(positions & one.accept for one, positions in zip(unwanted, state.unwanted, strict=True))
    )
