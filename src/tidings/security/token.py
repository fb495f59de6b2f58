"""Tokens: what an entity may do on a topic, or on a part of it, until when; signed by the topic's centre.

A token is no secret, and does not make anybody its holder: its `key` is the public half of the key that the holder
signs events and subscriptions with.
"""

import hashlib
from collections.abc import Iterable
from enum import IntFlag
from functools import cached_property

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.certificates import Anchor, Certificate, Role
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.identity import Identity
from tidings.security.records import TopicRecord
from tidings.security.template import Template

PURPOSE = "token"
KEY = 32  # bytes of an Ed25519 key


class Right(IntFlag):
    PUBLISH = 1
    SUBSCRIBE = 2
    GOVERN = 4

    @classmethod
    def of(cls, words: Iterable[str]) -> "Right":
        rights = cls(0)
        for word in words:
            try:
                rights |= cls[word.strip().upper()]
            except KeyError:
                raise InvalidValueError(f"the right {word!r}: there are publish, subscribe and govern") from None
        if not rights:
            raise InvalidValueError("a token gives at least one right: publish, subscribe or govern")
        return rights

    @property
    def words(self) -> list[str]:
        return [one.name.lower() for one in Right if one in self and one.name is not None]


class _Body(msgspec.Struct, frozen=True, array_like=True):
    record: bytes  # the topic's, whole: whoever sees a token knows the topic
    template: str
    holder: bytes  # its certificate
    key: bytes
    rights: int
    not_before: int
    not_after: int
    audience: str
    grant: int  # the version of what the holder was granted; a revocation raises it
    kmc: bytes  # its certificate


class Token:
    """A token that can be read and whose signature is that of the certificate in it; `check` says its worth."""

    def __init__(self, data: bytes) -> None:
        signed = decoded(data, Signed, "token")
        body = decoded(signed.body, _Body, "token")
        self.data = data
        self.holder, self.kmc = Certificate.read(body.holder), Certificate.read(body.kmc)
        self.kmc.verify(PURPOSE, signed.body, signed.signature)
        self.record = TopicRecord(body.record)
        if len(body.key) != KEY:
            raise SecurityError("form", "a token names a key of 32 bytes")
        if not 0 < body.rights < 8:
            raise SecurityError("form", "a token gives rights that there are")
        self.key, self.rights = body.key, Right(body.rights)
        self._rights = body.rights  # as a plain number: it is asked with every event
        self.not_before, self.not_after = body.not_before, body.not_after
        # With the first of its certificates: who remembers it says the same as who sees it for the first time.
        self._ends = min(body.not_after, *(one.not_after for one in (self.holder, self.kmc, self.record.owner)))
        self.audience, self.grant = body.audience, body.grant
        self.template = Template.read(body.template)

    @classmethod
    def make(
        cls,
        kmc: Identity,
        record: TopicRecord,
        *,
        holder: Certificate,
        key: bytes,
        rights: Right,
        not_before: int,
        not_after: int,
        grant: int,
        template: str | None = None,
    ) -> "Token":
        """By the centre that the record names; `template`: for a part of the topic."""
        part = record.template if template is None else Template.parse(template)
        if not record.template.covers(part):
            raise InvalidValueError(f"{part} is more than the topic: it is {record.template}")
        if not_before >= not_after:
            raise InvalidValueError("a token ends after it begins")
        body = encoded(
            _Body(
                *(record.data, str(part), holder.der, key, int(rights), not_before, not_after),
                *(record.overlay, grant, kmc.certificate.der),
            )
        )
        return cls(encoded(Signed(body, kmc.sign(PURPOSE, body))))

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()

    @cached_property
    def is_whole(self) -> bool:
        """Whether it is for the whole topic."""
        return self.template.covers(self.record.template)

    @cached_property
    def topic(self) -> bytes:
        return self.record.id

    @cached_property
    def serials(self) -> frozenset[bytes]:
        """Of the certificates of all who have to do with it."""
        return frozenset(one.serial_bytes for one in (self.kmc, self.holder, self.record.owner))

    def check(self, anchor: Anchor, overlay: str, now: int) -> None:
        """All that can be said once and for all, but for what is revoked: of the chain, the topic and the audience."""
        record = self.record
        anchor.check(self.kmc, now, Role.KMC)
        if self.kmc.fingerprint != record.kmc:
            raise SecurityError("kmc", f"{self.kmc.name} is not the centre that counts for {record.template}")
        anchor.check(self.holder, now)
        record.check(anchor, overlay, now)
        if self.audience != overlay:
            raise SecurityError("audience", f"the token is for the overlay {self.audience!r}")
        if not record.template.covers(self.template):
            raise SecurityError("topic", f"the token is for {self.template}, which is more than the topic")

    @property
    def turns(self) -> tuple[int, int]:
        """The moments at which it changes what `check_use` says."""
        return self.not_before, self._ends

    def check_use(self, right: Right, now: int) -> None:
        """What is checked at every use."""
        if now < self.not_before:
            raise SecurityError("not yet", f"the token of {self.holder.name} is not valid yet")
        if now >= self._ends:
            raise SecurityError("expired", f"the token of {self.holder.name} has expired; request another one")
        if int.__and__(right, self._rights) != right:
            raise SecurityError("right", f"the token of {self.holder.name} gives no right to {right.words[0]}")

    def __repr__(self) -> str:
        return f"<Token of {self.holder.name} for {self.template}: {', '.join(self.rights.words)}>"
