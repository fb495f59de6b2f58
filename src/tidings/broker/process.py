"""A broker as an operating-system process: event loop, logs, HTTP port, and the signals for stop and reload."""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from tidings.broker.broker import Broker
from tidings.broker.config import Address, BrokerConfiguration
from tidings.broker.logs import BrokerLogs, Log
from tidings.model.errors import JournalLockedError, TidingsError

if TYPE_CHECKING:
    from tidings.broker.ops.http import HttpPort

_LOG = Log("tidings.broker")
_STANDARD_INPUT = 0
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
# Thresholds of the garbage collector, with the objects of the start frozen: the young generations are collected often
# enough that reference cycles do not pile up, the oldest one seldom, since that pause delays every client.
_THRESHOLDS = (50_000, 20, 100)


class ReadyNotice(msgspec.Struct, frozen=True):
    """What the process announces once clients can connect: its addresses and its process id."""

    broker: str
    address: str
    http: str | None
    process: int


def run(
    read: Callable[[], BrokerConfiguration], ready: Callable[[ReadyNotice], None], *, attached: bool = False
) -> int:
    """Run a broker until it is stopped; return the exit code of the process.

    `read` returns the configuration; it is called at the start and at every SIGHUP. `ready` is called once clients can
    connect. With `attached`, the broker stops when its standard input ends: a parent process that holds the other end
    of it thereby stops the broker by ending.
    """
    configuration = read()
    with (
        BrokerLogs(configuration.logs, configuration.broker.name) as logs,
        asyncio.Runner(loop_factory=_loop()) as runner,
    ):
        process = BrokerProcess(configuration, read, logs)
        runner.run(process.serve(ready, attached=attached))
    return 0


class BrokerProcess:
    """Runs a `Broker` with signal handlers, logs and the HTTP port."""

    def __init__(
        self, configuration: BrokerConfiguration, read: Callable[[], BrokerConfiguration], logs: BrokerLogs
    ) -> None:
        self._read, self._logs = read, logs
        self._broker = Broker(configuration)
        listen = configuration.http.listen
        self._http = self._http_port(listen) if listen else None
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()

    async def serve(self, ready: Callable[[ReadyNotice], None], *, attached: bool) -> None:
        """Serve until SIGTERM or SIGINT, or, if `attached`, until standard input ends; then stop the broker."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reloading.set)
        if attached:
            _wake_when_orphaned()
            loop.add_reader(_STANDARD_INPUT, self._read_input)
        async with self._started(), AsyncExitStack() as stack:
            http = None
            if self._http is not None:
                await stack.enter_async_context(self._http)
                http = str(self._http.address)
            _tune_collector()
            ready(ReadyNotice(self._broker.name, str(self._broker.address), http, os.getpid()))
            reloading = loop.create_task(self._reload_on_signal())
            await self._stopping.wait()
            reloading.cancel()

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        try:
            await self._broker.start()
        except JournalLockedError as error:
            message = f"{error}; stop that one, or give this broker a folder of its own (journal.folder)"
            raise TidingsError(message) from None
        try:
            yield
        finally:
            await self._broker.stop()

    def _http_port(self, listen: str) -> "HttpPort":
        """Return the HTTP port for the address `listen`, which is not open yet."""
        # Packages of the extra `live`, which take long to import: only a broker with an HTTP port needs them.
        from tidings.broker.ops.http import HttpPort
        from tidings.broker.ops.prometheus import PrometheusPage

        broker = self._broker
        page = PrometheusPage(broker.name, broker.metrics, lambda: broker.parts.health.gauges(self._logs.dropped))
        return HttpPort(
            Address.parse(listen), broker.name, page.page, lambda: list(broker.parts.health.not_ready_reasons())
        )

    # Signals

    def _stop(self, number: int) -> None:
        """Stop on the first signal; on a second one, end the process at once."""
        if self._stopping.is_set():
            os._exit(128 + number)  # what was acknowledged is on disk; nothing else was promised
        _LOG.info("the broker is being stopped", signal=signal.Signals(number).name)
        self._stopping.set()

    def _read_input(self) -> None:
        """Stop once standard input has ended; what comes on it is ignored."""
        with contextlib.suppress(BlockingIOError):
            if os.read(_STANDARD_INPUT, 4096):
                return
            asyncio.get_running_loop().remove_reader(_STANDARD_INPUT)
            _LOG.info("the broker is being stopped: its parent process has ended")
            self._stopping.set()

    async def _reload_on_signal(self) -> None:
        while True:
            await self._reloading.wait()
            self._reloading.clear()
            try:
                configuration = self._read()
                change = await self._broker.reload(configuration)
                self._logs.change(configuration.logs)
            except TidingsError as error:
                _LOG.error("the configuration could not be reloaded", reason=error)
                continue
            _LOG.info("the configuration was reloaded", taken_over=", ".join(change.taken_over) or "nothing is new")
            if change.restart:
                _LOG.warning("some of the configuration needs a restart", keys=", ".join(change.restart))


def _wake_when_orphaned() -> None:
    """Have Linux send SIGCONT to this process when its parent ends, so that a suspended broker wakes up and stops.

    A suspended process does not see its standard input end. Linux wakes an orphan by itself only if the init process
    adopts it, which is not so in a container.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))


def _tune_collector() -> None:
    """Exempt all objects that exist now from garbage collection, and set its thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory; None if uvloop is not installed."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
