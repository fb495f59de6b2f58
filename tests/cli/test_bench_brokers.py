"""Brokers beside each other: the workload is what it says, protocols are spoken right, and nothing is left running."""

import asyncio
import io
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from benchmarks.brokers import load, table, trial
from benchmarks.brokers.activemq import Stomp
from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.load import Load, LoadDriver, LoadResult
from benchmarks.brokers.mosquitto import Mosquitto, Mqtt
from benchmarks.brokers.protocol_clients import ProtocolClient
from benchmarks.brokers.rabbitmq import Amqp
from benchmarks.brokers.system import BenchPublisher
from benchmarks.brokers.systems import SYSTEMS
from benchmarks.brokers.trial import TrialResult
from benchmarks.brokers.workload import EVENT_BYTES, STAMP_BYTES, Variant, events, interests
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pika import frame, spec
from rich.console import Console

from tests.cli.command import as_json, run
from tests.sizes import examples
from tidings.filters import Filter
from tidings.model.errors import TidingsError

EVENTS = events(interests(Variant.EQUALITY, 150), 40)
SILENT = cast("socket.socket", None)  # a line for what says nothing on it
STAMPS = [number.to_bytes(STAMP_BYTES) for number in range(len(EVENTS))]


@given(st.sampled_from(Variant), st.integers(1, 350), st.integers(0, 9))
@examples(10, 100)
def test_every_event_matches_one_subscription_and_has_its_size(variant: Variant, count: int, seed: int) -> None:
    wanted = interests(variant, count)
    filters = [Filter.parse(one.text) for one in wanted]
    for event in events(wanted, 5, seed):
        assert sum(one.matches(event.attributes) for one in filters) == 1
        said = "".join(f"{name}{value}" for name, value in event.attributes.items())
        assert STAMP_BYTES + len(said) + len(event.filling) == EVENT_BYTES


def test_as_many_subscriptions_as_were_asked_for_and_no_two_the_same() -> None:
    for variant in Variant:
        assert len(set(interests(variant, 10_000))) == 10_000


SPEECHES: dict[str, Callable[[], ProtocolClient]] = {
    "mqtt-0": lambda: Mqtt(qos=0),
    "mqtt-1": lambda: Mqtt(qos=1),
    "amqp": lambda: Amqp(is_confirmed=False),
    "stomp": lambda: Stomp(is_durable=False),
    "stomp-durable": lambda: Stomp(is_durable=True),
}


@pytest.mark.parametrize("made", SPEECHES.values(), ids=SPEECHES)
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_events_are_heard_in_whatever_pieces_they_come(made: Callable[[], ProtocolClient], size: int) -> None:
    publisher, subscriber = made(), made()
    publisher.prepare(SILENT, EVENTS)
    said = b"".join(publisher.publication(number, stamp) for number, stamp in enumerate(STAMPS))
    said = said.replace(b"SEND\n", b"MESSAGE\n")  # what a broker of STOMP makes of it
    heard = [stamp for at in range(0, len(said), size) for stamp in subscriber.decode(said[at : at + size])]
    assert heard == STAMPS


def test_who_gets_events_that_want_an_answer_answers_each() -> None:
    publisher, subscriber = Mqtt(qos=1), Mqtt(qos=1)
    publisher.prepare(SILENT, EVENTS)
    subscriber.decode(b"".join(publisher.publication(number, stamp) for number, stamp in enumerate(STAMPS)))
    assert publisher.decode(subscriber.answer()) == []
    assert publisher.acknowledged == len(EVENTS)
    assert not subscriber.answer()


def acknowledgement(tag: int, *, is_multiple: bool) -> bytes:
    return bytes(frame.Method(1, spec.Basic.Ack(delivery_tag=tag, multiple=is_multiple)).marshal())


@pytest.mark.parametrize(
    ("said", "acknowledged"),
    [
        ([(1, False)], 1),
        ([(3, False)], 1),
        ([(3, True)], 3),
        ([(2, False), (3, True)], 3),
        ([(5, False), (3, True)], 4),
        ([(5, False), (5, True), (3, True)], 5),
    ],
)
def test_confirmations_come_alone_and_for_all_before(said: list[tuple[int, bool]], acknowledged: int) -> None:
    client = Amqp(is_confirmed=True)
    for tag, is_multiple in said:
        client.decode(acknowledgement(tag, is_multiple=is_multiple))
    assert client.acknowledged == acknowledged


