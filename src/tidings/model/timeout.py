"""Time limits that a caller gives, checked."""

from threading import TIMEOUT_MAX
from typing import Any

from tidings.model.errors import InvalidValueError


def checked_timeout(timeout: Any) -> float | None:
    """The seconds to wait; None waits without a limit. An `InvalidValueError` for anything else."""
    return None if timeout is None else checked_seconds(timeout, "timeout", ", or None")


def checked_seconds(seconds: Any, name: str, others: str = "") -> float:
    """A number of seconds, at most as many as a thread can wait. An `InvalidValueError` for anything else.

    Args:
        seconds: The number.
        name: What it is for, in the error.
        others: What else may be given, in the error.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:  # NaN is not
        raise InvalidValueError(f"{name}: seconds from 0 on{others}, not {seconds!r:.40}")
    return min(seconds, TIMEOUT_MAX)
