"""Topic records: what a secure topic is, and which one key management centre counts for it; signed by its owner.

Whoever has an authority's certificate can check one: who owns a topic is no secret, and nobody has to be believed.
"""

import hashlib
from functools import cached_property
from typing import NamedTuple

import msgspec

from tidings.model.errors import SecurityError
from tidings.security.certificates import Anchor, Certificate
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.identity import Identity
from tidings.security.suites import Suite
from tidings.security.template import Template

PURPOSE = "topic record"
ID = 16  # bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    template: str
    suite: int
    kmc: bytes  # the fingerprint of its certificate
    version: int  # a later one of the same owner takes its place
    overlay: str
    owner: bytes  # the certificate


class TopicRecord:
    """A record that can be read and whose signature is its owner's; `check` says whether the owner can be trusted."""

    def __init__(self, data: bytes) -> None:
        signed = decoded(data, Signed, "topic record")
        body = decoded(signed.body, _Body, "topic record")
        self.data = data
        self.owner = Certificate.read(body.owner)
        self.owner.verify(PURPOSE, signed.body, signed.signature)
        if len(body.id) != ID or len(body.kmc) != 32:
            raise SecurityError("form", "a topic record has an id of 16 bytes, and a fingerprint of 32")
        self.id, self.kmc, self.version, self.overlay = body.id, body.kmc, body.version, body.overlay
        self.template = Template.read(body.template)
        try:
            self.suite = Suite(body.suite)
        except ValueError:
            raise SecurityError("form", f"there is no suite {body.suite}") from None

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
        text = str(Template.parse(template))
        body = encoded(_Body(id, text, suite, kmc.fingerprint, version, overlay, owner.certificate.der))
        return cls(encoded(Signed(body, owner.sign(PURPOSE, body))))

    @cached_property
    def digest(self) -> bytes:
        """Tokens name the record that they are for by this."""
        return hashlib.sha256(self.data).digest()

    def check(self, anchor: Anchor, overlay: str, now: int) -> None:
        anchor.check(self.owner, now)
        if self.overlay != overlay:
            raise SecurityError("audience", f"the topic {self.template} is one of the overlay {self.overlay!r}")

    def replaces(self, other: "TopicRecord") -> bool:
        """Whether it is a later one of the same topic, by its owner."""
        return self.id == other.id and self.owner.name == other.owner.name and self.version > other.version

    def __repr__(self) -> str:
        return f"<TopicRecord {self.template}, version {self.version}, of {self.owner.name}>"


class Provenance(NamedTuple):
    """Who says so: for people."""

    template: str
    owner: str
    serial: str
    version: int


def provenance(record: TopicRecord) -> Provenance:
    return Provenance(str(record.template), record.owner.name, f"{record.owner.serial:x}", record.version)
