"""The heartbeat of a broker: at each interval, ping peers, drop silent ones, and run the periodic tasks."""

import asyncio
import ctypes
import logging
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.broker.config.tables import DISCONNECT
from tidings.broker.net.connection import Connection
from tidings.broker.sessions.session import Session
from tidings.engine import Engine

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = logging.getLogger("tidings.broker")


class Heartbeat:
    """Runs the heartbeat of a broker, from its creation to `stop`.

    A periodic task that raises is logged; the heartbeat goes on, since without it dead links would stay up.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._tidy_future: asyncio.Future[None] | None = None
        self._malloc_trim = MallocTrim()
        self._task = self._loop.create_task(self._beat())

    @property
    def is_beating(self) -> bool:
        """Whether the heartbeat is running."""
        return not self._task.done()

    def stop(self) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        """Measure the load, ping peers and drop silent ones, and run periodic tasks, at each interval for ever."""
        broker = self._broker
        spent, last_time = _processor_seconds(), self._loop.time()
        while True:
            heartbeat = broker.configuration.heartbeat
            await asyncio.sleep(heartbeat.interval_ms / 1000)
            now = self._loop.time()
            used, elapsed = _processor_seconds(), now - last_time
            if broker.node.failure is None:
                broker.node.set_load(min(1.0, max(0.0, (used - spent) / elapsed)) if elapsed else 0.0)
            spent, last_time = used, now
            patience = heartbeat.interval_ms / 1000 * heartbeat.patience
            if elapsed > patience / 2:  # this process was suspended: peers may be alive
                patience = float("inf")
            for link in list(broker.links.values()):
                self._check_connection(link.connection, now, patience)
            for session in broker.all_sessions():
                self._check_connection(session.connection, now, patience)
                self._check_slow_client(session, now)
            tasks = (
                *(
                    broker.handover.send_next,
                    broker.resender.tick,
                    broker.journal_maintenance.tick,
                    broker.reauthentication.tick,
                    broker.tick,
                ),
                *(self._tidy_index, self._trim_memory),
            )
            for task in tasks:
                try:
                    task()
                except Exception:  # a heartbeat that ends would leave dead links up, unnoticed
                    _LOG.exception("%s could not do what is to be done from time to time", broker.name)

    def _tidy_index(self) -> None:
        """Tidy the engine's index in a thread, since that may take long."""
        engine = self._broker.node.engine
        if engine.is_untidy and (self._tidy_future is None or self._tidy_future.done()):
            self._tidy_future = self._loop.run_in_executor(None, self._tidy, engine)

    def _tidy(self, engine: Engine) -> None:
        engine.tidy()
        self._malloc_trim.trim()

    def _trim_memory(self) -> None:
        """Return freed memory to the system in a thread."""
        if self._malloc_trim.is_due(len(self._broker.node.engine.state.filters.subscriptions)):
            self._loop.run_in_executor(None, self._malloc_trim.trim)

    def _check_connection(self, connection: Connection, now: float, patience: float) -> None:
        """Abort a connection from which nothing has come for too long; else send a ping."""
        if now - connection.last_received > patience and connection.is_reading:
            connection.abort(f"nothing was heard for {now - connection.last_received:.1f} seconds")
        elif not connection.is_stalled:
            connection.ping()

    def _check_slow_client(self, session: Session, now: float) -> None:
        """Disconnect a client that has not read for too long, if the configuration says so."""
        limits, connection = self._broker.configuration.limits, session.connection
        has_to_read = limits.slow_consumer == DISCONNECT and connection.is_open and connection.is_stalled
        if has_to_read and now - connection.stalled_since > limits.slow_seconds:
            session.disconnect_slow(f"it has not read for {limits.slow_seconds:g} seconds")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


_MIN_CHANGE = 1_000  # change in the number of subscriptions
_SHARE = 8  # or one part in so many of all subscriptions, if that is more
_MIN_CHANGE_QUIET = 100  # change that is enough once the number stays the same


class MallocTrim:
    """Decides when to return freed memory to the system: after many subscriptions have come or gone.

    A small change is enough once the number of subscriptions no longer changes.
    """

    def __init__(self) -> None:
        self._count_at_trim = self._last_count = 0
        self.trim = _trimmer()

    def is_due(self, subscriptions: int) -> bool:
        """Return whether enough has changed since it last was due. Called at every heartbeat."""
        is_quiet, self._last_count = subscriptions == self._last_count, subscriptions
        if abs(subscriptions - self._count_at_trim) < (
            _MIN_CHANGE_QUIET if is_quiet else max(_MIN_CHANGE, self._count_at_trim // _SHARE)
        ):
            return False
        self._count_at_trim = subscriptions
        return True


def _trimmer() -> Callable[[], None]:
    """Return a function that returns freed memory to the system, which does nothing where the C library cannot.

    The function takes milliseconds, and may be called in any thread.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return lambda: None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)
