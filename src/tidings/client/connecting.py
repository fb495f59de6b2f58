"""Connecting: where a client begins."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidings.client.client import Client
from tidings.client.identity import Identity
from tidings.client.session import Session
from tidings.client.standing import Standing
from tidings.client.synchronous import SyncClient
from tidings.security.trust import Group

_PATIENCE = 10.0  # seconds


def connect(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: Identity | None = None,
    *,
    patience: float = _PATIENCE,
    groups: Mapping[str, bytes | str | Path] | None = None,
) -> Client:
    """A client, for `async with`. Of several addresses, the first that answers is taken, and the others if it fails.

    `patience` is for how many seconds the first connection is tried. Later ones are tried for ever. `groups` are the
    trust groups that the client belongs to: their secrets, or the files of these.
    """
    return Client(Session(addresses, name or _unnamed(), identity, patience, Standing(), _groups(groups or {})))


def connect_sync(
    addresses: str | Iterable[str] = "tidings://127.0.0.1:7450",
    name: str = "",
    identity: Identity | None = None,
    *,
    patience: float = _PATIENCE,
    groups: Mapping[str, bytes | str | Path] | None = None,
) -> SyncClient:
    """The same for programs that are not asynchronous; connected when it returns."""
    return SyncClient(lambda: connect(addresses, name, identity, patience=patience, groups=groups))


def _groups(given: Mapping[str, bytes | str | Path]) -> list[Group]:
    return [Group(name, one) if isinstance(one, bytes) else Group.load(name, one) for name, one in given.items()]


def _unnamed() -> str:
    """A name for who needs none: to publish, or to look."""
    import secrets

    return f"client-{secrets.token_hex(6)}"
