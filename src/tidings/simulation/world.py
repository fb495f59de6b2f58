"""The simulated world: an overlay of brokers and clients, on a network with faults, in virtual time."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from tidings.engine import Engine, Settings
from tidings.engine.effects import Effect
from tidings.engine.matcher import Matcher
from tidings.engine.operations import Operation
from tidings.engine.state.filters import BrokerTables
from tidings.model.errors import InvalidValueError, UnsettledError
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.model.notification import Notification
from tidings.protocol.operations import size_of
from tidings.routing.covering_classes import CoveringClasses
from tidings.simulation.broker import BrokerEnvironment, SessionListener, SimulatedBroker
from tidings.simulation.client import SecurityMaterial, SimulatedClient
from tidings.simulation.clock import SECOND, SimulatedClock, microseconds
from tidings.simulation.counters import Counters
from tidings.simulation.faults import Fault
from tidings.simulation.link import HEARTBEAT, SimulatedLink
from tidings.simulation.network import Conditions, Network
from tidings.simulation.rng import seeded_random
from tidings.simulation.topologies import Topology
from tidings.simulation.trace import RunTrace

Trusts = Mapping[str, Iterable[str]] | Callable[[str, str], bool]
_SHOWN = 5  # pending actions, and unsettled brokers and links, that an error message names


class World:
    """A simulated overlay: brokers, links, clients and a virtual clock.

    Everything that happens is determined by the constructor's arguments and the calls made, so a seed replays a
    run. Arguments named as times are in seconds; `now` is in microseconds, as in events.
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
        secrecy: SecurityMaterial | None = None,
    ) -> None:
        """Create a world in which all links are up.

        Args:
            topology: The brokers and links.
            seed: Determines all random choices.
            strategy: The routing strategy of all brokers.
            latency: Seconds that a datagram takes.
            jitter: Up to so many seconds are added to the latency at random.
            bandwidth: Bytes per second of each direction of a link; None for no limit.
            loss: The probability that a datagram is lost.
            duplication: The probability that a datagram is duplicated.
            reordering: The probability that a datagram is delayed past later ones.
            settings: Engine settings of all brokers; the settings under a broker's name are for that broker alone.
            matcher: Creates the matcher of each engine; None for the default.
            trust: The members of each trust group, or a function of a party and a group.
            trust_expiry: Seconds for which an answer about trust is valid.
            resends: Brokers journal what is published at them, and resend it to brokers that may have missed it.
            count_bytes: Count bytes as well as messages.
            keep_trace: Store the lines of the trace.
            secrecy: The security material of clients and brokers; without it brokers have no gates.
        """
        self.topology, self.seed, self.resends, self.secrecy = topology, seed, resends, secrecy
        self.clock = SimulatedClock(0 if secrecy is None else secrecy.begins)
        self.trace = RunTrace(keep=keep_trace)
        self.clients: dict[str, SimulatedClient] = {}
        self.brokers: dict[str, SimulatedBroker] = {}
        self._reconnection_rng = seeded_random(seed, "reconnections")
        self._event_count = 0
        self._unsettled: list[SimulatedBroker | SimulatedLink] = []
        conditions = Conditions(
            latency=microseconds(latency),
            jitter=microseconds(jitter),
            bandwidth=bandwidth,
            loss=loss,
            duplication=duplication,
            reordering=reordering,
        )
        pairs = [(edge.one, edge.other) for edge in topology.edges]
        self.network = Network(self.clock, seeded_random(seed, "network"), conditions, pairs)
        self.counters = Counters(self.network.paths, size_of if count_bytes or bandwidth is not None else None)
        environment = BrokerEnvironment(self.clock, self.trace, _membership(trust), microseconds(trust_expiry))
        common_settings = {"strategy": strategy, "resends": resends, **(settings or {})}
        settings_by_broker = {name: common_settings.pop(name) for name in topology.brokers if name in common_settings}
        kinds = CoveringClasses()
        for name in topology.brokers:
            broker_settings = Settings(name=name, **{**common_settings, **settings_by_broker.get(name, {})})
            self.brokers[name] = SimulatedBroker(
                name, _engine_factory(broker_settings, matcher, kinds, secrecy), environment
            )
        self.links = {(edge.one, edge.other): self._link(*edge) for edge in topology.edges}
        for link in self.links.values():
            link.begin()
        for number, broker in enumerate(self.brokers.values()):
            first = self.now + HEARTBEAT + number * HEARTBEAT // len(self.brokers)  # spread over one interval
            self.clock.in_background(first, self._tick, broker.tick)

    # Clients and brokers

    def client(self, name: str, broker: str) -> SimulatedClient:
        """Return the client of that name; create it at `broker` and connect it if it does not exist.

        Raises `InvalidValueError` if the client is at another broker.
        """
        existing = self.clients.get(name)
        if existing is not None:
            if existing.broker != broker:
                raise InvalidValueError(f"{name} is at {existing.broker}; move({broker!r}) brings it to {broker}")
            return existing
        if name in self.brokers:
            raise InvalidValueError(f"{name} is the name of a broker; choose another one for a client")
        client = self.clients[name] = SimulatedClient(self, name, self.broker(broker))
        client.connect()
        return client

    def broker(self, name: str) -> SimulatedBroker:
        """Return the broker of that name. Raises `InvalidValueError` if there is none."""
        if name not in self.brokers:
            raise InvalidValueError(f"there is no broker {name!r}")
        return self.brokers[name]

    def explain(self, client: str, event: Event, *, is_accepted: bool) -> list[Explanation]:
        """Explain why the event reaches or does not reach a client's subscriptions at its broker now."""
        engine = self.broker(self.clients[client].broker).engine
        return engine.explain(event, client=client, viewer=client, accepted=is_accepted)

    def do(self, broker: str, operation: Operation) -> list[Effect]:
        """Let a broker handle an operation that no client sends, such as an operator's policy."""
        return self.broker(broker).do(operation)

    # Time

    @property
    def now(self) -> int:
        """Microseconds since the world began; with security material, since 1970."""
        return self.clock.now

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock.run_until(self.now + microseconds(seconds))

    def settle(self, limit: float = 120.0) -> None:
        """Let time pass until the world is quiet: nothing but heartbeats is pending, and all links and brokers are
        settled.

        Raises `UnsettledError` if that takes longer than `limit` seconds.
        """
        clock, end = self.clock, self.now + microseconds(limit)
        while not (clock.run_until_idle(end) and self.is_quiet):
            next_time = clock.next_time
            if next_time is None or next_time > end:
                raise UnsettledError(f"not settled after {limit:g} s: {self._describe_unsettled()}")
            clock.step()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but heartbeats will happen without a further call."""
        if self.clock.under_way:
            return False
        self._unsettled = [part for part in self._unsettled if not part.is_settled]
        if not self._unsettled:  # check everything only when all that was unsettled before has settled
            parts: list[SimulatedBroker | SimulatedLink] = [*self.links.values(), *self.brokers.values()]
            self._unsettled = [part for part in parts if not part.is_settled]
        return not self._unsettled

    # Faults

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Schedule faults at their times, counted from now."""
        start = self.now
        for fault in faults:
            self.clock.at(start + microseconds(fault.at), self._apply_fault, fault)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Cut the link between two brokers, in both directions or from `one` to `other` only."""
        there, back = self.network.between(one, other)
        there.is_cut = True
        back.is_cut = back.is_cut or not one_way
        self._network_changed(one, other, "cut one way" if one_way else "cut")

    def heal(self, one: str, other: str) -> None:
        """Restore the link to the conditions with which the world began."""
        for way in self.network.between(one, other):
            way.is_cut = False
            way.conditions = way.usual
        self._network_changed(one, other, "healed")

    def slow(self, one: str, other: str, factor: float) -> None:
        """Multiply the link's usual latency and jitter by a factor."""
        for way in self.network.between(one, other):
            usual = way.usual
            slower = {"latency": round(usual.latency * factor), "jitter": round(usual.jitter * factor)}
            way.conditions = msgspec.structs.replace(way.conditions, **slower)
        self._network_changed(one, other, f"slower {factor:g} times")

    def lossy(self, one: str, other: str, loss: float, duplication: float = 0.0, reordering: float = 0.0) -> None:
        """Let the link lose, duplicate and reorder datagrams.

        Args:
            one: A broker.
            other: The broker at the other end.
            loss: The probability that a datagram is lost.
            duplication: The probability that a datagram is duplicated.
            reordering: The probability that a datagram is delayed past later ones.
        """
        for way in self.network.between(one, other):
            way.conditions = msgspec.structs.replace(
                way.conditions, loss=loss, duplication=duplication, reordering=reordering
            )
        self._network_changed(one, other, f"loses {loss:g}, doubles {duplication:g}, reorders {reordering:g}")

    def crash(self, broker: str) -> None:
        """Crash a broker, unless it is down: it loses everything but its disk."""
        simulated = self.broker(broker)
        if simulated.is_up:
            self.trace.note(self.now, broker, "crashes")
            simulated.crash()
            self._start_heartbeats(broker)

    def restart(self, broker: str) -> None:
        """Restart a crashed broker from its disk."""
        simulated = self.broker(broker)
        if not simulated.is_up:
            self.trace.note(self.now, broker, "restarts")
            simulated.restart()
            self._start_heartbeats(broker)

    def pause(self, broker: str) -> None:
        """Pause a broker: it does nothing until it is resumed, and seems gone to the others."""
        simulated = self.broker(broker)
        if simulated.is_there:
            self.trace.note(self.now, broker, "pauses")
            simulated.pause()
            self._start_heartbeats(broker)

    def resume(self, broker: str) -> None:
        """Resume a paused broker."""
        simulated = self.broker(broker)
        if simulated.is_up and not simulated.is_there:
            self.trace.note(self.now, broker, "goes on")
            simulated.resume()
            self._start_heartbeats(broker)

    # Inspection

    def notifications(self, client: str | SessionListener) -> list[Notification]:
        """Return all notifications that the client has received, in order."""
        return self.clients[client if isinstance(client, str) else client.name].notifications

    def tables(self, broker: str) -> BrokerTables:
        """Return the routing tables of a broker."""
        return self.broker(broker).engine.tables()

    # For clients

    def new_event_id(self) -> UUID:
        """Return the next event id; ids rise with time and are the same in every run."""
        self._event_count += 1
        return uuid7(self.now, self._event_count.to_bytes(ENTROPY_BYTES, "big"))

    def draw_reconnection_delay(self) -> int:
        """Return a random delay in microseconds, so that the clients of a restarted broker do not all connect at
        once."""
        return self._reconnection_rng.randint(SECOND // 20, SECOND // 4)

    def _link(self, one: str, other: str, cost: int) -> SimulatedLink:
        tallies = self.counters.tallies[one, other], self.counters.tallies[other, one]
        link = SimulatedLink(self.clock, one, other, self.network.between(one, other), tallies, cost)
        for end in link.ends:
            broker = self.brokers[end.name]
            broker.ends[end.neighbour] = end
            end.start(broker)
        return link

    def _tick(self, tick: Callable[[], None]) -> None:
        tick()
        self.clock.in_background(self.now + HEARTBEAT, self._tick, tick)

    def _apply_fault(self, fault: Fault) -> None:
        fault.apply(self)

    def _network_changed(self, one: str, other: str, change: str) -> None:
        self.trace.note(self.now, f"{one}-{other}", change)
        link = self.links.get((one, other)) or self.links[other, one]
        link.network_changed()

    def _start_heartbeats(self, broker: str) -> None:
        """Make the links of a broker send heartbeats, because the broker has changed its state."""
        for pair, link in self.links.items():
            if broker in pair:
                link.start_heartbeats()

    def _describe_unsettled(self) -> str:
        """Describe what is not settled, for an error message."""
        pending = [getattr(action, "__qualname__", repr(action)) for action in self.clock.due()]
        unsettled = [repr(part) for part in self._unsettled]
        descriptions = [*pending[:_SHOWN], *unsettled[:_SHOWN]]
        hidden = len(pending) + len(unsettled) - len(descriptions)
        return ", ".join(descriptions) + (f" and {hidden} more" if hidden else "")


def _membership(trust: Trusts | None) -> Callable[[str, str], bool]:
    """Return a function that says whether a party is a member of a trust group."""
    if trust is not None and not isinstance(trust, Mapping):
        return trust
    groups = {group: frozenset(members) for group, members in (trust or {}).items()}
    return lambda party, group: party in groups.get(group, ())


def _engine_factory(
    settings: Settings, matcher: Callable[[], Matcher] | None, kinds: CoveringClasses, security: SecurityMaterial | None
) -> Callable[[], Engine]:
    """Return a function that makes a new engine for a broker, at first and after each crash."""

    def new_engine() -> Engine:
        gate = None if security is None else security.gate(settings.name)
        return Engine(settings, None if matcher is None else matcher(), kinds, gate)

    return new_engine
