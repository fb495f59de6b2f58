"""Assertions about the notifications of a subscription."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tidings.model.errors import ClosedError
from tidings.model.notification import Notification

_TIMEOUT = 10.0  # seconds


class Source(Protocol):
    """A subscription of a hub or of `connect_sync`."""

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]: ...


class AsyncSource(Protocol):
    """A subscription of `connect`."""

    async def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]: ...


def assert_notified(
    source: Source | Sequence[Notification],
    *expected: Mapping[str, Any],
    timeout: float = _TIMEOUT,
    quiet: float = 0.0,
    any_order: bool = False,
) -> list[Notification]:
    """Assert that exactly these notifications arrive, and return them; without `expected`, that none arrives.

    Args:
        source: A subscription, or notifications that a test has already (`world.notifications(name)`).
        expected: The attributes of each notification, in order.
        timeout: Seconds to wait until as many notifications have arrived as are expected.
        quiet: Seconds to wait then for an unexpected one. An overlay in memory needs none: `settle` it first.
        any_order: Whether they may arrive in another order.

    Raises:
        AssertionError: Other notifications arrive; the message lists missing and unexpected ones.
    """
    if isinstance(source, Sequence):
        return _checked(list(source), expected, any_order)
    until, arrived = time.monotonic() + timeout, list[Notification]()
    with suppress(ClosedError):  # no more will arrive
        arrived += source.take()
        while len(arrived) < len(expected) and (remaining_seconds := until - time.monotonic()) > 0:
            arrived += source.take(timeout=remaining_seconds)
        arrived += source.take(timeout=quiet)
    return _checked(arrived, expected, any_order)


async def assert_notified_async(
    source: AsyncSource,
    *expected: Mapping[str, Any],
    timeout: float = _TIMEOUT,
    quiet: float = 0.0,
    any_order: bool = False,
) -> list[Notification]:
    """Assert that exactly these notifications arrive at a subscription of `tidings.connect`, and return them.

    Args:
        source: The subscription.
        expected: The attributes of each notification, in order.
        timeout: Seconds to wait until as many notifications have arrived as are expected.
        quiet: Seconds to wait then for an unexpected one.
        any_order: Whether they may arrive in another order.
    """
    until, arrived = time.monotonic() + timeout, list[Notification]()
    with suppress(ClosedError):
        arrived += await source.take()
        while len(arrived) < len(expected) and (remaining_seconds := until - time.monotonic()) > 0:
            arrived += await source.take(timeout=remaining_seconds)
        arrived += await source.take(timeout=quiet)
    return _checked(arrived, expected, any_order)


def _checked(arrived: list[Notification], expected: Sequence[Mapping[str, Any]], any_order: bool) -> list[Notification]:
    got = [dict(notification.attributes) for notification in arrived]
    wanted = [dict(attributes) for attributes in expected]
    if any_order:
        got, wanted = sorted(got, key=_sorted_items), sorted(wanted, key=_sorted_items)
    if got != wanted:
        raise AssertionError("\n".join([f"expected {_count(wanted)}, got {_count(got)}", *_differences(wanted, got)]))
    return arrived


def _differences(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> list[str]:
    """Return a line for each missing or unexpected notification; if there are none, lines that show both orders."""
    missing, unexpected = list(wanted), []
    for attributes in got:
        if attributes in missing:
            missing.remove(attributes)
        else:
            unexpected.append(attributes)
    lines = [f"  missing: {attributes}" for attributes in missing] + [
        f"  unexpected: {attributes}" for attributes in unexpected
    ]
    return lines or [f"  in another order: {got}", f"  expected: {wanted}"]


def _sorted_items(attributes: dict[str, Any]) -> str:
    return repr(sorted(attributes.items()))


def _count(notifications: list[dict[str, Any]]) -> str:
    return f"{len(notifications)} notification{'' if len(notifications) == 1 else 's'}"
