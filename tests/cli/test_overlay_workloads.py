"""What overlays are measured on has the properties that it claims."""

from itertools import pairwise

import pytest
from benchmarks.overlay import forwarding, resubscribing
from benchmarks.workloads import moving_workload, network_workload
from benchmarks.workloads.network_workload import STRATEGIES, Interests, NetworkSize

from tidings.filters import ContextFilter, Filter
from tidings.simulation.rng import seeded_random
from tidings.simulation.topologies import line, random_graph, star

SMALL = NetworkSize(brokers=5, degree=3, clients=10, subscriptions=4)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_a_context_filter_selects_its_share_of_the_contexts(share: float) -> None:
    chance = seeded_random(1, "filters")
    contexts = [{"x": (number + 0.5) / 100} for number in range(100)]
    filters = [ContextFilter.parse(network_workload.selecting(share, chance)) for _ in range(100)]
    selected = sum(one.matches(context) for one in filters for context in contexts)
    assert selected / 10_000 == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_content_selects_its_share_of_the_events_of_a_class_and_no_two_filters_are_the_same(share: float) -> None:
    chance = seeded_random(1, "contents")
    texts = [network_workload.content(0, share, chance) for _ in range(300)]
    events = network_workload.publications(NetworkSize(subscriptions=1), 100, None, seed=1)
    filters = [Filter.parse(text) for text in texts]
    selected = sum(one.matches(event.attributes) for one in filters for event in events)
    assert selected / 30_000 == pytest.approx(share, rel=0.1)
    assert len(set(texts)) == 300


def test_every_broker_has_as_many_clients_and_locality_brings_similar_contexts_together() -> None:
    for is_local in (False, True):
        world = network_workload.worlds(SMALL, Interests(0.1, 0.5, is_local))["spcf"]
        places = {float(str(one.context["x"])): one.broker for one in world.clients.values()}
        ordered = [places[x] for x in sorted(places)]
        assert sorted(ordered) == sorted([*world.brokers] * 2)
        assert all(len(one.subscriptions()) == 4 for one in world.clients.values())
        neighbours = sum(one == other for one, other in zip(ordered[::2], ordered[1::2], strict=True))
        assert (neighbours == SMALL.brokers) is is_local


@pytest.mark.parametrize("is_varied", [False, True])
def test_a_clients_subscriptions_share_their_context_filter_unless_they_are_varied(is_varied: bool) -> None:
    world = network_workload.worlds(SMALL, Interests(0.1, 0.5, is_varied=is_varied))["gsf"]
    for client in world.clients.values():
        assert len({str(one.publishers) for one in client.subscriptions()}) == (4 if is_varied else 1)


def test_a_walk_passes_all_brokers_mostly_along_links() -> None:
    assert network_workload.walk(line(4)) == ["b1", "b2", "b3", "b4"]
    graph = random_graph(20, 6, 1)
    walk = network_workload.walk(graph)
    assert sorted(walk) == sorted(graph.brokers)
    assert sum(two in graph.neighbours(one) for one, two in pairwise(walk)) >= 15


def test_all_strategies_tell_the_same_and_every_event_is_told_once() -> None:
    worlds = network_workload.worlds(SMALL, Interests(0.5, 0.5))
    given = network_workload.publications(SMALL, 30, 0.8, seed=3)
    told = {}
    for strategy, world in worlds.items():
        network_workload.publish(world, given)
        told[strategy] = network_workload.take_notifications(world)
        assert not network_workload.take_notifications(world)
    assert set(told) == set(STRATEGIES)
    assert told["spcf"] == told["gsf"] == told["asf"]
    assert set(told["spcf"].values()) == {1}


def test_strategies_that_tell_different_things_are_found_out() -> None:
    worlds = network_workload.worlds(SMALL, Interests(0.5))
    worlds["asf"].clients["c0"].unsubscribe("c0.1")
    worlds["asf"].settle()
    with pytest.raises(RuntimeError, match="different events"):
        forwarding.measure_forwarding(worlds, SMALL, None, 50, 1)


def test_what_the_scenarios_keep_is_kept() -> None:
    kept = {
        (scenario, percent): forwarding.Case(False, scenario, percent).interests(forwarding.Side.SUBSCRIPTIONS)
        for scenario in forwarding.ForwardingScenario
        for percent in (1, 10, 20, 80)
    }
    for (scenario, percent), interests in kept.items():
        assert interests.publishers == percent / 100
        if scenario is forwarding.ForwardingScenario.CONTENT:
            assert interests.content == 0.1
        else:
            assert interests.content * percent / 100 == pytest.approx(min(0.1, percent / 100))


def test_those_who_set_their_context_are_told_what_those_are_who_subscribe_anew() -> None:
    size = resubscribing.OverlaySize(brokers=3, subscribers=20, subscriptions=10)
    places = moving_workload.moves(60, size.clients, 5).to_pylist()
    told = []
    for network in (resubscribing.ContextNetwork(star(3), size), resubscribing.ResubscribingNetwork(star(3), size)):
        before = resubscribing.publish_everywhere(network, 1)
        network.move(places)
        told.append((before, resubscribing.publish_everywhere(network, 1)))
    assert told[0] == told[1]
    assert any(told[0])
    assert told[0][0] != told[0][1]
