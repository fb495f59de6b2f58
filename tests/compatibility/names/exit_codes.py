"""The exit codes of the command `tidings`, each produced by a process of its own.

No single place declares them: a case says what is done, and the process says the code.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.broker.running_broker import running_broker
from tidings.journal import Journal
from tidings.journal.record import Operation

_LIMIT = 60  # seconds
_INTERRUPTED = """
import sys, types
class Interrupt(types.ModuleType):
    def __getattr__(self, name):
        raise KeyboardInterrupt
sys.modules["typer.exceptions"] = Interrupt("typer.exceptions")
from tidings.cli import main
main()
"""
_COMMAND = (sys.executable, "-m", "tidings")


def lines() -> Iterator[str]:
    cases: dict[str, Callable[[], int]] = {
        "the command has done what it was asked to do": lambda: _run("--version"),
        "the command is refused": lambda: _run("filter", "a >"),
        "the command line is not understood": lambda: _run("no-such-verb"),
        "a group is called without a verb": lambda: _run("journal"),
        "a check finds damage": _check_damage,
        "the command is interrupted": _interrupt_command,
        "a broker is stopped by a signal": _stop_broker,
        "a subscriber is stopped by an interrupt": lambda: _end_subscriber(_interrupt),
        "the reader of the output has left": lambda: _end_subscriber(_close_output),
    }
    for case, produce in cases.items():
        yield f"{produce()} {case}"


def _run(*words: str) -> int:
    return subprocess.run([*_COMMAND, *words], capture_output=True, timeout=_LIMIT, stdin=subprocess.DEVNULL).returncode


def _check_damage() -> int:
    with tempfile.TemporaryDirectory() as name:
        with Journal.open(name) as journal:
            journal.append([Operation.control("connect", client="car-1")], 1_000)
        (path,) = Path(name).glob("log/*.log")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        return _run("journal", "check", name)


def _interrupt_command() -> int:
    """The interrupt comes when the command loads the first name of the library that reads its words."""
    return subprocess.run([sys.executable, "-c", _INTERRUPTED], timeout=_LIMIT).returncode


def _stop_broker() -> int:
    command = [*_COMMAND, "broker", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        process.send_signal(signal.SIGTERM)
        return process.wait(_LIMIT)


def _end_subscriber(end: Callable[["subprocess.Popen[str]"], None]) -> int:
    with running_broker() as address:
        command = [*_COMMAND, "subscribe", "length > 2", "--connect", f"tidings://{address}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
            process.stderr.readline()  # it waits for events
            end(process)
            code: int = process.wait(_LIMIT)
            return code


def _interrupt(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)


def _close_output(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    process.stdout.close()
