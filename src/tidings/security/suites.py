"""The cipher suites that a topic's owner can choose for the payloads of the topic."""

from enum import IntEnum
from typing import Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from tidings.model.errors import InvalidValueError

NONCE = 12  # bytes


class Cipher(Protocol):
    """An AEAD cipher with its key, as `cryptography` implements it."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Suite(IntEnum):
    """An AEAD algorithm with its key size; the number is what seals and topic records carry."""

    AES_128_GCM = 1
    AES_192_GCM = 2
    AES_256_GCM = 3
    CHACHA20_POLY1305 = 4

    @classmethod
    def of(cls, algorithm: str, bits: int | None = None) -> "Suite":
        """Return the suite for an algorithm name and an optional key size in bits.

        Accepts `aes-gcm` with 128, 192 or 256 bits (256 by default), `chacha20-poly1305`, and the full name of a
        suite such as `aes-256-gcm`. Raises `InvalidValueError` for any other combination.
        """
        for suite in cls:
            if suite.text == algorithm.lower() and bits in (None, suite.bits):
                return suite
        name = algorithm.lower()
        if name == "aes-gcm":
            for suite in cls:
                if suite is not cls.CHACHA20_POLY1305 and suite.bits == (256 if bits is None else bits):
                    return suite
            raise InvalidValueError(f"a key of {bits} bits: aes-gcm has keys of 128, 192 or 256 bits")
        if name in {suite.text for suite in cls}:
            raise InvalidValueError(f"a key of {bits} bits: {name} has keys of {cls._named(name).bits} bits")
        names = ", ".join(suite.text for suite in cls)
        raise InvalidValueError(f"the algorithm {algorithm!r} is not offered; take one of {names}")

    @classmethod
    def _named(cls, text: str) -> "Suite":
        return next(suite for suite in cls if suite.text == text)

    @property
    def text(self) -> str:
        """Return the suite's name as users write it, e.g. `aes-256-gcm`."""
        return self.name.lower().replace("_", "-")

    @property
    def bits(self) -> int:
        """The size of a key in bits."""
        return {1: 128, 2: 192}.get(self.value, 256)

    @property
    def key_bytes(self) -> int:
        """The size of a key in bytes."""
        return self.bits // 8

    def cipher(self, key: bytes) -> Cipher:
        """Return a cipher with this key. Raises `InvalidValueError` if the key has the wrong size."""
        if len(key) != self.key_bytes:
            raise InvalidValueError(f"a key of {self.text} has {self.bits} bits")
        return ChaCha20Poly1305(key) if self is Suite.CHACHA20_POLY1305 else AESGCM(key)
