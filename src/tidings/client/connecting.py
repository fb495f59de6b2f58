"""Connecting: where a client begins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.client.client import Client
from tidings.client.connection_state import OnState
from tidings.client.identity import Identity
from tidings.client.session import Session
from tidings.client.standing import Standing
from tidings.client.synchronous import SyncClient
from tidings.model.errors import InvalidValueError
from tidings.security.trust import Group

if TYPE_CHECKING:
    from tidings.client.security import Security
    from tidings.security.identity import Identity as Entity
    from tidings.security.member import Member

_PATIENCE = 10.0  # seconds


def connect(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: "Identity | Entity | str | Path | None" = None,
    *,
    patience: float = _PATIENCE,
    security: "Security | None" = None,
    member: "Member | None" = None,
    groups: Mapping[str, bytes | str | Path] | None = None,
    timeout: float | None = None,
    on_state: OnState | None = None,
    observer: bool = False,
) -> Client:
    """A client, for `async with`. Of several addresses, the first that answers is taken, and the others if it fails.

    `patience` is for how many seconds the first connection is tried. Later ones are tried for ever.

    `identity` is for TLS. With a `tidings.security.Identity`, or the folder of one, the client can use secure topics
    too, and has the name of its certificate; `security` is what it knows of them. A `member` can, without TLS.

    `groups` are the trust groups that the client belongs to: their secrets, or the files of these.

    `timeout` is for how many seconds a request waits for its answer, unless its call says otherwise; None: until it is
    answered or the client is closed. `on_state` is called with a `ConnectionState` whenever the state of the connection
    changes: in the event loop, so it must return at once. What it raises is logged.

    An `observer` only asks questions (`ask`): it has no context, and the brokers' routing tables do not change when it
    connects. The broker refuses everything else.
    """
    proven = _groups(groups or {})
    if isinstance(identity, Identity | None) and member is None:
        if security is not None:
            raise InvalidValueError("security: is for clients with the identity of an authority; give its folder")
        session = Session(
            addresses, name or _unnamed(), identity, patience, Standing(), proven, on_state, observer=observer
        )
        return Client(session, timeout=timeout)
    from tidings.client.secured import secured

    tls, certain, membership = secured(name, identity, security, member)
    session = Session(addresses, certain, tls, patience, Standing(), proven, on_state, observer=observer)
    return Client(session, membership, timeout)


def connect_sync(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: "Identity | Entity | str | Path | None" = None,
    *,
    patience: float = _PATIENCE,
    security: "Security | None" = None,
    member: "Member | None" = None,
    groups: Mapping[str, bytes | str | Path] | None = None,
    timeout: float | None = None,
    on_state: OnState | None = None,
    observer: bool = False,
) -> SyncClient:
    """The same for programs that are not asynchronous; connected when it returns. `on_state` is called in the client's
    own thread."""
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


def _groups(given: Mapping[str, bytes | str | Path]) -> list[Group]:
    return [Group(name, one) if isinstance(one, bytes) else Group.load(name, one) for name, one in given.items()]


def _unnamed() -> str:
    """A name for who needs none: to publish, or to look."""
    import secrets

    return f"client-{secrets.token_hex(6)}"
