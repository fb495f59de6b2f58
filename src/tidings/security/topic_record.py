"""Topic records: the signed definition of a secure topic.

A record is signed by the topic's owner. It names the topic's id, its template, its suite and the one key management
centre that issues tokens and keys for it. Anybody with the authority's certificate can verify a record and its
owner.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec

from tidings.model.errors import SecurityError
from tidings.security.ca.certificates import Certificate, TrustAnchor
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical, set_fields
from tidings.security.suites import Suite
from tidings.security.template import Template

PURPOSE = "topic record"
ID = 16  # bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    template: str
    suite: int
    kmc: bytes  # the fingerprint of the key management centre's certificate
    version: int  # a later version by the same owner replaces this one
    overlay: str
    owner: bytes  # the owner's certificate (DER)


@dataclass(frozen=True, eq=False, repr=False)
class TopicRecord:
    """A topic record that has been decoded, with a valid signature by the owner certificate inside it, a value.

    The constructor raises `SecurityError` for malformed data or a wrong signature. Whether the owner can be trusted
    is for `check`.
    """

    data: bytes
    owner: Certificate = field(init=False)
    id: bytes = field(init=False)
    kmc: bytes = field(init=False)  # the fingerprint of the key management centre's certificate
    version: int = field(init=False)
    overlay: str = field(init=False)
    template: Template = field(init=False)
    suite: Suite = field(init=False)

    def __post_init__(self) -> None:
        signed = decode_canonical(self.data, SignedValue, "topic record")
        body = decode_canonical(signed.body, _Body, "topic record")
        owner = Certificate.read(body.owner)
        owner.verify(PURPOSE, signed.body, signed.signature)
        if len(body.id) != ID or len(body.kmc) != 32:
            raise SecurityError("form", "a topic record has an id of 16 bytes, and a fingerprint of 32")
        template = Template.read(body.template)
        try:
            suite = Suite(body.suite)
        except ValueError:
            raise SecurityError("form", f"there is no suite {body.suite}") from None
        set_fields(self, owner=owner, id=body.id, kmc=body.kmc, version=body.version, overlay=body.overlay)
        set_fields(self, template=template, suite=suite)

    @classmethod
    def make(
        cls,
        owner: Identity,
        *,
        id: bytes,  # noqa: A002 - the record's own word
        template: str,
        kmc: Certificate,
        suite: Suite = Suite.AES_256_GCM,
        version: int = 1,
        overlay: str = "tidings",
    ) -> "TopicRecord":
        """Create a record and sign it as the topic's owner.

        Args:
            owner: The owner's identity, which signs the record.
            id: The topic's id, 16 bytes.
            template: The template of the events that are on the topic.
            kmc: The certificate of the key management centre for this topic.
            suite: The cipher suite of the topic's keys.
            version: The version; a later one replaces this record.
            overlay: The overlay that the record is valid in.
        """
        text = str(Template.parse(template))
        body = encode_canonical(_Body(id, text, suite, kmc.fingerprint, version, overlay, owner.certificate.der))
        return cls(encode_canonical(SignedValue(body, owner.sign(PURPOSE, body))))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the record's bytes, by which tokens name it."""
        return hashlib.sha256(self.data).digest()

    def check(self, anchor: TrustAnchor, overlay: str, now: int) -> None:
        """Raise `SecurityError` unless the authority issued the owner's certificate, it is valid now, and the record is
        for `overlay`."""
        anchor.check(self.owner, now)
        if self.overlay != overlay:
            raise SecurityError("audience", f"the topic {self.template} is one of the overlay {self.overlay!r}")

    def replaces(self, other: "TopicRecord") -> bool:
        """Return whether this is a later version of `other`: the same topic and the same owner."""
        return self.id == other.id and self.owner.name == other.owner.name and self.version > other.version

    def __repr__(self) -> str:
        return f"<TopicRecord {self.template}, version {self.version}, of {self.owner.name}>"


class TopicProvenance(NamedTuple):
    """Where a topic record comes from, for display: template, owner, serial number of the owner's certificate, and
    version."""

    template: str
    owner: str
    serial: str
    version: int


def provenance(record: TopicRecord) -> TopicProvenance:
    """Return the provenance of a topic record for display."""
    return TopicProvenance(str(record.template), record.owner.name, f"{record.owner.serial:x}", record.version)
