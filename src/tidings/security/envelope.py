"""The envelope: a payload that brokers route and cannot read, and that nobody can change unseen.

What is sealed stays an event: its payload is the ciphertext, its `token` that of the publisher, and its `signature` the
`Seal` with all the rest. The associated data names everything that must not change; of attributes and context values,
which policies may take away, it names the root (see `root`).
"""

import hashlib
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security import root
from tidings.security.encoding import decoded, encoded
from tidings.security.keys import EpochKey, Keyring, commitment
from tidings.security.suites import NONCE, Cipher, Suite

VERSION = 1
EVENT, BATCH, ADDITION = "event", "batch", "addition"  # purposes of signatures
INSTANCE = 16
_TAG = 16


class Addition(msgspec.Struct, frozen=True, array_like=True):
    """Attributes that a broker has added, with its certificate and its signature."""

    attributes: dict[str, Any]
    certificate: bytes
    signature: bytes


class Seal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`wrapped` may be wrapped anew, by the topic's centre, under a later epoch (`wrapped_in`): neither ciphertext nor
    signature know of it. `scope` commits to whom the event is for and under which policy; who is told the event does
    not get the salt of that."""

    version: int
    suite: int
    topic: bytes
    epoch: int
    instance: bytes
    counter: int
    timestamp: int  # the publisher's, in microseconds
    sequence: int
    commitment: bytes
    wrapped: bytes
    wrapped_in: int
    leaves: bytes
    salts: dict[str, bytes]
    scope: bytes
    scope_salt: bytes
    signature: bytes = b""
    index: int = 0  # in a batch of `size`
    size: int = 1
    path: tuple[bytes, ...] = ()
    additions: tuple[Addition, ...] = ()

    @classmethod
    def of(cls, event: Event) -> "Seal":
        """Of a sealed event; what it says is not checked yet."""
        if event.signature is None:
            raise SecurityError("seal", "the event has no seal")
        return cls.read(event.signature)

    @classmethod
    def read(cls, data: bytes) -> "Seal":
        """Of its bytes."""
        seal = decoded(data, cls, "seal")
        if seal.version != VERSION:
            raise SecurityError("form", f"a seal of version {seal.version}; this one reads version {VERSION}")
        if len(seal.instance) != INSTANCE or not 0 <= seal.counter < 2**64 or len(seal.signature) != 64:
            raise SecurityError("form", "a seal has an instance, a counter and a signature")
        return seal

    @property
    def data(self) -> bytes:
        return encoded(self)

    def header(self, event: Event) -> bytes:
        """The associated data: nothing of it can change without the payload becoming unreadable."""
        return self.header_of(event.id.bytes, event.publisher, event.subject)

    def header_of(self, id: bytes, publisher: str, subject: str | None) -> bytes:  # noqa: A002 - the event's own word
        """The same, where that is known of the event."""
        return encoded(
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
                root.root_of(self.leaves),
            )
        )

    def digest(self, event: Event) -> bytes:
        return digest_of(self.header(event), event.payload)


def digest_of(header: bytes, ciphertext: bytes | None) -> bytes:
    """What is signed: the associated data and the ciphertext."""
    return hashlib.sha256(header + hashlib.sha256(ciphertext or b"").digest()).digest()


def scope_of(event: Event, salt: bytes) -> bytes:
    """A commitment to whom the event is for, and to its policy; empty where it says neither."""
    return _scope(None if event.subscribers is None else str(event.subscribers), event.policy, salt)


def _scope(subscribers: str | None, policy: str | None, salt: bytes) -> bytes:
    if subscribers is None and policy is None:
        return b""
    return hashlib.sha256(b"\x03" + salt + encoded((subscribers, policy))).digest()


def nonce_of(counter: int) -> bytes:
    return counter.to_bytes(NONCE, "big")


def trimmed(event: Event, *, shown: bool = False, seal: Seal | None = None, added: Container[str] = ()) -> Event:
    """The event without the salts of what has been taken away of it, also if something was `added` in its place;
    `shown`: to a subscriber. `seal`: its own, for who has read it."""
    if event.signature is None:
        return event
    if seal is None:
        seal = Seal.of(event)
    salts = root.trimmed(seal.salts, event.attributes, event.context, added)
    scope_salt = b"" if shown else seal.scope_salt
    if len(salts) == len(seal.salts) and scope_salt == seal.scope_salt:
        return event
    return msgspec.structs.replace(
        event, signature=msgspec.structs.replace(seal, salts=salts, scope_salt=scope_salt).data
    )


# Checking and opening


def check_attributes(event: Event, seal: Seal, added: Mapping[str, Any] | None = None) -> None:
    """Attributes and context are those that were signed, or fewer; `added`: by brokers, who have signed these."""
    root.check(event.attributes, event.context, seal.salts, seal.leaves, added or {})


def check_scope(event: Event, seal: Seal) -> None:
    """At a broker: for whom it is, and its policy, are as they were signed."""
    check_scope_of(None if event.subscribers is None else str(event.subscribers), event.policy, seal)


def check_scope_of(subscribers: str | None, policy: str | None, seal: Seal) -> None:
    """The same of their texts."""
    if _scope(subscribers, policy, seal.scope_salt) != seal.scope:
        raise SecurityError("scope", "for whom the event is, or its policy, is not as its publisher signed it")


class ContentKeys:
    """The ciphers of instances that have been unwrapped: a stream of events has one."""

    def __init__(self, keyring: Keyring, most: int = 4_096) -> None:
        self._keyring, self._most = keyring, most
        self._ciphers: dict[tuple[bytes, bytes, bytes], Cipher] = {}

    def cipher(self, seal: Seal) -> Cipher:
        # The commitment is in the name: what another wrapped key would be is another entry.
        name = seal.topic, seal.instance, seal.commitment
        found = self._ciphers.get(name)
        if found is None:
            found = self._unwrapped(seal)
            while len(self._ciphers) >= self._most:
                del self._ciphers[next(iter(self._ciphers))]
            self._ciphers[name] = found
        return found

    def _unwrapped(self, seal: Seal) -> Cipher:
        key: EpochKey | None = self._keyring.get(seal.topic, seal.wrapped_in)
        if key is None:
            raise SecurityError("key", f"the key of epoch {seal.wrapped_in} is not held here")
        try:
            suite = Suite(seal.suite)
        except ValueError:
            raise SecurityError("form", f"there is no suite {seal.suite}") from None
        if suite != key.suite:
            raise SecurityError("form", "the seal is of another suite than its topic")
        content = key.unwrap(seal.wrapped)
        if len(content) != suite.key_bytes or commitment(suite, content, seal.instance) != seal.commitment:
            raise SecurityError("key", "the content key is not the one that the seal commits to")
        return suite.cipher(content)

    def clear(self) -> None:
        self._ciphers.clear()


def opened(event: Event, seal: Seal, header: bytes, keys: ContentKeys) -> bytes:
    """The payload, after the signature has been checked; `header` is the seal's, over this event."""
    if event.payload is None or len(event.payload) < _TAG:
        raise SecurityError("payload", "the event has no sealed payload")
    try:
        return keys.cipher(seal).decrypt(nonce_of(seal.counter), event.payload, header)
    except InvalidTag:
        raise SecurityError("payload", "the payload cannot be opened: it, or its header, was changed") from None


def rewrapped(event: Event, before: EpochKey, after: EpochKey) -> Event:
    """The same event for those who have the later key: by the topic's centre, without touching what is signed."""
    seal = Seal.of(event)
    if seal.wrapped_in != before.epoch or before.topic != after.topic or after.topic != seal.topic:
        raise SecurityError("key", "the event is sealed under another epoch, or on another topic")
    wrapped = after.wrap(before.unwrap(seal.wrapped))
    return msgspec.structs.replace(
        event, signature=msgspec.structs.replace(seal, wrapped=wrapped, wrapped_in=after.epoch).data
    )
