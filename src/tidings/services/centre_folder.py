"""A key management centre in a folder: its certificate, and its state, sealed. What a change has brought is given to
nobody before the change is on the disk, whenever the process or the machine ends.

The state is a journal of changes, which knows how much of it has been synced: what a crash left unfinished is cut off,
and what is missing or damaged is reported, since a key that was given must never be made anew.
"""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from tidings.journal import Journal, JournalOptions, Operation
from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, JournalDamagedError, JournalError, SecurityError
from tidings.security.centre import KeyManagementCentre, Reply
from tidings.security.centre.changes import Change, changes_data, read_changes
from tidings.security.identity import Identity
from tidings.security.vault import Vault

IDENTITY, LOCK, STATE, SERVICE = "identity", "vault", "state", "service.bin"
_KIND = "centre"
_SNAPSHOT = 4_096  # changes, after which the state is written whole
_OPTIONS = JournalOptions(convert=False, roll_bytes=4 * 1024 * 1024)
Unlock = Callable[[bytes], Vault]  # with what is kept beside the state


class CentreFolder:
    """Made by `found` or `open`; it has the folder's lock until it is closed."""

    def __init__(
        self, folder: Path, identity: Identity, vault: Vault, journal: Journal, overlay: str, disk: Disk
    ) -> None:
        self.folder, self._vault, self._journal, self._disk = folder, vault, journal, disk
        self._since_snapshot = 0
        self.centre = KeyManagementCentre(identity, secrets.token_bytes, self._kept(), overlay=overlay)

    @classmethod
    def found(
        cls,
        folder: str | Path,
        identity: Identity,
        vault: tuple[Vault, bytes],
        *,
        overlay: str = "tidings",
        disk: Disk | None = None,
    ) -> Self:
        """A new centre. `vault` is a new one, with its lock."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (path / LOCK).exists():
            raise InvalidValueError(f"{path} has the state of a key management centre already; choose another folder")
        if (path / STATE).exists():
            raise InvalidValueError(
                f"{path} has a state and no {LOCK}: put that back; or, if making the centre was interrupted, remove the"
                " folder and make it anew"
            )
        identity.save(path / IDENTITY)
        storage = disk or Disk()
        made = cls(path, identity, vault[0], _opened(path, storage, create=True), overlay, storage)
        try:
            made.commit(made.centre.found())
            made.publish_service()
            storage.create(path / LOCK, vault[1])  # the last thing, so that half of a centre is none
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def open(cls, folder: str | Path, unlock: Unlock, *, overlay: str = "tidings", disk: Disk | None = None) -> Self:
        path = Path(folder)
        try:
            lock = (path / LOCK).read_bytes()
        except OSError as error:
            raise InvalidValueError(
                f"{path} is no key management centre: {error.strerror or error}; see `tidings kmc init`"
            ) from None
        vault, identity = unlock(lock), Identity.load(path / IDENTITY)
        storage = disk or Disk()
        journal = _opened(path, storage, create=False)
        try:
            return cls(path, identity, vault, journal, overlay, storage)
        except BaseException:
            journal.close()
            raise

    def _kept(self) -> Iterator[Change]:
        snapshot, records = self._journal.replay()
        if snapshot is not None:
            yield from read_changes(self._read(f"snapshot {snapshot.offset}", snapshot.data))
        for record in records:
            self._since_snapshot += 1
            data = record.operation.payload
            if record.operation.kind != _KIND or data is None:
                raise self._damaged(f"record {record.offset} is not one of a centre")
            yield from read_changes(self._read(f"change {record.offset}", data))

    def _read(self, place: str, data: bytes) -> bytes:
        try:
            return self._vault.open(place, data)
        except SecurityError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, what: str) -> JournalDamagedError:
        return JournalDamagedError(f"{self.folder / STATE}: {what}; restore the folder from a copy", self.folder)

    # Keeping

    def append(self, reply: Reply, now: int = 0) -> int:
        """Puts the changes of a reply in their order; where they end. Nothing of the reply, or of any later one, may be
        told before `sync` was called with that. All calls are from one thread."""
        if reply.changes:
            sealed = self._vault.seal(f"change {self._journal.next}", changes_data(reply.changes))
            self._journal.append([Operation.control(_KIND, payload=sealed)], now, essential=True)
            self._since_snapshot += 1
        return self._journal.next

    def is_synced(self, end: int) -> bool:
        return self._journal.synced >= end

    def sync(self, end: int) -> None:
        """Returns when everything up to there is on the disk; from any thread, and one fsync is for many."""
        if not self.is_synced(end):
            self._journal.sync(end)

    def commit(self, reply: Reply, now: int = 0) -> Reply:
        """The same at once: for who does one thing after the other."""
        self.sync(self.append(reply, now))
        return reply

    def tidy(self) -> None:
        """Writes the state whole when many changes have come together, so that opening it is quick; to be called where
        nothing is waiting to be synced."""
        if self._since_snapshot >= _SNAPSHOT:
            self.snapshot()

    def snapshot(self) -> None:
        """Writes the state whole, and removes the changes before it; where nothing is waiting to be synced."""
        self._journal.sync()
        end = self._journal.next
        data = self._vault.seal(f"snapshot {end}", changes_data(self.centre.snapshot()))
        self._journal.write_snapshot(end, data)
        self._journal.retain(before_timestamp=self._journal.timestamp + 1)
        self._since_snapshot = 0

    def publish_service(self) -> None:
        """Writes down where the centre is asked now, for those who are told by a file."""
        path = self.folder / SERVICE
        try:
            self._disk.create(path, self.centre.service.data)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror or error}", path) from error

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CentreFolder {self.folder}>"


def _opened(folder: Path, disk: Disk, *, create: bool) -> Journal:
    return Journal.open(
        folder / STATE, create=create, name=_KIND, salt=secrets.token_bytes(16), options=_OPTIONS, disk=disk
    )
