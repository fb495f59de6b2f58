"""Sets of strings by their order: sorted half-open intervals [low, high), by code point; `None` is no end.

The next string after s is s + NUL, and the strings that start with p are those from p to the next string that does
not: equality, order and prefixes are all intervals, exactly.
"""

Interval = tuple[str, str | None]
StringSet = tuple[Interval, ...]  # disjoint, not adjacent, rising

NONE: StringSet = ()
EVERY: StringSet = (("", None),)
_LAST = 0x10FFFF


def exactly(text: str) -> StringSet:
    return ((text, text + "\0"),)


def at_least(text: str) -> StringSet:
    return ((text, None),)


def above(text: str) -> StringSet:
    return ((text + "\0", None),)


def at_most(text: str) -> StringSet:
    return (("", text + "\0"),)


def below(text: str) -> StringSet:
    return (("", text),) if text else NONE


def starting_with(prefix: str) -> StringSet:
    return ((prefix, after_prefix(prefix)),)


def after_prefix(prefix: str) -> str | None:
    """The least string that is greater than every string with this prefix."""
    stem = prefix.rstrip(chr(_LAST))
    return stem[:-1] + next_character(stem[-1]) if stem else None


def next_character(character: str) -> str:
    following = ord(character) + 1
    return chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)  # surrogates are no characters


def intersection(one: StringSet, other: StringSet) -> StringSet:
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low = max(one[i][0], other[j][0])
        high, ends_first = _earlier(one[i][1], other[j][1])
        if high is None or low < high:
            found.append((low, high))
        if ends_first:
            i += 1
        else:
            j += 1
    return tuple(found)


def union(one: StringSet, other: StringSet) -> StringSet:
    joined: list[Interval] = []
    for low, high in sorted(one + other, key=lambda interval: interval[0]):
        if joined and (joined[-1][1] is None or low <= joined[-1][1]):
            joined[-1] = (joined[-1][0], _later(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(one: StringSet) -> StringSet:
    found: list[Interval] = []
    start: str | None = ""
    for low, high in one:
        if start is not None and start < low:
            found.append((start, low))
        start = high
    if start is not None:
        found.append((start, None))
    return tuple(found)


def _earlier(one: str | None, other: str | None) -> tuple[str | None, bool]:
    if other is None:
        return one, True
    return (one, True) if one is not None and one <= other else (other, False)


def _later(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else max(one, other)
