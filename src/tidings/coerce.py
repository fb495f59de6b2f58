"""Converts filters and policies, which callers may give as text or as values, to values, and checks them."""

from functools import lru_cache
from typing import Any

from tidings.filters import ContextFilter, Filter
from tidings.model import filter as values
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_policy
from tidings.policy.policy import Policy


def policy_text(policy: Any) -> str | None:
    """Return the canonical text of a policy, which may be text or a `Policy`; None for None.

    Raises:
        PolicyError: The text is not a policy.
        InvalidValueError: It is neither a text nor a `Policy`, or too long.
    """
    if policy is None:
        return None
    if isinstance(policy, Policy):
        return checked_policy(str(policy))
    if not isinstance(policy, str):
        raise InvalidValueError(f"policy: must be a text or a Policy, not {type(policy).__name__}")
    return _canonical(policy)


def content_filter(content: Any, format: str = "sql") -> values.FilterValue:  # noqa: A002
    """Return a content filter; parse it if it is text in one of the subscription formats."""
    return Filter.parse(content, format) if isinstance(content, str) else content


def context_filter(text: Any) -> values.ContextFilterValue | None:
    """Return a context filter; parse it if it is text."""
    if text is None or isinstance(text, values.ContextFilterValue):
        return text
    if not isinstance(text, str):
        raise InvalidValueError(f"a context filter is a text or a ContextFilter, not {type(text).__name__}")
    return _context(text)


def context_offer(offer: Any) -> Any:
    """Return an advertisement's context offer: names unchanged, text parsed as a context filter."""
    return context_filter(offer) if isinstance(offer, str) else offer


@lru_cache(1024)
def _canonical(text: str) -> str | None:
    return checked_policy(str(Policy.parse(text)))


@lru_cache(1024)
def _context(text: str) -> values.ContextFilterValue:
    return ContextFilter.parse(text)
