"""Durations as people write them: `10 seconds`, `1 day`."""

import re

from tidings.model.errors import InvalidValueError

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_WRITTEN = re.compile(r"(\d{1,9})\s+([a-z]+?)s?")


def microseconds_of(text: str, name: str) -> int:
    """`name` is what the duration is for, for the error."""
    found = _WRITTEN.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise InvalidValueError(f"{name}: a number and a unit, such as '10 seconds' or '1 hour', not {text!r}")
    return int(found[1]) * _UNITS[found[2]]
