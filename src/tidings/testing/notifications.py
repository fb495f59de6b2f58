"""Assertions about what a subscription is notified of."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tidings.model.errors import ClosedError
from tidings.model.notification import Notification

_TIMEOUT = 10.0  # seconds


class Source(Protocol):
    """A subscription of a hub, of `connect_sync`, or of a hub's durable backlog."""

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
    """Asserts that exactly these notifications arrive, and returns them; without `expected`, that none does.

    Args:
        source: A subscription, or notifications that a test has already (`world.notifications(name)`).
        expected: The attributes of each notification, in order.
        timeout: For how many seconds it waits until as many notifications have arrived as are expected.
        quiet: For how many seconds it then waits for one too many. An overlay in memory needs none: `settle` it first.
        any_order: Whether they may arrive in another order.
    """
    if isinstance(source, Sequence):
        return _checked(list(source), expected, any_order)
    until, arrived = time.monotonic() + timeout, list[Notification]()
    with suppress(ClosedError):  # no more will arrive
        arrived += source.take()
        while len(arrived) < len(expected) and (left := until - time.monotonic()) > 0:
            arrived += source.take(timeout=left)
        arrived += source.take(timeout=quiet)
    return _checked(arrived, expected, any_order)


async def assert_notified_async(
    source: AsyncSource,
    *expected: Mapping[str, Any],
    timeout: float = _TIMEOUT,
    quiet: float = 0.0,
    any_order: bool = False,
) -> list[Notification]:
    """The same for a subscription of `tidings.connect`."""
    until, arrived = time.monotonic() + timeout, list[Notification]()
    with suppress(ClosedError):
        arrived += await source.take()
        while len(arrived) < len(expected) and (left := until - time.monotonic()) > 0:
            arrived += await source.take(timeout=left)
        arrived += await source.take(timeout=quiet)
    return _checked(arrived, expected, any_order)


def _checked(arrived: list[Notification], expected: Sequence[Mapping[str, Any]], any_order: bool) -> list[Notification]:
    got, wanted = [dict(one.attributes) for one in arrived], [dict(one) for one in expected]
    if any_order:
        got, wanted = sorted(got, key=_sorted_items), sorted(wanted, key=_sorted_items)
    if got != wanted:
        raise AssertionError("\n".join([f"expected {_count(wanted)}, got {_count(got)}", *_differences(wanted, got)]))
    return arrived


def _differences(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> list[str]:
    """A line for each notification that is missing or unexpected; if none is, they came in another order."""
    missing, unexpected = list(wanted), []
    for one in got:
        if one in missing:
            missing.remove(one)
        else:
            unexpected.append(one)
    lines = [f"  missing: {one}" for one in missing] + [f"  unexpected: {one}" for one in unexpected]
    return lines or [f"  in another order: {got}", f"  expected: {wanted}"]


def _sorted_items(attributes: dict[str, Any]) -> str:
    return repr(sorted(attributes.items()))


def _count(notifications: list[dict[str, Any]]) -> str:
    return f"{len(notifications)} notification{'' if len(notifications) == 1 else 's'}"
