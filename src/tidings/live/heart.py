"""The heart of a broker: from time to time it says that it is there, looks who is not, and does what is due."""

import asyncio
import logging
import resource
from typing import TYPE_CHECKING

from tidings.engine import Engine
from tidings.live.configuration.tables import DISCONNECT
from tidings.live.connection import Connection
from tidings.live.memory import Spare
from tidings.live.session import Session

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")


class Heart:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._tidying: asyncio.Future[None] | None = None
        self._spare = Spare()
        self._beating = self._loop.create_task(self._beat())

    @property
    def is_beating(self) -> bool:
        return not self._beating.done()

    def stop(self) -> None:
        self._beating.cancel()

    async def _beat(self) -> None:
        """Says that it is there, and looks who is not."""
        broker = self._broker
        spent, then = _processor_seconds(), self._loop.time()
        while True:
            heartbeat = broker.configuration.heartbeat
            await asyncio.sleep(heartbeat.interval_ms / 1000)
            now = self._loop.time()
            used, elapsed = _processor_seconds(), now - then
            if broker.desk.failure is None:
                broker.desk.set_load(min(1.0, max(0.0, (used - spent) / elapsed)) if elapsed else 0.0)
            spent, then = used, now
            patience = heartbeat.interval_ms / 1000 * heartbeat.patience
            if elapsed > patience / 2:  # this process was stopped, or the machine slept: others may be there
                patience = float("inf")
            for link in list(broker.links.values()):
                self._look_after(link.connection, now, patience)
            for session in broker.all_sessions():
                self._look_after(session.connection, now, patience)
                self._look_at(session, now)
            due = (
                *(broker.moving.go_on, broker.resending.tick, broker.upkeep.tick, broker.examining.tick, broker.tick),
                *(self._keep_tidy, self._give_back),
            )
            for act in due:
                try:
                    act()
                except Exception:  # a heart that stops would be noticed by nobody: links would stay as they are
                    _LOG.exception("%s could not do what is to be done from time to time", broker.name)

    def _keep_tidy(self) -> None:
        """Beside everything else, since it may take long."""
        engine = self._broker.desk.engine
        if engine.is_untidy and (self._tidying is None or self._tidying.done()):
            self._tidying = self._loop.run_in_executor(None, self._tidy, engine)

    def _tidy(self, engine: Engine) -> None:
        engine.tidy()
        self._spare.give_back()

    def _give_back(self) -> None:
        """Likewise."""
        if self._spare.is_due(len(self._broker.desk.engine.subscriptions)):
            self._loop.run_in_executor(None, self._spare.give_back)

    def _look_after(self, connection: Connection, now: float, patience: float) -> None:
        if now - connection.heard > patience and connection.is_reading:
            connection.abort(f"nothing was heard for {now - connection.heard:.1f} seconds")
        elif not connection.is_stalled:
            connection.ping()

    def _look_at(self, session: Session, now: float) -> None:
        limits, connection = self._broker.configuration.limits, session.connection
        has_to_read = limits.slow_consumer == DISCONNECT and connection.is_open and connection.is_stalled
        if has_to_read and now - connection.stalled_since > limits.slow_seconds:
            session.disconnect_slow(f"it has not read for {limits.slow_seconds:g} seconds")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
