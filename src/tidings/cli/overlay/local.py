"""A local overlay: one broker process on this machine for each broker of a topology.

Rules:
- Each link is called from one end only, so that two simultaneous calls need no tie-break.
- The overlay has settled when each running broker has links to all its running neighbours, knows all brokers that it
  can reach, has nothing under way, and every message sent over a link was received. Brokers answer one after the
  other, so messages sent meanwhile are missed; therefore two rounds in a row must agree, with no message in between.
- Ports are outside the range of outgoing connections, and reserved while the overlay runs, so that a restarted broker
  finds its port free and two overlays that start at the same time do not choose the same.
"""

import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidings.broker.config import BrokerConfiguration
from tidings.broker.config.reference_page import written
from tidings.cli.overlay.broker_process import ChildBroker
from tidings.client.connector import connect_sync
from tidings.client.identity import TlsIdentity
from tidings.journal.lock import FolderLock
from tidings.model.errors import InvalidValueError, JournalLockedError, TidingsError, UnreachableError, UnsettledError
from tidings.simulation.topologies import Edge, Topology

_START_SECONDS = 300.0  # a first start compiles kernels, and a long journal takes time to replay
_SETTLE_SECONDS = 60.0
_STOP_SECONDS = 10.0
_PAUSE = 0.05  # seconds between two rounds of status questions
Progress = Callable[[str], None]
Tables = Mapping[str, Mapping[str, Any]]  # tables of a broker's configuration file


