"""Who speaks with a broker from the command line: where, under which name, and with which certificate."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.client.client import Client
from tidings.client.connecting import connect, connect_sync
from tidings.client.identity import Identity
from tidings.client.security import Security
from tidings.client.synchronous import SyncClient
from tidings.configuration.toml import TomlFile
from tidings.model.errors import InvalidValueError
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


class Topics(NamedTuple):
    """What is said of secure topics; `plain`: the broker speaks no TLS."""

    services: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()
    finds: str | None = None
    plain: bool = False


class Caller(NamedTuple):
    """With `topics`, and the folder of an identity, who can use secure topics."""

    addresses: str
    name: str = ""
    identity: Path | None = None
    topics: Topics | None = None

    @property
    def is_member(self) -> bool:
        return self.topics is not None and self.identity is not None and self.identity.is_dir()

    def opened(self) -> SyncClient:
        return connect_sync(self.addresses, self._name(), patience=_PATIENCE, **self._known())

    def client(self) -> Client:
        """The same for `async with`."""
        return connect(self.addresses, self._name(), patience=_PATIENCE, **self._known())

    def _name(self) -> str:
        """Who has an identity, and says no other name, has that of its certificate: brokers look whether they agree."""
        if self.name or self.identity is None or not self.identity.is_dir():
            return self.name
        return Entity.load(self.identity).name

    def _known(self) -> dict[str, Any]:
        if self.topics is None or self.identity is None or not self.identity.is_dir():
            if self.topics not in (None, Topics()):
                raise InvalidValueError("--service, --topic, --find and --plain need --identity with a folder")
            return {"identity": self._certified()}
        given = self.topics
        security = Security(services=given.services, topics=given.records, finds=given.finds)
        if given.plain:
            return {"member": security.member(Entity.load(self.identity)), "security": security}
        return {"identity": self.identity, "security": security}

    def _certified(self) -> Identity | None:
        if self.identity is None:
            return None
        if self.identity.is_dir():
            return Identity(self.identity / AUTHORITY, self.identity / CERTIFICATE, self.identity / KEY)
        files, folder = TomlFile(self.identity).read(_Files), self.identity.absolute().parent
        certificate, key = (None if one is None else folder / one for one in (files.certificate, files.key))
        return Identity(folder / files.authority, certificate, key, files.check_host)
