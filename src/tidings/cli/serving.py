"""A service on the command line: it runs until it is stopped by a signal, or cannot go on."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_stopped(serving: Coroutine[Any, Any, None]) -> None:
    """Run a service until it ends, or until SIGTERM or SIGINT cancel it: also while it starts and its broker is away.
    What ends the service before that is raised here."""
    task, loop = asyncio.create_task(serving), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
