"""A world: an overlay of brokers with their clients, on a network with faults, in virtual time."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from tidings.engine import Engine, Settings
from tidings.engine.effects import Effect
from tidings.engine.matcher import Matcher
from tidings.engine.operations import Operation
from tidings.engine.tables import Tables
from tidings.model.errors import InvalidValueError, UnsettledError
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.model.notification import Notification
from tidings.protocol.operations import size_of
from tidings.routing.kinds import Kinds
from tidings.simulation.broker import Broker, Surroundings
from tidings.simulation.chance import drawn_from
from tidings.simulation.client import Client
from tidings.simulation.clock import SECOND, Clock, microseconds
from tidings.simulation.counters import Counters
from tidings.simulation.faults import Fault
from tidings.simulation.link import HEARTBEAT, Link
from tidings.simulation.network import Conditions, Network
from tidings.simulation.secrecy import Secrecy
from tidings.simulation.topologies import Topology
from tidings.simulation.trace import Trace

Trusts = Mapping[str, Iterable[str]] | Callable[[str, str], bool]
_SHOWN = 5  # of each kind of thing that is still moving


class World:
    """Everything that happens is determined by what is given here and by what is done: a seed replays it.

    Times are seconds where they are given, and microseconds in `now`, as in events. `settings` are those of all
    brokers; under a broker's name stand those of that one alone. `trust` are the members of each trust group, or a
    function of a party and a group. `resends`: brokers keep what is published at them, and send it again to those who
    may have missed it. `secrecy`: what clients and brokers hold of secure topics; without it brokers have no gates.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 0,
        strategy: str = "advertisement",
        latency: float = 0.001,
        jitter: float = 0.001,
        bandwidth: int | None = None,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        matcher: Callable[[], Matcher] | None = None,
        trust: Trusts | None = None,
        trust_expiry: float = 60.0,
        resends: bool = True,
        count_bytes: bool = False,
        keep_trace: bool = False,
        secrecy: Secrecy | None = None,
    ) -> None:
        self.topology, self.seed, self.resends, self.secrecy = topology, seed, resends, secrecy
        self.clock = Clock(0 if secrecy is None else secrecy.begins)
        self.trace = Trace(keep=keep_trace)
        self.clients: dict[str, Client] = {}
        self.brokers: dict[str, Broker] = {}
        self._reconnections = drawn_from(seed, "reconnections")
        self._events = 0
        self._restless: list[Broker | Link] = []
        conditions = Conditions(
            latency=microseconds(latency),
            jitter=microseconds(jitter),
            bandwidth=bandwidth,
            loss=loss,
            duplication=duplication,
            reordering=reordering,
        )
        pairs = [(edge.one, edge.other) for edge in topology.edges]
        self.network = Network(self.clock, drawn_from(seed, "network"), conditions, pairs)
        self.counters = Counters(self.network.ways, size_of if count_bytes or bandwidth is not None else None)
        surroundings = Surroundings(self.clock, self.trace, _membership(trust), microseconds(trust_expiry))
        common = {"strategy": strategy, "resends": resends, **(settings or {})}
        alone = {name: common.pop(name) for name in topology.brokers if name in common}
        kinds = Kinds()
        for name in topology.brokers:
            made = Settings(name=name, **{**common, **alone.get(name, {})})
            self.brokers[name] = Broker(name, _engines(made, matcher, kinds, secrecy), surroundings)
        self.links = {(edge.one, edge.other): self._link(*edge) for edge in topology.edges}
        for link in self.links.values():
            link.begin()
        for number, broker in enumerate(self.brokers.values()):
            first = self.now + HEARTBEAT + number * HEARTBEAT // len(self.brokers)  # not all at once
            self.clock.in_background(first, self._tick, broker)

    # Who takes part

    def client(self, name: str, broker: str) -> Client:
        """The client of that name; a new one is at that broker, and connected."""
        known = self.clients.get(name)
        if known is not None:
            if known.broker != broker:
                raise InvalidValueError(f"{name} is at {known.broker}; move({broker!r}) brings it to {broker}")
            return known
        if name in self.brokers:
            raise InvalidValueError(f"{name} is the name of a broker; choose another one for a client")
        client = self.clients[name] = Client(self, name, self.broker(broker))
        client.connect()
        return client

    def broker(self, name: str) -> Broker:
        if name not in self.brokers:
            raise InvalidValueError(f"there is no broker {name!r}")
        return self.brokers[name]

    def do(self, broker: str, operation: Operation) -> list[Effect]:
        """One operation at a broker, as it is: for what no client does, such as an operator's policies."""
        return self.broker(broker).do(operation)

    # Time

    @property
    def now(self) -> int:
        """Microseconds since the world began, or, where there is secrecy, since 1970."""
        return self.clock.now

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.clock.run_until(self.now + microseconds(seconds))

    def settle(self, limit: float = 120.0) -> None:
        """Lets time pass until nothing but heartbeats is under way, every link has found out how things are, and no
        broker has anything to do; an `UnsettledError` if that takes longer than so many seconds."""
        clock, end = self.clock, self.now + microseconds(limit)
        while not (clock.run_until_idle(end) and self.is_quiet):
            next_time = clock.next_time
            if next_time is None or next_time > end:
                raise UnsettledError(f"not settled after {limit:g} s: {self._what_moves()}")
            clock.step()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happens any more, as long as nobody does anything."""
        if self.clock.under_way:
            return False
        self._restless = [one for one in self._restless if not one.is_settled]
        if not self._restless:  # those that were restless are asked first: mostly that is enough
            everything: list[Broker | Link] = [*self.links.values(), *self.brokers.values()]
            self._restless = [one for one in everything if not one.is_settled]
        return not self._restless

    # Faults

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Faults that come at their times, counted from now."""
        start = self.now
        for fault in faults:
            self.clock.at(start + microseconds(fault.at), self._meet, fault)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Nothing gets from one to the other any more, nor, unless one way only is cut, back."""
        there, back = self.network.between(one, other)
        there.is_cut = True
        back.is_cut = back.is_cut or not one_way
        self._changed(one, other, "cut one way" if one_way else "cut")

    def heal(self, one: str, other: str) -> None:
        """The link is as it was when the world began."""
        for way in self.network.between(one, other):
            way.is_cut = False
            way.conditions = way.usual
        self._changed(one, other, "healed")

    def slow(self, one: str, other: str, factor: float) -> None:
        """Everything takes so many times as long as usual."""
        for way in self.network.between(one, other):
            usual = way.usual
            slower = {"latency": round(usual.latency * factor), "jitter": round(usual.jitter * factor)}
            way.conditions = msgspec.structs.replace(way.conditions, **slower)
        self._changed(one, other, f"slower {factor:g} times")

    def lossy(self, one: str, other: str, loss: float, duplication: float = 0.0, reordering: float = 0.0) -> None:
        for way in self.network.between(one, other):
            way.conditions = msgspec.structs.replace(
                way.conditions, loss=loss, duplication=duplication, reordering=reordering
            )
        self._changed(one, other, f"loses {loss:g}, doubles {duplication:g}, reorders {reordering:g}")

    def crash(self, broker: str) -> None:
        found = self.broker(broker)
        if found.is_up:
            self.trace.note(self.now, broker, "crashes")
            found.crash()
            self._stir(broker)

    def restart(self, broker: str) -> None:
        found = self.broker(broker)
        if not found.is_up:
            self.trace.note(self.now, broker, "restarts")
            found.restart()
            self._stir(broker)

    def pause(self, broker: str) -> None:
        """It does nothing for a while, as if it were gone."""
        found = self.broker(broker)
        if found.is_there:
            self.trace.note(self.now, broker, "pauses")
            found.pause()
            self._stir(broker)

    def resume(self, broker: str) -> None:
        found = self.broker(broker)
        if found.is_up and not found.is_there:
            self.trace.note(self.now, broker, "goes on")
            found.resume()
            self._stir(broker)

    # Looking inside

    def notifications(self, client: "str | Client") -> list[Notification]:
        """What the client was told so far, in order."""
        return self.clients[client if isinstance(client, str) else client.name].notifications

    def tables(self, broker: str) -> Tables:
        return self.broker(broker).engine.tables()

    # What clients need of the world

    def new_event_id(self) -> UUID:
        self._events += 1
        return uuid7(self.now, self._events.to_bytes(ENTROPY_BYTES, "big"))

    def draw_reconnection_delay(self) -> int:
        """Clients of a broker that is back do not come all at once."""
        return self._reconnections.randint(SECOND // 20, SECOND // 4)

    def _link(self, one: str, other: str, cost: int) -> Link:
        tallies = self.counters.tallies[one, other], self.counters.tallies[other, one]
        link = Link(self.clock, one, other, self.network.between(one, other), tallies, cost)
        for end in link.ends:
            broker = self.brokers[end.name]
            broker.ends[end.neighbour] = end
            end.start(broker)
        return link

    def _tick(self, broker: Broker) -> None:
        broker.tick()
        self.clock.in_background(self.now + HEARTBEAT, self._tick, broker)

    def _meet(self, fault: Fault) -> None:
        fault.befall(self)

    def _changed(self, one: str, other: str, what: str) -> None:
        self.trace.note(self.now, f"{one}-{other}", what)
        link = self.links.get((one, other)) or self.links[other, one]
        link.network_changed()

    def _stir(self, broker: str) -> None:
        for pair, link in self.links.items():
            if broker in pair:
                link.stir()

    def _what_moves(self) -> str:
        under_way = [getattr(action, "__qualname__", repr(action)) for action in self.clock.due()]
        restless = [repr(one) for one in self._restless]
        found = [*under_way[:_SHOWN], *restless[:_SHOWN]]
        hidden = len(under_way) + len(restless) - len(found)
        return ", ".join(found) + (f" and {hidden} more" if hidden else "")


def _membership(trust: Trusts | None) -> Callable[[str, str], bool]:
    if trust is not None and not isinstance(trust, Mapping):
        return trust
    groups = {group: frozenset(members) for group, members in (trust or {}).items()}
    return lambda party, group: party in groups.get(group, ())


def _engines(
    settings: Settings, matcher: Callable[[], Matcher] | None, kinds: Kinds, secrecy: Secrecy | None
) -> Callable[[], Engine]:
    def made() -> Engine:
        gate = None if secrecy is None else secrecy.gate(settings.name)
        return Engine(settings, None if matcher is None else matcher(), kinds, gate)

    return made
