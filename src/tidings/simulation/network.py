"""The network below the links: datagrams that take time, and may be lost, doubled, overtaken or cut off."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.simulation.chance import Random
from tidings.simulation.clock import SECOND, Clock

_LATE = 4  # a datagram that is overtaken takes up to so many times as long


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How datagrams fare in one direction. Latency and jitter are microseconds, bandwidth is bytes a second."""

    latency: int = 1_000
    jitter: int = 0
    bandwidth: int | None = None  # None: as much as is wanted
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidValueError(f"{name}: from 0 to 1")
        if self.latency < 0 or self.jitter < 0 or (self.bandwidth is not None and self.bandwidth < 1):
            raise InvalidValueError("latency and jitter must not be negative, bandwidth must be at least 1")

    @property
    def are_smooth(self) -> bool:
        """Whether everything arrives, once and in order."""
        return not (self.loss or self.duplication or self.reordering)


class Way:
    """One direction between two brokers."""

    __slots__ = ("_chance", "_clock", "_free", "_last", "conditions", "dropped", "is_cut", "usual")

    def __init__(self, clock: Clock, chance: Random, conditions: Conditions) -> None:
        self._clock, self._chance = clock, chance
        self.usual = self.conditions = conditions
        self.is_cut = False
        self.dropped = 0
        self._free = 0  # when the last datagram has been put on the wire
        self._last = 0  # when the last one arrives that is in order

    @property
    def is_smooth(self) -> bool:
        return not self.is_cut and self.conditions.are_smooth

    @property
    def is_passable(self) -> bool:
        return not self.is_cut and self.conditions.loss < 1

    @property
    def delay(self) -> int:
        """The longest that a datagram takes that is not overtaken."""
        return self.conditions.latency + self.conditions.jitter

    def carry(self, size: int, action: Callable[..., object], *given: Any) -> None:
        """What arrives in any case, once and in order."""
        self._clock.at(self._in_order(size), action, *given)

    def throw(self, size: int, action: Callable[..., object], *given: Any) -> None:
        """A datagram: it may arrive, perhaps more than once, perhaps before an earlier one."""
        chance, conditions, clock = self._chance, self.conditions, self._clock
        arrival = self._in_order(size) if not self._happens(conditions.reordering) else self._late(size)
        if self.is_cut or self._happens(conditions.loss):
            self.dropped += 1
            return
        clock.in_background(arrival, action, *given)
        if self._happens(conditions.duplication):
            clock.in_background(arrival + chance.randint(0, _LATE * self.delay), action, *given)

    def _happens(self, probability: float) -> bool:
        return bool(probability) and self._chance.random() < probability

    def _late(self, size: int) -> int:
        return self._sent(size) + self.conditions.latency + self._chance.randint(0, _LATE * self.delay)

    def _in_order(self, size: int) -> int:
        conditions = self.conditions
        arrival = self._sent(size) + conditions.latency
        if conditions.jitter:
            arrival += int(self._chance.random() * conditions.jitter)
        self._last = max(arrival, self._last)
        return self._last

    def _sent(self, size: int) -> int:
        """When the last byte is on the wire."""
        now, bandwidth = self._clock.now, self.conditions.bandwidth
        if bandwidth is None:
            return now
        self._free = max(self._free, now) + size * SECOND // bandwidth
        return self._free


class Network:
    """The ways between brokers."""

    def __init__(self, clock: Clock, chance: Random, conditions: Conditions, pairs: Iterable[tuple[str, str]]) -> None:
        self.ways: dict[tuple[str, str], Way] = {}
        for one, other in pairs:
            for sender, receiver in ((one, other), (other, one)):
                self.ways[sender, receiver] = Way(clock, chance, conditions)

    def between(self, one: str, other: str) -> tuple[Way, Way]:
        if (one, other) not in self.ways:
            raise InvalidValueError(f"{one} and {other} are not linked")
        return self.ways[one, other], self.ways[other, one]
