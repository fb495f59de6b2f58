"""A broker whose process is forked from one where everything is loaded: it starts in an instant, as often as wanted.

Run as a module, it is that process: for each configuration that it reads, a broker begins to serve, and says where.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.matching.index.kernels import jit

_LOOK = 0.002  # seconds between two looks whether a process has ended


class Forked:
    """`tables` are those of its configuration; it listens where it has listened first."""

    def __init__(self, tables: dict[str, dict[str, Any]]) -> None:
        self._tables = tables
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.process.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._process: int | None = None
        self.address = ""

    def start(self) -> None:
        """Returns when it listens."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(self._tables) + "\n")
        self._nursery.stdin.flush()
        begun = json.loads(self._nursery.stdout.readline())
        self._process = begun["process"]
        self._tables["broker"]["listen"] = begun["listens"]
        self.address = f"tidings://{begun['listens']}"

    def kill(self) -> None:
        """As `kill -9` does; returns when it is dead."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
            while True:
                os.kill(self._process, 0)
                time.sleep(_LOOK)
        self._process = None

    def close(self) -> None:
        self.kill()
        self._nursery.communicate()


def _nurse() -> None:
    jit.ready()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who die
    for line in sys.stdin:
        if os.fork() == 0:
            sys.stdin.close()
            asyncio.run(_serve(json.loads(line)))


async def _serve(tables: dict[str, dict[str, Any]]) -> None:
    listens = await Broker(BrokerConfiguration.from_values(tables)).start()
    sys.stdout.write(json.dumps({"process": os.getpid(), "listens": str(listens)}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    _nurse()
