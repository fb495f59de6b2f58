"""`connect` and `connect_sync`: create clients of a broker."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.client.client import Client
from tidings.client.connection import OnState
from tidings.client.identity import TlsIdentity
from tidings.client.session import ConnectionSettings
from tidings.client.sync import SyncClient
from tidings.model.errors import InvalidValueError
from tidings.security.trust_group import TrustGroup

if TYPE_CHECKING:
    from tidings.client.secure.settings import Security
    from tidings.security.ca.identity import Identity as Entity
    from tidings.security.member import Member

_PATIENCE = 10.0  # seconds


def connect(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: "TlsIdentity | Entity | str | Path | None" = None,
    *,
    patience: float = _PATIENCE,
    security: "Security | None" = None,
    member: "Member | None" = None,
    groups: Mapping[str, bytes | str | Path] | None = None,
    timeout: float | None = None,
    on_state: OnState | None = None,
    observer: bool = False,
) -> Client:
    """Create a client of a broker; it connects when it is entered with `async with`.

    Args:
        addresses: One or several addresses of brokers. The first that answers is used, the others if it fails.
        name: The client's name; a random one by default.
        identity: Identity for TLS. A `tidings.security.Identity`, or its folder, also allows secure topics, and gives
            the client the name of its certificate.
        patience: Seconds to try the first connection. Reconnecting is tried without end.
        security: The services, topics and revocations that the client knows at the start.
        member: A member as which the client uses secure topics; this needs no TLS.
        groups: The trust groups that the client belongs to: their secrets, or the files of these.
        timeout: Seconds that a request waits for its answer, unless its call says otherwise; None waits until it is
            answered or the client is closed.
        on_state: Called in the event loop with each new `ConnectionState`; must return at once. Exceptions are logged.
        observer: Only send queries (`ask`): the client has no context, routing tables do not change when it connects,
            and the broker refuses everything else.
    """
    trust_groups = _trust_groups(groups or {})
    if isinstance(identity, TlsIdentity | None) and member is None:
        if security is not None:
            raise InvalidValueError("security: is for clients with the identity of an authority; give its folder")
        settings = ConnectionSettings(
            addresses, name or _random_name(), identity, patience, trust_groups, on_state, observer
        )
        return Client(settings, timeout=timeout)
    from tidings.client.secure.settings import secured

    tls, certified_name, membership = secured(name, identity, security, member)
    settings = ConnectionSettings(addresses, certified_name, tls, patience, trust_groups, on_state, observer)
    return Client(settings, membership, timeout)


def connect_sync(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: "TlsIdentity | Entity | str | Path | None" = None,
    *,
    patience: float = _PATIENCE,
    security: "Security | None" = None,
    member: "Member | None" = None,
    groups: Mapping[str, bytes | str | Path] | None = None,
    timeout: float | None = None,
    on_state: OnState | None = None,
    observer: bool = False,
) -> SyncClient:
    """Connect a synchronous client to a broker; it is connected on return.

    `on_state` is called in the thread of the client's event loop.

    Args:
        addresses: One or several addresses of brokers, as in `connect`.
        name: The client's name.
        identity: Identity for TLS and secure topics.
        patience: Seconds to try the first connection.
        security: The services, topics and revocations that the client knows at the start.
        member: A member as which the client uses secure topics; this needs no TLS.
        groups: The trust groups that the client belongs to.
        timeout: Seconds that a request waits for its answer.
        on_state: Called with each new `ConnectionState`.
        observer: Only send queries.
    """
    return SyncClient(
        lambda: connect(
            addresses,
            name,
            identity,
            patience=patience,
            security=security,
            member=member,
            groups=groups,
            timeout=timeout,
            on_state=on_state,
            observer=observer,
        )
    )


def _trust_groups(secrets_by_name: Mapping[str, bytes | str | Path]) -> list[TrustGroup]:
    return [
        TrustGroup(name, secret) if isinstance(secret, bytes) else TrustGroup.load(name, secret)
        for name, secret in secrets_by_name.items()
    ]


def _random_name() -> str:
    """Return a random name for a client without a name."""
    import secrets

    return f"client-{secrets.token_hex(6)}"
