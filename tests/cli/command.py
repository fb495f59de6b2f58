"""The command `tidings`, run as a user runs it: in this process, which has everything loaded, or in one of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from unittest.mock import patch

from tests.limits import PATIENCE
from tidings.cli import main, output

Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """The variables of this process, without those that would be settings of Tidings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")} | more


def run(
    *words: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: str | bytes = b"",
    merged: bool = False,
) -> Done:
    """What the command says, called in this process: its standard streams are files, as behind a redirection.

    Where they are `merged`, all of it is in `stdout`.
    """
    given = dict(os.environ if variables is None else variables)
    said = stdin.encode() if isinstance(stdin, str) else stdin
    with (
        _files(merged=merged) as streams,
        chdir(folder or Path.cwd()),
        patch.dict(os.environ, given, clear=True),
        _wide(given),
    ):
        streams[0].buffer.write(said)  # type: ignore[attr-defined]
        streams[0].seek(0)
        installed = patch.object(sys.modules["__main__"], "__package__", None)  # else hints say `python -m ...`
        argv = ["tidings", *words]
        with installed, patch.multiple(sys, stdin=streams[0], stdout=streams[1], stderr=streams[2], argv=argv):
            code = _status()
        out = _text_of(streams[1])
        err = "" if merged else _text_of(streams[2])
    return Done(["tidings", *words], code, out, err)


def as_json(*words: str, **given: Any) -> Any:
    """What it answers to programs, once it has done what it was asked."""
    done = run(*words, "--json", **given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_alone(*words: str, **given: Any) -> Done:
    """The same in a process of its own, for what is about processes: what one loads, how it starts and ends."""
    return subprocess.run(
        [sys.executable, "-m", "tidings", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        **given,
    )


def start(*words: str, **given: Any) -> "subprocess.Popen[str]":
    """In a process of its own, beside this one."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-m", "tidings", *words], text=True, **{**streams, **given})


def _status() -> int:
    try:
        main()
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


@contextmanager
def _files(*, merged: bool) -> Iterator[list[IO[str]]]:
    """Real ones, since some verbs look at their numbers."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        yield [given, out, out if merged else err]


@contextmanager
def _wide(variables: Mapping[str, str]) -> Iterator[None]:
    """Consoles ask for their width when they are made, which is once a process."""
    width = int(variables.get("COLUMNS", output.UNBOUNDED))
    with patch.object(output.out, "_width", width), patch.object(output.err, "_width", width):
        yield


def _text_of(stream: IO[str]) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