def test_deliveries_are_acknowledged_up_to_the_last() -> None:
    client = Amqp(is_confirmed=True)
    for tag in (1, 2, 3):
        client.decode(frame.Method(1, spec.Basic.Deliver("consumer", tag, False, "events", "")).marshal())
    assert client.answer() == acknowledgement(3, is_multiple=True)
    assert not client.answer()


def test_a_broker_that_refuses_is_heard() -> None:
    with pytest.raises(TidingsError, match="no such topic"):
        Stomp(is_durable=False).decode(b"ERROR\nmessage:no such topic\n\n\0")
    with pytest.raises(TidingsError, match="too many"):
        Amqp(is_confirmed=True).decode(frame.Method(1, spec.Channel.Close(506, "too many", 0, 0)).marshal())
    with pytest.raises(TidingsError, match="refuses"):
        Amqp(is_confirmed=True).decode(frame.Method(1, spec.Basic.Nack(1)).marshal())


class Echo(BenchPublisher):
    """Delivers some turns of the loop later; of every ten, none of the last `lost`."""

    def __init__(self, driver: LoadDriver, lost: int = 0) -> None:
        self._driver, self._lost = driver, lost
        self._published = 0
        self._delivered = 0
        self.most = 0  # in flight
        self.numbers: list[int] = []

    def publish(self, number: int, stamp: bytes) -> None:
        assert 0 <= time.monotonic_ns() - int.from_bytes(stamp) < 60e9
        self.numbers.append(number)
        self._published += 1
        self.acknowledged += 1
        self.most = max(self.most, self._published - self._delivered)
        if self._published % 10 < 10 - self._lost:
            asyncio.get_running_loop().call_soon(self._deliver)

    def flush(self) -> None: ...

    async def close(self) -> None: ...

    def _deliver(self) -> None:
        self._delivered += 1
        self._driver.set_delivered(self._delivered)


def driven(load: Load, lost: int = 0) -> tuple[LoadResult, Echo]:
    async def drive() -> tuple[LoadResult, Echo]:
        driver = LoadDriver(events=3)
        echo = Echo(driver, lost)
        return await driver.drive(echo, load), echo

    return asyncio.run(drive())


@pytest.mark.parametrize("window", [1, 2, 256])
def test_no_more_are_in_flight_than_the_window_has(window: int) -> None:
    carried, echo = driven(Load(0.05, window))
    assert echo.most == window
    assert (carried.arrived, carried.missing) == (len(echo.numbers), 0)
    assert echo.numbers[:5] == [0, 1, 2, 0, 1][: len(echo.numbers)]


def test_a_pace_is_kept_however_late_the_loop_wakes() -> None:
    carried, _ = driven(Load(0.1, pace=1_000))
    assert 1 <= carried.arrived <= 101
    assert carried.missing == 0


def test_what_does_not_arrive_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_PATIENCE", 0.05)
    carried, echo = driven(Load(0.05, 256), lost=3)
    assert carried.missing == 256
    assert carried.arrived == len(echo.numbers) - 256


SLEEPER = "import time; print('awake', flush=True); time.sleep(600)"
# It leaves a child behind, and does not end when asked to.
STUBBORN = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
print(child.pid, flush=True)
child.wait()
"""


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def is_gone(process: int) -> bool:
    """Soon: whoever is killed is not gone at once."""
    until = time.monotonic() + 60
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_running(process)


@pytest.mark.process
def test_children_and_theirs_are_gone_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.brokers.children._PATIENCE", 0.2)
    with suppress(KeyboardInterrupt), ChildProcesses() as children:
        child = children.program("stubborn", [sys.executable, "-c", STUBBORN], [])
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert is_running(grandchild)
        raise KeyboardInterrupt
    assert child.returncode == -signal.SIGKILL
    assert is_gone(grandchild)


@pytest.mark.process
def test_children_end_with_whoever_is_asked_to_end() -> None:
    text = f"""
import sys
from benchmarks.brokers.children import ChildProcesses
with ChildProcesses() as children:
    child = children.program("sleeper", [sys.executable, "-c", {SLEEPER!r}], [])
    child.stdout.readline()
    print(child.pid, children.folder, flush=True)
    child.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child, folder = parent.stdout.readline().decode().split()
    assert is_running(int(child))
    assert Path(folder).exists()
    parent.terminate()
    parent.communicate(timeout=60)
    assert parent.returncode == 128 + signal.SIGTERM
    assert is_gone(int(child))
    assert not Path(folder).exists()


