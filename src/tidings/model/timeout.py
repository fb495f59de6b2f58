"""Time limits that a caller gives, checked."""

from threading import TIMEOUT_MAX
from typing import Any

from tidings.model.errors import InvalidValueError


def checked_timeout(timeout: Any) -> float | None:
    """The seconds to wait; None waits without a limit. An `InvalidValueError` for anything else."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:  # NaN is not
        raise InvalidValueError(f"timeout: seconds from 0 on, or None, not {timeout!r:.40}")
    return min(timeout, TIMEOUT_MAX)
