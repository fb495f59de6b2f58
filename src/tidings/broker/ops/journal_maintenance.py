"""Maintenance of a broker's journal: periodic snapshots, and removal of files that its retention does not cover."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.ports import Scheduler
from tidings.journal import Retention
from tidings.model.errors import TidingsError

_CHECK_SECONDS = 60.0  # seconds between two checks of the retention
_SNAPSHOT_SECONDS = 3600.0  # seconds between two snapshots; without a newer one no file can be removed
SNAPSHOT_PUBLICATIONS = 1_000_000  # between two snapshots, which are costly: reading publications again is fast


class MaintainedJournal(NamedTuple):
    """The journal of a broker, as its maintenance uses it."""

    start_snapshot: Callable[[], None]
    retain: Callable[[int | None, int | None], int]  # takes a time and a size; returns how many files were removed
    failure: Callable[[], TidingsError | None]
    log_line: Callable[[str], None]


class JournalMaintenance:
    """Applies the retention of the journal from time to time.

    Args:
        upkeep: The journal.
        configuration: Has the retention.
        scheduler: Has the time, and threads for removing files.
    """

    def __init__(self, upkeep: MaintainedJournal, configuration: ActiveConfiguration, scheduler: Scheduler) -> None:
        self._upkeep, self._configuration, self._scheduler = upkeep, configuration, scheduler
        self._last_snapshot = self._last_check = scheduler.now()

    def tick(self) -> None:
        """Take a snapshot and remove old files, if that is due. Called at every heartbeat."""
        now, table = self._scheduler.now(), self._configuration.current.journal
        if self._upkeep.failure() is not None or now - self._last_check < _CHECK_SECONDS:
            return
        self._last_check = now
        if table.retain_days is None and table.retain_bytes is None:
            return
        if now - self._last_snapshot > _SNAPSHOT_SECONDS:
            self._last_snapshot = now
            self._upkeep.start_snapshot()
        limits = Retention(table.retain_days, table.retain_bytes).limits(self._scheduler.clock.now())
        done = asyncio.get_running_loop().run_in_executor(
            self._scheduler.readers, partial(self._upkeep.retain, *limits)
        )
        done.add_done_callback(self._retained)

    def _retained(self, done: "asyncio.Future[int]") -> None:
        error = done.exception()
        if isinstance(error, TidingsError):
            self._upkeep.log_line(f"the journal's oldest files could not be removed: {error}")
        elif done.result():
            self._upkeep.log_line(f"{done.result()} of the journal's oldest files were removed")
