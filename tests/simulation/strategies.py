"""Worlds and steps for property tests: few names, filters and values, so that they meet."""

from hypothesis import strategies as st

from tidings.routing import STRATEGIES
from tidings.simulation.checking.history import History
from tidings.simulation.checking.random_histories import (
    CONTENTS,
    DURABLE,
    NETWORKS,
    OFFERS,
    POLICIES,
    PUBLISHERS,
    SUBSCRIBERS,
    outage,
    places,
)
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
    Waits,
)
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Restart, Slow
from tidings.simulation.topologies import Edge, Topology, line, random_graph, ring, star, tree

_numbers = st.integers(0, 3)
_contexts = st.fixed_dictionaries({}, optional={"x": _numbers})
_attributes = st.fixed_dictionaries({"a": _numbers}, optional={"b": _numbers})


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    brokers = draw(st.integers(2, 7))
    shape = draw(st.sampled_from([line, star, ring, tree, lambda count: random_graph(count, 3, draw(_numbers))]))
    made = shape(brokers)
    costs = draw(st.lists(st.integers(1, 3), min_size=len(made.edges), max_size=len(made.edges)))
    return Topology(
        made.brokers, tuple(Edge(edge.one, edge.other, cost) for edge, cost in zip(made.edges, costs, strict=True))
    )


@st.composite
def subscribes(draw: st.DrawFn, client: str) -> Step:
    number = draw(st.integers(0, DURABLE))
    return Subscribes(
        client,
        f"{client}.{number}",
        draw(st.sampled_from(CONTENTS)),
        draw(st.sampled_from(PUBLISHERS)),
        draw(st.sampled_from(POLICIES)),
        f"d{number}" if number == DURABLE else None,
    )


def advertises(client: str) -> st.SearchStrategy[Step]:
    ids = st.integers(0, 1).map(lambda number: f"{client}.a{number}")
    choices = ("", *CONTENTS), (None, *OFFERS), OFFERS
    return st.builds(Advertises, st.just(client), ids, *map(st.sampled_from, choices))


def publishes(client: str) -> st.SearchStrategy[Step]:
    return st.builds(Publishes, st.just(client), _attributes, st.sampled_from(SUBSCRIBERS))


def of_client(client: str, topology: Topology) -> st.SearchStrategy[Step]:
    me = st.just(client)
    return st.one_of(
        publishes(client),
        publishes(client),
        subscribes(client),
        st.builds(SetsContext, me, _contexts),
        st.builds(Unsubscribes, me, st.integers(0, DURABLE).map(lambda number: f"{client}.{number}")),
        advertises(client),
        st.builds(Unadvertises, me, st.just(f"{client}.a0")),
        st.builds(Leaves, me),
        st.builds(Returns, me),
        st.builds(Moves, me, st.sampled_from(topology.brokers)),
    )


def of_network(topology: Topology) -> st.SearchStrategy[Step]:
    now, brokers = st.just(0.0), st.sampled_from(topology.brokers)
    links = st.sampled_from(topology.edges)
    return st.one_of(
        st.builds(lambda link, one_way: Cut(0, link.one, link.other, one_way), links, st.booleans()),
        links.map(lambda link: Heal(0, link.one, link.other)),
        links.map(lambda link: Slow(0, link.one, link.other, 20.0)),
        links.map(lambda link: Lossy(0, link.one, link.other, 0.3, 0.1, 0.1)),
        st.builds(Crash, now, brokers),
        st.builds(Restart, now, brokers),
    )


_pauses = st.one_of(st.builds(Waits, st.sampled_from([0.0005, 0.002, 0.01, 0.7])), st.just(Settles()))


@st.composite
def histories(draw: st.DrawFn) -> History:
    topology = draw(topologies())
    names = [f"c{number}" for number in range(1, draw(st.integers(2, 6)) + 1)]
    homes = {name: draw(st.sampled_from(topology.brokers)) for name in names}
    of_anyone = st.sampled_from(names).flatmap(lambda name: of_client(name, topology))
    before = [draw(one) for name in names for one in (subscribes(name), advertises(name))]
    step = st.one_of(of_anyone, of_anyone, of_anyone, _pauses, of_network(topology))
    steps = [*before, Settles(), *draw(st.lists(step, max_size=30))]
    if draw(st.booleans()):
        steps += outage(draw(st.randoms()), topology, places(homes, steps))
        steps += draw(st.lists(step, max_size=10))
    return History(
        topology=topology,
        homes=homes,
        steps=tuple(steps),
        strategy=draw(st.sampled_from(sorted(STRATEGIES))),
        network=draw(st.sampled_from(NETWORKS)),
    )
