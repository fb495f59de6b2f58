"""A broker as a child process: started, stopped, killed, paused, and started again where it was."""

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

_LINE = 65_536  # bytes, more than a line of a broker that is ready has


class Child:
    """It ends with this process, however that ends: it holds the other end of the child's standard input."""

    def __init__(self, name: str, configuration: Path, log: Path) -> None:
        self.name, self.configuration, self.log = name, configuration, log
        self.address = self.http = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    def start(self) -> None:
        """Returns before it is ready: see `await_ready`."""
        if self.is_running:
            raise TidingsError(f"{self.name} is running already")
        self._is_paused = False
        with self.log.open("ab") as log:
            # In a process group of its own: Ctrl-C on the terminal is for whoever looks after all of them.
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
        """The command line up to the arguments of `tidings`."""
        return [sys.executable, "-m", "tidings"]

    def environment(self) -> dict[str, str]:
        """Without what is meant for one broker: here each has a configuration of its own. Modules are found as they
        are in this process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUNBUFFERED": "1"}

    def await_ready(self, seconds: float) -> None:
        """Until clients may connect; an error says what it complained of."""
        until = time.monotonic() + seconds
        told = b""
        while not told.endswith(b"\n"):
            part = self._output(until - time.monotonic())
            if part is None:
                self.kill()
                raise TidingsError(f"{self.name} was not ready within {seconds:g} seconds; its log is {self.log}")
            if not part:
                self._running().wait()
                raise TidingsError(f"{self.name} did not start: {self._last_words()}; its log is {self.log}")
            told += part
        ready = json.loads(told)
        self.address, self.http = ready["address"], ready["http"] or ""

    def _output(self, seconds: float) -> bytes | None:
        """What it writes; nothing at its end, None if the time is over."""
        stdout = self._running().stdout
        assert stdout is not None  # noqa: S101  # it was started with a pipe
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            return os.read(stdout.fileno(), _LINE) if selector.select(max(0.0, seconds)) else None

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("tidings: ") if lines else "it said nothing"

    # While it runs

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_active(self) -> bool:
        """Whether it runs and is not paused."""
        return self.is_running and not self._is_paused

    @property
    def process(self) -> int | None:
        """Its number, while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def code(self) -> int | None:
        """The exit code of its last run, or minus the number of the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def ask_to_stop(self) -> None:
        """Gracefully; `await_end` waits for it."""
        self.resume()
        self._signal(signal.SIGTERM)

    def await_end(self, seconds: float) -> int | None:
        """Its exit code; if it has not ended by then, it is killed."""
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
        """As `kill -9` does."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._close()

    def reload(self) -> None:
        self._signal(signal.SIGHUP)

    def pause(self) -> None:
        """It stands still when this returns. Were it only about to, and this process ended before it did, it would be
        woken for having lost its starter too early, and stand for ever."""
        process = self.process
        if process is None:
            return
        self._signal(signal.SIGSTOP)
        self._is_paused = True
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
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
