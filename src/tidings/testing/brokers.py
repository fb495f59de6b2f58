"""Brokers for tests: a real one in a thread, which tests connect to over a socket, and an overlay in memory."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self, TypeVar

from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.broker.config.table_types import Address
from tidings.model.errors import InvalidValueError
from tidings.simulation import World
from tidings.simulation.topologies import Topology, line, ring, star, tree

_Answer = TypeVar("_Answer")


@contextmanager
def broker(journal: object = "", port: int = 0, **tables: dict[str, Any]) -> Iterator["BrokerThread"]:
    """Run a broker on this machine until the end of the `with` block, at a free port unless `port` names one.

    Args:
        journal: The folder of its journal; without one the broker keeps everything in memory.
        port: The port that it listens at; 0 picks a free one.
        tables: Tables of the broker's configuration, as in its TOML file: `limits={"clients": 10}`.
    """
    with BrokerThread(journal, port, **tables) as started:
        yield started
        if not started.broker.is_stopping:
            started.stop()  # here, so that an error while stopping fails the test


class BrokerThread:
    """A broker and the thread that runs it. `stop` and `start` end the broker and start it again at its address."""

    def __init__(self, journal: object = "", port: int = 0, **tables: dict[str, Any]) -> None:
        named = {"name": "b1", "listen": f"127.0.0.1:{port}", **tables.pop("broker", {})}
        self._tables: dict[str, Any] = {"broker": named, "journal": {"folder": str(journal)}, **tables}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings-test-broker", daemon=True)

    @property
    def address(self) -> str:
        """The address for clients: `tidings://127.0.0.1:<port>`."""
        return f"tidings://{self.endpoint}"

    @property
    def endpoint(self) -> Address:
        """The host and port that the broker listens at."""
        return self.broker.address

    def start(self) -> None:
        """Start the broker; after `stop`, at the same address and on the same journal."""
        self.broker = Broker(BrokerConfiguration.from_values(self._tables))
        self._tables["broker"]["listen"] = str(self.run(self.broker.start()))

    def stop(self) -> None:
        """Stop the broker as SIGTERM would; clients cannot reach it until it is started again."""
        self.run(self.broker.stop())

    def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine on the broker's event loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self.broker.is_stopping:
                self.stop()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_SHAPES: dict[str, Callable[[int], Topology]] = {"line": line, "ring": ring, "star": star, "tree": tree}


def overlay(
    brokers: int = 3, topology: Literal["line", "ring", "star", "tree"] | Topology = "line", **options: Any
) -> World:
    """Create an overlay of brokers b1, b2, ... in this process, whose routing tables are complete.

    Nothing waits and nothing is random: time passes in `run` and `settle`, and the same calls give the same run.

    Args:
        brokers: The number of brokers, where `topology` is the name of a shape.
        topology: How they are linked.
        options: Those of `tidings.simulation.World`: `strategy`, `seed`, `loss`, `settings`, `trust`, ...
    """
    if isinstance(topology, str) and topology not in _SHAPES:
        raise InvalidValueError(f"topology: {topology!r} is none of {', '.join(_SHAPES)}, and no Topology")
    world = World(_SHAPES[topology](brokers) if isinstance(topology, str) else topology, **options)
    world.settle()
    return world
