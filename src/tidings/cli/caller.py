"""Who speaks with a broker from the command line: where, under which name, and with which certificate."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.client.client import Client
from tidings.client.connecting import connect, connect_sync
from tidings.client.identity import Identity
from tidings.client.synchronous import SyncClient
from tidings.configuration.toml import TomlFile
from tidings.security.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.identity import Identity as Entity

_PATIENCE = 5.0  # seconds until a broker that does not answer is given up


class _Files(msgspec.Struct, forbid_unknown_fields=True):
    """The file of an identity; its names are relative to its own folder."""

    authority: str
    certificate: str | None = None
    key: str | None = None
    check_host: bool = True


class EntityCaller(NamedTuple):
    """Somebody with a certificate of the authority, and under its name; `plain`: the broker speaks no TLS."""

    addresses: str
    identity: Path
    plain: bool = False
    overlay: str = "tidings"

    def entity(self) -> Entity:
        return Entity.load(self.identity)

    def client(self) -> Client:
        return Caller(self.addresses, self.entity().name, None if self.plain else self.identity).client()


class Caller(NamedTuple):
    addresses: str
    name: str = ""
    identity: Path | None = None

    def opened(self) -> SyncClient:
        return connect_sync(self.addresses, self.name, self._certified(), patience=_PATIENCE)

    def client(self) -> Client:
        """The same for `async with`."""
        return connect(self.addresses, self.name, self._certified(), patience=_PATIENCE)

    def _certified(self) -> Identity | None:
        if self.identity is None:
            return None
        if self.identity.is_dir():
            authority, certificate, key = (self.identity / one for one in (AUTHORITY, CERTIFICATE, KEY))
            return Identity(authority, certificate, key)
        files, folder = TomlFile(self.identity).read(_Files), self.identity.absolute().parent
        certificate, key = (None if one is None else folder / one for one in (files.certificate, files.key))
        return Identity(folder / files.authority, certificate, key, files.check_host)
