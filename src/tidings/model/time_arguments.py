"""Checks of the time limits and start times that callers pass in."""

from datetime import UTC, datetime
from threading import TIMEOUT_MAX
from typing import Any

from tidings.model.errors import InvalidValueError
from tidings.model.receipt import Receipt


def checked_timeout(timeout: Any) -> float | None:
    """Return a timeout in seconds, or None for no limit; raise an `InvalidValueError` for anything else."""
    return None if timeout is None else checked_seconds(timeout, "timeout", ", or None")


def checked_seconds(seconds: Any, name: str, others: str = "") -> float:
    """Return a number of seconds, at most as many as a thread can wait.

    Args:
        seconds: The number to check.
        name: The name of the argument, for the error message.
        others: Other values that the argument accepts, for the error message.

    Raises:
        InvalidValueError: `seconds` is not a number, or is negative.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:  # refuses NaN, too
        raise InvalidValueError(f"{name}: seconds from 0 on{others}, not {seconds!r:.40}")
    return min(seconds, TIMEOUT_MAX)


Since = datetime | int | Receipt | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_of(since: Since) -> tuple[int, int]:
    """Return the journal offset and the time in microseconds at which `since` starts; the other one of the two is 0.

    Raises an `InvalidValueError` for a naive datetime or another type.
    """
    match since:
        case None:
            return 0, 0
        case Receipt():
            return max(0, since.offset), 0
        case datetime():
            if since.tzinfo is None:
                raise InvalidValueError("since: a datetime needs a time zone, such as datetime.now(UTC)")
            passed = since - _EPOCH
            return 0, (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        case bool():
            pass
        case int():
            return 0, since
    raise InvalidValueError("since: a datetime, microseconds since 1970, or the Receipt of a publication")
