"""The simulated network below the links: datagrams are delayed, lost, duplicated, reordered or cut off."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.simulation.clock import SECOND, SimulatedClock
from tidings.simulation.rng import Random

_LATE = 4  # a reordered datagram is delayed by up to so many times the usual delay


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How one direction of a link treats datagrams. Latency and jitter are microseconds, bandwidth is bytes per
    second."""

    latency: int = 1_000
    jitter: int = 0
    bandwidth: int | None = None  # None: unlimited
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
        """Whether every datagram arrives once and in order."""
        return not (self.loss or self.duplication or self.reordering)


class NetworkPath:
    """One direction between two brokers: delivers datagrams according to its present conditions."""

    __slots__ = ("_clock", "_free_at", "_last_arrival", "_rng", "conditions", "dropped", "is_cut", "usual")

    def __init__(self, clock: SimulatedClock, rng: Random, conditions: Conditions) -> None:
        self._clock, self._rng = clock, rng
        self.usual = self.conditions = conditions
        self.is_cut = False
        self.dropped = 0
        self._free_at = 0  # when the wire is free again
        self._last_arrival = 0  # the latest arrival of the datagrams that are in order

    @property
    def is_smooth(self) -> bool:
        """Whether every datagram arrives once and in order."""
        return not self.is_cut and self.conditions.are_smooth

    @property
    def is_passable(self) -> bool:
        """Whether a datagram can arrive at all."""
        return not self.is_cut and self.conditions.loss < 1

    @property
    def delay(self) -> int:
        """The longest time that a datagram takes unless it is reordered, without bandwidth."""
        return self.conditions.latency + self.conditions.jitter

    def deliver_in_order(self, size: int, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule an action for a datagram that arrives for certain, once and in order. For smooth links."""
        self._clock.at(self._arrival_in_order(size), action, *arguments)

    def send_datagram(self, size: int, action: Callable[..., object], *arguments: Any) -> None:
        """Send a datagram: it may be lost, duplicated or reordered. `action` runs, in the background, for each
        arrival."""
        rng, conditions, clock = self._rng, self.conditions, self._clock
        arrival = (
            self._arrival_in_order(size) if not self._draw(conditions.reordering) else self._arrival_reordered(size)
        )
        if self.is_cut or self._draw(conditions.loss):
            self.dropped += 1
            return
        clock.in_background(arrival, action, *arguments)
        if self._draw(conditions.duplication):
            clock.in_background(arrival + rng.randint(0, _LATE * self.delay), action, *arguments)

    def _draw(self, probability: float) -> bool:
        return bool(probability) and self._rng.random() < probability

    def _arrival_reordered(self, size: int) -> int:
        return self._transmit(size) + self.conditions.latency + self._rng.randint(0, _LATE * self.delay)

    def _arrival_in_order(self, size: int) -> int:
        conditions = self.conditions
        arrival = self._transmit(size) + conditions.latency
        if conditions.jitter:
            arrival += int(self._rng.random() * conditions.jitter)
        self._last_arrival = max(arrival, self._last_arrival)
        return self._last_arrival

    def _transmit(self, size: int) -> int:
        """Return when the last byte is on the wire."""
        now, bandwidth = self._clock.now, self.conditions.bandwidth
        if bandwidth is None:
            return now
        self._free_at = max(self._free_at, now) + size * SECOND // bandwidth
        return self._free_at


class Network:
    """The paths between all linked brokers."""

    def __init__(
        self, clock: SimulatedClock, rng: Random, conditions: Conditions, pairs: Iterable[tuple[str, str]]
    ) -> None:
        """Create a path for each direction of each pair.

        Args:
            clock: The clock.
            rng: The source of random numbers.
            conditions: The usual conditions of all paths.
            pairs: The pairs of linked brokers.
        """
        self.paths: dict[tuple[str, str], NetworkPath] = {}
        for one, other in pairs:
            for sender, receiver in ((one, other), (other, one)):
                self.paths[sender, receiver] = NetworkPath(clock, rng, conditions)

    def between(self, one: str, other: str) -> tuple[NetworkPath, NetworkPath]:
        """Return the paths in both directions. Raises `InvalidValueError` if the brokers are not linked."""
        if (one, other) not in self.paths:
            raise InvalidValueError(f"{one} and {other} are not linked")
        return self.paths[one, other], self.paths[other, one]
