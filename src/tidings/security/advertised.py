"""What owners say at discovery nodes: that there is a topic, or a service, and who may find it; signed by the owner.

Anybody can check who says so. A later version takes the place of those before it, a withdrawal too.
"""

import hashlib
from enum import Enum
from functools import cached_property

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_ADVERTISED_BYTES
from tidings.security.certificates import Certificate, Role
from tidings.security.credentials import Credentials
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.exchange import Service
from tidings.security.identity import Identity
from tidings.security.records import TopicRecord
from tidings.security.restriction import Restriction

PURPOSE = "discovery"
DAY = 86_400_000_000  # microseconds
LONGEST = 400 * DAY  # from its making to its end


class Kind(Enum):
    TOPIC = "topic"
    SERVICE = "service"
    WITHDRAWN = "withdrawn"


class _Body(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    kind: Kind
    said: bytes  # a topic's record, or a service, as their owners have signed them; nothing once it is withdrawn
    restriction: Restriction
    version: int
    created: int
    expires: int
    overlay: str
    owner: bytes  # the certificate


class Advertised:
    """One that can be read and whose signature is its owner's; `check` says whether the owner can be trusted."""

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_ADVERTISED_BYTES:
            raise SecurityError("form", f"an advertisement has at most MAX_ADVERTISED_BYTES ({MAX_ADVERTISED_BYTES:,})")
        signed = decoded(data, Signed, "advertisement")
        body = decoded(signed.body, _Body, "advertisement")
        self.data, self.owner = data, Certificate.read(body.owner)
        self.owner.verify(PURPOSE, signed.body, signed.signature)
        self.id, self.kind, self.restriction, self.overlay = body.id, body.kind, body.restriction, body.overlay
        self.version, self.created, self.expires = body.version, body.created, body.expires
        self.record: TopicRecord | None = None
        self.service: Service | None = None
        try:
            body.restriction.check()
            if body.kind is Kind.TOPIC:
                self.record = TopicRecord(body.said)
            elif body.kind is Kind.SERVICE:
                self.service = Service(body.said)
        except InvalidValueError as error:
            raise SecurityError("form", str(error)) from None
        self._check_form(body.said)

    @property
    def key(self) -> tuple[bytes, str]:
        """By which it is known at every node, whatever its version."""
        return self.id, self.owner.name

    def _check_form(self, said: bytes) -> None:
        if not 0 < self.expires - self.created <= LONGEST:
            raise SecurityError("form", f"an advertisement ends within {LONGEST // DAY} days after it was made")
        if self.kind is Kind.WITHDRAWN and (said or self.expires - self.created != LONGEST):
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
        restriction: Restriction | None = None,
        lifetime: int = 365 * DAY,
    ) -> "Advertised":
        """Of a topic's owner. The time is its version, where none is given."""
        given = (record.id, Kind.TOPIC, record.data, restriction or Restriction(), version or now)
        ends = min(now + min(lifetime, LONGEST), owner.certificate.not_after, record.owner.not_after)
        return cls._made(owner, *given, now, ends, record.overlay)

    @classmethod
    def of_service(
        cls,
        owner: Identity,
        service: Service,
        now: int,
        *,
        version: int | None = None,
        restriction: Restriction | None = None,
        lifetime: int = 365 * DAY,
    ) -> "Advertised":
        """Of the service itself: where it can be reached."""
        given = (service_id(owner.name), Kind.SERVICE, service.data, restriction or Restriction(), version or now)
        ends = min(now + min(lifetime, LONGEST), owner.certificate.not_after, service.certificate.not_after)
        return cls._made(owner, *given, now, ends, service.overlay)

    @classmethod
    def withdrawal(
        cls,
        owner: Identity,
        id: bytes,  # noqa: A002 - the record's own word
        now: int,
        *,
        version: int | None = None,
        overlay: str = "tidings",
    ) -> "Advertised":
        """It is remembered until everything that it takes back would have ended by itself."""
        return cls._made(owner, id, Kind.WITHDRAWN, b"", Restriction(), version or now, now, now + LONGEST, overlay)

    @classmethod
    def _made(
        cls,
        owner: Identity,
        id: bytes,  # noqa: A002
        kind: Kind,
        said: bytes,
        restriction: Restriction,
        version: int,
        now: int,
        expires: int,
        overlay: str,
    ) -> "Advertised":
        restriction.check()
        body = encoded(_Body(id, kind, said, restriction, version, now, expires, overlay, owner.certificate.der))
        return cls(encoded(Signed(body, owner.sign(PURPOSE, body))))

    @property
    def signers(self) -> list[Certificate]:
        """All on whose word it stands."""
        found = [self.owner]
        if self.record is not None:
            found.append(self.record.owner)
        if self.service is not None:
            found.append(self.service.certificate)
        return found

    def check(self, credentials: Credentials, at: int) -> None:
        """Raises a `SecurityError` unless who has signed it, and what is in it, could be trusted at that time."""
        if self.overlay != credentials.overlay:
            raise SecurityError("audience", f"the advertisement is for the overlay {self.overlay!r:.80}")
        for one in self.signers:
            credentials.anchor.check(one, at)
            credentials.revocations.check(one, at)
            if self.kind is not Kind.WITHDRAWN and self.expires > one.not_after:
                raise SecurityError("expired", f"an advertisement ends no later than the certificate of {one.name}")
        if self.record is not None:
            self.record.check(credentials.anchor, credentials.overlay, at)
        if self.service is not None:
            self.service.check(credentials, Role.KMC, at)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()

    def may_be_found_by(self, asker: Certificate) -> bool:
        """The owner may always."""
        return asker.name == self.owner.name or self.restriction.admits(asker)

    def __repr__(self) -> str:
        what = self.record.template if self.record is not None else self.kind.value
        return f"<Advertised {what}, version {self.version}, by {self.owner.name}>"


def service_id(name: str) -> bytes:
    """A service has one place where it is found, whichever certificate it has."""
    return hashlib.sha256(b"tidings/1/service\0" + name.encode()).digest()[:16]
