"""What callers of a hub may give: filters and policies, as text or as a value, and the rest of it; read and checked."""

from functools import lru_cache
from threading import TIMEOUT_MAX
from typing import Any

from tidings.filters import ContextFilter, Filter
from tidings.model import filter as values
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_policy
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS
from tidings.policy.policy import Policy


def policy_text(policy: Any) -> str | None:
    """The canonical text of a policy, however it is given; a `PolicyError` if it cannot be read."""
    if policy is None:
        return None
    if isinstance(policy, Policy):
        return checked_policy(str(policy))
    if not isinstance(policy, str):
        raise InvalidValueError(f"policy: must be a text or a Policy, not {type(policy).__name__}")
    return _canonical(policy)


def content_filter(content: Any, format: str = "sql") -> values.Filter:  # noqa: A002
    return Filter.parse(content, format) if isinstance(content, str) else content


def context_filter(text: Any) -> values.ContextFilter | None:
    if text is None or isinstance(text, values.ContextFilter):
        return text
    if not isinstance(text, str):
        raise InvalidValueError(f"a context filter is a text or a ContextFilter, not {type(text).__name__}")
    return _context(text)


def inbox_limit(limit: Any) -> int:
    if limit is None:
        return DEFAULT_INBOX_NOTIFICATIONS
    if type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS:
        raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
    return limit


def checked_timeout(timeout: Any) -> float | None:
    """How many seconds to wait; None: for ever."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:  # NaN is not
        raise InvalidValueError(f"timeout: seconds from 0 on, or None, not {timeout!r:.40}")
    return min(timeout, TIMEOUT_MAX)


def checked_callback(callback: Any) -> Any:
    if callback is not None and not callable(callback):
        raise InvalidValueError(f"callback: a function of a notification, not {type(callback).__name__}")
    return callback


def is_safe(safe: Any) -> bool:
    """Whether to wait for the disk."""
    if safe not in ("journaled", "accepted"):
        raise InvalidValueError(f"safe: must be 'journaled' or 'accepted', not {safe!r}")
    return bool(safe == "journaled")


@lru_cache(1024)
def _canonical(text: str) -> str | None:
    return checked_policy(str(Policy.parse(text)))


@lru_cache(1024)
def _context(text: str) -> values.ContextFilter:
    return ContextFilter.parse(text)
