"""The pytest plugin: fixtures for tests of programs that use Tidings. pytest loads it where Tidings is installed.

Every fixture loads what it needs when a test asks for it: a suite that asks for none pays nothing.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidings.hub import Hub
    from tidings.simulation import World
    from tidings.testing.broker import BrokerThread
    from tidings.testing.clock import VirtualClock


@pytest.fixture
def tidings_clock() -> "VirtualClock":
    """A clock that stands still until the test advances it; `tidings_hub` runs by it."""
    from tidings.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def tidings_hub(tidings_clock: "VirtualClock") -> Iterator["Hub"]:
    """A hub in memory that runs by `tidings_clock`."""
    from tidings.hub import Hub

    with Hub(clock=tidings_clock) as hub:
        yield hub


@pytest.fixture
def tidings_overlay() -> "Callable[..., World]":
    """Makes overlays in memory: `tidings_overlay(brokers=4, topology="ring")`."""
    from tidings.testing.overlay import overlay

    return overlay


@pytest.fixture
def tidings_broker() -> "Iterator[BrokerThread]":
    """A broker in memory on a free port of this machine; its `address` is what clients connect to."""
    from tidings.testing.broker import broker

    with broker() as started:
        yield started
