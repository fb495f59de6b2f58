"""Where a key management centre is asked: over the overlay by owners and members, or at its folder, while it is not
running, by its administrator."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.caller import EntityCaller
from tidings.cli.values import file_bytes
from tidings.client.asking import ask
from tidings.client.client import Client
from tidings.client.discovery import Discovery
from tidings.client.retry import Retry
from tidings.client.security import now
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.security.centre_questions import LIST
from tidings.security.certificates import Certificate
from tidings.security.credentials import Credentials
from tidings.security.encoding import encoded
from tidings.security.exchange import Service
from tidings.security.identity import Identity
from tidings.security.vault import Vault, new_key_file, read_key_file
from tidings.services.centre_folder import CentreFolder, Unlock

VARIABLE = "TIDINGS_KMC_PASSPHRASE"
Asking = Callable[[str, Any], Awaitable[bytes]]  # a kind and a body; a `RefusedError` is the reason
Questions = Callable[[Asking, Certificate], Awaitable[Any]]  # one after the other; the certificate is the centre's


class OverlayDoor(NamedTuple):
    caller: EntityCaller
    service: Path | None

    @property
    def overlay(self) -> str:
        return self.caller.overlay

    def ask(self, questions: Questions) -> Any:
        return asyncio.run(self._asked(questions))

    async def _asked(self, questions: Questions) -> Any:
        identity, retry = self.caller.entity(), Retry(self.caller.wait)
        async with self.caller.client() as client:
            service = await retry.answer_to(partial(self._reached, client, identity, retry))

            async def asking(kind: str, body: Any) -> bytes:
                return await ask(client, identity, service, kind, encoded(body))

            return await questions(asking, service.certificate)

    async def _reached(self, client: Client, identity: Identity, retry: Retry) -> Service:
        """The centre; one that is waited for has answered. It is asked for its list, which changes nothing: it may be
        asked for that again and again, and for what changes something it may not."""
        if self.service is not None:
            service = Service(file_bytes(self.service))
        else:
            credentials = Credentials(identity.anchor, self.caller.overlay)
            service = await found_centre(Discovery(client, identity, credentials), retry)
        if self.caller.wait:
            with contextlib.suppress(RefusedError):  # that is an answer, too
                await ask(client, identity, service, LIST, encoded(b""))
        return service


async def found_centre(discovery: Discovery, retry: Retry) -> Service:
    """The centre that discovery nodes know, if there is one and no other."""

    async def known() -> list[Service]:
        return [one.service for one in await discovery.find("*") if one.service is not None]

    services = await retry.answer_to(known, bool)
    if len(services) != 1:
        names = ", ".join(sorted(one.certificate.name for one in services)) or "none"
        raise InvalidValueError(f"which centre? name its service.bin with --service; discovery nodes know {names}")
    return services[0]


class FolderDoor(NamedTuple):
    folder: Path
    key_file: Path | None
    overlay: str

    def ask(self, questions: Questions) -> Any:
        with CentreFolder.open(self.folder, unlocking(self.key_file), overlay=self.overlay) as held:
            certificate = held.centre.identity.certificate

            async def asking(kind: str, body: Any) -> bytes:
                reply = held.commit(held.centre.decide(certificate, kind, encoded(body), now()), now())
                if reply.refused is not None:
                    raise RefusedError("authorize", reply.refused)
                return reply.body

            return asyncio.run(_all(questions, asking, certificate))


async def _all(questions: Questions, asking: Asking, certificate: Certificate) -> Any:
    return await questions(asking, certificate)


Door = OverlayDoor | FolderDoor


# What the state is sealed under


def unlocking(key_file: Path | None) -> Unlock:
    """With the file of a key, or else a passphrase."""

    def unlock(lock: bytes) -> Vault:
        if key_file is not None:
            return Vault.unlock(lock, None, read_key_file(key_file))
        return Vault.unlock(lock, _passphrase("Passphrase of the centre", confirmed=False), None)

    return unlock


def new_vault(key_file: Path | None) -> tuple[Vault, bytes]:
    """Of a new centre; a file of a key that is not there is made."""
    if key_file is not None:
        return Vault.make(None, read_key_file(key_file) if key_file.exists() else new_key_file(key_file))
    return Vault.make(_passphrase("Passphrase of the new centre", confirmed=True), None)


def _passphrase(question: str, *, confirmed: bool) -> bytes:
    given = os.environ.get(VARIABLE)
    if given is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"the centre's state is sealed: set {VARIABLE}, or give --key-file")
        given = str(typer.prompt(question, hide_input=True, confirmation_prompt=confirmed, err=True))
    return given.encode()
