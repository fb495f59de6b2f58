"""Decide whether an interval of strings contains one that matches some patterns and does not match others.

Each pattern is a non-deterministic automaton whose set of positions is the bits of an integer. A breadth-first search
runs all automata side by side over all strings, one step for each character that makes a difference. The answer is
exact; after MAX_PATTERN_STEPS the search gives up and returns True.
"""

from functools import lru_cache
from typing import NamedTuple

from tidings.matching.strings import Interval, next_character
from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_PATTERN_STEPS
from tidings.model.patterns import Elements, Wildcard


@lru_cache(MAX_CACHED_PATTERNS)
def may_exist(interval: Interval, required: frozenset[Elements], excluded: frozenset[Elements]) -> bool:
    """Return whether a string in the interval may match all `required` patterns and none of the `excluded` ones."""
    if required & excluded or any(_implies(elements, other) for elements in required for other in excluded):
        return False
    return _search(interval, required, excluded)


@lru_cache(MAX_CACHED_PATTERNS)
def _implies(narrower: Elements, wider: Elements) -> bool:
    """Return whether every string that matches `narrower` matches `wider`: checked first, it saves a longer search."""
    return not _search(("", None), frozenset({narrower}), frozenset({wider}))


def _search(interval: Interval, required: frozenset[Elements], excluded: frozenset[Elements]) -> bool:
    low, high = interval
    required_automata = [_compile(elements) for elements in required]
    excluded_automata = [_compile(elements) for elements in excluded]
    alphabet = _alphabet(low, high, required | excluded)
    start = _State(
        0,
        0,
        tuple(automaton.start for automaton in required_automata),
        tuple(automaton.start for automaton in excluded_automata),
    )
    pending, visited, steps = [start], {start}, 0
    for state in pending:  # the loop appends to it
        if _accepts(state, low, high, required_automata, excluded_automata):
            return True
        steps += len(alphabet)
        if steps > MAX_PATTERN_STEPS:
            return True
        for character in alphabet:
            following = _step(state, character, low, high, required_automata, excluded_automata)
            if following is not None and following not in visited:
                visited.add(following)
                pending.append(following)
    return False


class _State(NamedTuple):
    """The state of the search: positions in both bounds and in all automata.

    A bound is compared while the string so far equals its beginning; -1 means that the string is known to lie inside
    it.
    """

    low: int
    high: int
    required: tuple[int, ...]
    excluded: tuple[int, ...]


class _Automaton(NamedTuple):
    """A pattern compiled to bit masks over its positions."""

    start: int
    accept: int
    steps: dict[str, int]  # character -> positions that only this character advances
    any: int  # positions that any character advances
    run: int  # positions at a run, which any character may extend
    level: int  # positions at a level, which any character but a slash may extend

    def after(self, positions: int, character: str) -> int:
        """Return the positions after reading a character."""
        stay = self.run if character == "/" else self.run | self.level
        moved = (positions & (self.steps.get(character, 0) | self.any)) << 1 | positions & stay
        return _skipped(moved, self.run | self.level)


def _skipped(positions: int, empty: int) -> int:
    """Add the positions behind runs and levels, which may be empty."""
    while (further := positions | (positions & empty) << 1) != positions:
        positions = further
    return positions


@lru_cache(MAX_CACHED_PATTERNS)
def _compile(elements: Elements) -> _Automaton:
    steps: dict[str, int] = {}
    wild = dict.fromkeys(Wildcard, 0)
    for place, element in enumerate(elements):
        if isinstance(element, Wildcard):
            wild[element] |= 1 << place
        else:
            steps[element] = steps.get(element, 0) | 1 << place
    run, level = wild[Wildcard.RUN], wild[Wildcard.LEVEL]
    return _Automaton(_skipped(1, run | level), 1 << len(elements), steps, wild[Wildcard.ANY], run, level)


def _alphabet(low: str, high: str | None, patterns: frozenset[Elements]) -> list[str]:
    """Return every character that is mentioned, and one for each range of characters between these."""
    mentioned = {element for elements in patterns for element in elements if isinstance(element, str)}
    mentioned.update(low, high or "")
    if any(Wildcard.LEVEL in elements for elements in patterns):
        mentioned.add("/")
    between = {"\0"} | {next_character(character) for character in mentioned if character != chr(0x10FFFF)}
    return sorted(mentioned | between)


def _step(
    state: _State,
    character: str,
    low: str,
    high: str | None,
    required_automata: list[_Automaton],
    excluded_automata: list[_Automaton],
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
    required = tuple(
        automaton.after(positions, character)
        for automaton, positions in zip(required_automata, state.required, strict=True)
    )
    if 0 in required:
        return None
    excluded = tuple(
        automaton.after(positions, character)
        for automaton, positions in zip(excluded_automata, state.excluded, strict=True)
    )
    return _State(low_at if low_at < len(low) else -1, high_at, required, excluded)


def _accepts(
    state: _State, low: str, high: str | None, required_automata: list[_Automaton], excluded_automata: list[_Automaton]
) -> bool:
    return (
        (state.low < 0 or state.low == len(low))
        and high != ""
        and all(
            positions & automaton.accept for automaton, positions in zip(required_automata, state.required, strict=True)
        )
        and not any(
            positions & automaton.accept for automaton, positions in zip(excluded_automata, state.excluded, strict=True)
        )
    )
