"""An authority in a folder: its certificate and key, whom it has issued certificates, and whose count no more.

What `issue` or `revoke` has returned is on the disk before: a certificate that is out is known here, and can be
revoked, whenever the process ends. The certificate is written last of a new folder, so that half of one is none.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tidings.journal.disk import Disk
from tidings.journal.ledger import Ledger
from tidings.journal.ledger import read as read_ledger
from tidings.model.errors import InvalidValueError, JournalDamagedError
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.security.authority import NEXT_UPDATE, Authority, Issued
from tidings.security.certificates import Certificate, Role, read_key, written_key
from tidings.security.encoding import decoded, encoded
from tidings.security.identity import Identity
from tidings.security.revocation import Entry, Head, Update

CERTIFICATE, KEY, LEDGER, PUBLISHED = "certificate.pem", "key.pem", "ledger", "revocations"
Passphrase = Callable[[], bytes | None]  # asked for only where the key is encrypted


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A record of the ledger: what was issued, or revoked, together."""

    issued: tuple[tuple[bytes, str, str, int], ...] = ()
    revoked: tuple[Entry, ...] = ()


class Listed(NamedTuple):
    name: str
    role: Role
    serial: bytes
    not_after: int
    revoked: Entry | None


class AuthorityFolder:
    """Made by `found` or `open`; it has the folder's lock until it is closed."""

    def __init__(self, folder: Path, authority: Authority, ledger: Ledger, disk: Disk) -> None:
        self.folder, self.authority = folder, authority
        self._ledger, self._disk = ledger, disk
        self._head = _published(folder)

    @classmethod
    def found(
        cls,
        folder: str | Path,
        name: str,
        now: int,
        passphrase: bytes | None,
        days: int = 3_650,
        disk: Disk | None = None,
    ) -> Self:
        """A new authority, in a folder that has none. Without a passphrase whoever reads it is the authority."""
        path, disk = Path(folder), disk or Disk()
        ledger = Ledger(path / LEDGER, "authority", disk)
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
        path, disk = Path(folder), disk or Disk()
        certificate, key = Certificate.read(_bytes_of(path / CERTIFICATE)), _bytes_of(path / KEY)
        words = passphrase() if b"ENCRYPTED" in key else None
        ledger = Ledger(path / LEDGER, "authority", disk)
        try:
            issued, revoked = _told(path, ledger)
            made = cls(path, Authority(certificate, read_key(key, words), issued, revoked), ledger, disk)
            if made._head is not None and made._head.version > len(revoked):
                raise JournalDamagedError(
                    f"{path / LEDGER} knows of {len(revoked)} revocations, and {made._head.version} were published;"
                    " restore it from a copy",
                    path,
                )
            return made
        except BaseException:
            ledger.close()
            raise

    def issue(self, name: str, role: Role, now: int, days: int = 365, hosts: Iterable[str] = ()) -> Identity:
        """A certificate with a new key; again for the same name: to renew it. A name has one role."""
        for one in listing(self.authority.issued, self.authority.revoked):
            if one.name == name and one.role is not role and one.revoked is None and now < one.not_after:
                raise InvalidValueError(
                    f"{name} has a certificate as {one.role.value}; revoke it first, or choose another name"
                )
        identity = self.authority.issue(name, role, now, days, hosts)
        made = self.authority.issued[-1]
        self._keep(_Kept(issued=((made.serial, made.name, made.role.value, made.not_after),)))
        return identity

    def revoke(self, name: str, now: int, *, since: int | None = None, reason: str = "") -> list[Entry]:
        """All certificates of that name; a new list has to be published then."""
        if len(reason) > MAX_NAME_CHARACTERS:  # everybody gets the list, and keeps it
            raise InvalidValueError(f"reason: at most {MAX_NAME_CHARACTERS} characters")
        entries = self.authority.revoke(name, now, since=since, reason=reason)
        self._keep(_Kept(revoked=tuple(entries)))
        return entries

    def publish(self, now: int, *, next_update: int = NEXT_UPDATE) -> Update:
        """The whole list, signed; it is kept in the folder too. Each is later than the one before, whatever the clock
        says, as readers go by that."""
        later = now if self._head is None else max(now, self._head.issued + 1)
        update = self.authority.revocations(later, next_update=next_update)
        self._disk.create(self.folder / PUBLISHED, update.data)
        self._head = _head(update)
        return update

    def _keep(self, kept: _Kept) -> None:
        self._ledger.append(encoded(kept))

    def close(self) -> None:
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AuthorityFolder {self.folder}>"


def read_listing(folder: str | Path) -> list[Listed]:
    """All certificates that were issued, in order. Needs neither the key nor the lock."""
    path = Path(folder)
    _bytes_of(path / CERTIFICATE)
    try:
        records = read_ledger(path / LEDGER)[0]
    except OSError as error:
        raise InvalidValueError(f"{path / LEDGER}: {error.strerror or error}") from None
    return listing(*_told(path, records))


def listing(issued: Iterable[Issued], revoked: Iterable[Entry]) -> list[Listed]:
    gone = {one.serial: one for one in revoked}
    return [Listed(one.name, one.role, one.serial, one.not_after, gone.get(one.serial)) for one in issued]


def _told(folder: Path, records: Iterable[bytes]) -> tuple[list[Issued], list[Entry]]:
    issued: list[Issued] = []
    revoked: list[Entry] = []
    for record in records:
        kept = decoded(record, _Kept, f"record of {folder / LEDGER}")
        issued += [Issued(serial, name, Role(role), not_after) for serial, name, role, not_after in kept.issued]
        revoked += kept.revoked
    return issued, revoked


def _published(folder: Path) -> Head | None:
    try:
        data = (folder / PUBLISHED).read_bytes()
    except FileNotFoundError:
        return None
    return _head(Update.read(data))


def _head(update: Update) -> Head:
    return decoded(update.head.body, Head, "head of revocations")


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidValueError(
            f"{path.parent} is no authority's folder: there is no {path.name}; see `tidings ca init`"
        ) from None
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
