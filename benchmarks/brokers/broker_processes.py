"""Start Tidings brokers as processes: one with a journal, one with a security gate, or several that are linked."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers.children import ChildProcesses, free_port
from tidings.simulation.topologies import Topology


class StartedBroker(NamedTuple):
    """A running broker: its port and process id."""

    port: int
    process: int

    @property
    def address(self) -> str:
        """The URL at which clients connect."""
        return address(self.port)


def address(port: int) -> str:
    """Return the URL of a broker on this machine."""
    return f"tidings://127.0.0.1:{port}"


def start(children: ChildProcesses) -> StartedBroker:
    """Start one broker with a journal."""
    return _start_broker(children, "bench", free_port(), [f'[journal]\nfolder = "{children.folder / "journal"}"'])


def start_secure(children: ChildProcesses, folder: Path, *, verify_signatures: bool) -> StartedBroker:
    """Start one broker with a security gate and without TLS.

    `folder` contains the broker's identity, the record of a topic, and the revocation list.
    """
    security = f"""[security]
identity = "{folder}"
revocations = "{folder / "revocations"}"
topics = ["{folder / "topic"}"]
verify_signatures = {str(verify_signatures).lower()}"""
    return _start_broker(children, "bench", free_port(), [security, "[tls]\nplain = true"])


def start_all(children: ChildProcesses, topology: Topology) -> dict[str, StartedBroker]:
    """Start linked brokers without journals, and return them by name. Their links may not be up yet."""
    ports = {broker: free_port() for broker in topology.brokers}
    started = {}
    for broker in topology.brokers:
        links = []
        for caller, other, cost in topology.edges:
            if broker == caller:
                links.append(f'[[links]]\nbroker = "{other}"\naddress = "127.0.0.1:{ports[other]}"\ncost = {cost}')
            elif broker == other:  # this end waits for the call of the other
                links.append(f'[[links]]\nbroker = "{caller}"\ncost = {cost}')
        started[broker] = _start_broker(children, broker, ports[broker], links)
    return started


def _start_broker(children: ChildProcesses, name: str, port: int, tables: Iterable[str]) -> StartedBroker:
    configuration = children.folder / f"{name}.toml"
    broker_table = f'[broker]\nname = "{name}"\nlisten = "127.0.0.1:{port}"'
    configuration.write_text("\n\n".join([broker_table, *tables]) + "\n")
    process = children.server(name, [sys.executable, "-m", "tidings", "broker", "--config", configuration])
    children.await_port(name, port)
    return StartedBroker(port, process)
