"""The client of a broker over the network: asynchronous, with a synchronous wrapper."""

from typing import TYPE_CHECKING, Any

from tidings.client.api import ClientApi as ClientApi
from tidings.client.client import Client as Client
from tidings.client.connection import ConnectionState as ConnectionState
from tidings.client.connector import connect as connect
from tidings.client.connector import connect_sync as connect_sync
from tidings.client.identity import TlsIdentity as TlsIdentity
from tidings.client.subscription import ClientSubscription as ClientSubscription
from tidings.client.sync import SyncClient as SyncClient
from tidings.client.sync import SyncSubscription as SyncSubscription

Identity = TlsIdentity  # its name in 0.1.0

if TYPE_CHECKING:
    from tidings.client.secure.settings import Security as Security


def __getattr__(name: str) -> Any:
    if name != "Security":
        raise AttributeError(f"module 'tidings.client' has no attribute {name!r}")
    from tidings.client.secure.settings import Security  # loads cryptography, which most clients do not need

    return Security
