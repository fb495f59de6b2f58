"""A broker in a thread of its own, for tests that talk to it as any other program would: over a socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from tidings.live.broker import Broker
from tidings.live.configuration import Configuration
from tidings.live.configuration.address import Address


@contextmanager
def serving(journal: object = "", port: int = 0, **tables: Any) -> Iterator[Address]:
    """Where a broker named b1 listens, until the end of the block; `tables` are those of its configuration."""
    with Served(journal, port, **tables) as served:
        yield served.broker.address
        served.stop()


class Served:
    """The same as an object: `stop` and `start` end the broker and begin it anew, at the same address."""

    def __init__(self, journal: object = "", port: int = 0, **tables: dict[str, Any]) -> None:
        own = {"name": "b1", "listen": f"127.0.0.1:{port}", **tables.pop("broker", {})}
        self._tables: dict[str, Any] = {"broker": own, "journal": {"folder": str(journal)}, **tables}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker-of-a-test", daemon=True)

    def start(self) -> None:
        self.broker = Broker(Configuration.from_values(self._tables))
        self._tables["broker"]["listen"] = str(self._run(self.broker.start()))

    @property
    def address(self) -> str:
        return f"tidings://{self.broker.address}"

    def stop(self) -> None:
        self._run(self.broker.stop())

    def _run(self, doing: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()

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
