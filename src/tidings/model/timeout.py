"""Time limits that a caller gives, checked."""

from threading import TIMEOUT_MAX
from typing import Any

from tidings.model.errors import InvalidValueError


def checked_timeout(timeout: Any) -> float | None:
    """The seconds to wait; None waits without a limit. An `InvalidValueError` for anything else."""
    return None if timeout is None else _checked_seconds(timeout, "timeout: seconds from 0 on, or None")


def checked_patience(patience: Any) -> float:
    """The seconds for which a first connection is tried. An `InvalidValueError` for anything else."""
    return _checked_seconds(patience, "patience: seconds from 0 on")


def _checked_seconds(seconds: Any, rule: str) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:  # NaN is not
        raise InvalidValueError(f"{rule}, not {seconds!r:.40}")
    return min(seconds, TIMEOUT_MAX)
