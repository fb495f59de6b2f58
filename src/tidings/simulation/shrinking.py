"""Shrinking: the fewest of some steps that still go wrong (delta debugging)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

One = TypeVar("One")


def shrunk(steps: Sequence[One], fails: Callable[[tuple[One, ...]], bool], attempts: int = 500) -> tuple[One, ...]:
    """Leaves out what is not needed, in large pieces first; none of what is left can be left out by itself, unless the
    attempts are used up."""
    left, size = tuple(steps), max(1, len(steps) // 2)
    while attempts and left:
        start, found = 0, False
        while start < len(left) and attempts:
            attempts -= 1
            without = left[:start] + left[start + size :]
            if fails(without):
                left, found = without, True
            else:
                start += size
        if size == 1 and not found:
            break
        size = max(1, size // 2)
    return left
