"""A scenario: an overlay, its clients, what they do and what befalls them, as a TOML file says it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidings.configuration.toml import Steps, TomlFile
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.simulation.scenario.clients import Group
from tidings.simulation.scenario.overlay import Overlay, links_in
from tidings.simulation.scenario.troubles import Trouble
from tidings.simulation.scenario.values import Given, check_values
from tidings.simulation.topologies import Topology
from tidings.texts import context_filter


class Publications(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[workload.publications]]`: what the clients of a group publish, so often a second all together."""

    by: str
    per_second: float
    attributes: dict[str, Given] = {}
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
    seconds: float = 10.0
    publications: list[Publications] = []
    settle_every: float | None = None  # so often everybody waits until the network has settled
    check: bool | None = None  # None: if it does not take long

    def __post_init__(self) -> None:
        for name in ("seconds", "settle_every"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidValueError(f"{name}: must be more than 0")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be simulated. Everything that is drawn is drawn from the seed."""

    overlay: Overlay
    clients: list[Group] = []
    workload: Workload = Workload()
    faults: list[Trouble] = []
    seed: int = 0

    def __post_init__(self) -> None:
        names = [one.name for one in self.clients]
        if len(set(names)) < len(names):
            raise InvalidValueError("clients: two groups have the same name")

    @property
    def topology(self) -> Topology:
        return self.overlay.made(self.seed)

    def mistakes(self) -> Iterator[tuple[Steps, str]]:
        """What does not fit together: the way to it in the file, and what to say of it."""
        topology = self.topology
        groups = {one.name for one in self.clients}
        for number, group in enumerate(self.clients):
            for broker in group.places(topology.brokers):
                if broker not in topology.brokers:
                    yield ("clients", number, "brokers"), f"there is no broker '{broker}'"
            for name in group.names():
                if name in topology.brokers:
                    yield ("clients", number, "name"), f"{name} is the name of a broker"
        for number, one in enumerate(self.workload.publications):
            if one.by not in groups:
                told = f"'{one.by}' is none of the groups of clients: {', '.join(sorted(groups)) or 'there are none'}"
                yield ("workload", "publications", number, "by"), told
        for number, trouble in enumerate(self.faults):
            found = trouble.mistake(topology)
            if found is not None:
                yield ("faults", number, found[0]), found[1]


def read(
    path: str | Path, *, seed: int | None = None, strategy: str | None = None, seconds: float | None = None
) -> Scenario:
    """The scenario of a file, with other values for what is given here; a mistake in it is named by line."""
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
    for steps, told in mistakes:
        file.refuse(steps, told)
    return scenario
