"""A seed replays a run: the same trace, in this process and in others, and another one for another seed."""

import os
import subprocess
import sys

import pytest

from tests.sizes import sized
from tidings.simulation import World
from tidings.simulation.faults import draw_faults
from tidings.simulation.topologies import tree

HISTORY = """
import sys
from tests.simulation.test_replay import digest
print(*[digest(seed) for seed in map(int, sys.argv[1:])])
"""


def digest(seed: int, *, faults: bool = True) -> str:
    """A run with everything in it: contexts, several subscribers, policies, loss, faults and moves."""
    topology = tree(6)
    world = World(topology, seed=seed, loss=0.05, duplication=0.05, reordering=0.1)
    clients = [world.client(f"c{number}", f"b{number}") for number in range(1, 7)]
    for number, client in enumerate(clients):
        client.set_context(x=number, kind="even" if number % 2 else "odd")
        client.advertise("n >= 0", publisher_context=["x"])
        client.subscribe(f"n > {number}", publishers="x < 4", durable="mine" if number % 3 == 0 else None)
        client.subscribe("m = 'a' or m = 'b'", id=f"second{number}")
    world.settle()
    if faults:
        world.schedule(draw_faults(topology, seed, count=4, seconds=8.0))
    for turn in range(20):
        for number, client in enumerate(clients):
            if client.is_connected:
                client.publish({"n": turn % 7, "m": "abc"[(turn + number) % 3]}, subscribers="x > 0")
        world.run(0.5)
    clients[5].set_context(x=0)
    clients[4].disconnect()
    world.settle()
    return world.trace.digest()


def elsewhere(seeds: list[int], hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", HISTORY, *map(str, seeds)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.process
def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    seeds = list(range(sized(2, 10)))
    here = [digest(seed) for seed in seeds]
    assert elsewhere(seeds, "1") == elsewhere(seeds, "4711") == here
    assert len(set(here)) == len(seeds)


def test_the_trace_tells_what_happened_from_what_did_not() -> None:
    assert digest(1) != digest(1, faults=False)


def test_a_trace_that_is_kept_can_be_read() -> None:
    world = World(tree(2), keep_trace=True)
    world.settle()
    client = world.client("ann", "b1")
    client.set_context(y=1, x="a")
    client.advertise(id="all")
    wanted = client.subscribe().id
    event = client.publish({"n": 1}).event
    world.crash("b2")
    lines = [line.split(" ", 1)[1].strip() for line in world.trace.lines or ()]
    assert lines[-6:] == [
        "b1 ann SetContext ann x=a y=1",
        "b1 ann Advertise all",
        f"b1 ann Subscribe {wanted}",
        f"b1 ann Publish {event.id.int:x}",
        f"b1 ann got {event.id.int:x} for {wanted}",
        "b2 crashes",
    ]
