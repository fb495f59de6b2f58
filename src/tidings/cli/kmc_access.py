"""Send requests to a key management centre (KMC).

Owners and members reach a running centre over the overlay (`OverlayAccess`). The centre's administrator opens the
folder of a centre that is not running (`FolderAccess`). Both have `run`, which sends a series of requests.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.connection import EntityConnection
from tidings.cli.options import read_file
from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import Retry, ServiceClient, ask, now
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.security.ca.certificates import Certificate
from tidings.security.ca.identity import Identity
from tidings.security.encoding import encode_canonical
from tidings.security.rpc.kmc_messages import LIST
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.tokens.credentials import Credentials
from tidings.security.vault import Vault, new_key_file, read_key_file
from tidings.services.kmc_store import KmcStore, Unlock

VARIABLE = "TIDINGS_KMC_PASSPHRASE"
SendRequest = Callable[[str, Any], Awaitable[bytes]]  # sends one request (kind, body); a refusal raises RefusedError


class CentreConnection(NamedTuple):
    """A key management centre that requests can be sent to, and its certificate."""

    send: SendRequest
    certificate: Certificate


RequestSeries = Callable[[CentreConnection], Coroutine[Any, Any, Any]]  # sends requests in order


class OverlayAccess(NamedTuple):
    """Access to a running key management centre over the overlay, as the entity of `caller`.

    `service` is the centre's service file; without it, the centre is found at discovery nodes.
    """

    caller: EntityConnection
    service: Path | None

    @property
    def overlay(self) -> str:
        return self.caller.overlay

    def run(self, series: RequestSeries) -> Any:
        """Connect, run the requests of `series` against the centre, and return what `series` returns."""
        return asyncio.run(self._run(series))

    async def _run(self, series: RequestSeries) -> Any:
        identity, retry = self.caller.entity(), Retry(self.caller.wait)
        async with self.caller.client() as client:
            service = await retry.answer_to(partial(self._locate_service, client, identity, retry))

            async def send(kind: str, body: Any) -> bytes:
                return await ask(client, identity, service, kind, encode_canonical(body))

            return await series(CentreConnection(send, service.certificate))

    async def _locate_service(self, client: ServiceClient, identity: Identity, retry: Retry) -> ServiceRecord:
        """Return the service record of the centre, from its file or from discovery nodes.

        If the caller waits for services, this sends the centre a list request and returns after its answer. The list
        request changes nothing and so may be repeated, unlike the requests that follow.
        """
        if self.service is not None:
            service = ServiceRecord(read_file(self.service))
        else:
            credentials = Credentials(identity.anchor, self.caller.overlay)
            service = await discover_centre(Discovery(client, identity, credentials), retry)
        if self.caller.wait:
            with contextlib.suppress(RefusedError):  # a refusal proves that the centre answers
                await ask(client, identity, service, LIST, encode_canonical(b""))
        return service


async def discover_centre(discovery: Discovery, retry: Retry) -> ServiceRecord:
    """Return the only key management centre that discovery nodes know.

    Raises InvalidValueError if there is none, or more than one.
    """

    async def find_services() -> list[ServiceRecord]:
        return [record.service for record in await discovery.find("*") if record.service is not None]

    services = await retry.answer_to(find_services, bool)
    if len(services) != 1:
        names = ", ".join(sorted(service.certificate.name for service in services)) or "none"
        raise InvalidValueError(f"which centre? name its service.bin with --service; discovery nodes know {names}")
    return services[0]


class FolderAccess(NamedTuple):
    """Access to a key management centre that is not running, as its administrator, through the folder of its state."""

    folder: Path
    key_file: Path | None
    overlay: str

    def run(self, series: RequestSeries) -> Any:
        """Open the centre's folder, run the requests of `series` on its state, and return what `series` returns.

        The requests act under the centre's own certificate. Each is committed before its reply is returned; a refusal
        raises RefusedError.
        """
        with KmcStore.open(self.folder, unlocker(self.key_file), overlay=self.overlay) as store:
            certificate = store.centre.identity.certificate

            async def send(kind: str, body: Any) -> bytes:
                reply = store.commit(store.centre.decide(certificate, kind, encode_canonical(body), now()), now())
                if reply.refused is not None:
                    raise RefusedError("authorize", reply.refused)
                return reply.body

            return asyncio.run(series(CentreConnection(send, certificate)))


KmcAccess = OverlayAccess | FolderAccess


# The key that encrypts the centre's state


def unlocker(key_file: Path | None) -> Unlock:
    """Return the function that unlocks a centre's vault, with the key file or else with a passphrase."""

    def unlock(lock: bytes) -> Vault:
        if key_file is not None:
            return Vault.unlock(lock, None, read_key_file(key_file))
        return Vault.unlock(lock, _passphrase("Passphrase of the centre", confirmed=False), None)

    return unlock


def new_vault(key_file: Path | None) -> tuple[Vault, bytes]:
    """Create the vault of a new centre, and return it with the lock to store next to the state.

    A missing key file is created.
    """
    if key_file is not None:
        return Vault.make(None, read_key_file(key_file) if key_file.exists() else new_key_file(key_file))
    return Vault.make(_passphrase("Passphrase of the new centre", confirmed=True), None)


def _passphrase(question: str, *, confirmed: bool) -> bytes:
    """Return the passphrase from the environment, or prompt for it.

    Raises InvalidValueError if there is no terminal.
    """
    passphrase = os.environ.get(VARIABLE)
    if passphrase is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"the centre's state is sealed: set {VARIABLE}, or give --key-file")
        passphrase = str(typer.prompt(question, hide_input=True, confirmation_prompt=confirmed, err=True))
    return passphrase.encode()
