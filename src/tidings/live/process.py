"""A broker as a process: its loop, its logs, its HTTP port, and the signals that stop it and have it reload."""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import msgspec

from tidings.live.broker import Broker
from tidings.live.condition import gauges, hindrances
from tidings.live.configuration import Address, Configuration
from tidings.live.exposition import Exposition
from tidings.live.http import HttpPort
from tidings.live.logs import BrokerLogs, Log
from tidings.model.errors import JournalLockedError, TidingsError

_LOG = Log("tidings.live")
_STANDARD_INPUT = 0
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
# What was there at the start is never looked at again; of the rest the young is looked at often enough that what forms
# circles does not pile up, and the old seldom, since that is the pause that everybody feels.
_THRESHOLDS = (50_000, 20, 100)


class Ready(msgspec.Struct, frozen=True):
    """What is told once clients may connect: where."""

    broker: str
    address: str
    http: str | None
    process: int


def run(read: Callable[[], Configuration], ready: Callable[[Ready], None], *, attached: bool = False) -> int:
    """Runs a broker until it is stopped; the exit code of the process.

    `read` is called for the configuration, at the start and at every SIGHUP; `ready` once clients may connect.
    Whoever has started the broker as a child may hold its standard input: if it is `attached`, it stops when that ends.
    """
    given = read()
    with BrokerLogs(given.logs, given.broker.name) as logs, asyncio.Runner(loop_factory=_loop()) as runner:
        process = Process(given, read, logs)
        runner.run(process.serve(ready, attached=attached))
    return 0


class Process:
    def __init__(self, given: Configuration, read: Callable[[], Configuration], logs: BrokerLogs) -> None:
        self._read, self._logs = read, logs
        self._broker = Broker(given)
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()

    async def serve(self, ready: Callable[[Ready], None], *, attached: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reloading.set)
        if attached:
            _wake_when_orphaned()
            loop.add_reader(_STANDARD_INPUT, self._read_input)
        async with self._started(), AsyncExitStack() as stack:
            http = await self._watched(stack)
            _settle_memory()
            ready(Ready(self._broker.name, str(self._broker.address), None if http is None else str(http), os.getpid()))
            reloading = loop.create_task(self._reload_when_asked())
            await self._stopping.wait()
            reloading.cancel()

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        try:
            await self._broker.start()
        except JournalLockedError as error:
            told = f"{error}; stop that one, or give this broker a folder of its own (journal.folder)"
            raise TidingsError(told) from None
        try:
            yield
        finally:
            await self._broker.stop()

    async def _watched(self, stack: AsyncExitStack) -> Address | None:
        """The HTTP port, if there is to be one."""
        broker, listen = self._broker, self._broker.configuration.http.listen
        if not listen:
            return None
        exposition = Exposition(broker.name, broker.metrics, lambda: gauges(broker, self._logs.dropped))
        port = HttpPort(Address.parse(listen), broker.name, exposition.page, lambda: list(hindrances(broker)))
        await stack.enter_async_context(port)
        return port.address

    # Signals

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            os._exit(128 + number)  # at once: what was acknowledged is on the disk, and the rest is nobody's yet
        _LOG.info("the broker is being stopped", signal=signal.Signals(number).name)
        self._stopping.set()

    def _read_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(_STANDARD_INPUT, 4096):
                return
            asyncio.get_running_loop().remove_reader(_STANDARD_INPUT)
            _LOG.info("the broker is being stopped: whoever started it is gone")
            self._stopping.set()

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reloading.wait()
            self._reloading.clear()
            try:
                wanted = self._read()
                change = await self._broker.reload(wanted)
                self._logs.change(wanted.logs)
            except TidingsError as error:
                _LOG.error("the configuration could not be reloaded", reason=error)
                continue
            _LOG.info("the configuration was reloaded", taken_over=", ".join(change.taken_over) or "nothing is new")
            if change.restart:
                _LOG.warning("some of the configuration needs a restart", keys=", ".join(change.restart))


def _wake_when_orphaned() -> None:
    """A process that stands still does not see its standard input end. Linux wakes it for having lost its starter only
    where the first process of all takes it over, which in a container is another one: so it is asked to."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))


def _settle_memory() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop, where there is one."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
