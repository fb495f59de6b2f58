"""Processes that do not outlive what they were started for."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tidings.model.errors import TidingsError

_PATIENCE = 5.0  # seconds to end when asked to
_STARTING = 60.0  # seconds until a broker takes connections


class Children:
    """Processes and all that they start, with a folder for what they write: however the block ends, they are asked to
    end, and then made to; and the folder is gone."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="tidings-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        # Being asked to end is like Ctrl-C: they end too.
        self._before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to be asked once is enough
        for child in reversed(self._started):
            _signal(child, signal.SIGTERM)
        for child in reversed(self._started):
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE)
            _signal(child, signal.SIGKILL)  # also for what the child itself has left behind
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self._temporary.cleanup()
        signal.signal(signal.SIGTERM, self._before)

    def server(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> int:
        """Starts it; what it says goes into a file. The number of its process."""
        with self._output(name).open("wb") as output:
            return self._start(command, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output).pid

    def program(self, name: str, command: Sequence[str | Path], kept: Sequence[int]) -> subprocess.Popen[bytes]:
        """Starts it with pipes to talk over, and with the descriptors that it keeps open."""
        with self._output(name).open("wb") as output:
            return self._start(
                command, None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, pass_fds=tuple(kept)
            )

    def await_port(self, name: str, port: int) -> None:
        """Until somebody listens there; whoever should have and has ended is told with its last words."""
        child = self._started[-1]
        until = time.monotonic() + _STARTING
        while time.monotonic() < until and child.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.1)
        raise TidingsError(f"{name} does not take connections: {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        said = self._output(name).read_text(errors="replace").split("\n")
        return " / ".join([line.strip() for line in said if line.strip()][-3:]) or "it said nothing"

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _start(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None, **streams: object
    ) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is ours to pass on, and its children can be ended with it.
        child: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]  # noqa: S603
            command, env={**os.environ, **(environment or {})}, start_new_session=True, **streams
        )
        self._started.append(child)
        return child


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
