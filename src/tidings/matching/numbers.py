"""Sets of numbers, exactly: sorted closed intervals over everything that an int of 64 bits or a finite float can be.

That domain is discrete: each number has a next one. Between -2^53 and 2^53 floats lie at least as densely as
integers, further out the integers do, and beyond 64 bits only floats are left. So `x < 5` is `x <= ` the number
before 5, complements and unions are exact, and `x > 9007199254740992 AND x < 9007199254740993` is known to be
empty.
"""

import math
import sys

from tidings.model.limits import MAX_INTEGER, MIN_INTEGER

Number = int | float
Interval = tuple[Number, Number]
NumberSet = tuple[Interval, ...]  # disjoint, not adjacent, rising

LEAST, GREATEST = -sys.float_info.max, sys.float_info.max
NONE: NumberSet = ()
EVERY: NumberSet = ((LEAST, GREATEST),)
_DENSE = 2**53


def after(number: Number) -> Number | None:
    """The next number, or None after the greatest."""
    if -_DENSE <= number < _DENSE:
        return math.nextafter(number, math.inf)
    if MIN_INTEGER <= number < MAX_INTEGER:
        return int(number) + 1
    if number == MAX_INTEGER:
        return float(2**63)
    following = math.nextafter(number, math.inf)
    return None if math.isinf(following) else following


def before(number: Number) -> Number | None:
    """The number before, or None before the least."""
    if number == 2**63:  # the two ends of the integers are not each other's mirror image
        return MAX_INTEGER
    if number == MIN_INTEGER:
        return math.nextafter(MIN_INTEGER, -math.inf)
    mirrored = after(-number)
    return None if mirrored is None else -mirrored


def at_least(number: Number) -> NumberSet:
    return ((number, GREATEST),)


def at_most(number: Number) -> NumberSet:
    return ((LEAST, number),)


def exactly(number: Number) -> NumberSet:
    return ((number, number),)


def above(number: Number) -> NumberSet:
    following = after(number)
    return NONE if following is None else at_least(following)


def below(number: Number) -> NumberSet:
    preceding = before(number)
    return NONE if preceding is None else at_most(preceding)


def intersection(one: NumberSet, other: NumberSet) -> NumberSet:
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def union(one: NumberSet, other: NumberSet) -> NumberSet:
    joined: list[Interval] = []
    for low, high in sorted(one + other):
        following = after(joined[-1][1]) if joined else None
        if joined and (following is None or low <= following):
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(one: NumberSet) -> NumberSet:
    found: list[Interval] = []
    start: Number | None = LEAST
    for low, high in one:
        preceding = before(low)
        if start is not None and preceding is not None and start <= preceding:
            found.append((start, preceding))
        start = after(high)
    if start is not None:
        found.append((start, GREATEST))
    return tuple(found)
