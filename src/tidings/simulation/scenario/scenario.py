"""A scenario as a TOML file describes it: the overlay, its clients, the workload and the faults."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidings.coerce import context_filter
from tidings.configuration import Steps, TomlFile, at_least_one, one_of
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.simulation import faults
from tidings.simulation.faults import Crash, Cut, Fault, Heal, Lossy, Restart, Slow
from tidings.simulation.network import Conditions
from tidings.simulation.scenario.clients import ClientGroup
from tidings.simulation.scenario.overlay import OverlaySpec, links_in
from tidings.simulation.scenario.values import ValueChoice, check_values
from tidings.simulation.topologies import Topology

LINKS = ("cut", "one_way", "heal", "slow", "lossy")
BROKERS = ("crash", "restart")
Ends = tuple[str, str]  # the two brokers of a link
_GOES_WITH = {"factor": "slow", "loss": "lossy", "duplication": "lossy", "reordering": "lossy", "kinds": "drawn"}


class FaultSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[faults]]`: one fault of a link or a broker, or a number of `drawn` ones."""

    at: float | None = None  # seconds from the start of the workload
    cut: Ends | None = None
    one_way: Ends | None = None  # cuts the direction from the first to the second broker
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
        kinds = (*LINKS, *BROKERS, "drawn")
        named = [name for name in kinds if getattr(self, name) is not None]
        if len(named) != 1:
            raise InvalidValueError(f"a fault is one of {', '.join(kinds)}")
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
        """The name of the fault that the table sets."""
        return next(name for name in (*LINKS, *BROKERS, "drawn") if getattr(self, name) is not None)

    def made(self, topology: Topology, seed: int, seconds: float) -> tuple[Fault, ...]:
        """Return the faults of this table; drawn ones lie within so many seconds."""
        at = self.at or 0.0
        if self.drawn is not None:
            kinds = faults.KINDS if self.kinds is None else self.kinds
            return faults.draw_faults(topology, seed, count=self.drawn, seconds=seconds, kinds=kinds)
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
        """Return the key that names a missing broker or link, with an error message, or None if all exist."""
        kind, brokers = self.kind, ", ".join(topology.brokers[:5])
        if kind in BROKERS and getattr(self, kind) not in topology.brokers:
            return kind, f"there is no broker '{getattr(self, kind)}'; there are {brokers} ..."
        if kind in LINKS and not any(set(getattr(self, kind)) == set(edge[:2]) for edge in topology.edges):
            return kind, f"{' and '.join(getattr(self, kind))} are not linked"
        return None


class PublicationsSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[workload.publications]]`: what the clients of a group publish, at a total rate per second."""

    by: str
    per_second: float
    attributes: dict[str, ValueChoice] = {}
    subscribers: str | None = None

    def __post_init__(self) -> None:
        if self.per_second <= 0:
            raise InvalidValueError("per_second: must be more than 0")
        check_values("attributes", self.attributes)
        try:
            context_filter(self.subscribers)
        except TidingsError as error:
            raise InvalidValueError(f"subscribers: {error}") from None


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[workload]`: how long clients publish, and what."""

    seconds: float = 10.0
    publications: list[PublicationsSpec] = []
    settle_every: float | None = None  # every so many seconds, the workload waits until the network has settled
    check: bool | None = None  # check all notifications; None: if that does not take long

    def __post_init__(self) -> None:
        for name in ("seconds", "settle_every"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidValueError(f"{name}: must be more than 0")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario. All random choices are determined by `seed`."""

    overlay: OverlaySpec
    clients: list[ClientGroup] = []
    workload: Workload = Workload()
    faults: list[FaultSpec] = []
    seed: int = 0

    def __post_init__(self) -> None:
        names = [group.name for group in self.clients]
        if len(set(names)) < len(names):
            raise InvalidValueError("clients: two groups have the same name")

    @property
    def topology(self) -> Topology:
        """The brokers and links of the overlay."""
        return self.overlay.made(self.seed)

    def mistakes(self) -> Iterator[tuple[Steps, str]]:
        """Yield what does not fit together: the path to it in the file, and an error message."""
        topology = self.topology
        groups = {group.name for group in self.clients}
        for number, group in enumerate(self.clients):
            for broker in group.places(topology.brokers):
                if broker not in topology.brokers:
                    yield ("clients", number, "brokers"), f"there is no broker '{broker}'"
            for name in group.names():
                if name in topology.brokers:
                    yield ("clients", number, "name"), f"{name} is the name of a broker"
        for number, publications in enumerate(self.workload.publications):
            if publications.by not in groups:
                names = ", ".join(sorted(groups)) or "there are none"
                complaint = f"'{publications.by}' is none of the groups of clients: {names}"
                yield ("workload", "publications", number, "by"), complaint
        for number, trouble in enumerate(self.faults):
            mistake = trouble.mistake(topology)
            if mistake is not None:
                yield ("faults", number, mistake[0]), mistake[1]


def read(
    path: str | Path, *, seed: int | None = None, strategy: str | None = None, seconds: float | None = None
) -> Scenario:
    """Read a scenario from a TOML file, with overrides. A mistake is reported with its line.

    Args:
        path: The file.
        seed: Replaces the seed of the file.
        strategy: Replaces the routing strategy of the file.
        seconds: Replaces the length of the workload in the file.
    """
    file = TomlFile(path)
    scenario = file.read(Scenario)
    overlay, workload = scenario.overlay, scenario.workload
    if overlay.file is not None:
        links = links_in(file.path.absolute().parent / overlay.file)
        overlay = msgspec.structs.replace(overlay, file=None, links=links)
    if strategy is not None:
        overlay = msgspec.structs.replace(overlay, strategy=strategy)
    if seconds is not None:
        workload = msgspec.structs.replace(workload, seconds=seconds)
    scenario = msgspec.structs.replace(
        scenario, overlay=overlay, workload=workload, seed=scenario.seed if seed is None else seed
    )
    try:
        mistakes = list(scenario.mistakes())
    except InvalidValueError as error:
        file.refuse(("overlay",), str(error))
    for steps, mistake in mistakes:
        file.refuse(steps, mistake)
    return scenario