class LocalOverlay:
    """Broker processes on this machine, linked as a topology says. A context manager that starts and stops them.

    After the start, all links are up and all routing tables complete. Without a folder, the overlay has a temporary one
    that is removed at the end. With a folder, an overlay that is started again has its journals of before.

    Args:
        topology: The brokers and their links.
        folder: The folder for configurations, logs and journals.
        port: The port of the first broker, the next ones following; 0: free ports.
        strategy: The routing strategy.
        journal: Whether each broker has a journal.
        http: Whether each broker serves HTTP.
        settings: Tables of the configuration file for all brokers, such as `{"limits": {...}}`.
        broker_tables: Returns further tables of one broker, by its name.
    """

    def __init__(
        self,
        topology: Topology,
        folder: str | Path | None = None,
        *,
        port: int = 0,
        strategy: str = "advertisement",
        journal: bool = True,
        http: bool = False,
        settings: Tables | None = None,
        broker_tables: Callable[[str], Tables] | None = None,
    ) -> None:
        for name in topology.brokers:
            if Path(name).name != name:
                raise InvalidValueError(f"{name}: a broker of a local overlay is called as its files are: write no /")
        self.topology, self._broker_tables = topology, broker_tables
        self._requested_folder, self._port, self._settings = folder, port, dict(settings or {})
        self._strategy, self._has_journal, self._has_http = strategy, journal, http
        self.folder = Path()
        self.children: dict[str, ChildBroker] = {}
        self._reservations: dict[int, socket.socket] = {}  # of the brokers' ports, where any free port will do

    # Start and stop

    def start(self, progress: Progress | None = None) -> None:
        """Start all brokers, and return when all links are up and all routing tables complete.

        Calls `progress` with the name of each step. If the start fails, all brokers are stopped before the error is
        raised. Raises TidingsError if another overlay runs in the folder.
        """
        report_progress = progress or _silent
        is_kept = self._requested_folder is not None
        self.folder = Path(self._requested_folder or tempfile.mkdtemp(prefix="tidings-overlay-")).absolute()
        try:
            self._lock = lock_folder(self.folder)
        except TidingsError:
            self.folder = Path()
            raise
        self._is_kept = is_kept
        try:
            self._write()
            for child in self.children.values():
                child.start()
            for child in self.children.values():
                report_progress(f"{child.name} starts")
                child.await_ready(_START_SECONDS)
            report_progress("links and tables")
            self.settle()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> dict[str, int | None]:
        """Stop all brokers gracefully and at the same time, and return their exit codes."""
        for child in self.children.values():
            child.ask_to_stop()
        patience = self._settings.get("broker", {}).get("stop_seconds", _STOP_SECONDS) + _STOP_SECONDS
        codes = {name: child.await_end(patience) for name, child in self.children.items()}
        for reservation in self._reservations.values():
            reservation.close()
        self._reservations = {}
        self._lock.release()
        if not self._is_kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        return codes

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _write(self) -> None:
        count = len(self.topology.brokers)
        if self._port == 0:
            self._reservations = reserve_ports(count)
        ports = list(self._reservations) or range(self._port, self._port + count)
        addresses = {name: f"{HOST}:{port}" for name, port in zip(self.topology.brokers, ports, strict=True)}
        for name, address in addresses.items():
            path = self.folder / f"{name}{CONFIGURATION}"
            write_configuration(path, self._tables(name, addresses))
            child = self.children[name] = ChildBroker(name, path, self.folder / f"{name}{LOG}")
            child.address = address

    def _tables(self, name: str, addresses: Mapping[str, str]) -> dict[str, Any]:
        tables: dict[str, Any] = {"broker": {"name": name, "listen": addresses[name], "strategy": self._strategy}}
        if self._has_journal:
            tables["journal"] = {"folder": f"{name}{JOURNAL}"}
        if self._has_http:
            tables["http"] = {"listen": f"{HOST}:0"}
        for further in (self._settings, {} if self._broker_tables is None else self._broker_tables(name)):
            for table, values in further.items():
                tables[table] = {**tables.get(table, {}), **values}
        # Only one end calls, so that two simultaneous calls need no tie-break.
        tables["links"] = [
            {"broker": edge.other, "address": self.link_address(edge, addresses[edge.other]), "cost": edge.cost}
            if edge.one == name
            else {"broker": edge.one, "cost": edge.cost}
            for edge in self.topology.edges
            if name in edge[:2]
        ]
        return tables

    def link_address(self, link: Edge, address: str) -> str:
        """Return the address at which the first broker of a link calls the second, which listens at `address`.

        A subclass may return the address of a proxy in between.
        """
        return address

    # The running overlay

    @property
    def brokers(self) -> list[str]:
        return list(self.children)

    @property
    def addresses(self) -> dict[str, str]:
        """The URL at which clients connect to each broker, by its name."""
        return {name: f"tidings://{child.address}" for name, child in self.children.items()}

    def kill(self, name: str) -> None:
        """Kill a broker, as `kill -9` does; its journal stays."""
        self._child(name).kill()

    def pause(self, name: str) -> None:
        """Stop a broker's process with SIGSTOP."""
        self._child(name).pause()

    def resume(self, name: str) -> None:
        """Continue the process of a paused broker."""
        self._child(name).resume()

    def restart(self, name: str) -> None:
        """Restart a broker with its configuration and journal, and return when clients can connect.

        Stop it first if it runs.
        """
        child = self._child(name)
        if child.is_running:
            child.ask_to_stop()
            child.await_end(2 * _STOP_SECONDS)
        child.start()
        child.await_ready(_START_SECONDS)

    def _child(self, name: str) -> ChildBroker:
        try:
            return self.children[name]
        except KeyError:
            raise TidingsError(f"the overlay has no broker {name}; it has {', '.join(self.children)}") from None

    def statuses(self) -> dict[str, Any]:
        """Return the answer to the question `status` of each broker that is running and not paused."""
        return {name: ask(child.address, "status") for name, child in self.children.items() if child.is_active}

    def settle(self, seconds: float = _SETTLE_SECONDS) -> None:
        """Wait until routing between the running brokers has settled: links up, tables complete, no message under way.

        Brokers that are killed or paused meanwhile are left out. Raises UnsettledError, with the reasons, after
        `seconds`.
        """
        until = time.monotonic() + seconds
        before: dict[str, int] = {}
        while True:
            counts: dict[str, int] = {}
            reasons = self._unsettled_reasons(counts)
            # A round of questions misses messages sent meanwhile: two equal rounds in a row are needed.
            if not reasons and counts == before:
                return
            before = {} if reasons else counts
            if reasons and time.monotonic() > until:
                raise UnsettledError(f"after {seconds:g} seconds: {'; '.join(reasons)}")
            time.sleep(_PAUSE if reasons else 0)

    def messages(self) -> int:
        """Return how many messages brokers have sent each other over the links that are up."""
        return sum(link["sent"] for status in self.statuses().values() for link in status["links"].values())

    def _unsettled_reasons(self, counts: dict[str, int]) -> list[str]:
        """Return the reasons why the overlay has not settled; if there are none yet, fill `counts` with each link's
        messages."""
        active = {name: child for name, child in self.children.items() if child.is_active}
        reasons: list[str] = []
        statuses: dict[str, Any] = {}
        for name, child in active.items():
            try:
                status = ask(child.address, "status")
            except UnreachableError as error:
                reasons.append(str(error))
                continue
            statuses[name] = status
            missing = sorted((set(self.topology.neighbours(name)) & set(active)) - set(status["links"]))
            if missing:
                reasons.append(f"{name} has no link to {', '.join(missing)}")
            elif set(status["brokers"]) != self._reachable(name, set(active)):
                reasons.append(f"{name} knows of {', '.join(status['brokers'])} only")
            elif not status["settled"]:
                reasons.append(f"{name} has something under way: {_format_under_way(status['under_way'])}")
        if not reasons:
            for name, status in statuses.items():
                for other, link in status["links"].items():
                    counts[f"{name} {other}"] = link["sent"]
                    if other in statuses and link["sent"] != statuses[other]["links"][name]["received"]:
                        reasons.append(f"{name} has sent {other} something that is under way")
        return reasons

    def _reachable(self, name: str, active: set[str]) -> set[str]:
        """Return the active brokers that `name` can reach over links between active brokers, itself included."""
        reached, queue = {name}, [name]
        while queue:
            for other in self.topology.neighbours(queue.pop()):
                if other in active and other not in reached:
                    reached.add(other)
                    queue.append(other)
        return reached


