"""A vault: what lies on a disk under one key, so that whoever reads the disk reads nothing, and whoever changes it is
found out. The key is that of a passphrase, or of a file that lies elsewhere."""

import secrets
from pathlib import Path
from typing import Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.encoding import decoded, encoded, purpose
from tidings.security.files import read_secret, write_secret
from tidings.security.suites import NONCE

KEY = 32  # bytes
_SALT = 16
_WORK = 2**16  # of scrypt: some tenths of a second, and 64 MB
_MOST_WORK = 2**20
_CHECK = b"the right key opens this"


class _Lock(msgspec.Struct, frozen=True, array_like=True):
    """How the key is found again: nothing of it is a secret. `work` is 0 where the key is that of a file."""

    work: int
    salt: bytes
    check: bytes


class Vault:
    def __init__(self, key: bytes) -> None:
        if len(key) != KEY:
            raise InvalidValueError(f"the key of a vault has {KEY} bytes")
        self._cipher = AESGCM(key)

    def seal(self, place: str, data: bytes) -> bytes:
        """`place` says what it is and where it stands: nothing can be moved to another one."""
        nonce = secrets.token_bytes(NONCE)
        return nonce + self._cipher.encrypt(nonce, data, purpose("vault", place.encode()))

    def open(self, place: str, data: bytes) -> bytes:
        try:
            return self._cipher.decrypt(data[:NONCE], data[NONCE:], purpose("vault", place.encode()))
        except (InvalidTag, ValueError):
            raise SecurityError("vault", f"{place}: this was not sealed here, or has been changed") from None

    # Opening one

    @classmethod
    def make(cls, passphrase: bytes | None, key: bytes | None, *, work: int = _WORK) -> tuple[Self, bytes]:
        """A new one, and what to keep beside what is in it; with a passphrase, or with a key."""
        salt = secrets.token_bytes(_SALT)
        made = cls(key if key is not None else _derived(passphrase, salt, work))
        return made, encoded(_Lock(0 if key is not None else work, salt, made.seal("check", _CHECK)))

    @classmethod
    def unlock(cls, lock: bytes, passphrase: bytes | None, key: bytes | None) -> Self:
        """One that was made before. The wrong passphrase, or the wrong key, is an `InvalidValueError`."""
        told = decoded(lock, _Lock, "lock of a vault")
        if told.work == 0 and key is None:
            raise InvalidValueError("this was sealed with the key of a file: name the file")
        if told.work > _MOST_WORK:
            raise SecurityError("vault", "the lock asks for more work than any that was made here")
        opened = cls(key if key is not None and told.work == 0 else _derived(passphrase, told.salt, told.work))
        try:
            opened.open("check", told.check)
        except SecurityError:
            raise InvalidValueError("the passphrase, or the key of the file, is not the one that sealed this") from None
        return opened

    def __repr__(self) -> str:
        return "<Vault>"


def _derived(passphrase: bytes | None, salt: bytes, work: int) -> bytes:
    if not passphrase:
        raise InvalidValueError("a passphrase is needed, and one that is not empty")
    return Scrypt(salt=salt, length=KEY, n=work, r=8, p=1).derive(passphrase)


def new_key_file(path: Path) -> bytes:
    """A new key, in a file that only its owner can read; one that is there is not overwritten."""
    if path.exists():
        raise InvalidValueError(f"{path} is there already: name another file for the new key")
    key = secrets.token_bytes(KEY)
    write_secret(path, key.hex().encode() + b"\n")
    return key


def read_key_file(path: Path) -> bytes:
    data = read_secret(path, 4 * KEY)
    try:
        key = bytes.fromhex(data.decode().strip())
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise InvalidValueError(f"{path} holds no key: {2 * KEY} digits of hexadecimal")
    return key
