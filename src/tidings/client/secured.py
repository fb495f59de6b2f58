"""A client that can use secure topics: who it is to brokers, to centres, and to other members."""

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.client.centres import Centres
from tidings.client.identity import Identity
from tidings.client.membership import Membership
from tidings.client.retry import Retry
from tidings.client.security import Security
from tidings.model.errors import InvalidValueError
from tidings.security import challenge
from tidings.security.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.identity import Identity as Entity
from tidings.security.member import Member

if TYPE_CHECKING:
    from tidings.client.client import Client


class EntityIdentity(Identity, frozen=True, kw_only=True):
    """For TLS, of an identity that is in memory."""

    entity: Entity

    def fingerprint(self) -> bytes:
        return self.entity.certificate.fingerprint

    def answer(self, broker: str, name: str, nonce: bytes) -> bytes:
        return self.entity.sign(challenge.PURPOSE, challenge.said(broker, name, nonce))

    def context(self) -> ssl.SSLContext:
        """Its key is in a file for a moment, which only this user can read: TLS takes keys from files alone."""
        with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
            self.entity.save(folder)
            return _of_folder(folder).context()


def secured(
    name: str, identity: Identity | Entity | str | Path | None, security: Security | None, member: Member | None
) -> "tuple[Identity | None, str, Callable[[Client], Membership]]":
    """The identity for TLS, the client's name, and what makes it a member."""
    known = Security() if security is None else security
    tls, entity = _told_apart(identity)
    if member is None:
        if entity is None:
            raise InvalidValueError("identity: one of an authority, or the folder of one, is needed for secure topics")
        member = known.member(entity)
    if name and name != member.name:
        raise InvalidValueError(f"name: a client of secure topics has that of its certificate, {member.name}")
    services = known.read_services()

    def joined(client: "Client") -> Membership:
        centres = Centres(client, member, services, known.answer, Retry(known.wait))
        return Membership(client, member, centres, known.finds)

    return tls, member.name, joined


def _told_apart(identity: Identity | Entity | str | Path | None) -> tuple[Identity | None, Entity | None]:
    if isinstance(identity, Entity):
        return EntityIdentity(AUTHORITY, entity=identity), identity
    if isinstance(identity, str | Path):
        return _of_folder(identity), Entity.load(identity)
    return identity, None


def _of_folder(folder: str | Path) -> Identity:
    path = Path(folder)
    return Identity(path / AUTHORITY, path / CERTIFICATE, path / KEY)
