"""The settings of a client for secure topics, and what `connect` makes of them: TLS identity, name and membership."""

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tidings.client.identity import TlsIdentity
from tidings.client.secure.kmc_client import Answerer, KmcClient
from tidings.client.secure.membership import Membership, SecureSubscriptions
from tidings.client.secure.service_rpc import Retry, ServiceClient, now
from tidings.model.errors import InvalidValueError
from tidings.security.ca import certificates
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY, Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.member import Member
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.tokens.credentials import Credentials
from tidings.security.topic_record import TopicRecord

_Read = TypeVar("_Read")


class Security(msgspec.Struct, frozen=True):
    """The services, topics and revocations that a client knows when it connects, and how it finds others.

    Each service, topic or revocation list is a value, or the file of one. If they are not given, the client finds
    services at discovery nodes, gets the revocation list from its broker, and learns of a secure topic when the broker
    refuses an event. A client that knows a topic beforehand never sends an event on it unsealed; one that learns of it
    from the refusal has shown that event to its broker.
    """

    services: tuple[ServiceRecord | str | Path, ...] = ()  # services of key management centres
    topics: tuple[TopicRecord | str | Path, ...] = ()
    revocations: RevocationUpdate | str | Path | None = None
    overlay: str = "tidings"
    finds: str | None = None  # a query for discovery nodes, such as `*`; the client learns its topics on connecting
    answer: Answerer | None = None  # answers the challenges that were agreed upon with a centre
    wait: float = 0.0  # seconds after `connect` during which services that do not answer are retried

    def member(self, identity: Identity) -> Member:
        """Return a member with this identity that knows the topics and revocations of these settings."""
        credentials = Credentials(identity.anchor, self.overlay)
        if self.revocations is not None:
            credentials.revoke(_read(self.revocations, RevocationUpdate, RevocationUpdate.read))
        for topic in self.topics:
            credentials.learn(_read(topic, TopicRecord, TopicRecord), now())
        return Member(identity, credentials)

    def read_services(self) -> list[ServiceRecord]:
        """Return the services of these settings, reading their files."""
        return [_read(service, ServiceRecord, ServiceRecord) for service in self.services]


def _read(value_or_file: object, kind: type[_Read], reader: Callable[[bytes], _Read]) -> _Read:
    if isinstance(value_or_file, kind):
        return value_or_file
    if not isinstance(value_or_file, str | Path):
        raise InvalidValueError(f"security: a {kind.__name__} or the file of one, not {type(value_or_file).__name__}")
    try:
        return reader(Path(value_or_file).read_bytes())
    except OSError as error:
        raise InvalidValueError(f"security: {value_or_file}: {error.strerror or error}") from None


class EntityIdentity(TlsIdentity, frozen=True, kw_only=True):
    """A TLS identity with its certificate and key in memory, rather than in files."""

    entity: Identity

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
    name: str, identity: TlsIdentity | Identity | str | Path | None, security: Security | None, member: Member | None
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


def _told_apart(identity: TlsIdentity | Identity | str | Path | None) -> tuple[TlsIdentity | None, Identity | None]:
    """Return the identity as one for TLS and one of an authority, as far as it is each."""
    if isinstance(identity, Identity):
        return EntityIdentity(AUTHORITY, entity=identity), identity
    if isinstance(identity, str | Path):
        return _of_folder(identity), Identity.load(identity)
    return identity, None


def _of_folder(folder: str | Path) -> TlsIdentity:
    path = Path(folder)
    return TlsIdentity(path / AUTHORITY, path / CERTIFICATE, path / KEY)
