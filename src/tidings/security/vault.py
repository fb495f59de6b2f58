"""Encrypts files of secrets at rest (`Vault`) and writes files that only their owner can read.

A vault encrypts and authenticates with one key, which is derived from a passphrase or read from a key file that lies
elsewhere. A reader of the disk learns nothing, and a change is detected when the data is opened.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.encoding import decode_canonical, encode_canonical, signing_input
from tidings.security.suites import NONCE

KEY = 32  # bytes
_SALT = 16
_WORK = 2**16  # scrypt cost: some tenths of a second, and 64 MB
_MAX_WORK = 2**20
_CHECK = b"the right key opens this"


class _Lock(msgspec.Struct, frozen=True, array_like=True):
    """What is stored beside a vault to derive and check its key; contains no secret. `work` is 0 if the key comes from
    a key file."""

    work: int
    salt: bytes
    check: bytes


class Vault:
    """Encrypts and decrypts data with one 32-byte key (AES-256-GCM)."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY:
            raise InvalidValueError(f"the key of a vault has {KEY} bytes")
        self._cipher = AESGCM(key)

    def seal(self, label: str, data: bytes) -> bytes:
        """Encrypt `data` for `label`.

        `label` names what the data is and where it is stored. It is authenticated, so that ciphertext cannot be
        moved to another place.
        """
        nonce = secrets.token_bytes(NONCE)
        return nonce + self._cipher.encrypt(nonce, data, signing_input("vault", label.encode()))

    def open(self, label: str, data: bytes) -> bytes:
        """Decrypt what `seal` returned for the same place. Raises `SecurityError("vault")` if it was sealed with
        another key or changed."""
        try:
            return self._cipher.decrypt(data[:NONCE], data[NONCE:], signing_input("vault", label.encode()))
        except (InvalidTag, ValueError):
            raise SecurityError("vault", f"{label}: this was not sealed here, or has been changed") from None

    # Creating and unlocking

    @classmethod
    def make(cls, passphrase: bytes | None, key: bytes | None, *, work: int = _WORK) -> tuple[Self, bytes]:
        """Create a vault from a key, or from a passphrase if `key` is None.

        Returns the vault and its lock, which the caller stores beside the sealed data and passes to `unlock` later.
        """
        salt = secrets.token_bytes(_SALT)
        vault = cls(key if key is not None else _derive_key(passphrase, salt, work))
        return vault, encode_canonical(_Lock(0 if key is not None else work, salt, vault.seal("check", _CHECK)))

    @classmethod
    def unlock(cls, lock_data: bytes, passphrase: bytes | None, key: bytes | None) -> Self:
        """Open the vault that `make` created with this lock.

        Raises `InvalidValueError` if the passphrase or the key is missing or wrong, and `SecurityError` if the lock
        is not valid.
        """
        lock = decode_canonical(lock_data, _Lock, "lock of a vault")
        if lock.work == 0 and key is None:
            raise InvalidValueError("this was sealed with the key of a file: name the file")
        if lock.work > _MAX_WORK:
            raise SecurityError("vault", "the lock asks for more work than any that was made here")
        vault = cls(key if key is not None and lock.work == 0 else _derive_key(passphrase, lock.salt, lock.work))
        try:
            vault.open("check", lock.check)
        except SecurityError:
            raise InvalidValueError("the passphrase, or the key of the file, is not the one that sealed this") from None
        return vault

    def __repr__(self) -> str:
        return "<Vault>"


def _derive_key(passphrase: bytes | None, salt: bytes, work: int) -> bytes:
    if not passphrase:
        raise InvalidValueError("a passphrase is needed, and one that is not empty")
    return Scrypt(salt=salt, length=KEY, n=work, r=8, p=1).derive(passphrase)


def new_key_file(path: Path) -> bytes:
    """Create a new key in a file that only its owner can read, and return the key. Raises `InvalidValueError` if the
    file exists."""
    if path.exists():
        raise InvalidValueError(f"{path} is there already: name another file for the new key")
    key = secrets.token_bytes(KEY)
    write_secret(path, key.hex().encode() + b"\n")
    return key


def read_key_file(path: Path) -> bytes:
    """Return the key in a key file. Raises `InvalidValueError` if other users can read the file or if it contains no
    key."""
    data = read_secret(path, 4 * KEY)
    try:
        key = bytes.fromhex(data.decode().strip())
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise InvalidValueError(f"{path} holds no key: {2 * KEY} digits of hexadecimal")
    return key


_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, at no moment with wider permissions."""
    write_whole(path, data, 0o600)


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically: after a crash it has either the new content or the previous one."""
    from tidings.journal.disk import Disk  # imported here because it loads the journal package

    Disk().create(path, data, mode)


def read_secret(path: Path, max_bytes: int) -> bytes:
    """Return at most the first `max_bytes` bytes of a secret file. Raises `InvalidValueError` if other users can read
    the file."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHER_USERS:
                raise InvalidValueError(f"{path}: others can read this secret; `chmod 600` it")
            return file.read(max_bytes)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
