"""A broker as a child process: start, stop, kill, pause, and restart with the same configuration and journal."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidings.model.errors import TidingsError

_LINE = 65_536  # bytes of a read, more than a broker's ready line has


class ChildBroker:
    """A broker in a child process that ends with this process, however this process ends.

    The broker runs with `--attached`: it stops when its standard input, a pipe from this process, is closed.
    """

    def __init__(self, name: str, configuration: Path, log: Path) -> None:
        self.name, self.configuration, self.log = name, configuration, log
        self.address = self.http = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    def start(self) -> None:
        """Start the process, and return before the broker is ready: see `await_ready`.

        Raises TidingsError if it is running.
        """
        if self.is_running:
            raise TidingsError(f"{self.name} is running already")
        self._is_paused = False
        with self.log.open("ab") as log:
            # In its own process group: Ctrl-C on the terminal goes to this process alone, which stops its brokers.
            self._process = subprocess.Popen(  # noqa: S603
                [*self.program, "broker", "--config", str(self.configuration), "--attached", "--json"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
                env=self.environment(),
            )

    @property
    def program(self) -> list[str]:
        """The command line up to the arguments of `tidings`. Subclasses may replace it."""
        return [sys.executable, "-m", "tidings"]

    def environment(self) -> dict[str, str]:
        """Return the child's environment: this process's without TIDINGS_ variables, which would override every
        broker's configuration, and with the same module search path."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        return {
            **environment,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONUNBUFFERED": "1",
        }

    def await_ready(self, seconds: float) -> None:
        """Wait until clients can connect, then set `address` and `http`.

        Raises TidingsError, with the last line of the log, if the broker ends; and if it is not ready in time, after
        killing it.
        """
        until = time.monotonic() + seconds
        output = b""
        while not output.endswith(b"\n"):
            chunk = self._output(until - time.monotonic())
            if chunk is None:
                self.kill()
                raise TidingsError(f"{self.name} was not ready within {seconds:g} seconds; its log is {self.log}")
            if not chunk:
                self._running().wait()
                raise TidingsError(f"{self.name} did not start: {self._last_words()}; its log is {self.log}")
            output += chunk
        ready = json.loads(output)
        self.address, self.http = ready["address"], ready["http"] or ""

    def _output(self, seconds: float) -> bytes | None:
        """Read from the child's standard output: b"" at its end, None if nothing arrives in time."""
        stdout = self._running().stdout
        assert stdout is not None  # noqa: S101  # it was started with a pipe
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            return os.read(stdout.fileno(), _LINE) if selector.select(max(0.0, seconds)) else None

    def _last_words(self) -> str:
        """Return the last line of the broker's log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("tidings: ") if lines else "it said nothing"

    # The running process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_active(self) -> bool:
        """Whether the process runs and is not paused."""
        return self.is_running and not self._is_paused

    @property
    def process(self) -> int | None:
        """The process id, while the process runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def code(self) -> int | None:
        """The exit code of the last run, or minus the number of the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM, after resuming a paused process, and return at once: `await_end` waits for the end."""
        self.resume()
        self._signal(signal.SIGTERM)

    def await_end(self, seconds: float) -> int | None:
        """Wait for the end of the process and return its exit code; kill the process if it has not ended in time."""
        if self._process is None:
            return None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close()
        return self._process.returncode

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._close()

    def reload(self) -> None:
        """Send SIGHUP, on which the broker reloads its configuration."""
        self._signal(signal.SIGHUP)

    def pause(self) -> None:
        """Stop the process with SIGSTOP, and return once it has stopped.

        When this process ends, the kernel resumes stopped children (SIGCONT to an orphaned process group). A child that
        stopped only after that would stay stopped for ever.
        """
        process = self.process
        if process is None:
            return
        self._signal(signal.SIGSTOP)
        self._is_paused = True
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue a paused process."""
        if self._is_paused:
            self._signal(signal.SIGCONT)
            self._is_paused = False

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise TidingsError(f"{self.name} has not been started")
        return self._process

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _close(self) -> None:
        for stream in (self._running().stdin, self._running().stdout):
            if stream is not None:
                stream.close()
