"""A service on the command line: it runs until it is stopped by a signal, or cannot go on."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def stopping() -> asyncio.Event:
    """Set by SIGTERM and SIGINT, from now on."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


async def until_stopped(stopped: asyncio.Event, serving: Coroutine[Any, Any, None]) -> None:
    """Returns when it is stopped; what ends `serving` before that is raised here."""
    doing, ending = asyncio.create_task(serving), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        doing.cancel()
        ending.cancel()
