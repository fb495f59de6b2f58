"""Connecting: where a client begins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.client.client import Client
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
) -> Client:
    """A client, for `async with`. Of several addresses, the first that answers is taken, and the others if it fails.

    `patience` is for how many seconds the first connection is tried. Later ones are tried for ever.

    `identity` is for TLS. With a `tidings.security.Identity`, or the folder of one, the client can use secure topics
    too, and has the name of its certificate; `security` is what it knows of them. A `member` can, without TLS.

    `groups` are the trust groups that the client belongs to: their secrets, or the files of these.
    """
    proven = _groups(groups or {})
    if isinstance(identity, Identity | None) and member is None:
        if security is not None:
            raise InvalidValueError("security: is for clients with the identity of an authority; give its folder")
        return Client(Session(addresses, name or _unnamed(), identity, patience, Standing(), proven))
    from tidings.client.secured import secured

    tls, certain, membership = secured(name, identity, security, member)
    return Client(Session(addresses, certain, tls, patience, Standing(), proven), membership)


def connect_sync(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: "Identity | Entity | str | Path | None" = None,
    *,
    patience: float = _PATIENCE,
    security: "Security | None" = None,
    member: "Member | None" = None,
    groups: Mapping[str, bytes | str | Path] | None = None,
) -> SyncClient:
    """The same for programs that are not asynchronous; connected when it returns."""
    return SyncClient(
        lambda: connect(addresses, name, identity, patience=patience, security=security, member=member, groups=groups)
    )


def _groups(given: Mapping[str, bytes | str | Path]) -> list[Group]:
    return [Group(name, one) if isinstance(one, bytes) else Group.load(name, one) for name, one in given.items()]


def _unnamed() -> str:
    """A name for who needs none: to publish, or to look."""
    import secrets

    return f"client-{secrets.token_hex(6)}"
