"""Connect the command line to a broker: addresses, client name, identity and secure topics."""

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.cli.output import escape_control
from tidings.client.client import Client
from tidings.client.connection import ConnectionState
from tidings.client.connector import connect, connect_sync
from tidings.client.identity import TlsIdentity
from tidings.client.secure.settings import Security
from tidings.client.sync import SyncClient
from tidings.configuration import TomlFile
from tidings.model.errors import InvalidValueError
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.ca.identity import Identity as Entity

_PATIENCE = 5.0  # seconds after which a connection attempt to a silent broker fails
ANSWER_SECONDS = 60.0  # time limit of a request, reconnections included


def request_timeout(seconds: float | None) -> float:
    """Return the time limit of requests for a command that runs for `seconds`; None means that the command has no
    end."""
    return ANSWER_SECONDS if seconds is None else min(ANSWER_SECONDS, max(seconds, _PATIENCE))


class _Files(msgspec.Struct, forbid_unknown_fields=True):
    """The TOML file of an identity. Its paths are relative to the folder of the file."""

    authority: str
    certificate: str | None = None
    key: str | None = None
    check_host: bool = True


class EntityConnection(NamedTuple):
    """Connection settings of a command that acts as the entity of an identity folder, under the certificate's name.

    `plain` means that the broker uses no TLS.
    """

    addresses: str
    identity: Path
    plain: bool = False
    overlay: str = "tidings"
    wait: float = 0.0  # seconds to keep trying to reach the broker, and services that do not answer yet

    def entity(self) -> Entity:
        """Load the entity (certificate, key and trust anchor) from the identity folder."""
        return Entity.load(self.identity)

    def client(self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False) -> Client:
        """Return an asynchronous client under the entity's name, not yet connected: use it with `async with`."""
        identity = None if self.plain else self.identity
        caller = BrokerConnection(self.addresses, self.entity().name, identity, wait=self.wait)
        return caller.client(timeout, as_json=as_json)


class SecureTopicsOptions(NamedTuple):
    """The command line options about secure topics. `plain` means that the broker uses no TLS."""

    services: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()
    finds: str | None = None
    plain: bool = False


class BrokerConnection(NamedTuple):
    """Connection settings of a command: broker addresses, client name, identity and secure topics.

    With `topics` and an identity folder, the client can use secure topics. `wait` is how many seconds the client keeps
    trying to reach its broker, and services that do not answer yet.
    """

    addresses: str
    name: str = ""
    identity: Path | None = None
    topics: SecureTopicsOptions | None = None
    wait: float = 0.0

    @property
    def is_member(self) -> bool:
        """Whether the client can use secure topics: the options for them are set, and the identity is a folder."""
        return self.topics is not None and self.identity is not None and self.identity.is_dir()

    @property
    def must_seal(self) -> bool:
        """Whether the command names secure topics, so that its events must be sealed or fail."""
        return self.is_member and self.topics is not None and bool(self.topics.records or self.topics.finds)

    def connect(
        self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False, observer: bool = False
    ) -> SyncClient:
        """Connect and return a synchronous client that reports a lost connection, and its recovery, on standard error.

        Args:
            timeout: The time limit of each request in seconds; None: until the client is closed.
            as_json: Write the reports as JSON objects.
            observer: Connect as an observer, which may only ask questions and changes no routing table.
        """
        settings = self._settings(timeout, as_json=as_json)
        return connect_sync(self.addresses, self._name(), observer=observer, **settings)

    def client(self, timeout: float | None = ANSWER_SECONDS, *, as_json: bool = False) -> Client:
        """Return the same client as `connect`, but asynchronous and not yet connected: use it with `async with`."""
        return connect(self.addresses, self._name(), **self._settings(timeout, as_json=as_json))

    def _settings(self, timeout: float | None, *, as_json: bool) -> dict[str, Any]:
        report = ConnectionReport(as_json=as_json)
        # A request may wait for keys from services before it is sent to the broker: add that time to its limit.
        limit = None if timeout is None else timeout + self.wait
        return {
            "patience": max(_PATIENCE, self.wait),
            "timeout": limit,
            "on_state": report,
            **self._identity_arguments(),
        }

    def _name(self) -> str:
        """Return the client's name.

        Unset, it is that of the identity's certificate, since brokers check that the two agree.
        """
        if self.name or self.identity is None or not self.identity.is_dir():
            return self.name
        return Entity.load(self.identity).name

    def _identity_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the client that carry its identity and its secure topics."""
        if self.topics is None or self.identity is None or not self.identity.is_dir():
            if self.topics not in (None, SecureTopicsOptions()):
                raise InvalidValueError("--service, --topic, --find and --plain need --identity with a folder")
            return {"identity": self._tls_identity()}
        topics = self.topics
        security = Security(services=topics.services, topics=topics.records, finds=topics.finds, wait=self.wait)
        if topics.plain:
            return {"member": security.member(Entity.load(self.identity)), "security": security}
        return {"identity": self.identity, "security": security}

    def _tls_identity(self) -> TlsIdentity | None:
        """Return the files of the TLS identity, from the identity folder or the TOML file that names them; None
        without one."""
        if self.identity is None:
            return None
        if self.identity.is_dir():
            return TlsIdentity(self.identity / AUTHORITY, self.identity / CERTIFICATE, self.identity / KEY)
        files, folder = TomlFile(self.identity).read(_Files), self.identity.absolute().parent
        certificate, key = (None if path is None else folder / path for path in (files.certificate, files.key))
        return TlsIdentity(folder / files.authority, certificate, key, files.check_host)


class ConnectionReport:
    """Write a line to standard error when the client's connection is lost, and when it is established again.

    The client calls it in its own thread, so it writes whole lines. With `as_json`, a line is a JSON object.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._is_lost = False

    def __call__(self, state: ConnectionState) -> None:
        if state.state == "connected" and self._is_lost:
            self._is_lost = False
            self._write(state, f"connected to {state.broker} at {state.address} again")
        elif state.state == "disconnected" and state.connections and not self._is_lost:
            self._is_lost = True
            self._write(state, f"disconnected from {state.broker} at {state.address}: {state.reason}; trying again")

    def _write(self, state: ConnectionState, sentence: str) -> None:
        line = _json(state) if self._as_json else f"tidings: {sentence}"
        sys.stderr.write(escape_control(line) + "\n")
        sys.stderr.flush()


def _json(state: ConnectionState) -> str:
    fields = {"connection": state.state, "broker": state.broker, "address": state.address, "reason": state.reason}
    return json.dumps(fields, ensure_ascii=False)


async def until_stopped(service: Coroutine[Any, Any, None]) -> None:
    """Run a service until it ends, or until SIGTERM or SIGINT cancels it, also while it starts and its broker is
    unreachable.

    Raises what the service raises.
    """
    task, loop = asyncio.create_task(service), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Run the body until Ctrl-C or SIGTERM, and then leave it without an error."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
