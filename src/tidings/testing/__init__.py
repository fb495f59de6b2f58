"""What tests of programs that use Tidings need, and what Tidings' own tests use.

- `VirtualClock`: the time of a hub, which passes only when a test says so.
- `overlay`: brokers in memory and in virtual time, with faults, every run the same.
- `broker`: a real broker on a free port of this machine, for as long as a block lasts.
- `assert_notified`, `assert_notified_async`: the notifications of a subscription are exactly these.

With `pytest_plugins = ["tidings.testing.plugin"]` in a `conftest.py`, tests have the fixtures `tidings_clock`,
`tidings_hub`, `tidings_overlay` and `tidings_broker`.
"""

from tidings.testing.broker import BrokerThread as BrokerThread
from tidings.testing.broker import broker as broker
from tidings.testing.clock import VirtualClock as VirtualClock
from tidings.testing.notifications import assert_notified as assert_notified
from tidings.testing.notifications import assert_notified_async as assert_notified_async
from tidings.testing.overlay import overlay as overlay

__all__ = ["BrokerThread", "VirtualClock", "assert_notified", "assert_notified_async", "broker", "overlay"]
