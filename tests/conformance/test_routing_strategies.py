"""Every routing strategy has what docs/contributing/specifications.md asks of one.

`test_conformance.py` compares overlays under every strategy with the reference. The tests here ask the strategies
themselves, without engines: subscriptions spread and events travel by their answers alone.
"""

from collections import deque
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.conformance.test_conformance import DRIVERS, LIVE, TOPOLOGIES
from tidings.broker.config import BrokerConfiguration
from tidings.filters import ContextFilter, Filter
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.filter import ContextFilterValue
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing import STRATEGIES, strategy
from tidings.routing.advertisement_table import AdvertisementTable
from tidings.routing.context_table import ContextTable
from tidings.routing.strategy import Strategy
from tidings.routing.topology import BrokerGraph, link
from tidings.simulation import Topology

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "explanation/overlays.md",
    "reference/broker-configuration.md",
    "reference/command-line.md",
    "reference/scenario-file.md",
)
CLIENT = "client"
every_strategy = pytest.mark.parametrize("name", STRATEGIES)
every_topology = pytest.mark.parametrize("shape", TOPOLOGIES)


class Placed:
    """A subscription in a routing table."""

    def __init__(self, value: Subscription, hop: str, origin: str, bound: ContextFilterValue | None) -> None:
        self.value, self.hop, self.origin, self.bound_publishers = value, hop, origin, bound


class View:
    """What a broker knows when a publisher at each other broker has advertised and announced its context."""

    def __init__(self, name: str, graph: BrokerGraph) -> None:
        self.name, self.topology = name, graph
        self.offers, self.announced = AdvertisementTable(), ContextTable()
        for broker in sorted(graph.brokers - {name}):
            self.announced.add(broker, [Context.of({"x": 1})])
            toward = graph.shared.path(broker), graph.shared.path(name)
            self.offers.put(_next_on_tree(*toward), _advertisement(broker))


def _next_on_tree(to_target: list[str], to_here: list[str]) -> str:
    """Return the neighbour in a tree that leads from one broker to another, from the root's paths to both."""
    depth = len(to_here) - 1
    return to_target[depth + 1] if to_target[: depth + 1] == to_here else to_here[depth - 1]


def _advertisement(broker: str) -> Advertisement:
    return Advertisement.of(Filter.parse(""), id=f"{broker}.ad", publisher=f"at-{broker}", publisher_context=["x"])


def _subscription() -> Subscription:
    return Subscription.of(Filter.parse("a > 0"), id="s", subscriber=CLIENT, publishers=ContextFilter.parse("x = 1"))


def views_of(topology: Topology) -> dict[str, View]:
    links = {link(one, other): cost for one, other, cost in topology.edges}
    return {name: View(name, BrokerGraph.of(links, name)) for name in topology.brokers}


def spread(routing: Strategy, views: dict[str, View], topology: Topology, origin: str) -> dict[str, Placed]:
    """Forward a subscription of a client at `origin` until no broker forwards it; return it by broker."""
    subscription = _subscription()
    tables: dict[str, Placed] = {}
    waiting = deque([(origin, CLIENT)])
    while waiting:
        broker, hop = waiting.popleft()
        placed = Placed(subscription, hop, origin, subscription.publishers)
        targets = routing.subscription_targets(views[broker], placed)
        assert dict(targets) == dict(routing.subscription_targets(views[broker], placed)), "asked twice"
        assert set(targets) <= set(topology.neighbours(broker)) - {hop}
        assert set(targets.values()) <= {True, False}
        if broker in tables:
            continue  # it came over a second path; a broker keeps the first
        tables[broker] = placed
        waiting.extend((neighbour, broker) for neighbour in targets)
    return tables


@every_topology
@every_strategy
def test_subscriptions_reach_every_publisher_and_events_come_back(name: str, shape: str) -> None:
    routing, topology = strategy(name), TOPOLOGIES[shape]
    views = views_of(topology)
    for origin in topology.brokers:
        tables = spread(routing, views, topology, origin)
        assert set(tables) == set(topology.brokers), "a publisher with the context that is asked for is at each"
        for source in topology.brokers:
            broker, path = source, [source]
            while broker != origin:
                graph = views[broker].topology
                hop = routing.next_hop(views[broker], tables[broker], graph, source)
                assert hop in topology.neighbours(broker)
                assert hop not in path, "an event visits no broker twice"
                broker = hop
                path.append(broker)


@every_strategy
def test_a_strategy_has_a_name_a_docstring_and_no_state(name: str) -> None:
    routing = strategy(name)
    assert type(routing).name == name
    assert name.isidentifier()
    assert name == name.lower()
    assert f"`{name}`" in (type(routing).__doc__ or "")
    assert vars(routing) == {}, "the answers of a strategy depend on its arguments alone"
    assert type(routing).__module__.startswith("tidings.routing.")


@every_strategy
def test_what_a_strategy_declares_fits_together(name: str) -> None:
    routing = strategy(name)
    assert routing.phases >= 1
    for flag in ("covers", "binds", "announces", "by_source", "prunes_context"):
        assert isinstance(getattr(routing, flag), bool)
    assert routing.binds or not routing.announces, "announced contexts are compared with filters that are bound"
    own_next_hop = type(routing).next_hop is not Strategy.next_hop
    assert own_next_hop is routing.by_source, "without trees of sources, events go back where the subscription came"


@every_strategy
def test_a_strategy_is_documented_configurable_and_compared_with_the_reference(name: str) -> None:
    assert [page for page in PAGES if f"`{name}`" not in (DOCS / page).read_text()] == []
    configuration = BrokerConfiguration.from_values(
        {"broker": {"name": "b", "listen": "127.0.0.1:0", "strategy": name}}
    )
    assert configuration.broker.strategy == name
    assert all(name in run(*words, "--help").stdout for words in (("simulate",), ("overlay", "run")))
    assert {f"{name}-{shape}" for shape in TOPOLOGIES} <= DRIVERS.keys()
    assert name in {routed for routed, _ in LIVE}


def test_an_unknown_strategy_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(InvalidValueError) as caught:
        strategy("fastest")
    assert str(caught.value) == f"strategy: 'fastest' is none of {', '.join(STRATEGIES)}"
