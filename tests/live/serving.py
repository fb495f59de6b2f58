"""A broker in a thread of its own, for tests that talk to it as any other program would: over a socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidings.live.broker import Broker
from tidings.live.configuration import Configuration
from tidings.live.configuration.address import Address


@contextmanager
def serving(journal: object = "", port: int = 0, **tables: dict[str, Any]) -> Iterator[Address]:
    """Where a broker named b1 listens, until the end of the block; `tables` are those of its configuration."""
    broker = {"name": "b1", "listen": f"127.0.0.1:{port}", **tables.pop("broker", {})}
    served = Broker(Configuration.from_values({"broker": broker, "journal": {"folder": str(journal)}, **tables}))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker-of-a-test", daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(served.start(), loop).result()
        asyncio.run_coroutine_threadsafe(served.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
