"""The heartbeat of a broker: at each interval, ping peers, drop silent ones, and run the periodic tasks."""

import asyncio
import ctypes
import logging
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.config.tables import DISCONNECT
from tidings.broker.net.channel import Channel
from tidings.broker.ports import Links, SessionPort, Sessions
from tidings.engine import Engine
from tidings.model.errors import TidingsError
from tidings.protocol.frames import FrameKind, frame
from tidings.protocol.handshake import Ping

_LOG = logging.getLogger("tidings.broker")
_PING = frame(FrameKind.PING, msgspec.msgpack.encode(Ping()))


class HeartbeatNode(Protocol):
    """What the heartbeat needs of the node."""

    @property
    def engine(self) -> Engine:
        """The engine; a rebuild replaces it."""
        ...

    @property
    def failure(self) -> TidingsError | None:
        """Why the journal has failed; None if it has not."""
        ...

    def set_load(self, load: float) -> None:
        """Tell policies how busy the broker is, from 0 to 1."""
        ...


class Heartbeat:
    """Runs the heartbeat of a broker, from `start` to `stop`.

    A periodic task that raises is logged; the heartbeat goes on, since without it dead links would stay up.

    Args:
        name: The broker's name, for the log.
        configuration: Has the interval and the limits of clients.
        node: Is told the load; its index is tidied.
        sessions: The sessions of the clients.
        links: The links to the neighbours.
        tasks: Called at each interval, in order.
    """

    def __init__(
        self,
        name: str,
        *,
        configuration: ActiveConfiguration,
        node: HeartbeatNode,
        sessions: Sessions,
        links: Links,
        tasks: Sequence[Callable[[], None]],
    ) -> None:
        self._name, self._configuration, self._node = name, configuration, node
        self._sessions, self._links = sessions, links
        self._tasks = (*tasks, self._tidy_index, self._trim_memory)
        self._tidy_future: asyncio.Future[None] | None = None
        self._malloc_trim = MallocTrim()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_beating(self) -> bool:
        """Whether the heartbeat is running."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin to beat, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._beat())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        """Measure the load, ping peers and drop silent ones, and run periodic tasks, at each interval for ever."""
        node = self._node
        spent, last_time = _processor_seconds(), self._loop.time()
        while True:
            heartbeat = self._configuration.current.heartbeat
            await asyncio.sleep(heartbeat.interval_ms / 1000)
            now = self._loop.time()
            used, elapsed = _processor_seconds(), now - last_time
            if node.failure is None:
                node.set_load(min(1.0, max(0.0, (used - spent) / elapsed)) if elapsed else 0.0)
            spent, last_time = used, now
            patience = heartbeat.interval_ms / 1000 * heartbeat.patience
            if elapsed > patience / 2:  # this process was suspended: peers may be alive
                patience = float("inf")
            for link in self._links.all():
                self._check_connection(link.connection, now, patience)
            for session in self._sessions.all():
                self._check_connection(session.connection, now, patience)
                self._check_slow_client(session, now)
            for task in self._tasks:
                try:
                    task()
                except Exception:  # a heartbeat that ends would leave dead links up, unnoticed
                    _LOG.exception("a periodic task of %s has failed", self._name)

    def _tidy_index(self) -> None:
        """Tidy the engine's index in a thread, since that may take long."""
        engine = self._node.engine
        if engine.is_untidy and (self._tidy_future is None or self._tidy_future.done()):
            self._tidy_future = self._loop.run_in_executor(None, self._tidy, engine)

    def _tidy(self, engine: Engine) -> None:
        engine.tidy()
        self._malloc_trim.trim()

    def _trim_memory(self) -> None:
        """Return freed memory to the system in a thread."""
        if self._malloc_trim.is_due(len(self._node.engine.state.filters.subscriptions)):
            self._loop.run_in_executor(None, self._malloc_trim.trim)

    def _check_connection(self, connection: Channel, now: float, patience: float) -> None:
        """Abort a connection from which nothing has come for too long; else send a ping."""
        flow = connection.flow
        if now - flow.last_received > patience and flow.is_reading:
            connection.abort(f"no data came for {now - flow.last_received:.1f} seconds")
        elif not flow.is_stalled:
            connection.send(_PING)

    def _check_slow_client(self, session: SessionPort, now: float) -> None:
        """Disconnect a client that has not read for too long, if the configuration says so."""
        limits, connection = self._configuration.current.limits, session.connection
        has_to_read = limits.slow_consumer == DISCONNECT and connection.is_open and connection.flow.is_stalled
        if has_to_read and now - connection.flow.stalled_since > limits.slow_seconds:
            session.disconnect_slow(f"the client has not read for {limits.slow_seconds:g} seconds")


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
