"""A certificate authority in a folder: its certificate and key, the certificates it issued, and the revoked ones.

Rules:

1. `issue` and `revoke` return after their record is on disk: a certificate that is in use is known here, and can be
   revoked, even after a crash.
2. Creating a folder writes the certificate last, so that an incomplete folder is not an authority.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tidings.journal.append_file import AppendFile
from tidings.journal.append_file import read as read_ledger
from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, JournalDamagedError
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.security.ca.authority import NEXT_UPDATE, Authority, IssuedCertificate
from tidings.security.ca.certificates import Certificate, Role, read_key, written_key
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationEntry, RevocationHead, RevocationUpdate
from tidings.security.encoding import decode_canonical, encode_canonical

CERTIFICATE, KEY, LEDGER, PUBLISHED = "certificate.pem", "key.pem", "ledger", "revocations"
Passphrase = Callable[[], bytes | None]  # called only if the key is encrypted


class _AuthorityRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record of the ledger: certificates that were issued together, or revoked together."""

    issued: tuple[tuple[bytes, str, str, int], ...] = ()
    revoked: tuple[RevocationEntry, ...] = ()


class CertificateListing(NamedTuple):
    """An issued certificate, with its revocation if it is revoked."""

    name: str
    role: Role
    serial: bytes
    not_after: int
    revoked: RevocationEntry | None


class AuthorityStore:
    """An authority in a folder, opened by `create` or `open`; it locks the folder until it is closed."""

    def __init__(self, folder: Path, authority: Authority, ledger: AppendFile, disk: Disk) -> None:
        self.folder, self.authority = folder, authority
        self._ledger, self._disk = ledger, disk
        self._head = _read_head(folder)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        name: str,
        now: int,
        passphrase: bytes | None,
        days: int = 3_650,
        disk: Disk | None = None,
    ) -> Self:
        """Create an authority in a folder that has none.

        Args:
            folder: The folder.
            name: The authority's name.
            now: The time, in microseconds.
            passphrase: Encrypts the key. Without one, anyone who can read the folder can act as the authority.
            days: The lifetime of the authority's certificate.
            disk: Writes the files; tests replace it.

        Raises:
            InvalidValueError: The folder has an authority already.
        """
        path, disk = Path(folder), disk or Disk()
        ledger = AppendFile(path / LEDGER, "authority", disk)
        try:
            if (path / CERTIFICATE).exists():
                raise InvalidValueError(f"{path} has an authority already; choose another folder")
            if any(ledger):
                raise JournalDamagedError(f"{path / CERTIFICATE} is missing, but there is a ledger; put it back", path)
            authority = Authority.found(name, now, days)
            disk.create(path / KEY, written_key(authority.key, passphrase), mode=0o600)
            disk.create(path / CERTIFICATE, authority.anchor.certificate.pem)
            return cls(path, authority, ledger, disk)
        except BaseException:
            ledger.close()
            raise

    @classmethod
    def open(cls, folder: str | Path, passphrase: Passphrase, disk: Disk | None = None) -> Self:
        """Open the authority in a folder; `passphrase` is called if its key is encrypted.

        Raises:
            InvalidValueError: The folder has no authority.
            JournalDamagedError: Its ledger lacks revocations that were published.
        """
        path, disk = Path(folder), disk or Disk()
        certificate, key = Certificate.read(_bytes_of(path / CERTIFICATE)), _bytes_of(path / KEY)
        passphrase_bytes = passphrase() if b"ENCRYPTED" in key else None
        ledger = AppendFile(path / LEDGER, "authority", disk)
        try:
            issued, revoked = _read_records(path, ledger)
            store = cls(path, Authority(certificate, read_key(key, passphrase_bytes), issued, revoked), ledger, disk)
            if store._head is not None and store._head.version > len(revoked):
                raise JournalDamagedError(
                    f"{path / LEDGER} knows of {len(revoked)} revocations, and {store._head.version} were published;"
                    " restore it from a copy",
                    path,
                )
            return store
        except BaseException:
            ledger.close()
            raise

    def issue(self, name: str, role: Role, now: int, days: int = 365, hosts: Iterable[str] = ()) -> Identity:
        """Issue a certificate with a new key; issuing it again for the same name renews it.

        Args:
            name: The name of the certificate's holder.
            role: Its role; a name has one role.
            now: The time, in microseconds.
            days: The certificate's lifetime.
            hosts: Host names of a broker.

        Raises:
            InvalidValueError: The name has a valid certificate of another role.
        """
        for certificate in listing(self.authority.issued, self.authority.revoked):
            if (
                certificate.name == name
                and certificate.role is not role
                and certificate.revoked is None
                and now < certificate.not_after
            ):
                raise InvalidValueError(
                    f"{name} has a certificate as {certificate.role.value}; revoke it first, or choose another name"
                )
        identity = self.authority.issue(name, role, now, days, hosts)
        issued = self.authority.issued[-1]
        self._append(_AuthorityRecord(issued=((issued.serial, issued.name, issued.role.value, issued.not_after),)))
        return identity

    def revoke(self, name: str, now: int, *, since: int | None = None, reason: str = "") -> list[RevocationEntry]:
        """Revoke all certificates of that name; `publish` must be called to make it known.

        Args:
            name: The holder of the certificates.
            now: The time, in microseconds.
            since: The time from which they are not valid, if that is before `now`.
            reason: The reason, which is published.

        Raises:
            InvalidValueError: The reason is too long.
        """
        if len(reason) > MAX_NAME_CHARACTERS:  # every client and broker stores the list
            raise InvalidValueError(f"reason: at most {MAX_NAME_CHARACTERS} characters")
        entries = self.authority.revoke(name, now, since=since, reason=reason)
        self._append(_AuthorityRecord(revoked=tuple(entries)))
        return entries

    def publish(self, now: int, *, next_update: int = NEXT_UPDATE) -> RevocationUpdate:
        """Sign the whole revocation list, write it to the folder, and return it.

        Its time is later than that of the list before, even if the clock stepped back, since readers rely on it.
        """
        later = now if self._head is None else max(now, self._head.issued + 1)
        update = self.authority.revocations(later, next_update=next_update)
        self._disk.create(self.folder / PUBLISHED, update.data)
        self._head = _head(update)
        return update

    def _append(self, record: _AuthorityRecord) -> None:
        self._ledger.append(encode_canonical(record))

    def close(self) -> None:
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AuthorityStore {self.folder}>"


