"""Who speaks with a broker from the command line: where, under which name, and with which certificate."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.cli.connection import ConnectionReport
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
ANSWER_SECONDS = 60.0  # for a request, on one connection or several


def answer_seconds(seconds: float | None) -> float:
    """The time limit of the requests of a verb that runs for so many seconds; None: without end."""
    return ANSWER_SECONDS if seconds is None else min(ANSWER_SECONDS, max(seconds, _PATIENCE))


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
    wait: float = 0.0  # seconds for the broker, and for services that are not there yet

    def entity(self) -> Entity:
        return Entity.load(self.identity)

    def client(self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False) -> Client:
        identity = None if self.plain else self.identity
        caller = Caller(self.addresses, self.entity().name, identity, wait=self.wait)
        return caller.client(timeout, as_json=as_json)


class Topics(NamedTuple):
    """What is said of secure topics; `plain`: the broker speaks no TLS."""

    services: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()
    finds: str | None = None
    plain: bool = False


class Caller(NamedTuple):
    """With `topics`, and the folder of an identity, who can use secure topics. Its broker, and services that are not
    there yet, are waited for, for the seconds of `wait`."""

    addresses: str
    name: str = ""
    identity: Path | None = None
    topics: Topics | None = None
    wait: float = 0.0

    @property
    def is_member(self) -> bool:
        return self.topics is not None and self.identity is not None and self.identity.is_dir()

    @property
    def must_seal(self) -> bool:
        """Whether the command names secure topics: its events go sealed, or not at all."""
        return self.is_member and self.topics is not None and bool(self.topics.records or self.topics.finds)

    def opened(
        self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False, observer: bool = False
    ) -> SyncClient:
        """A client that says on standard error when its connection is lost, and when it has another.

        Args:
            timeout: The seconds that each of its requests may take; None: until the client is closed.
            as_json: Whether it says so in JSON.
            observer: Whether it only asks questions.
        """
        settings = self._settings(timeout, as_json=as_json)
        return connect_sync(self.addresses, self._name(), observer=observer, **settings)

    def client(self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False) -> Client:
        """The same for `async with`."""
        return connect(self.addresses, self._name(), **self._settings(timeout, as_json=as_json))

    def _settings(self, timeout: float | None, *, as_json: bool) -> dict[str, Any]:
        report = ConnectionReport(as_json=as_json)
        # A request may ask services for keys before it goes to the broker: its time limit leaves them their time.
        limit = None if timeout is None else timeout + self.wait
        return {"patience": max(_PATIENCE, self.wait), "timeout": limit, "on_state": report, **self._known()}

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
        security = Security(services=given.services, topics=given.records, finds=given.finds, wait=self.wait)
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
