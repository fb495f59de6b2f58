"""The shape of a local overlay: by name, or from a TOML file that lists its links."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from tidings.configuration.toml import TomlFile
from tidings.model.errors import InvalidValueError
from tidings.simulation.topologies import Topology, line, ring, star, tree

SHAPES: dict[str, Callable[[int], Topology]] = {"star": star, "line": line, "ring": ring, "tree": tree}


class Links(msgspec.Struct, forbid_unknown_fields=True):
    """The file: pairs of brokers with or without a cost, and brokers that have no link."""

    links: list[list[str | int]] = []
    brokers: list[str] = []


def read_shape(given: str, brokers: int | None) -> Topology:
    """The topology that is called so, of so many brokers; or that of the file, which says itself how many they are."""
    if given in SHAPES:
        return SHAPES[given](4 if brokers is None else brokers)
    path = Path(given)
    if not path.is_file():
        raise InvalidValueError(f"--topology is one of {', '.join(SHAPES)} or a file, and there is no file {given}")
    if brokers is not None:
        raise InvalidValueError("--brokers: the file of a topology says itself which brokers there are")
    found = TomlFile(path).read(Links)
    try:
        return Topology.of([_link(one) for one in found.links], found.brokers)
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def _link(given: list[str | int]) -> tuple[str, str, int]:
    match given:
        case [str(one), str(other)]:
            return one, other, 1
        case [str(one), str(other), int(cost)]:
            return one, other, cost
    raise InvalidValueError(f"links: {given} is no link; write two brokers and, if you like, a cost: ['b1', 'b2', 3]")
