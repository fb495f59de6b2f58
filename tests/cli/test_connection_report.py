"""The verbs that stay connected: they say when their broker leaves and comes back, and none waits for ever."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

import tidings as td
from tests.cli import command
from tidings.cli.connection import ConnectionReport
from tidings.client import ConnectionState
from tidings.testing import BrokerThread

pytestmark = pytest.mark.process

SECONDS = 60


@contextmanager
def verb(served: BrokerThread, *words: str, **given: Any) -> Iterator["subprocess.Popen[str]"]:
    """A verb in a process of its own, which does not outlive the test."""
    given.setdefault("stdin", subprocess.PIPE)
    process = command.start(*words, env=command.environment(TIDINGS_CONNECT=served.address), **given)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Its exit code, and what is left of its standard error."""
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


@pytest.mark.parametrize("words", [("subscribe", "n = 1"), ("tail", "n = 1"), ("advertise", "n = 1"), ("publish",)])
def test_a_person_is_told_that_the_broker_leaves_and_comes_back(words: tuple[str, ...]) -> None:
    with BrokerThread() as served, verb(served, *words, "--name", "car-1") as process:
        begun(served, process, words[0])
        served.stop()
        assert (
            line(process.stderr) == f"tidings: disconnected from b1 at {served.address}: the broker stops; trying again"
        )
        served.start()
        assert line(process.stderr) == f"tidings: connected to b1 at {served.address} again"


@pytest.mark.parametrize("verb_name", ["subscribe", "tail"])
def test_a_program_is_told_the_same_in_json(verb_name: str) -> None:
    with BrokerThread() as served, verb(served, verb_name, "n = 1", "--name", "car-1", "--json") as process:
        begun(served, process, verb_name)
        served.stop()
        told = json.loads(line(process.stderr))
        assert told == {
            "connection": "disconnected",
            "broker": "b1",
            "address": served.address,
            "reason": "the broker stops",
        }
        served.start()
        assert json.loads(line(process.stderr))["connection"] == "connected"


def begun(served: BrokerThread, process: "subprocess.Popen[str]", name: str) -> None:
    """Returns when the verb has done what it begins with."""
    if name == "subscribe":
        assert line(process.stderr).endswith("waits for events")
    elif name == "advertise":
        assert "advertises" in line(process.stdout)
    with td.connect_sync(served.address, "watcher") as watcher:
        while "car-1" not in served.broker.sessions or (
            name == "tail" and not served.broker.node.registry.count("car-1")
        ):
            assert process.poll() is None
            watcher.topics()


@pytest.mark.parametrize("words", [("subscribe", "n = 1"), ("tail", "n = 1"), ("advertise", "n = 1"), ("publish",)])
def test_a_verb_ends_with_the_reason_when_another_program_has_its_name(words: tuple[str, ...]) -> None:
    with BrokerThread() as served, verb(served, *words, "--name", "car-1") as process:
        begun(served, process, words[0])
        assert process.stdin is not None
        with td.connect_sync(served.address, "car-1"):
            assert process.wait(SECONDS) == 1
        errors = process.stderr.read() if process.stderr is not None else ""
        reason = "another program has connected as car-1"
        assert errors == f"tidings: the broker has closed the connection of car-1: {reason}\n"


@pytest.mark.parametrize("name", ["subscribe", "tail", "advertise"])
def test_a_verb_ends_after_its_seconds_while_the_broker_is_away(name: str) -> None:
    with BrokerThread() as served, verb(served, name, "n = 1", "--seconds", "3", "--name", "car-1") as process:
        begun(served, process, name)
        served.stop()
        code, errors = end(process)
        assert (code, errors.count("disconnected from b1")) == (0, 1)


@pytest.mark.parametrize("words", [("subscribe", "n = 1"), ("advertise", "n = 1")])
def test_ctrl_c_ends_a_verb_while_the_broker_is_away(words: tuple[str, ...]) -> None:
    with BrokerThread() as served, verb(served, *words, "--name", "car-1") as process:
        begun(served, process, words[0])
        served.stop()
        assert "disconnected" in line(process.stderr)
        process.send_signal(signal.SIGINT)
        assert end(process)[0] == 0


def test_failed_attempts_are_not_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    report = ConnectionReport()
    lost = ConnectionState(state="disconnected", address="tidings://a:1", broker="b1", reason="gone", connections=1)
    connected = ConnectionState(state="connected", address="tidings://a:1", broker="b1", connections=2)
    for state in (connected, lost, lost, lost, connected, connected):
        report(state)
    assert capsys.readouterr().err.splitlines() == [
        "tidings: disconnected from b1 at tidings://a:1: gone; trying again",
        "tidings: connected to b1 at tidings://a:1 again",
    ]