@pytest.mark.process
def test_a_server_that_does_not_start_is_told_with_its_last_words() -> None:
    with ChildProcesses() as children:
        children.server("fussy", [sys.executable, "-c", "raise SystemExit('no licence')"])
        with pytest.raises(TidingsError, match="no licence"):
            children.await_port("fussy", 1)


def test_what_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    found = table.measure(["mosquitto", "rabbitmq", "activemq"], [1], 1)
    assert [one.remark.split(": ")[0] for one in found] == ["not installed"] * 4
    assert {one.remark.split()[-1] for one in found} >= {"mosquitto", "rabbitmq-server"}
    assert not any(one.rate for one in found)


def test_a_broker_that_fails_is_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> int:
        raise TidingsError("the port is taken")

    monkeypatch.setattr(Mosquitto, "start", start)
    monkeypatch.setattr(Mosquitto, "lacking", lambda _: "")
    assert trial.run_trial("mosquitto", Variant.EQUALITY, 1, 1).remark == "the port is taken"


def test_the_table_has_a_row_each_and_a_dash_for_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = io.StringIO()
    monkeypatch.setattr(table, "out", Console(file=paper, width=200))
    empty = TrialResult(system="rabbitmq", name="R", variant=Variant.EQUALITY, subscriptions=1_000, remark="gone")
    full = replace(empty, rate=12_345.6, single=98.7, middle=1.234, high=5.0, loading=0.5, remark="")
    table.report([full, empty], as_json=False)
    _, one, other = (" ".join(line.split()) for line in paper.getvalue().splitlines())
    assert one == "R, equalities 1,000 12,346 events/s 98.7 us 1.23 ms 5 ms 0.5 s"
    assert other == "R, equalities 1,000 - - - - - gone"


def test_a_system_that_nobody_knows_is_bad_usage() -> None:
    done = run("bench", "brokers", "--system", "carrier-pigeon")
    assert done.returncode == 2
    assert "mosquitto" in done.stderr


def installed(*names: str) -> list[str]:
    return [name for name in names if not SYSTEMS[name].lacking()]


@pytest.mark.process
def test_brokers_carry_events_and_are_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    systems = installed("tidings-journaled", "mosquitto-1")
    chosen = [word for system in systems for word in ("--system", system)]
    found = as_json("bench", "brokers", *chosen, "--count", "20", "--seconds", "0.2", "--plot", str(picture))
    assert sorted({one["system"] for one in found}) == sorted(systems)
    for one in found:
        assert one["remark"] == ""
        assert min(one[name] for name in ("rate", "single", "middle", "high")) > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_change_of_context_is_cheaper_than_subscribing_anew() -> None:
    found = as_json("bench", "live-contexts", "--brokers", "2", "--subscribers", "2", "--changes", "4")
    times = {one["what"]: one["value"] for one in found if one["unit"] == "times"}
    assert len(found) == 12
    assert min(value for what, value in times.items() if what.endswith("messages")) >= 5


@pytest.mark.slow
def test_who_is_stalled_loses_and_others_are_told() -> None:
    before, after, times = as_json("bench", "stalled", "--subscribers", "3", "--seconds", "6")
    assert times["value"] == pytest.approx(after["value"] / before["value"])
    assert not after["beside"].startswith("the broker has lost 0 ")


@pytest.mark.slow
def test_one_broker_is_measured_at_all_safeties_with_its_memory() -> None:
    found = as_json("bench", "live", "--count", "100", "--clients", "20", "--seconds", "0.3")
    assert len(found) == 5 * 4 + 2
    assert all(one["value"] > 0 for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("variant", Variant)
@pytest.mark.parametrize("system", installed(*(name for name in SYSTEMS if not SYSTEMS[name].is_limit)))
def test_brokers_deliver_every_event_to_one_of_their_subscriptions(system: str, variant: Variant) -> None:
    if variant in SYSTEMS[system].variants:
        found = trial.run_trial(system, variant, 250, 0.5)
        assert not found.remark
        assert found.rate > 0


@pytest.mark.slow
@pytest.mark.process
def test_sealed_events_are_measured_beside_plain_ones() -> None:
    found = as_json(
        "bench", "sealed", "--bits", "128", "--size", "1", "--size", "2000", "--count", "3", "--interval", "1"
    )
    ratios = [one for one in found if one["unit"] == "times"]
    assert len(ratios) == 4
    assert all(one["value"] > 0 for one in found)
    assert len(found) == 4 + 2 + 8
