"""The command `tidings overlay run`: run a local overlay in the foreground until Ctrl-C."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tidings.cli.connection import until_interrupted
from tidings.cli.output import err, out, print_json, table
from tidings.cli.overlay.local import Progress
from tidings.configuration import TomlFile
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.simulation.topologies import Topology, line, ring, star, tree

_LOOK = 0.2  # seconds between two checks of the broker processes


class OverlayProcess(Protocol):
    """What the command shows of the process of a broker."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def http(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def process(self) -> int | None: ...
    @property
    def code(self) -> int | None: ...
    @property
    def is_running(self) -> bool: ...


class RunnableOverlay(Protocol):
    """What the command needs of a local overlay."""

    @property
    def folder(self) -> Path: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def children(self) -> Mapping[str, OverlayProcess]: ...
    def start(self, progress: Progress | None = None) -> None: ...
    def stop(self) -> Mapping[str, int | None]: ...


def run(overlay: RunnableOverlay, *, as_json: bool) -> None:
    """Start the overlay, print its brokers and addresses, and wait until Ctrl-C or SIGTERM; then stop the brokers.

    A broker that ends meanwhile is reported and not restarted. Raises TidingsError when all brokers have ended.
    """
    with until_interrupted():
        with err.status("starting") as status:
            overlay.start(status.update)
        try:
            _print_brokers(overlay, as_json=as_json)
            _watch(overlay)
        finally:
            err.print("tidings: the brokers are being stopped", markup=False)
            overlay.stop()


def _watch(overlay: RunnableOverlay) -> None:
    """Report each broker process that ends. Raises TidingsError when all have ended."""
    running = list(overlay.children.values())
    while running:
        time.sleep(_LOOK)
        for child in [child for child in running if not child.is_running]:
            running.remove(child)
            message = f"tidings: {child.name} has ended with {child.code}; its log is {child.log}"
            err.print(message, markup=False, soft_wrap=True)
    raise TidingsError("no broker is left")


def _print_brokers(overlay: RunnableOverlay, *, as_json: bool) -> None:
    """Print the brokers of the overlay, their addresses and links."""
    rows = [_row(overlay, child) for child in overlay.children.values()]
    if as_json:
        print_json({"folder": str(overlay.folder), "brokers": rows})
        return
    rows_table = table("broker", "address", "links", "watched at", "process")
    for row in rows:
        http = "" if row["http"] is None else f"http://{row['http']}"
        rows_table.add_row(row["broker"], row["address"], ", ".join(row["links"]), http, str(row["process"]))
    out.print(rows_table, markup=False)
    message = f"configurations, logs and journals are in {overlay.folder}; Ctrl-C stops all"
    out.print(message, markup=False, soft_wrap=True)


def _row(overlay: RunnableOverlay, child: OverlayProcess) -> dict[str, Any]:
    return {
        "broker": child.name,
        "address": f"tidings://{child.address}",
        "http": child.http or None,
        "links": overlay.topology.neighbours(child.name),
        "process": child.process,
    }


SHAPES: dict[str, Callable[[int], Topology]] = {"star": star, "line": line, "ring": ring, "tree": tree}


class TopologyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The TOML file of a topology: links as pairs of brokers with an optional cost, and brokers without links."""

    links: list[list[str | int]] = []
    brokers: list[str] = []


def read_topology(name_or_path: str, brokers: int | None) -> Topology:
    """Return the topology of a named shape with that many brokers, or the topology of a file, which names its own
    brokers.

    Raises InvalidValueError if `name_or_path` is neither, and if `brokers` is given with a file.
    """
    if name_or_path in SHAPES:
        return SHAPES[name_or_path](4 if brokers is None else brokers)
    path = Path(name_or_path)
    if not path.is_file():
        raise InvalidValueError(
            f"--topology is one of {', '.join(SHAPES)} or a file, and there is no file {name_or_path}"
        )
    if brokers is not None:
        raise InvalidValueError("--brokers: the file of a topology says itself which brokers there are")
    file = TomlFile(path).read(TopologyFile)
    try:
        return Topology.of([_link(link) for link in file.links], file.brokers)
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def _link(fields: list[str | int]) -> tuple[str, str, int]:
    match fields:
        case [str(one), str(other)]:
            return one, other, 1
        case [str(one), str(other), int(cost)]:
            return one, other, cost
    raise InvalidValueError(f"links: {fields} is no link; write two brokers and, if you like, a cost: ['b1', 'b2', 3]")
