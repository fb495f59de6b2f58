"""Validation of arguments other than filters and policies: inbox limits, callbacks, durability."""

from typing import Any

from tidings.model.errors import InvalidValueError
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS


def inbox_limit(limit: Any) -> int:
    """Return the checked limit of an inbox, or the default for None."""
    if limit is None:
        return DEFAULT_INBOX_NOTIFICATIONS
    if type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS:
        raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
    return limit


def checked_callback(callback: Any) -> Any:
    """Return the callback; raise `InvalidValueError` if it is not callable."""
    if callback is not None and not callable(callback):
        raise InvalidValueError(f"callback: a function of a notification, not {type(callback).__name__}")
    return callback


def waits_for_disk(safe: Any) -> bool:
    """Return whether the caller waits for the disk: True for "journaled", False for "accepted"."""
    if safe not in ("journaled", "accepted"):
        raise InvalidValueError(f"safe: must be 'journaled' or 'accepted', not {safe!r}")
    return bool(safe == "journaled")
