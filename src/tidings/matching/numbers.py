"""Exact sets of numbers: sorted closed intervals over all 64-bit integers and finite floats.

That domain is discrete: each number has a successor. Between -2^53 and 2^53 every integer is a float, so the successor
is the next float; further out it is the next integer, and beyond 64 bits only floats are left. So `x < 5` is `x <=` the
predecessor of 5, complements and unions are exact, and `x > 9007199254740992 AND x < 9007199254740993` is found to be
empty.
"""

import math
import sys

from tidings.model.limits import MAX_INTEGER, MIN_INTEGER

Number = int | float
Interval = tuple[Number, Number]
NumberSet = tuple[Interval, ...]  # disjoint, not adjacent, ascending

LEAST, GREATEST = -sys.float_info.max, sys.float_info.max
NONE: NumberSet = ()
EVERY: NumberSet = ((LEAST, GREATEST),)
_DENSE = 2**53


def after(number: Number) -> Number | None:
    """Return the next number, or None after the greatest."""
    if -_DENSE <= number < _DENSE:
        return math.nextafter(number, math.inf)
    if MIN_INTEGER <= number < MAX_INTEGER:
        return int(number) + 1
    if number == MAX_INTEGER:
        return float(2**63)
    following = math.nextafter(number, math.inf)
    return None if math.isinf(following) else following


def before(number: Number) -> Number | None:
    """Return the previous number, or None before the least."""
    if number == 2**63:  # the 64-bit integers are not symmetric around 0
        return MAX_INTEGER
    if number == MIN_INTEGER:
        return math.nextafter(MIN_INTEGER, -math.inf)
    mirrored = after(-number)
    return None if mirrored is None else -mirrored


def at_least(number: Number) -> NumberSet:
    """Return the set of numbers that are `>= number`."""
    return ((number, GREATEST),)


def at_most(number: Number) -> NumberSet:
    """Return the set of numbers that are `<= number`."""
    return ((LEAST, number),)


def exactly(number: Number) -> NumberSet:
    """Return the set of this one number."""
    return ((number, number),)


def above(number: Number) -> NumberSet:
    """Return the set of numbers that are `> number`."""
    following = after(number)
    return NONE if following is None else at_least(following)


def below(number: Number) -> NumberSet:
    """Return the set of numbers that are `< number`."""
    preceding = before(number)
    return NONE if preceding is None else at_most(preceding)


def intersection(left: NumberSet, right: NumberSet) -> NumberSet:
    """Return the numbers that are in both sets."""
    intervals: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            intervals.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(intervals)


def union(left: NumberSet, right: NumberSet) -> NumberSet:
    """Return the numbers that are in either set; the intervals of `left` may be unsorted and overlap."""
    joined: list[Interval] = []
    for low, high in sorted(left + right):
        following = after(joined[-1][1]) if joined else None
        if joined and (following is None or low <= following):
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(numbers: NumberSet) -> NumberSet:
    """Return the numbers that are not in the set."""
    intervals: list[Interval] = []
    start: Number | None = LEAST
    for low, high in numbers:
        preceding = before(low)
        if start is not None and preceding is not None and start <= preceding:
            intervals.append((start, preceding))
        start = after(high)
    if start is not None:
        intervals.append((start, GREATEST))
    return tuple(intervals)
