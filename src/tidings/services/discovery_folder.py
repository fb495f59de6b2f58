"""The folder of a discovery node: advertisements in the order in which they came, and the list of revocations.

Both only grow, or are replaced as a whole, so that a node that is killed at any moment has all that it acknowledged.
"""

from collections.abc import Iterable
from pathlib import Path

from tidings.journal.disk import Disk
from tidings.journal.ledger import Ledger
from tidings.model.errors import JournalError
from tidings.security.discovery_questions import Kept
from tidings.security.encoding import decoded, encoded
from tidings.security.revocation import Update

LEDGER, REVOCATIONS = "ledger", "revocations"
_LARGE = 4 * 1024 * 1024  # bytes from which on a ledger is rewritten, if half of it is of no use any more


class DiscoveryFolder:
    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self._folder, self._disk = folder, disk or Disk()
        self._ledger = Ledger(folder / LEDGER, "discovery node", self._disk)

    def read(self) -> list[Kept]:
        return [decoded(one, Kept, f"record of {self._folder / LEDGER}") for one in self._ledger]

    def keep(self, kept: Kept) -> None:
        """Returns when it is on the disk."""
        self._ledger.append(encoded(kept))

    def tidy(self, kept: Iterable[Kept]) -> None:
        """Leaves nothing but these, where that saves much."""
        records = [encoded(one) for one in kept]
        if self._ledger.size > max(_LARGE, 2 * sum(map(len, records))):
            self._ledger.rewrite(records)

    def revocations(self) -> Update | None:
        try:
            return Update.read((self._folder / REVOCATIONS).read_bytes())
        except FileNotFoundError:
            return None

    def keep_revocations(self, update: Update) -> None:
        path = self._folder / REVOCATIONS
        try:
            self._disk.create(path, update.data)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror or error}", path) from error

    def close(self) -> None:
        self._ledger.close()
