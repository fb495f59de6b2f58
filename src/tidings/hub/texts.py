"""What callers of a hub may give beside filters and policies: limits, times to wait, callbacks; checked."""

from typing import Any

from tidings.model.errors import InvalidValueError
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS


def inbox_limit(limit: Any) -> int:
    if limit is None:
        return DEFAULT_INBOX_NOTIFICATIONS
    if type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS:
        raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
    return limit


def checked_callback(callback: Any) -> Any:
    if callback is not None and not callable(callback):
        raise InvalidValueError(f"callback: a function of a notification, not {type(callback).__name__}")
    return callback


def is_safe(safe: Any) -> bool:
    """Whether to wait for the disk."""
    if safe not in ("journaled", "accepted"):
        raise InvalidValueError(f"safe: must be 'journaled' or 'accepted', not {safe!r}")
    return bool(safe == "journaled")
