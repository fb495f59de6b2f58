"""Child processes that end with the block that started them."""

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

_PATIENCE = 5.0  # seconds after SIGTERM until SIGKILL
_STARTING = 60.0  # seconds until a broker accepts connections


class ChildProcesses:
    """A context manager for processes and their descendants, with a temporary folder for their output.

    However the block ends, the processes get SIGTERM, then SIGKILL, and the folder is removed.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="tidings-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        # SIGTERM to this process raises SystemExit, as Ctrl-C raises KeyboardInterrupt, so that `__exit__` runs.
        self._previous_handler = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not interrupt the cleanup
        for child in reversed(self._started):
            _signal(child, signal.SIGTERM)
        for child in reversed(self._started):
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE)
            _signal(child, signal.SIGKILL)  # also for descendants that the child left running
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self._temporary.cleanup()
        signal.signal(signal.SIGTERM, self._previous_handler)

    def server(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> int:
        """Start a process whose output goes into a file, and return its process id."""
        with self._output(name).open("wb") as output:
            return self._start(command, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output).pid

    def program(self, name: str, command: Sequence[str | Path], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
        """Start a process with pipes as its standard input and output; `descriptors` stay open in it."""
        with self._output(name).open("wb") as output:
            return self._start(
                command, None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, pass_fds=tuple(descriptors)
            )

    def await_port(self, name: str, port: int) -> None:
        """Wait until the last started process listens on the port.

        Raises TidingsError, with the last lines of its output, if it ends or does not listen in time.
        """
        child = self._started[-1]
        until = time.monotonic() + _STARTING
        while time.monotonic() < until and child.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.1)
        raise TidingsError(f"{name} does not take connections: {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        """Return the last three lines of a process's output."""
        lines = self._output(name).read_text(errors="replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-3:]) or "it said nothing"

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _start(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None, **streams: object
    ) -> subprocess.Popen[bytes]:
        # In its own session: Ctrl-C reaches this process only, and a signal to the group also ends its descendants.
        child: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]  # noqa: S603
            command, env={**os.environ, **(environment or {})}, start_new_session=True, **streams
        )
        self._started.append(child)
        return child


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the child's process group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
