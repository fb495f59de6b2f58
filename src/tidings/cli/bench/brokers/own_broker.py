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


def start(children: Children) -> Started:
    """One broker, with a journal."""
    return _started(children, "bench", free_port(), [f'[journal]\nfolder = "{children.folder / "journal"}"'])


def start_secure(children: Children, folder: Path, *, verify_signatures: bool) -> Started:
    """One broker with a gate and without TLS; the folder has its identity, the record of a topic and revocations."""
    security = f"""[security]
identity = "{folder}"
revocations = "{folder / "revocations"}"
topics = ["{folder / "topic"}"]
verify_signatures = {str(verify_signatures).lower()}"""
    return _started(children, "bench", free_port(), [security, "[tls]\nplain = true"])


def start_all(children: Children, topology: Topology) -> dict[str, Started]:
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
        found[broker] = _started(children, broker, ports[broker], links)
    return found


def _started(children: Children, name: str, port: int, tables: Iterable[str]) -> Started:
    configuration = children.folder / f"{name}.toml"
    own = f'[broker]\nname = "{name}"\nlisten = "127.0.0.1:{port}"'
    configuration.write_text("\n\n".join([own, *tables]) + "\n")
    process = children.server(name, [sys.executable, "-m", "tidings", "broker", "--config", configuration])
    children.await_port(name, port)
    return Started(port, process)
