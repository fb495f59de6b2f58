"""Tokens: what an entity may do on a secure topic, or on a part of it, and until when; signed by the topic's centre.

A token is not secret, and possession does not make anybody its holder: its `key` is the public half of the key
that the holder signs events and subscriptions with.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.certificates import Certificate, Role, TrustAnchor
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical, set_fields
from tidings.security.template import Template
from tidings.security.topic_record import TopicRecord

PURPOSE = "token"
KEY = 32  # bytes of an Ed25519 key


class Right(IntFlag):
    """The rights that a token grants on a topic, as bit flags."""

    PUBLISH = 1
    SUBSCRIBE = 2
    GOVERN = 4

    @classmethod
    def of(cls, words: Iterable[str]) -> "Right":
        """Return the rights for words such as `publish`. Raises `InvalidValueError` for unknown words, or none at
        all."""
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
        """The names of the rights, in lower case."""
        return [right.name.lower() for right in Right if right in self and right.name is not None]


class _Body(msgspec.Struct, frozen=True, array_like=True):
    record: bytes  # the whole topic record, so that a broker learns the topic from a token
    template: str
    holder: bytes  # the holder's certificate
    key: bytes
    rights: int
    not_before: int
    not_after: int
    audience: str
    grant: int  # the version of the holder's grant; a revocation raises the lowest version that is valid
    kmc: bytes  # the centre's certificate


@dataclass(frozen=True, eq=False, repr=False)
class Token:
    """A decoded token with a valid signature by the centre's certificate in it, a value.

    The constructor raises `SecurityError` for malformed data or a wrong signature. Trust, revocation, expiry and
    rights are for `check`, `Credentials` and `check_use`.
    """

    data: bytes
    holder: Certificate = field(init=False)
    kmc: Certificate = field(init=False)
    record: TopicRecord = field(init=False)
    key: bytes = field(init=False)
    rights: Right = field(init=False)
    not_before: int = field(init=False)
    not_after: int = field(init=False)
    audience: str = field(init=False)
    grant: int = field(init=False)
    template: Template = field(init=False)
    _rights: int = field(init=False)  # a plain int, because every event checks it
    _expires: int = field(init=False)

    def __post_init__(self) -> None:
        signed = decode_canonical(self.data, SignedValue, "token")
        body = decode_canonical(signed.body, _Body, "token")
        holder, kmc = Certificate.read(body.holder), Certificate.read(body.kmc)
        kmc.verify(PURPOSE, signed.body, signed.signature)
        record = TopicRecord(body.record)
        if len(body.key) != KEY:
            raise SecurityError("form", "a token names a key of 32 bytes")
        if not 0 < body.rights < 8:
            raise SecurityError("form", "a token gives rights that there are")
        set_fields(self, holder=holder, kmc=kmc, record=record, key=body.key, audience=body.audience, grant=body.grant)
        set_fields(self, rights=Right(body.rights), _rights=body.rights, template=Template.read(body.template))
        # The token ends with the first of its certificates, so that cached and fresh tokens get the same answer.
        ends = (certificate.not_after for certificate in (holder, kmc, record.owner))
        set_fields(self, not_before=body.not_before, not_after=body.not_after, _expires=min(body.not_after, *ends))

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
        """Create and sign a token as the centre that the topic record names.

        Raises `InvalidValueError` if the template is wider than the topic, or the token ends before it begins.

        Args:
            kmc: The identity of the key management centre.
            record: The topic's record.
            holder: The certificate of the entity that gets the token.
            key: The holder's public Ed25519 key.
            rights: What the holder may do.
            not_before: Microseconds from which the token is valid.
            not_after: Microseconds at which the token expires.
            grant: The version of the holder's grant.
            template: The part of the topic that the token is for; by default the whole topic.
        """
        part = record.template if template is None else Template.parse(template)
        if not record.template.covers(part):
            raise InvalidValueError(f"{part} is more than the topic: it is {record.template}")
        if not_before >= not_after:
            raise InvalidValueError("a token ends after it begins")
        body = encode_canonical(
            _Body(
                *(record.data, str(part), holder.der, key, int(rights), not_before, not_after),
                *(record.overlay, grant, kmc.certificate.der),
            )
        )
        return cls(encode_canonical(SignedValue(body, kmc.sign(PURPOSE, body))))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the token's bytes."""
        return hashlib.sha256(self.data).digest()

    @cached_property
    def is_whole(self) -> bool:
        """Whether the token is for the whole topic."""
        return self.template.covers(self.record.template)

    @cached_property
    def topic(self) -> bytes:
        """The id of the token's topic."""
        return self.record.id

    @cached_property
    def serials(self) -> frozenset[bytes]:
        """The serial numbers of the certificates that the token depends on: centre, holder and topic owner."""
        return frozenset(certificate.serial_bytes for certificate in (self.kmc, self.holder, self.record.owner))

    def check(self, anchor: TrustAnchor, overlay: str, now: int) -> None:
        """Raise `SecurityError` unless certificates, topic record, audience and template are valid.

        These checks are done once for a token. Revocation, expiry and rights are checked elsewhere, at every use.
        """
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
        """The moments at which the result of `check_use` changes."""
        return self.not_before, self._expires

    def check_use(self, right: Right, now: int) -> None:
        """Raise `SecurityError` unless the token is valid now and grants `right`. To be called at every use."""
        if now < self.not_before:
            raise SecurityError("not yet", f"the token of {self.holder.name} is not valid yet")
        if now >= self._expires:
            raise SecurityError("expired", f"the token of {self.holder.name} has expired; request another one")
        if int.__and__(right, self._rights) != right:
            raise SecurityError("right", f"the token of {self.holder.name} gives no right to {right.words[0]}")

    def __repr__(self) -> str:
        return f"<Token of {self.holder.name} for {self.template}: {', '.join(self.rights.words)}>"
