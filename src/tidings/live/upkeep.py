"""Upkeep of a broker's journal: snapshots, and taking away what is too old or too much."""

import asyncio
from typing import TYPE_CHECKING

from tidings.journal import Retention
from tidings.model.errors import TidingsError

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOOKED_AT_AFTER = 60.0  # seconds
_SNAPSHOT_AFTER = 3600.0  # without a snapshot nothing can be taken away
PUBLICATIONS = 1_000_000  # between two snapshots: they cost a pause, and publications are quickly read again


class Upkeep:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._kept = self._looked = broker.now()
        archive = broker.desk.archive
        if archive is not None:
            archive.rows_due, archive.control_due = PUBLICATIONS, broker.configuration.journal.snapshot_rows

    def tick(self) -> None:
        desk, now = self._broker.desk, self._broker.now()
        archive, given = desk.archive, self._broker.configuration.journal
        if archive is None or desk.failure is not None or now - self._looked < _LOOKED_AT_AFTER:
            return
        self._looked = now
        if given.retain_days is None and given.retain_bytes is None:
            return
        if now - self._kept > _SNAPSHOT_AFTER:
            self._kept = now
            archive.keep(desk)
        limits = Retention(given.retain_days, given.retain_bytes).limits(self._broker.clock.now())
        done = asyncio.get_running_loop().run_in_executor(self._broker.readers, archive.retain, desk, *limits)
        done.add_done_callback(self._retained)

    def _retained(self, done: "asyncio.Future[int]") -> None:
        error = done.exception()
        if isinstance(error, TidingsError):
            self._broker.desk.note(f"the journal's oldest files could not be removed: {error}")
        elif done.result():
            self._broker.desk.note(f"{done.result()} of the journal's oldest files were removed")
