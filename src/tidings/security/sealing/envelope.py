"""Envelopes: the format of a sealed event, which brokers can route but neither read nor change undetected.

A sealed event is an ordinary event: its payload is the ciphertext, its `token` is the publisher's, and its
`signature` field is an encoded `Seal` with everything else. The associated data of the cipher and the signature
cover all that must not change. Attributes and context values, which policies may remove, are covered by their root
(see `attribute_merkle`).
"""

import hashlib
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.sealing import attribute_merkle
from tidings.security.sealing.keys import EpochKey, Keyring, commitment
from tidings.security.suites import NONCE, Cipher, Suite

VERSION = 1
EVENT, BATCH, ADDITION = "event", "batch", "addition"  # purposes of signatures (see `encoding.signing_input`)
INSTANCE = 16
_TAG = 16


class Addition(msgspec.Struct, frozen=True, array_like=True):
    """Attributes that a broker added to a sealed event, with the broker's certificate and signature."""

    attributes: dict[str, Any]
    certificate: bytes
    signature: bytes


class Seal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The security header of a sealed event: suite, topic, epoch, counters, wrapped content key, Merkle leaves and
    signature.

    `wrapped` is the content key wrapped under the key of epoch `wrapped_in`; the topic's key management centre can
    rewrap it under a later epoch, since neither ciphertext nor signature cover it. `scope` is a commitment to the
    event's `subscribers` filter and policy. A subscriber does not receive `scope_salt` and so cannot guess them.
    """

    version: int
    suite: int
    topic: bytes
    epoch: int
    instance: bytes
    counter: int
    timestamp: int  # set by the publisher, in microseconds
    sequence: int
    commitment: bytes
    wrapped: bytes
    wrapped_in: int
    leaves: bytes
    salts: dict[str, bytes]
    scope: bytes
    scope_salt: bytes
    signature: bytes = b""
    index: int = 0  # position in a signed batch of `size` events
    size: int = 1
    path: tuple[bytes, ...] = ()
    additions: tuple[Addition, ...] = ()

    @classmethod
    def of(cls, event: Event) -> "Seal":
        """Return the seal of a sealed event, decoded but not verified. Raises `SecurityError` if there is none."""
        if event.signature is None:
            raise SecurityError("seal", "the event has no seal")
        return cls.read(event.signature)

    @classmethod
    def read(cls, data: bytes) -> "Seal":
        """Decode a seal, without verifying it. Raises `SecurityError` for malformed data or another version."""
        seal = decode_canonical(data, cls, "seal")
        if seal.version != VERSION:
            raise SecurityError("form", f"a seal of version {seal.version}; this one reads version {VERSION}")
        if len(seal.instance) != INSTANCE or not 0 <= seal.counter < 2**64 or len(seal.signature) != 64:
            raise SecurityError("form", "a seal has an instance, a counter and a signature")
        return seal

    @property
    def data(self) -> bytes:
        """The encoded seal, for an event's `signature` field."""
        return encode_canonical(self)

    def header(self, event: Event) -> bytes:
        """Return the associated data of the cipher: if any of it changes, the payload cannot be decrypted."""
        return self.header_of(event.id.bytes, event.publisher, event.subject)

    def header_of(self, id: bytes, publisher: str, subject: str | None) -> bytes:  # noqa: A002 - the event's own word
        """Return the associated data from the event's id, publisher and subject. See `header`."""
        return encode_canonical(
            (
                self.version,
                self.suite,
                self.topic,
                self.epoch,
                id,
                publisher,
                self.instance,
                self.counter,
                self.timestamp,
                self.sequence,
                subject,
                self.scope,
                self.commitment,
                attribute_merkle.root_of(self.leaves),
            )
        )

    def digest(self, event: Event) -> bytes:
        """Return the digest that the publisher's signature covers, for this event."""
        return digest_of(self.header(event), event.payload)


def digest_of(header: bytes, ciphertext: bytes | None) -> bytes:
    """Return the digest that the signature covers: SHA-256 over the associated data and the hash of the ciphertext."""
    return hashlib.sha256(header + hashlib.sha256(ciphertext or b"").digest()).digest()


def scope_of(event: Event, salt: bytes) -> bytes:
    """Return the commitment to the event's `subscribers` filter and policy, empty if it has neither."""
    return _scope(None if event.subscribers is None else str(event.subscribers), event.policy, salt)


def _scope(subscribers: str | None, policy: str | None, salt: bytes) -> bytes:
    if subscribers is None and policy is None:
        return b""
    return hashlib.sha256(b"\x03" + salt + encode_canonical((subscribers, policy))).digest()


def nonce_of(counter: int) -> bytes:
    """Return the cipher's nonce for a counter."""
    return counter.to_bytes(NONCE, "big")


