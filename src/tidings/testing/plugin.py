"""The pytest plugin: fixtures for tests of programs that use Tidings.

A `conftest.py` enables it: `pytest_plugins = ["tidings.testing.plugin"]`. It is not an entry point: pytest would then
rewrite the assertions of every module of Tidings in each test suite of an environment that has Tidings installed.
"""

from collections.abc import Callable, Iterator

import pytest

from tidings.hub import Hub
from tidings.simulation import World
from tidings.testing.brokers import BrokerThread, broker, overlay
from tidings.testing.clock import VirtualClock


@pytest.fixture
def tidings_clock() -> VirtualClock:
    """A clock that stands still until the test advances it; `tidings_hub` uses it."""
    return VirtualClock()


@pytest.fixture
def tidings_hub(tidings_clock: VirtualClock) -> Iterator[Hub]:
    """A hub in memory that uses `tidings_clock`."""
    with Hub(clock=tidings_clock) as hub:
        yield hub


@pytest.fixture
def tidings_overlay() -> Callable[..., World]:
    """A function that creates overlays in memory: `tidings_overlay(brokers=4, topology="ring")`."""
    return overlay


@pytest.fixture
def tidings_broker() -> Iterator[BrokerThread]:
    """A broker in memory on a free port of this machine; clients connect to its `address`."""
    with broker() as started:
        yield started
