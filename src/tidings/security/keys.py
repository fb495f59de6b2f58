"""Keys of topics: one for each epoch. A new epoch begins on a revocation, on expiry, after N messages or T seconds;
what was sealed under an old one stays readable for those who had it."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator

import msgspec
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from tidings.model.errors import SecurityError
from tidings.security.suites import Suite


class EpochKey(msgspec.Struct, frozen=True, array_like=True):
    """The secret of a topic from one moment on; it never shows itself."""

    topic: bytes
    epoch: int
    suite: int
    key: bytes
    since: int  # microseconds
    until: int  # from then on nobody seals under it

    def wrap(self, content_key: bytes) -> bytes:
        """RFC 3394."""
        return aes_key_wrap(self.key, content_key)

    def unwrap(self, wrapped: bytes) -> bytes:
        try:
            return aes_key_unwrap(self.key, wrapped)
        except (InvalidUnwrap, ValueError):
            raise SecurityError("key", f"the content key is not wrapped under epoch {self.epoch}") from None

    def __repr__(self) -> str:
        return f"<EpochKey {self.epoch} of {self.topic.hex()}>"

    __str__ = __repr__


def commitment(suite: Suite, content_key: bytes, instance: bytes) -> bytes:
    """What binds a ciphertext to one key: ciphers alone do not."""
    return hmac.digest(content_key, b"tidings/1/commitment\0" + bytes([suite]) + instance, hashlib.sha256)


class Keyring:
    """The keys that a member has been given."""

    def __init__(self, keys: Iterable[EpochKey] = ()) -> None:
        self._keys: dict[bytes, dict[int, EpochKey]] = {}
        for one in keys:
            self.put(one)

    def put(self, key: EpochKey) -> None:
        if len(key.key) != Suite(key.suite).key_bytes:
            raise SecurityError("key", "a topic's key has the size that its suite says")
        self._keys.setdefault(key.topic, {})[key.epoch] = key

    def latest(self, topic: bytes) -> EpochKey | None:
        epochs = self._keys.get(topic)
        return epochs[max(epochs)] if epochs else None

    def current(self, topic: bytes, now: int) -> EpochKey | None:
        """The one to seal under: the latest that has begun. Keys come ahead of their time, so that everybody has them
        when the first message comes; where no one has begun, the clocks differ, and the first has to do."""
        epochs = self._keys.get(topic)
        if not epochs:
            return None
        latest = epochs[max(epochs)]
        if latest.since <= now:  # as it mostly is
            return latest
        begun = [epoch for epoch, key in epochs.items() if key.since <= now]
        return epochs[max(begun) if begun else min(epochs)]

    def since(self, topic: bytes, epoch: int) -> list[EpochKey]:
        """That epoch and those after it, in order."""
        epochs = self._keys.get(topic, {})
        return [epochs[one] for one in sorted(epochs) if one >= epoch]

    def get(self, topic: bytes, epoch: int) -> EpochKey | None:
        return self._keys.get(topic, {}).get(epoch)

    def drop(self, topic: bytes, epoch: int) -> None:
        self._keys.get(topic, {}).pop(epoch, None)

    def forget(self, topic: bytes) -> None:
        self._keys.pop(topic, None)

    def __iter__(self) -> Iterator[EpochKey]:
        return (one for epochs in self._keys.values() for one in epochs.values())

    def __repr__(self) -> str:
        return f"<Keyring of {len(self._keys)} topics>"
