"""`tidings overlay run` with every strategy, started as a user does, and clients at two of its brokers."""

import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.running_broker import running_broker
from tests.cli import command
from tests.limits import PATIENCE
from tidings.cli.overlay.local import HOST, reserve_port, reserve_ports
from tidings.routing import STRATEGIES


@contextmanager
def overlay_run(folder: Path, *words: str) -> Iterator[dict[str, str]]:
    """The addresses of the overlay's brokers, by name, from when the command says that the overlay is up."""
    words = ("overlay", "run", "--port", "0", "--folder", str(folder), "--no-journal", "--json", *words)
    process = command.start(*words)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield {broker["broker"]: broker["address"] for broker in json.loads(line)["brokers"]}
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def await_settled(addresses: dict[str, str]) -> None:
    """Return once no broker has work left and no message is on a link."""
    until = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        observers = [stack.enter_context(td.connect_sync(one, observer=True)) for one in addresses.values()]
        while not is_settled([observer.ask("status") for observer in observers]):
            assert time.monotonic() < until
            time.sleep(0.02)


def is_settled(statuses: list[Any]) -> bool:
    links = [link for status in statuses for link in status["links"].values()]
    is_delivered = sum(link["sent"] for link in links) == sum(link["received"] for link in links)
    return is_delivered and all(status["settled"] for status in statuses)


SHAPES = [*((strategy, "line", 2) for strategy in STRATEGIES), ("asf", "ring", 3)]  # asf uses a spanning tree of it


@pytest.mark.process
@pytest.mark.parametrize(("strategy", "topology", "brokers"), SHAPES)
def test_every_strategy_starts_and_clients_at_two_brokers_hear_each_other(
    strategy: str, topology: str, brokers: int, tmp_path: Path
) -> None:
    with (
        overlay_run(tmp_path, "--brokers", str(brokers), "--topology", topology, "--strategy", strategy) as addresses,
        td.connect_sync(addresses["b1"], "car") as car,
        td.connect_sync(addresses[f"b{brokers}"], "camera") as camera,
    ):
        camera.advertise("kind = 'accident'", publisher_context=["x"])
        car.set_context(x=10.0)
        subscription = car.subscribe("kind = 'accident'", publishers="x between this.x - 5 and this.x + 5")
        await_settled(addresses)
        for place, x in (("near", 12.0), ("far", 100.0), ("near again", 8.0)):
            camera.set_context(x=x)
            camera.publish({"kind": "accident", "place": place})
        heard = [note.attributes["place"] for _ in range(2) for note in subscription.take(1, timeout=PATIENCE)]
        assert heard == ["near", "near again"]


@pytest.mark.process
def test_status_of_an_idle_spcf_overlay_is_settled(tmp_path: Path) -> None:
    with overlay_run(tmp_path, "--brokers", "2", "--strategy", "spcf"):
        for _ in range(3):  # an earlier question must not be under way for a later one either
            status = command.as_json("overlay", "status", "--folder", str(tmp_path))
            assert [broker["settled"] for broker in status] == [True, True]


def test_an_observer_changes_nothing_and_may_only_ask() -> None:
    with running_broker() as address, td.connect_sync(str(address), "watcher", observer=True) as watcher:
        assert watcher.ask("status")["clients"] == 1
        for refused in (
            lambda: watcher.publish({"n": 1}),
            lambda: watcher.subscribe("n = 1"),
            lambda: watcher.advertise("n = 1"),
            lambda: watcher.set_context(x=1),
        ):
            with pytest.raises(td.RefusedError, match="watcher is connected as an observer, and may only send queries"):
                refused()
        assert watcher.ask("status")["subscriptions"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reservation would keep the broker out, too")
def test_a_reserved_port_is_free_for_its_broker_and_for_no_other_overlay() -> None:
    """Two overlays that started at the same time chose the same port, and a broker of one of them could not listen."""
    ((port, reservation),) = reserve_ports(1).items()
    with reservation:
        for _ in range(2):  # a broker, and the broker that is started in its place
            assert reserve_port(port) is None
            with socket.create_server((HOST, port)):
                assert reserve_port(port) is None
    again = reserve_port(port)
    assert again is not None
    again.close()
