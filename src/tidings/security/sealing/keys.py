"""Epoch keys of secure topics, and the keyring of a member.

A topic has one key per epoch. A new epoch begins on a revocation, on expiry, after N messages or after T seconds.
Members that had the key of an old epoch can still open what was sealed under it.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator

import msgspec
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from tidings.model.errors import SecurityError
from tidings.security.suites import Suite


class EpochKey(msgspec.Struct, frozen=True, array_like=True):
    """The secret key of a topic for one epoch. Its `repr` does not contain the key."""

    topic: bytes
    epoch: int
    suite: int
    key: bytes
    since: int  # microseconds
    until: int  # from then on publishers do not seal under it

    def wrap(self, content_key: bytes) -> bytes:
        """Wrap a content key under this key (RFC 3394)."""
        return aes_key_wrap(self.key, content_key)

    def unwrap(self, wrapped: bytes) -> bytes:
        """Unwrap a content key. Raises `SecurityError("key")` if it is not wrapped under this key."""
        try:
            return aes_key_unwrap(self.key, wrapped)
        except (InvalidUnwrap, ValueError):
            raise SecurityError("key", f"the content key is not wrapped under epoch {self.epoch}") from None

    def __repr__(self) -> str:
        return f"<EpochKey {self.epoch} of {self.topic.hex()}>"

    __str__ = __repr__


def commitment(suite: Suite, content_key: bytes, instance: bytes) -> bytes:
    """Return the HMAC that binds a ciphertext to one content key, which AEAD ciphers alone do not guarantee."""
    return hmac.digest(content_key, b"tidings/1/commitment\0" + bytes([suite]) + instance, hashlib.sha256)


class Keyring:
    """The epoch keys that a member has received, by topic and epoch."""

    def __init__(self, keys: Iterable[EpochKey] = ()) -> None:
        self._keys: dict[bytes, dict[int, EpochKey]] = {}
        for key in keys:
            self.put(key)

    def put(self, key: EpochKey) -> None:
        """Add a key. Raises `SecurityError` if it does not have the size of its suite."""
        if len(key.key) != Suite(key.suite).key_bytes:
            raise SecurityError("key", "a topic's key has the size that its suite says")
        self._keys.setdefault(key.topic, {})[key.epoch] = key

    def latest(self, topic: bytes) -> EpochKey | None:
        """Return the key with the highest epoch, even if that epoch has not begun."""
        epochs = self._keys.get(topic)
        return epochs[max(epochs)] if epochs else None

    def current(self, topic: bytes, now: int) -> EpochKey | None:
        """Return the key to seal under: the latest whose epoch has begun.

        Keys are issued before their epoch begins, so that every member has them by then. If no epoch has begun by
        the local clock, the clocks differ, and the first key is returned. Returns None if there is no key of the
        topic.
        """
        epochs = self._keys.get(topic)
        if not epochs:
            return None
        latest = epochs[max(epochs)]
        if latest.since <= now:  # the common case
            return latest
        begun = [epoch for epoch, key in epochs.items() if key.since <= now]
        return epochs[max(begun) if begun else min(epochs)]

    def since(self, topic: bytes, epoch: int) -> list[EpochKey]:
        """Return the keys of `epoch` and all later epochs, in order."""
        epochs = self._keys.get(topic, {})
        return [epochs[number] for number in sorted(epochs) if number >= epoch]

    def get(self, topic: bytes, epoch: int) -> EpochKey | None:
        """Return the key of one epoch, or None."""
        return self._keys.get(topic, {}).get(epoch)

    def drop(self, topic: bytes, epoch: int) -> None:
        """Remove the key of one epoch, if present."""
        self._keys.get(topic, {}).pop(epoch, None)

    def forget(self, topic: bytes) -> None:
        """Remove all keys of a topic."""
        self._keys.pop(topic, None)

    def __iter__(self) -> Iterator[EpochKey]:
        return (key for epochs in self._keys.values() for key in epochs.values())

    def __repr__(self) -> str:
        return f"<Keyring of {len(self._keys)} topics>"
