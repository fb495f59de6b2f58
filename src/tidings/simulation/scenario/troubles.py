"""`[[faults]]` of a scenario: what befalls the network, and when; written down, or drawn."""

import msgspec

from tidings.configuration.checks import at_least_one, one_of
from tidings.model.errors import InvalidValueError
from tidings.simulation import faults
from tidings.simulation.faults import Crash, Cut, Fault, Heal, Lossy, Restart, Slow
from tidings.simulation.network import Conditions
from tidings.simulation.topologies import Topology

LINKS = ("cut", "one_way", "heal", "slow", "lossy")
BROKERS = ("crash", "restart")
Ends = tuple[str, str]  # of a link
_GOES_WITH = {"factor": "slow", "loss": "lossy", "duplication": "lossy", "reordering": "lossy", "kinds": "drawn"}


class Trouble(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[faults]]`: one of the things that can happen, to a link or to a broker, or so many `drawn` ones."""

    at: float | None = None  # seconds since the workload began
    cut: Ends | None = None
    one_way: Ends | None = None  # nothing gets from the first to the second any more
    heal: Ends | None = None
    slow: Ends | None = None
    lossy: Ends | None = None
    crash: str | None = None
    restart: str | None = None
    drawn: int | None = None
    factor: float | None = None
    loss: float | None = None
    duplication: float | None = None
    reordering: float | None = None
    kinds: list[str] | None = None

    def __post_init__(self) -> None:
        known = (*LINKS, *BROKERS, "drawn")
        named = [name for name in known if getattr(self, name) is not None]
        if len(named) != 1:
            raise InvalidValueError(f"a fault is one of {', '.join(known)}")
        for key, fault in _GOES_WITH.items():
            if getattr(self, key) is not None and fault != named[0]:
                raise InvalidValueError(f"{key}: goes with {fault}, not with {named[0]}")
        if named[0] == "drawn":
            at_least_one("drawn", self.drawn)
            for kind in self.kinds or ():
                one_of("kinds", kind, faults.KINDS)
            if self.at is not None:
                raise InvalidValueError("at: drawn faults have times of their own")
        elif self.at is None or self.at < 0:
            raise InvalidValueError("at: must be the second at which it happens, from 0 on")
        if self.factor is not None and self.factor <= 0:
            raise InvalidValueError("factor: must be more than 0")
        Conditions(loss=self.loss or 0.0, duplication=self.duplication or 0.0, reordering=self.reordering or 0.0)

    @property
    def kind(self) -> str:
        return next(name for name in (*LINKS, *BROKERS, "drawn") if getattr(self, name) is not None)

    def made(self, topology: Topology, seed: int, seconds: float) -> tuple[Fault, ...]:
        """What happens; of drawn faults, within so many seconds."""
        at = self.at or 0.0
        if self.drawn is not None:
            kinds = faults.KINDS if self.kinds is None else self.kinds
            return faults.drawn(topology, seed, count=self.drawn, seconds=seconds, kinds=kinds)
        if self.crash is not None:
            return (Crash(at, self.crash),)
        if self.restart is not None:
            return (Restart(at, self.restart),)
        return (self._on_link(at, *getattr(self, self.kind)),)

    def _on_link(self, at: float, one: str, other: str) -> Fault:
        match self.kind:
            case "heal":
                return Heal(at, one, other)
            case "slow":
                return Slow(at, one, other, self.factor or 10.0)
            case "lossy":
                loss = 0.3 if self.loss is None else self.loss
                return Lossy(at, one, other, loss, self.duplication or 0.0, self.reordering or 0.0)
            case kind:
                return Cut(at, one, other, one_way=kind == "one_way")

    def mistake(self, topology: Topology) -> tuple[str, str] | None:
        """The key that names what is not there, and what to say of it."""
        kind, brokers = self.kind, ", ".join(topology.brokers[:5])
        if kind in BROKERS and getattr(self, kind) not in topology.brokers:
            return kind, f"there is no broker '{getattr(self, kind)}'; there are {brokers} ..."
        if kind in LINKS and not any(set(getattr(self, kind)) == set(edge[:2]) for edge in topology.edges):
            return kind, f"{' and '.join(getattr(self, kind))} are not linked"
        return None