def trim(event: Event, *, for_subscriber: bool = False, seal: Seal | None = None, added: Container[str] = ()) -> Event:
    """Return the event without the salts of attributes and context values that were removed from it.

    Args:
        event: The event, sealed or not.
        for_subscriber: The event goes to a subscriber: remove the salt of the scope as well.
        seal: The event's seal, if the caller has decoded it already.
        added: Names of attributes that brokers added, possibly in place of signed ones.
    """
    if event.signature is None:
        return event
    if seal is None:
        seal = Seal.of(event)
    salts = attribute_merkle.remaining_salts(seal.salts, event.attributes, event.context, added)
    scope_salt = b"" if for_subscriber else seal.scope_salt
    if len(salts) == len(seal.salts) and scope_salt == seal.scope_salt:
        return event
    return msgspec.structs.replace(
        event, signature=msgspec.structs.replace(seal, salts=salts, scope_salt=scope_salt).data
    )


# Verifying and decrypting


def check_attributes(event: Event, seal: Seal, added: Mapping[str, Any] | None = None) -> None:
    """Raise `SecurityError` unless all attributes and context values are signed by the publisher or in `added`.

    Values may be missing; `added` has the attributes that brokers added and signed.
    """
    attribute_merkle.check(event.attributes, event.context, seal.salts, seal.leaves, added or {})


def check_scope(event: Event, seal: Seal) -> None:
    """Raise `SecurityError` unless the event's `subscribers` filter and policy are as signed. For brokers, which have
    the scope's salt."""
    check_scope_of(None if event.subscribers is None else str(event.subscribers), event.policy, seal)


def check_scope_of(subscribers: str | None, policy: str | None, seal: Seal) -> None:
    """Raise `SecurityError` unless this `subscribers` filter and policy, as text, are as signed. See `check_scope`."""
    if _scope(subscribers, policy, seal.scope_salt) != seal.scope:
        raise SecurityError("scope", "for whom the event is, or its policy, is not as its publisher signed it")


class ContentKeys:
    """A cache of content keys that were unwrapped with the epoch keys of a keyring, as ciphers.

    A content key belongs to one instance of a publisher, so a stream of events usually needs one entry. The oldest
    of `most` entries is dropped first.
    """

    def __init__(self, keyring: Keyring, max_entries: int = 4_096) -> None:
        self._keyring, self._max_entries = keyring, max_entries
        self._ciphers: dict[tuple[bytes, bytes, bytes], Cipher] = {}

    def cipher(self, seal: Seal) -> Cipher:
        """Return the cipher for the payload of an event with this seal.

        Raises `SecurityError` if the keyring lacks the epoch key, or the content key is not the one that the seal
        commits to.
        """
        # The commitment is in the cache key, so that a seal with another content key never finds this entry.
        cache_key = seal.topic, seal.instance, seal.commitment
        cipher = self._ciphers.get(cache_key)
        if cipher is None:
            cipher = self._unwrap_cipher(seal)
            while len(self._ciphers) >= self._max_entries:
                del self._ciphers[next(iter(self._ciphers))]
            self._ciphers[cache_key] = cipher
        return cipher

    def _unwrap_cipher(self, seal: Seal) -> Cipher:
        key: EpochKey | None = self._keyring.get(seal.topic, seal.wrapped_in)
        if key is None:
            raise SecurityError("key", f"the key of epoch {seal.wrapped_in} is not held here")
        try:
            suite = Suite(seal.suite)
        except ValueError:
            raise SecurityError("form", f"there is no suite {seal.suite}") from None
        if suite != key.suite:
            raise SecurityError("form", "the seal is of another suite than its topic")
        content_key = key.unwrap(seal.wrapped)
        if len(content_key) != suite.key_bytes or commitment(suite, content_key, seal.instance) != seal.commitment:
            raise SecurityError("key", "the content key is not the one that the seal commits to")
        return suite.cipher(content_key)

    def clear(self) -> None:
        """Drop all cached ciphers, e.g. because an epoch key was removed."""
        self._ciphers.clear()


def decrypt(event: Event, seal: Seal, header: bytes, keys: ContentKeys) -> bytes:
    """Return the decrypted payload of an event. The caller has verified the signature before.

    Args:
        event: The sealed event.
        seal: The event's seal.
        header: The associated data, `seal.header(event)`.
        keys: The content keys to decrypt with.
    """
    if event.payload is None or len(event.payload) < _TAG:
        raise SecurityError("payload", "the event has no sealed payload")
    try:
        return keys.cipher(seal).decrypt(nonce_of(seal.counter), event.payload, header)
    except InvalidTag:
        raise SecurityError("payload", "the payload cannot be opened: it, or its header, was changed") from None


def rewrap(event: Event, before: EpochKey, after: EpochKey) -> Event:
    """Return the event with its content key wrapped under a later epoch.

    For the topic's key management centre. What is signed does not change. Raises `SecurityError` if the keys are not
    of this event's topic and epoch.
    """
    seal = Seal.of(event)
    if seal.wrapped_in != before.epoch or before.topic != after.topic or after.topic != seal.topic:
        raise SecurityError("key", "the event is sealed under another epoch, or on another topic")
    wrapped = after.wrap(before.unwrap(seal.wrapped))
    return msgspec.structs.replace(
        event, signature=msgspec.structs.replace(seal, wrapped=wrapped, wrapped_in=after.epoch).data
    )
