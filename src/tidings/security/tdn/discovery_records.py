"""Discovery records: signed advertisements of topics and services at topic discovery nodes.

A record says that a topic or service exists and who may find it; its owner signs it and anybody can verify it. A
later version, or a withdrawal, replaces earlier ones.
"""

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_ADVERTISED_BYTES, MAX_NAME_CHARACTERS, MAX_RESTRICTION_NAMES
from tidings.security.ca.certificates import Certificate, Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import CertificateTrust
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical, set_fields
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.topic_record import TopicRecord

PURPOSE = "discovery"
DAY = 86_400_000_000  # microseconds
LONGEST = 400 * DAY  # the longest lifetime of a record


ANY = "*"


class Visibility(msgspec.Struct, frozen=True, array_like=True):
    """Who may find a record: certificate holders with a matching name and role.

    `names` are patterns, in which * matches any run of characters; `roles` are role names. If both are given,
    both must match. Empty lists admit everybody with a certificate.
    """

    names: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise `InvalidValueError` if there are too many names, a name has a bad length, or a role is unknown."""
        if len(self.names) > MAX_RESTRICTION_NAMES:
            raise InvalidValueError(f"a restriction has at most MAX_RESTRICTION_NAMES ({MAX_RESTRICTION_NAMES}) names")
        for name in self.names:
            if not 0 < len(name) <= MAX_NAME_CHARACTERS:
                raise InvalidValueError(f"a restriction: a name has 1 to {MAX_NAME_CHARACTERS} characters")
        role_names = [known_role.value for known_role in Role]
        for role in self.roles:
            if role not in role_names:
                raise InvalidValueError(f"a restriction: {role!r:.80} is no role; there are {', '.join(role_names)}")

    def admits(self, asker: Certificate) -> bool:
        """Return whether the asker may find the record."""
        if self.roles and asker.role.value not in self.roles:
            return False
        return not self.names or any(fits(pattern, asker.name) for pattern in self.names)


def fits(pattern: str, text: str) -> bool:
    """Return whether `text` matches `pattern`, in which * matches any run of characters.

    Takes linear time per part of the pattern: each part between two * is searched once, without backtracking.
    """
    first, *rest = pattern.split(ANY)
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for part in middle:
        start = text.find(part, position, end)
        if start < 0:
            return False
        position = start + len(part)
    return True


class RecordKind(Enum):
    """What a discovery record advertises."""

    TOPIC = "topic"
    SERVICE = "service"
    WITHDRAWN = "withdrawn"


class _Body(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    kind: RecordKind
    said: bytes  # the signed topic record or service record; empty for a withdrawal
    restriction: Visibility
    version: int
    created: int
    expires: int
    overlay: str
    owner: bytes  # the owner's certificate (DER)


@dataclass(frozen=True, eq=False, repr=False)
class DiscoveryRecord:
    """A decoded discovery record with a valid signature by the owner's certificate in it, a value.

    The constructor raises `SecurityError` for malformed data or a wrong signature. Whether the owner can be
    trusted is for `check`.
    """

    data: bytes
    owner: Certificate = field(init=False)
    id: bytes = field(init=False)
    kind: RecordKind = field(init=False)
    restriction: Visibility = field(init=False)
    version: int = field(init=False)
    created: int = field(init=False)
    expires: int = field(init=False)
    overlay: str = field(init=False)
    record: TopicRecord | None = field(init=False)  # the advertised topic
    service: ServiceRecord | None = field(init=False)  # the advertised service

    def __post_init__(self) -> None:
        if len(self.data) > MAX_ADVERTISED_BYTES:
            raise SecurityError("form", f"an advertisement has at most MAX_ADVERTISED_BYTES ({MAX_ADVERTISED_BYTES:,})")
        signed = decode_canonical(self.data, SignedValue, "advertisement")
        body = decode_canonical(signed.body, _Body, "advertisement")
        owner = Certificate.read(body.owner)
        owner.verify(PURPOSE, signed.body, signed.signature)
        try:
            body.restriction.check()
            record = TopicRecord(body.said) if body.kind is RecordKind.TOPIC else None
            service = ServiceRecord(body.said) if body.kind is RecordKind.SERVICE else None
        except InvalidValueError as error:
            raise SecurityError("form", str(error)) from None
        set_fields(self, owner=owner, id=body.id, kind=body.kind, restriction=body.restriction, overlay=body.overlay)
        set_fields(self, version=body.version, created=body.created, expires=body.expires)
        set_fields(self, record=record, service=service)
        self._check_form(body.said)

    @property
    def key(self) -> tuple[bytes, str]:
        """Identifies the record at every node, whatever its version."""
        return self.id, self.owner.name

    def _check_form(self, content: bytes) -> None:
        """Raise `SecurityError` if the parts of the record contradict each other."""
        if not 0 < self.expires - self.created <= LONGEST:
            raise SecurityError("form", f"an advertisement ends within {LONGEST // DAY} days after it was made")
        if self.kind is RecordKind.WITHDRAWN and (content or self.expires - self.created != LONGEST):
            raise SecurityError("form", f"a withdrawal says no more, and is remembered for {LONGEST // DAY} days")
        if self.record is not None and (self.record.id, self.record.owner.name) != (self.id, self.owner.name):
            raise SecurityError("owner", f"the topic {self.record.template} is not one of {self.owner.name}")
        if self.service is not None and (service_id(self.owner.name), self.service.certificate.name) != (
            *(self.id, self.owner.name),
        ):
            raise SecurityError("owner", f"the service is not {self.owner.name}")

    @classmethod
    def topic(
        cls,
        owner: Identity,
        record: TopicRecord,
        now: int,
        *,
        version: int | None = None,
        restriction: Visibility | None = None,
        lifetime: int = 365 * DAY,
    ) -> "DiscoveryRecord":
        """Create and sign a record that advertises a topic.

        Args:
            owner: The identity of the topic's owner.
            record: The topic's record.
            now: The time, in microseconds.
            version: The version; `now` by default.
            restriction: Who may find it; everybody by default.
            lifetime: Microseconds until it expires, at most `LONGEST`.
        """
        fields = (record.id, RecordKind.TOPIC, record.data, restriction or Visibility(), version or now)
        expires = min(now + min(lifetime, LONGEST), owner.certificate.not_after, record.owner.not_after)
        return cls._sign(owner, *fields, now, expires, record.overlay)

    @classmethod
    def of_service(
        cls,
        owner: Identity,
        service: ServiceRecord,
        now: int,
        *,
        version: int | None = None,
        restriction: Visibility | None = None,
        lifetime: int = 365 * DAY,
    ) -> "DiscoveryRecord":
        """Create and sign a record that advertises a service.

        Args:
            owner: The identity of the service.
            service: The service's record.
            now: The time, in microseconds.
            version: The version; `now` by default.
            restriction: Who may find it; everybody by default.
            lifetime: Microseconds until it expires, at most `LONGEST`.
        """
        fields = (service_id(owner.name), RecordKind.SERVICE, service.data, restriction or Visibility(), version or now)
        expires = min(now + min(lifetime, LONGEST), owner.certificate.not_after, service.certificate.not_after)
        return cls._sign(owner, *fields, now, expires, service.overlay)

    @classmethod
    def withdrawal(
        cls,
        owner: Identity,
        id: bytes,  # noqa: A002 - the record's own word
        now: int,
        *,
        version: int | None = None,
        overlay: str = "tidings",
    ) -> "DiscoveryRecord":
        """Create and sign a withdrawal. Nodes store it until every record that it withdraws would have expired.

        Args:
            owner: The identity of the record's owner.
            id: The id of the record to withdraw.
            now: The time, in microseconds.
            version: The version; `now` by default.
            overlay: The overlay that the withdrawal is valid in.
        """
        return cls._sign(
            owner, id, RecordKind.WITHDRAWN, b"", Visibility(), version or now, now, now + LONGEST, overlay
        )

    @classmethod
    def _sign(
        cls,
        owner: Identity,
        id: bytes,  # noqa: A002
        kind: RecordKind,
        content: bytes,
        restriction: Visibility,
        version: int,
        now: int,
        expires: int,
        overlay: str,
    ) -> "DiscoveryRecord":
        restriction.check()
        body = encode_canonical(
            _Body(id, kind, content, restriction, version, now, expires, overlay, owner.certificate.der)
        )
        return cls(encode_canonical(SignedValue(body, owner.sign(PURPOSE, body))))

    @property
    def signers(self) -> list[Certificate]:
        """The certificates of all who signed the record or what is in it."""
        signers = [self.owner]
        if self.record is not None:
            signers.append(self.record.owner)
        if self.service is not None:
            signers.append(self.service.certificate)
        return signers

    def check(self, trust: CertificateTrust, at: int) -> None:
        """Raise `SecurityError` unless the record and its content are valid for this overlay and all signers are
        trusted at `at`."""
        if self.overlay != trust.overlay:
            raise SecurityError("audience", f"the advertisement is for the overlay {self.overlay!r:.80}")
        for signer in self.signers:
            trust.anchor.check(signer, at)
            trust.revocations.check(signer, at)
            if self.kind is not RecordKind.WITHDRAWN and self.expires > signer.not_after:
                raise SecurityError("expired", f"an advertisement ends no later than the certificate of {signer.name}")
        if self.record is not None:
            self.record.check(trust.anchor, trust.overlay, at)
        if self.service is not None:
            self.service.check(trust, Role.KMC, at)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the record's bytes."""
        return hashlib.sha256(self.data).digest()

    def may_be_found_by(self, asker: Certificate) -> bool:
        """Return whether the asker may find the record; its owner always may."""
        return asker.name == self.owner.name or self.restriction.admits(asker)

    def __repr__(self) -> str:
        what = self.record.template if self.record is not None else self.kind.value
        return f"<DiscoveryRecord {what}, version {self.version}, by {self.owner.name}>"


def service_id(name: str) -> bytes:
    """Return the discovery id of a service: a hash of its name, so that it does not depend on its certificate."""
    return hashlib.sha256(b"tidings/1/service\0" + name.encode()).digest()[:16]