def _format_under_way(under_way: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in under_way.items() if value) or "nothing any more"


def _silent(_: str) -> None:
    pass


OPERATOR = "operator"
_PATIENCE = 2.0  # seconds
_ANSWER = 60.0  # seconds: the tables of a broker may be large


def ask(address: str, question: str, name: str = "", identity: TlsIdentity | None = None) -> Any:
    """Connect to the broker at `address` as an observer, which changes no routing table, and return its answer.

    Args:
        address: The broker's host and port, or its URL.
        question: The name of the question, such as `status`, `stats` or `tables`.
        name: The client's name; empty: a random one.
        identity: The TLS identity, where the broker asks for one.
    """
    with connect_sync(address, name, identity, patience=_PATIENCE, observer=True) as client:
        return client.ask(question, timeout=_ANSWER)


HOST = "127.0.0.1"
_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1_000


def reserve_ports(count: int) -> dict[int, socket.socket]:
    """Reserve ports for brokers: nothing is bound to them, and the system uses none for outgoing connections.

    A broker that is killed and restarted must find its port free. If the system could pick that port for an outgoing
    connection, a client that calls the stopped broker might be given it as its own port and connect to itself.

    Returns the ports with sockets that reserve them for as long as they are open.

    Raises:
        TidingsError: There are not enough ports.
    """
    random, highest = secrets.SystemRandom(), _first_of_outgoing()
    reservations: dict[int, socket.socket] = {}
    for _ in range(_ATTEMPTS):
        if len(reservations) == count:
            return reservations
        port = random.randrange(_LOWEST, highest)
        reservation = reserve_port(port)
        if reservation is not None:
            reservations[port] = reservation
    for reservation in reservations.values():
        reservation.close()
    raise TidingsError(f"there are no {count:,} free ports on {HOST} from {_LOWEST:,} to {highest:,}")


def reserve_port(port: int) -> socket.socket | None:
    """Return a socket that reserves a port, or None if a socket is bound to the port already.

    On Linux a server that sets SO_REUSEADDR, as brokers do, can listen at the reserved port, and no other reservation
    succeeds. Other systems would refuse the server: there the port is only checked, and the socket is closed.
    """
    reservation = socket.socket()
    try:
        reservation.bind((HOST, port))
    except OSError:
        reservation.close()
        return None
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform != "linux":
        reservation.close()
    return reservation


def _first_of_outgoing() -> int:
    """Return the first port of the system's range for outgoing connections."""
    try:
        return max(int(_RANGE.read_text().split()[0]), _LOWEST + 1_000)
    except (OSError, ValueError, IndexError):
        return 32_768


CONFIGURATION, LOG, JOURNAL = ".toml", ".log", "-journal"


def lock_folder(folder: Path) -> FolderLock:
    """Create the folder if needed and lock it for one overlay. Raises TidingsError if an overlay runs in it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return FolderLock(folder)
    except JournalLockedError as error:
        owner = f"process {error.process}" if error.process else "another process"
        message = f"an overlay is running in {folder} ({owner}); stop it, or name another folder"
        raise TidingsError(message) from None


def write_configuration(path: Path, tables: Mapping[str, Any]) -> None:
    """Write a broker's TOML file from tables, and lists of tables, of plain values."""
    lines: list[str] = []
    for name, table in tables.items():
        is_list = isinstance(table, list)
        for values in table if is_list else [table]:
            head = f"[[{name}]]" if is_list else f"[{name}]"
            lines += [head, *(f"{key} = {written(value)}" for key, value in values.items()), ""]
    path.write_text("\n".join(lines))


def read_broker_addresses(folder: Path) -> dict[str, str]:
    """Return the address of each broker, by its name, from the configuration files of an overlay's folder.

    Raises TidingsError if the folder has none.
    """
    configurations = [BrokerConfiguration.from_file(path, {}) for path in sorted(folder.glob(f"*{CONFIGURATION}"))]
    if not configurations:
        raise TidingsError(f"{folder} holds no overlay; `tidings overlay run --folder {folder}` makes one")
    return {configuration.broker.name: configuration.broker.listen for configuration in configurations}