def read_listing(folder: str | Path) -> list[CertificateListing]:
    """Return all certificates issued by the authority in a folder, in order. Needs neither the key nor the lock."""
    path = Path(folder)
    _bytes_of(path / CERTIFICATE)
    try:
        records = read_ledger(path / LEDGER)[0]
    except OSError as error:
        raise InvalidValueError(f"{path / LEDGER}: {error.strerror or error}") from None
    return listing(*_read_records(path, records))


def listing(issued: Iterable[IssuedCertificate], revoked: Iterable[RevocationEntry]) -> list[CertificateListing]:
    """Return the issued certificates with their revocations."""
    revocations = {certificate.serial: certificate for certificate in revoked}
    return [
        CertificateListing(
            certificate.name,
            certificate.role,
            certificate.serial,
            certificate.not_after,
            revocations.get(certificate.serial),
        )
        for certificate in issued
    ]


def _read_records(folder: Path, records: Iterable[bytes]) -> tuple[list[IssuedCertificate], list[RevocationEntry]]:
    issued: list[IssuedCertificate] = []
    revoked: list[RevocationEntry] = []
    for record in records:
        contents = decode_canonical(record, _AuthorityRecord, f"record of {folder / LEDGER}")
        issued += [
            IssuedCertificate(serial, name, Role(role), not_after) for serial, name, role, not_after in contents.issued
        ]
        revoked += contents.revoked
    return issued, revoked


def _read_head(folder: Path) -> RevocationHead | None:
    try:
        data = (folder / PUBLISHED).read_bytes()
    except FileNotFoundError:
        return None
    return _head(RevocationUpdate.read(data))


def _head(update: RevocationUpdate) -> RevocationHead:
    return decode_canonical(update.head.body, RevocationHead, "head of revocations")


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidValueError(
            f"{path.parent} is no authority's folder: there is no {path.name}; see `tidings ca init`"
        ) from None
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
