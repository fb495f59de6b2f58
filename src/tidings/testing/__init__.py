"""Test helpers for programs that use Tidings, and for Tidings' own tests.

- `VirtualClock`: the time of a hub, which passes only when a test advances it.
- `overlay`: brokers in memory and in virtual time, with faults, reproducible in every run.
- `broker`: a real broker on a free port of this machine, until the end of a `with` block.
- `assert_notified`, `assert_notified_async`: assert that a subscription gets exactly these notifications.

With `pytest_plugins = ["tidings.testing.plugin"]` in a `conftest.py`, tests have the fixtures `tidings_clock`,
`tidings_hub`, `tidings_overlay` and `tidings_broker`.
"""

from tidings.testing.brokers import BrokerThread as BrokerThread
from tidings.testing.brokers import broker as broker
from tidings.testing.brokers import overlay as overlay
from tidings.testing.clock import VirtualClock as VirtualClock
from tidings.testing.notifications import assert_notified as assert_notified
from tidings.testing.notifications import assert_notified_async as assert_notified_async

__all__ = ["BrokerThread", "VirtualClock", "assert_notified", "assert_notified_async", "broker", "overlay"]
