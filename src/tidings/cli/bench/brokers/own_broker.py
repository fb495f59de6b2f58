"""Our own brokers as processes: one with a journal, or several that are linked."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidings.cli.bench.brokers.children import Children, free_port
from tidings.simulation.topologies import Topology


class Started(NamedTuple):
    port: int
    process: int

    @property
    def address(self) -> str:
        return address(self.port)


def address(port: int) -> str:
    return f"tidings://127.0.0.1:{port}"


def start(children: Children, folder: Path) -> Started:
    """One broker, with a journal in that folder."""
    return _started(children, folder, "bench", free_port(), [f'[journal]\nfolder = "{folder / "journal"}"'])


def start_all(children: Children, folder: Path, topology: Topology) -> dict[str, Started]:
    """Brokers with links and without journals, by their names. Links may not be up yet."""
    ports = {broker: free_port() for broker in topology.brokers}
    found = {}
    for broker in topology.brokers:
        links = []
        for one, other, cost in topology.edges:
            if broker == one:
                links.append(f'[[links]]\nbroker = "{other}"\naddress = "127.0.0.1:{ports[other]}"\ncost = {cost}')
            elif broker == other:  # who waits to be called
                links.append(f'[[links]]\nbroker = "{one}"\ncost = {cost}')
        found[broker] = _started(children, folder, broker, ports[broker], links)
    return found


def _started(children: Children, folder: Path, name: str, port: int, tables: Iterable[str]) -> Started:
    configuration = folder / f"{name}.toml"
    own = f'[broker]\nname = "{name}"\nlisten = "127.0.0.1:{port}"'
    configuration.write_text("\n\n".join([own, *tables]) + "\n")
    process = children.server(name, [sys.executable, "-m", "tidings", "broker", "--config", configuration])
    children.await_port(name, port)
    return Started(port, process)
