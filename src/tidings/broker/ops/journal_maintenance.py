"""Maintenance of a broker's journal: periodic snapshots, and removal of files that its retention does not cover."""

import asyncio
from typing import TYPE_CHECKING

from tidings.journal import Retention
from tidings.model.errors import TidingsError

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_CHECK_SECONDS = 60.0  # seconds between two checks of the retention
_SNAPSHOT_SECONDS = 3600.0  # seconds between two snapshots; without a newer one no file can be removed
PUBLICATIONS = 1_000_000  # between two snapshots, which are costly: reading publications again is fast


class JournalMaintenance:
    """Configures when snapshots are due, and applies the retention of the journal from time to time."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._last_snapshot = self._last_check = broker.now()
        journal_store = broker.node.journal_store
        if journal_store is not None:
            upkeep = journal_store.upkeep
            upkeep.rows_due, upkeep.control_due = PUBLICATIONS, broker.configuration.journal.snapshot_rows

    def tick(self) -> None:
        """Take a snapshot and remove old files, if that is due. Called at every heartbeat."""
        node, now = self._broker.node, self._broker.now()
        journal_store, table = node.journal_store, self._broker.configuration.journal
        if journal_store is None or node.failure is not None or now - self._last_check < _CHECK_SECONDS:
            return
        self._last_check = now
        if table.retain_days is None and table.retain_bytes is None:
            return
        if now - self._last_snapshot > _SNAPSHOT_SECONDS:
            self._last_snapshot = now
            journal_store.upkeep.start()
        limits = Retention(table.retain_days, table.retain_bytes).limits(self._broker.clock.now())
        done = asyncio.get_running_loop().run_in_executor(self._broker.readers, journal_store.upkeep.retain, *limits)
        done.add_done_callback(self._retained)

    def _retained(self, done: "asyncio.Future[int]") -> None:
        error = done.exception()
        if isinstance(error, TidingsError):
            self._broker.node.log_line(f"the journal's oldest files could not be removed: {error}")
        elif done.result():
            self._broker.node.log_line(f"{done.result()} of the journal's oldest files were removed")
