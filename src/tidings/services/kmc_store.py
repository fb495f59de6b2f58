"""A key management centre in a folder: its identity, and its encrypted state.

The state is a journal of changes. Nothing that a change brought about may be sent to a client before the change is on
disk. Since the journal knows how much of it was synced, an unfinished write is cut off after a crash, but missing or
damaged records are reported: a key that was issued must never be generated again.
"""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from tidings.journal import Journal, JournalOptions, Operation
from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, JournalDamagedError, JournalError, SecurityError
from tidings.security.ca.identity import Identity
from tidings.security.kmc import CentreReply, KeyManagementCentre
from tidings.security.kmc.state import Change, changes_data, read_changes
from tidings.security.vault import Vault

IDENTITY, LOCK, STATE, SERVICE = "identity", "vault", "state", "service.bin"
_KIND = "centre"
_SNAPSHOT = 4_096  # changes after which a snapshot is written
_OPTIONS = JournalOptions(convert=False, roll_bytes=4 * 1024 * 1024)
Unlock = Callable[[bytes], Vault]  # opens the vault, given the content of its lock file


class KmcStore:
    """A centre in a folder, opened by `create` or `open`; it locks the folder until it is closed."""

    def __init__(
        self, folder: Path, identity: Identity, vault: Vault, journal: Journal, overlay: str, disk: Disk
    ) -> None:
        self.folder, self._vault, self._journal, self._disk = folder, vault, journal, disk
        self._since_snapshot = 0
        self.centre = KeyManagementCentre(identity, secrets.token_bytes, self._read_changes(), overlay=overlay)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        identity: Identity,
        vault: tuple[Vault, bytes],
        *,
        overlay: str = "tidings",
        disk: Disk | None = None,
    ) -> Self:
        """Create a centre in a folder that has none.

        Args:
            folder: The folder.
            identity: The centre's identity.
            vault: A new vault, which encrypts the state, with the content of its lock file.
            overlay: The name of the overlay.
            disk: Writes the files; tests replace it.

        Raises:
            InvalidValueError: The folder has a centre, or an incomplete one.
        """
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
        store = cls(path, identity, vault[0], _open_journal(path, storage, create=True), overlay, storage)
        try:
            store.commit(store.centre.found())
            store.publish_service()
            storage.create(path / LOCK, vault[1])  # written last, so that an incomplete folder is not a centre
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, folder: str | Path, unlock: Unlock, *, overlay: str = "tidings", disk: Disk | None = None) -> Self:
        """Open the centre in a folder.

        Args:
            folder: The folder.
            unlock: Opens the vault, given the content of its lock file.
            overlay: The name of the overlay.
            disk: Writes the files; tests replace it.

        Raises:
            InvalidValueError: The folder has no centre.
            JournalDamagedError: The state is damaged.
        """
        path = Path(folder)
        try:
            lock = (path / LOCK).read_bytes()
        except OSError as error:
            raise InvalidValueError(
                f"{path} is no key management centre: {error.strerror or error}; see `tidings kmc init`"
            ) from None
        vault, identity = unlock(lock), Identity.load(path / IDENTITY)
        storage = disk or Disk()
        journal = _open_journal(path, storage, create=False)
        try:
            return cls(path, identity, vault, journal, overlay, storage)
        except BaseException:
            journal.close()
            raise

    def _read_changes(self) -> Iterator[Change]:
        snapshot, records = self._journal.replay()
        if snapshot is not None:
            yield from read_changes(self._decrypt(f"snapshot {snapshot.offset}", snapshot.data))
        for record in records:
            self._since_snapshot += 1
            data = record.operation.payload
            if record.operation.kind != _KIND or data is None:
                raise self._damaged(f"record {record.offset} is not one of a centre")
            yield from read_changes(self._decrypt(f"change {record.offset}", data))

    def _decrypt(self, place: str, data: bytes) -> bytes:
        try:
            return self._vault.open(place, data)
        except SecurityError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, what: str) -> JournalDamagedError:
        return JournalDamagedError(f"{self.folder / STATE}: {what}; restore the folder from a copy", self.folder)

    # Writing

    def append(self, reply: CentreReply, now: int = 0) -> int:
        """Append the changes of a reply to the journal; return the offset where they end.

        Neither this reply nor a later one may be sent before `sync` was called with that offset. All calls are made
        from one thread.
        """
        if reply.changes:
            sealed = self._vault.seal(f"change {self._journal.next}", changes_data(reply.changes))
            self._journal.append([Operation.control(_KIND, payload=sealed)], now, essential=True)
            self._since_snapshot += 1
        return self._journal.next

    def is_synced(self, end: int) -> bool:
        """Return whether everything before the offset `end` is on disk."""
        return self._journal.synced >= end

    def sync(self, end: int) -> None:
        """Return when everything before the offset `end` is on disk. Thread-safe; concurrent calls share an fsync."""
        if not self.is_synced(end):
            self._journal.sync(end)

    def commit(self, reply: CentreReply, now: int = 0) -> CentreReply:
        """Append the changes of a reply and sync them; return the reply."""
        self.sync(self.append(reply, now))
        return reply

    def tidy(self) -> None:
        """Write a snapshot if many changes have accumulated, so that opening is quick.

        No change may be waiting for a sync.
        """
        if self._since_snapshot >= _SNAPSHOT:
            self.snapshot()

    def snapshot(self) -> None:
        """Write a snapshot of the state, and remove the changes before it. No change may be waiting for a sync."""
        self._journal.sync()
        end = self._journal.next
        data = self._vault.seal(f"snapshot {end}", changes_data(self.centre.snapshot()))
        self._journal.write_snapshot(end, data)
        self._journal.retain(before_timestamp=self._journal.timestamp + 1)
        self._since_snapshot = 0

    def publish_service(self) -> None:
        """Write the centre's service record, which holds its topic and key, to the folder."""
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
        return f"<KmcStore {self.folder}>"


def _open_journal(folder: Path, disk: Disk, *, create: bool) -> Journal:
    return Journal.open(
        folder / STATE, create=create, name=_KIND, salt=secrets.token_bytes(16), options=_OPTIONS, disk=disk
    )
