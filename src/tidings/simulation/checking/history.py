"""Histories: a world and the steps taken in it, to be run and checked. `RoutingState` compares what brokers know.

`reduction.py` makes a history smaller, and `step_file.py` writes it as text.
"""

import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from tidings.engine import Engine
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.state.filters import FilterEntry
from tidings.model.advertisement import Advertisement
from tidings.model.errors import RefusedError, UnsettledError
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.context_table import AnnouncedContext
from tidings.routing.spcf import content_table
from tidings.simulation.broker import SimulatedBroker
from tidings.simulation.checking.checker import Checker, Violation
from tidings.simulation.checking.steps import Advertises, Publishes, Returns, Settles, Step
from tidings.simulation.client import SimulatedClient
from tidings.simulation.faults import Heal, Restart, Resume
from tidings.simulation.topologies import Topology
from tidings.simulation.world import World


class FilterState(msgspec.Struct, frozen=True):
    """An advertisement or subscription in a broker's tables: from which neighbours it came, and to which it was
    forwarded."""

    value: Advertisement | Subscription
    origin: str
    senders: tuple[str, ...]
    sent_to: tuple[str, ...]
    is_scoped: bool


class RoutingState(msgspec.Struct, frozen=True):
    """A broker's routing tables. Equal for two brokers that route in the same way, however they came to know it."""

    neighbours: tuple[str, ...]
    filters: dict[str, FilterState]
    contexts: dict[str, Context]
    announced: dict[str, dict[bytes, AnnouncedContext]]  # announced contexts by broker (spcf)
    content: dict[tuple[str, bytes, str], set[str]]  # (broker, context, neighbour) -> subscriptions beyond it (spcf)

    @classmethod
    def of(cls, engine: Engine) -> "RoutingState":
        """Return the routing state of an engine."""
        announces = engine.state.strategy.announces
        return cls(
            tuple(sorted(engine.state.links.neighbours)),
            {
                entry.id: _filter_state(entry, by_source=engine.state.strategy.by_source)
                for entry in engine.state.filters.entries()
            },
            {
                name: context for name, context in engine.tables().contexts.items() if context
            },  # an empty context equals none
            {
                name: dict(announced)
                for name in engine.state.contexts.announced.brokers()
                if (announced := engine.state.contexts.announced.of(name))
            },
            content_table(engine.state.overlay, list(engine.state.filters.subscriptions)) if announces else {},
        )

    def differences(self, other: "RoutingState") -> list[str]:
        """Describe each difference to another broker's state, for an error message."""
        differences: list[str] = []
        for field in self.__struct_fields__:
            here, there = getattr(self, field), getattr(other, field)
            if here == there:
                continue
            if isinstance(here, dict):
                names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
                differences += [f"{field} {name}: {_difference(here.get(name), there.get(name))}" for name in names]
            else:
                differences.append(f"{field}: {_difference(here, there)}")
        return differences


def _difference(here: Any, there: Any) -> str:
    if isinstance(here, FilterState) and isinstance(there, FilterState):
        names = (name for name in FilterState.__struct_fields__ if getattr(here, name) != getattr(there, name))
        return ", ".join(f"{name} {_difference(getattr(here, name), getattr(there, name))}" for name in names)
    return f"{here} instead of {there}"


def _filter_state(entry: FilterEntry[Advertisement] | FilterEntry[Subscription], *, by_source: bool) -> FilterState:
    """Return the filter's entry; its origin matters only for strategies that compute trees per source."""
    senders = tuple(sorted(entry.senders)) or (entry.hop,)
    return FilterState(
        entry.value, entry.origin if by_source else "", senders, tuple(sorted(entry.sent_to)), entry.scoped
    )


_PROBE = "probe"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A topology, clients and steps. Equal histories run identically.

    `homes` are the clients, each with its first broker; `network` are the conditions of all links.
    """

    topology: Topology
    homes: dict[str, str]
    steps: tuple[Step, ...]
    strategy: str = "advertisement"
    seed: int = 0
    network: dict[str, float] = {}
    resends: bool = True

    def world(self) -> World:
        """Create the history's world, without clients."""
        return World(
            self.topology,
            seed=self.seed,
            strategy=self.strategy,
            matcher=NaiveMatcher,
            resends=self.resends,
            **self.network,  # type: ignore[arg-type]
        )

    def violations(self) -> list[Violation]:
        """Run the history, and return the first violations; none if all guarantees hold.

        After the steps, the network heals, and clients whose state was not received connect again. Then the
        brokers' tables must equal those of a fresh world with the same clients, and an event of every client must
        be notified as the reference says.
        """
        try:
            world = self.world()
            for name, broker in self.homes.items():
                world.client(name, broker)
            checker = Checker(world, self.strategy, lambda step: step.apply(world))
            return (
                checker.take_all([*self.steps, *_healing(self.topology)])
                or checker.take_all([*map(Returns, checker.unreached_clients()), Settles()])
                or _differences(world.brokers, self._fresh_world(world.clients.values()).brokers)
                or checker.take_all(_probes(world.clients.values()))
            )
        except UnsettledError as error:
            return [Violation("unsettled", str(error))]
        except Exception:
            return [Violation("error", traceback.format_exc())]

    def _fresh_world(self, clients: Iterable[SimulatedClient]) -> World:
        """Return another world in which these clients have made the same calls, without any faults."""
        fresh = self.world()
        fresh.settle()
        for original in clients:
            client = fresh.client(original.name, original.broker)
            if original.context:
                client.set_context(original.context)
            for advertisement in original.advertisements():
                client.advertise(
                    advertisement.content,
                    advertisement.publisher_context,
                    advertisement.subscriber_context,
                    advertisement.policy,
                    advertisement.id,
                )
            for subscription in original.subscriptions():
                with suppress(RefusedError):  # refused in the other world, too
                    client.subscribe(
                        subscription.content,
                        publishers=subscription.publishers,
                        policy=subscription.policy,
                        durable=subscription.durable,
                        id=subscription.id,
                        token=subscription.token,
                    )
            if not original.is_connected:
                client.disconnect()
        fresh.settle()
        return fresh


def _healing(topology: Topology) -> list[Step]:
    """Return steps that repair every link and broker."""
    healed = [Heal(0, one, other) for one, other, _ in topology.edges]
    restarted = [step for name in topology.brokers for step in (Restart(0, name), Resume(0, name))]
    return [*healed, *restarted, Settles()]


def _probes(all_clients: Iterable[SimulatedClient]) -> list[Step]:
    """Return steps in which every connected client advertises and publishes one event."""
    clients = [client for client in all_clients if client.is_connected]
    names = sorted({name for client in clients for name in client.context})
    steps: list[Step] = [Advertises(client.name, f"{client.name}.{_PROBE}", "", tuple(names)) for client in clients]
    steps.append(Settles())
    for number, client in enumerate(clients):
        steps += [Publishes(client.name, {"a": number % 4, "b": number % 3}), Settles()]
    return steps


def _differences(
    brokers: Mapping[str, SimulatedBroker], fresh_brokers: Mapping[str, SimulatedBroker]
) -> list[Violation]:
    return [
        Violation("tables", f"{name}: {difference}")
        for name, broker in brokers.items()
        for difference in RoutingState.of(broker.engine).differences(RoutingState.of(fresh_brokers[name].engine))
    ]
