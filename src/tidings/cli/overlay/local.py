"""A local overlay: a broker process for each broker of a topology, on this machine."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidings.cli.overlay.asking import ask
from tidings.cli.overlay.child import Child
from tidings.cli.overlay.files import CONFIGURATION, JOURNAL, LOG, taken, write_configuration
from tidings.cli.overlay.ports import HOST, free_ports
from tidings.model.errors import InvalidValueError, TidingsError, UnreachableError, UnsettledError
from tidings.simulation.topologies import Edge, Topology

_START_SECONDS = 300.0  # where kernels have to be compiled first, or a long journal to be read
_SETTLE_SECONDS = 60.0
_STOP_SECONDS = 10.0
_PAUSE = 0.05  # between two looks
Progress = Callable[[str], None]
Tables = Mapping[str, Mapping[str, Any]]  # of a broker's file


class LocalOverlay:
    """From `with` on, or from `start` to `stop`: brokers that are linked as the topology says, and tables that are
    complete.

    Without a folder there is one for as long as the overlay runs. In a folder that is kept, an overlay that is started
    again has the journals that it had. `settings` are tables of a broker's file, for all of them: `{"limits": {...}}`;
    `own` gives those of a single one, by its name.
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
        own: Callable[[str], Tables] | None = None,
    ) -> None:
        for name in topology.brokers:
            if Path(name).name != name:
                raise InvalidValueError(f"{name}: a broker of a local overlay is called as its files are: write no /")
        self.topology, self._own = topology, own
        self._given, self._port, self._settings = folder, port, dict(settings or {})
        self._strategy, self._has_journal, self._has_http = strategy, journal, http
        self.folder = Path()
        self.children: dict[str, Child] = {}

    # Beginning and end

    def start(self, progress: Progress | None = None) -> None:
        """Returns when all links are up and all tables complete; if that cannot be, nothing is left running."""
        told = progress or _silent
        kept = self._given is not None
        self.folder = Path(self._given or tempfile.mkdtemp(prefix="tidings-overlay-")).absolute()
        try:
            self._lock = taken(self.folder)
        except TidingsError:
            self.folder = Path()
            raise
        self._is_kept = kept
        try:
            self._write()
            for child in self.children.values():
                child.start()
            for child in self.children.values():
                told(f"{child.name} starts")
                child.await_ready(_START_SECONDS)
            told("links and tables")
            self.settle()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> dict[str, int | None]:
        """Gracefully, all at once; their exit codes."""
        for child in self.children.values():
            child.ask_to_stop()
        patience = self._settings.get("broker", {}).get("stop_seconds", _STOP_SECONDS) + _STOP_SECONDS
        codes = {name: child.await_end(patience) for name, child in self.children.items()}
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
        ports = free_ports(count) if self._port == 0 else list(range(self._port, self._port + count))
        addresses = {name: f"{HOST}:{port}" for name, port in zip(self.topology.brokers, ports, strict=True)}
        for name, address in addresses.items():
            path = self.folder / f"{name}{CONFIGURATION}"
            write_configuration(path, self._tables(name, addresses))
            child = self.children[name] = Child(name, path, self.folder / f"{name}{LOG}")
            child.address = address

    def _tables(self, name: str, addresses: Mapping[str, str]) -> dict[str, Any]:
        tables: dict[str, Any] = {"broker": {"name": name, "listen": addresses[name], "strategy": self._strategy}}
        if self._has_journal:
            tables["journal"] = {"folder": f"{name}{JOURNAL}"}
        if self._has_http:
            tables["http"] = {"listen": f"{HOST}:0"}
        for given in (self._settings, {} if self._own is None else self._own(name)):
            for table, values in given.items():
                tables[table] = {**tables.get(table, {}), **values}
        # One end calls, so that no two calls have to be weighed against each other.
        tables["links"] = [
            {"broker": edge.other, "address": self.way(edge, addresses[edge.other]), "cost": edge.cost}
            if edge.one == name
            else {"broker": edge.one, "cost": edge.cost}
            for edge in self.topology.edges
            if name in edge[:2]
        ]
        return tables

    def way(self, link: Edge, address: str) -> str:
        """Where the first broker of a link calls the second, which listens at that address: an overlay of another
        class may put something in between."""
        return address

    # While it runs

    @property
    def brokers(self) -> list[str]:
        return list(self.children)

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients connect, by broker."""
        return {name: f"tidings://{child.address}" for name, child in self.children.items()}

    def kill(self, name: str) -> None:
        """As `kill -9` does; what is on its disk stays."""
        self._child(name).kill()

    def pause(self, name: str) -> None:
        """The process does nothing any more, and does not know it (SIGSTOP)."""
        self._child(name).pause()

    def resume(self, name: str) -> None:
        self._child(name).resume()

    def restart(self, name: str) -> None:
        """Stops it gracefully, if it is running, and starts it where it was; returns when clients may connect."""
        child = self._child(name)
        if child.is_running:
            child.ask_to_stop()
            child.await_end(2 * _STOP_SECONDS)
        child.start()
        child.await_ready(_START_SECONDS)

    def _child(self, name: str) -> Child:
        try:
            return self.children[name]
        except KeyError:
            raise TidingsError(f"the overlay has no broker {name}; it has {', '.join(self.children)}") from None

    def statuses(self) -> dict[str, Any]:
        """How the brokers are that are running and not paused."""
        return {name: ask(child.address, "status") for name, child in self.children.items() if child.is_active}

    def settle(self, seconds: float = _SETTLE_SECONDS) -> None:
        """Until the brokers that are running have found each other, know all that they have to, and nothing is under
        way between them; those that are killed or paused meanwhile are not waited for."""
        until = time.monotonic() + seconds
        before: dict[str, int] = {}
        while True:
            counted: dict[str, int] = {}
            moving = self._moving(counted)
            # What is sent while others are asked is not seen; what is so twice, with nothing sent in between, is so.
            if not moving and counted == before:
                return
            before = {} if moving else counted
            if moving and time.monotonic() > until:
                raise UnsettledError(f"after {seconds:g} seconds: {'; '.join(moving)}")
            time.sleep(_PAUSE if moving else 0)

    def messages(self) -> int:
        """How many messages brokers have sent each other, over the links that are up."""
        return sum(link["sent"] for status in self.statuses().values() for link in status["links"].values())

    def _moving(self, counted: dict[str, int]) -> list[str]:
        """What is still to come, of each broker; `counted` is filled with what went over each link."""
        active = {name: child for name, child in self.children.items() if child.is_active}
        moving: list[str] = []
        statuses: dict[str, Any] = {}
        for name, child in active.items():
            try:
                status = ask(child.address, "status")
            except UnreachableError as error:
                moving.append(str(error))
                continue
            statuses[name] = status
            missing = sorted((set(self.topology.neighbours(name)) & set(active)) - set(status["links"]))
            if missing:
                moving.append(f"{name} has no link to {', '.join(missing)}")
            elif set(status["brokers"]) != self._reach(name, set(active)):
                moving.append(f"{name} knows of {', '.join(status['brokers'])} only")
            elif not status["settled"]:
                moving.append(f"{name} has something under way: {_told(status['under_way'])}")
        if not moving:
            for name, status in statuses.items():
                for other, link in status["links"].items():
                    counted[f"{name} {other}"] = link["sent"]
                    if other in statuses and link["sent"] != statuses[other]["links"][name]["received"]:
                        moving.append(f"{name} has sent {other} something that is under way")
        return moving

    def _reach(self, name: str, active: set[str]) -> set[str]:
        reached, left = {name}, [name]
        while left:
            for other in self.topology.neighbours(left.pop()):
                if other in active and other not in reached:
                    reached.add(other)
                    left.append(other)
        return reached


def _told(under_way: dict[str, Any]) -> str:
    return ", ".join(f"{what} {value}" for what, value in under_way.items() if value) or "nothing any more"


def _silent(_: str) -> None:
    pass
