"""What callers of a driver may give as text or as a value: filters and policies, read and checked."""

from functools import lru_cache
from typing import Any

from tidings.filters import ContextFilter, Filter
from tidings.model import filter as values
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_policy
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


def context_offer(offer: Any) -> Any:
    """What an advertisement offers or uses of a context: names as they are given, or a filter."""
    return context_filter(offer) if isinstance(offer, str) else offer


@lru_cache(1024)
def _canonical(text: str) -> str | None:
    return checked_policy(str(Policy.parse(text)))


@lru_cache(1024)
def _context(text: str) -> values.ContextFilter:
    return ContextFilter.parse(text)
