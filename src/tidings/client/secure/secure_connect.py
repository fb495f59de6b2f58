"""Creates what a client needs for secure topics: its TLS identity, its name, and its membership."""

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from tidings.client.identity import TlsIdentity
from tidings.client.retry import Retry
from tidings.client.secure.kmc_client import KmcClient
from tidings.client.secure.membership import Membership, SecureSubscriptions
from tidings.client.secure.service_rpc import ServiceClient
from tidings.client.secure.settings import Security
from tidings.model.errors import InvalidValueError
from tidings.security.ca import certificates
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.ca.identity import Identity as Entity
from tidings.security.member import Member


class EntityIdentity(TlsIdentity, frozen=True, kw_only=True):
    """A TLS identity with its certificate and key in memory, rather than in files."""

    entity: Entity

    def fingerprint(self) -> bytes:
        return self.entity.certificate.fingerprint

    def answer(self, broker: str, name: str, nonce: bytes) -> bytes:
        return self.entity.sign(certificates.PURPOSE, certificates.challenge_body(broker, name, nonce))

    def context(self) -> ssl.SSLContext:
        """Return the TLS context.

        The key is in a file for a moment, readable by this user only: TLS reads keys from files.
        """
        with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
            self.entity.save(folder)
            return _of_folder(folder).context()


def secured(
    name: str, identity: TlsIdentity | Entity | str | Path | None, security: Security | None, member: Member | None
) -> tuple[TlsIdentity | None, str, Callable[[ServiceClient, SecureSubscriptions], Membership]]:
    """Return the TLS identity, the client's name, and a function that makes the client's membership.

    Args:
        name: The name given to `connect`; it must be the member's.
        identity: An identity of an authority, or its folder, or one for TLS alone.
        security: The settings for secure topics.
        member: The member to act as; by default it is made from `identity` and `security`.

    Raises:
        InvalidValueError: There is neither a member nor an identity of an authority, or `name` differs.
    """
    settings = Security() if security is None else security
    tls, entity = _told_apart(identity)
    if member is None:
        if entity is None:
            raise InvalidValueError("identity: one of an authority, or the folder of one, is needed for secure topics")
        member = settings.member(entity)
    if name and name != member.name:
        raise InvalidValueError(f"name: a client of secure topics has that of its certificate, {member.name}")
    services = settings.read_services()

    def joined(client: ServiceClient, subscriptions: SecureSubscriptions) -> Membership:
        centres = KmcClient(client, member, services, settings.answer, Retry(settings.wait))
        return Membership(client, subscriptions, member, centres, settings.finds)

    return tls, member.name, joined


def _told_apart(identity: TlsIdentity | Entity | str | Path | None) -> tuple[TlsIdentity | None, Entity | None]:
    """Return the identity as one for TLS and one of an authority, as far as it is each."""
    if isinstance(identity, Entity):
        return EntityIdentity(AUTHORITY, entity=identity), identity
    if isinstance(identity, str | Path):
        return _of_folder(identity), Entity.load(identity)
    return identity, None


def _of_folder(folder: str | Path) -> TlsIdentity:
    path = Path(folder)
    return TlsIdentity(path / AUTHORITY, path / CERTIFICATE, path / KEY)
