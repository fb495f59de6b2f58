"""Faults as values: what befalls a world, and when. A schedule of them can be written down, or drawn from a seed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.topologies import Topology

if TYPE_CHECKING:
    from tidings.simulation.world import World


class _Fault(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """What all faults share: a time, in seconds from when their schedule begins."""

    at: float


class Cut(_Fault, frozen=True):
    one: str
    other: str
    one_way: bool = False

    def befall(self, world: "World") -> None:
        world.cut(self.one, self.other, one_way=self.one_way)


class Heal(_Fault, frozen=True):
    one: str
    other: str

    def befall(self, world: "World") -> None:
        world.heal(self.one, self.other)


class Slow(_Fault, frozen=True):
    one: str
    other: str
    factor: float

    def befall(self, world: "World") -> None:
        world.slow(self.one, self.other, self.factor)


class Lossy(_Fault, frozen=True):
    one: str
    other: str
    loss: float
    duplication: float = 0.0
    reordering: float = 0.0

    def befall(self, world: "World") -> None:
        world.lossy(self.one, self.other, self.loss, self.duplication, self.reordering)


class Crash(_Fault, frozen=True):
    broker: str

    def befall(self, world: "World") -> None:
        world.crash(self.broker)


class Restart(_Fault, frozen=True):
    broker: str

    def befall(self, world: "World") -> None:
        world.restart(self.broker)


class Pause(_Fault, frozen=True):
    """The broker does nothing, and then goes on where it was."""

    broker: str

    def befall(self, world: "World") -> None:
        world.pause(self.broker)


class Resume(_Fault, frozen=True):
    broker: str

    def befall(self, world: "World") -> None:
        world.resume(self.broker)


Fault = Cut | Heal | Slow | Lossy | Crash | Restart | Pause | Resume
KINDS = ("cut", "one-way", "slow", "lossy", "crash")


def drawn(
    topology: Topology, seed: int, *, count: int, seconds: float, kinds: Iterable[str] = KINDS
) -> tuple[Fault, ...]:
    """So many faults within so many seconds, each of them made good before the end: the network heals."""
    chance, names = drawn_from(seed, "faults"), tuple(kinds)
    faults: list[Fault] = []
    for _ in range(count):
        begin = round(chance.uniform(0, seconds * 0.8), 6)
        end = round(chance.uniform(begin, seconds), 6)
        kind = chance.choice([name for name in names if topology.edges or name == "crash"])
        faults += _pair(topology, chance, kind, begin, end)
    return tuple(sorted([*faults, *_healing(topology, faults, seconds)], key=lambda fault: fault.at))


def _pair(topology: Topology, chance: Random, kind: str, begin: float, end: float) -> list[Fault]:
    """A fault, and what makes it good."""
    if kind == "crash":
        broker = chance.choice(topology.brokers)
        return [Crash(begin, broker), Restart(end, broker)]
    one, other, _ = chance.choice(topology.edges)
    if chance.random() < 0.5:
        one, other = other, one
    fault: Fault
    match kind:
        case "slow":
            fault = Slow(begin, one, other, chance.choice((2.0, 10.0, 100.0)))
        case "lossy":
            fault = Lossy(begin, one, other, chance.choice((0.05, 0.3)), chance.choice((0.0, 0.1)), 0.1)
        case _:
            fault = Cut(begin, one, other, one_way=kind == "one-way")
    return [fault, Heal(end, one, other)]


def _healing(topology: Topology, faults: list[Fault], seconds: float) -> list[Fault]:
    """Faults may overlap, and one that is made good may end another early; in the end all of them are."""
    crashed = sorted({fault.broker for fault in faults if isinstance(fault, Crash)})
    hurt = {frozenset((fault.one, fault.other)) for fault in faults if isinstance(fault, Cut | Slow | Lossy)}
    healed = [edge for edge in topology.edges if frozenset(edge[:2]) in hurt]
    return [*(Restart(seconds, broker) for broker in crashed), *(Heal(seconds, one, other) for one, other, _ in healed)]
