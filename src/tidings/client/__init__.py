"""The client of a broker: over the network, asynchronous, with a synchronous face."""

from typing import TYPE_CHECKING, Any

from tidings.client.client import Client as Client
from tidings.client.connecting import connect as connect
from tidings.client.connecting import connect_sync as connect_sync
from tidings.client.connection_state import ConnectionState as ConnectionState
from tidings.client.identity import Identity as Identity
from tidings.client.subscription import Subscription as Subscription
from tidings.client.synchronous import SyncClient as SyncClient
from tidings.client.synchronous import SyncSubscription as SyncSubscription

if TYPE_CHECKING:
    from tidings.client.security import Security as Security


def __getattr__(name: str) -> Any:
    if name != "Security":
        raise AttributeError(f"module 'tidings.client' has no attribute {name!r}")
    from tidings.client.security import Security  # loads what most clients need not have

    return Security
