"""Faults as values: what fails or heals in a world, and when. A schedule of faults can be written down or drawn from
a seed."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.topologies import Topology


class FaultTarget(Protocol):
    """The overlay that faults happen to. `World` says what each of these does."""

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None: ...
    def heal(self, one: str, other: str) -> None: ...
    def slow(self, one: str, other: str, factor: float) -> None: ...
    def lossy(self, one: str, other: str, loss: float, duplication: float, reordering: float) -> None: ...
    def crash(self, broker: str) -> None: ...
    def restart(self, broker: str) -> None: ...
    def pause(self, broker: str) -> None: ...
    def resume(self, broker: str) -> None: ...


class _Fault(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """What all faults share: their time, in seconds from the start of the schedule."""

    at: float


class Cut(_Fault, frozen=True):
    """Cut a link, in both directions or from `one` to `other` only."""

    one: str
    other: str
    one_way: bool = False

    def apply(self, overlay: FaultTarget) -> None:
        overlay.cut(self.one, self.other, one_way=self.one_way)


class Heal(_Fault, frozen=True):
    """Restore a link to its usual conditions."""

    one: str
    other: str

    def apply(self, overlay: FaultTarget) -> None:
        overlay.heal(self.one, self.other)


class Slow(_Fault, frozen=True):
    """Multiply the latency of a link by a factor."""

    one: str
    other: str
    factor: float

    def apply(self, overlay: FaultTarget) -> None:
        overlay.slow(self.one, self.other, self.factor)


class Lossy(_Fault, frozen=True):
    """Let a link lose, duplicate and reorder datagrams with these probabilities."""

    one: str
    other: str
    loss: float
    duplication: float = 0.0
    reordering: float = 0.0

    def apply(self, overlay: FaultTarget) -> None:
        overlay.lossy(self.one, self.other, self.loss, self.duplication, self.reordering)


class Crash(_Fault, frozen=True):
    """Crash a broker: it loses everything but its disk."""

    broker: str

    def apply(self, overlay: FaultTarget) -> None:
        overlay.crash(self.broker)


class Restart(_Fault, frozen=True):
    """Restart a crashed broker."""

    broker: str

    def apply(self, overlay: FaultTarget) -> None:
        overlay.restart(self.broker)


class Pause(_Fault, frozen=True):
    """Pause a broker: it does nothing until it is resumed, but loses nothing."""

    broker: str

    def apply(self, overlay: FaultTarget) -> None:
        overlay.pause(self.broker)


class Resume(_Fault, frozen=True):
    """Resume a paused broker."""

    broker: str

    def apply(self, overlay: FaultTarget) -> None:
        overlay.resume(self.broker)


Fault = Cut | Heal | Slow | Lossy | Crash | Restart | Pause | Resume
KINDS = ("cut", "one-way", "slow", "lossy", "crash")


def draw_faults(
    topology: Topology, seed: int, *, count: int, seconds: float, kinds: Iterable[str] = KINDS
) -> tuple[Fault, ...]:
    """Draw faults from a seed. All are repaired by the end: the overlay is healthy afterwards.

    Args:
        topology: The brokers and links that may fail.
        seed: The seed.
        count: The number of faults.
        seconds: The length of the schedule.
        kinds: The kinds of faults to draw from.
    """
    rng, names = seeded_random(seed, "faults"), tuple(kinds)
    faults: list[Fault] = []
    for _ in range(count):
        begin = round(rng.uniform(0, seconds * 0.8), 6)
        end = round(rng.uniform(begin, seconds), 6)
        kind = rng.choice([name for name in names if topology.edges or name == "crash"])
        faults += _pair(topology, rng, kind, begin, end)
    return tuple(sorted([*faults, *_healing(topology, faults, seconds)], key=lambda fault: fault.at))


def _pair(topology: Topology, rng: Random, kind: str, begin: float, end: float) -> list[Fault]:
    """Draw a fault and its repair."""
    if kind == "crash":
        broker = rng.choice(topology.brokers)
        return [Crash(begin, broker), Restart(end, broker)]
    one, other, _ = rng.choice(topology.edges)
    if rng.random() < 0.5:
        one, other = other, one
    fault: Fault
    match kind:
        case "slow":
            fault = Slow(begin, one, other, rng.choice((2.0, 10.0, 100.0)))
        case "lossy":
            fault = Lossy(begin, one, other, rng.choice((0.05, 0.3)), rng.choice((0.0, 0.1)), 0.1)
        case _:
            fault = Cut(begin, one, other, one_way=kind == "one-way")
    return [fault, Heal(end, one, other)]


def _healing(topology: Topology, faults: list[Fault], seconds: float) -> list[Fault]:
    """Repair everything at the end, because overlapping faults may have been repaired early, or broken again."""
    crashed = sorted({fault.broker for fault in faults if isinstance(fault, Crash)})
    hurt = {frozenset((fault.one, fault.other)) for fault in faults if isinstance(fault, Cut | Slow | Lossy)}
    healed = [edge for edge in topology.edges if frozenset(edge[:2]) in hurt]
    return [*(Restart(seconds, broker) for broker in crashed), *(Heal(seconds, one, other) for one, other, _ in healed)]
