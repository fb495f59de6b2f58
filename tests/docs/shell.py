"""The shell of a page that sets something up: a folder of its own, variables, and programs that go on running.

`$ mkdir NAME` and `$ cd NAME` give the page a folder; `$ export NAME=value` holds for the rest of it; a command with
`&` behind it runs until the page ends, and the next one is not begun before it has said something. Ports from 7460 on
are free ones, so that pages do not meet. A toml block whose first line is `# name.toml` is that file.
"""

import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
_KEY = "the shell of this page"  # in its namespace, where no name can be the same
_PORT = re.compile(r"\b127\.0\.0\.1:(74[6-9][0-9])\b")


class Shell:
    def __init__(self) -> None:
        self.folder = ROOT
        self.variables: dict[str, str] = {}
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._running: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, str] = {}

    @classmethod
    def of(cls, namespace: dict[str, Any]) -> "Shell":
        return namespace.setdefault(_KEY, cls())  # type: ignore[no-any-return]

    def takes(self, text: str) -> bool:
        """Whether it was one of the lines that change the shell itself."""
        made = re.fullmatch(r"mkdir (\w+)", text)
        if made:
            self._made = tempfile.TemporaryDirectory()
            Path(self._made.name, made[1]).mkdir()
            return True
        went = re.fullmatch(r"cd (\w+)", text)
        if went and self._made is not None:
            self.folder = Path(self._made.name, went[1])
            return True
        said = re.fullmatch(r"export (\w+)=(\S+)", text)
        if said:
            self.variables[said[1]] = self.real(said[2])
        return said is not None

    def real(self, text: str) -> str:
        """With the ports that are used here."""
        return _PORT.sub(lambda found: f"127.0.0.1:{self._ports.setdefault(found[1], _free())}", text)

    def write(self, source: str) -> None:
        named = re.match(r"# (\w+\.toml)\n", source)
        if named and self.folder != ROOT:
            (self.folder / named[1]).write_text(self.real(source))

    def begin(self, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Begins a program that goes on; what it says first."""
        with tempfile.TemporaryFile() as said:
            program = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=said, stderr=said)
            self._running.append(program)
            until = time.monotonic() + PATIENCE
            while program.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
                if said.seek(0, os.SEEK_END):
                    return 0, ""
            said.seek(0)
            return 1, said.read().decode()

    def end(self) -> None:
        for program in reversed(self._running):
            program.terminate()
        for program in self._running:
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        if self._made is not None:
            self._made.cleanup()


def end_shell(namespace: dict[str, Any]) -> None:
    """At the end of a page."""
    if (shell := namespace.pop(_KEY, None)) is not None:
        shell.end()


def _free() -> str:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return str(made.getsockname()[1])
