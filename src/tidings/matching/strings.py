"""Exact sets of strings: sorted half-open intervals [low, high) by code point; a high of `None` is no upper bound.

The successor of a string s is s + NUL, and the strings with the prefix p are those from p up to the first string after
them. So equality, order and prefixes are all exact intervals.
"""

Interval = tuple[str, str | None]
StringSet = tuple[Interval, ...]  # disjoint, not adjacent, ascending

NONE: StringSet = ()
EVERY: StringSet = (("", None),)
_LAST = 0x10FFFF


def exactly(text: str) -> StringSet:
    """Return the set of this one string."""
    return ((text, text + "\0"),)


def at_least(text: str) -> StringSet:
    """Return the set of strings that are `>= text`."""
    return ((text, None),)


def above(text: str) -> StringSet:
    """Return the set of strings that are `> text`."""
    return ((text + "\0", None),)


def at_most(text: str) -> StringSet:
    """Return the set of strings that are `<= text`."""
    return (("", text + "\0"),)


def below(text: str) -> StringSet:
    """Return the set of strings that are `< text`."""
    return (("", text),) if text else NONE


def starting_with(prefix: str) -> StringSet:
    """Return the set of strings with this prefix."""
    return ((prefix, after_prefix(prefix)),)


def after_prefix(prefix: str) -> str | None:
    """Return the least string that is greater than every string with this prefix; None if there is none."""
    stem = prefix.rstrip(chr(_LAST))
    return stem[:-1] + next_character(stem[-1]) if stem else None


def next_character(character: str) -> str:
    """Return the next code point that is a character; surrogates are skipped."""
    following = ord(character) + 1
    return chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)


def intersection(left: StringSet, right: StringSet) -> StringSet:
    """Return the strings that are in both sets."""
    intervals: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high, ends_first = _earlier(left[i][1], right[j][1])
        if high is None or low < high:
            intervals.append((low, high))
        if ends_first:
            i += 1
        else:
            j += 1
    return tuple(intervals)


def union(left: StringSet, right: StringSet) -> StringSet:
    """Return the strings that are in either set; the intervals of `left` may be unsorted and overlap."""
    joined: list[Interval] = []
    for low, high in sorted(left + right, key=lambda interval: interval[0]):
        if joined and (joined[-1][1] is None or low <= joined[-1][1]):
            joined[-1] = (joined[-1][0], _later(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(strings: StringSet) -> StringSet:
    """Return the strings that are not in the set."""
    intervals: list[Interval] = []
    start: str | None = ""
    for low, high in strings:
        if start is not None and start < low:
            intervals.append((start, low))
        start = high
    if start is not None:
        intervals.append((start, None))
    return tuple(intervals)


def _earlier(left: str | None, right: str | None) -> tuple[str | None, bool]:
    if right is None:
        return left, True
    return (left, True) if left is not None and left <= right else (right, False)


def _later(left: str | None, right: str | None) -> str | None:
    return None if left is None or right is None else max(left, right)
