"""Shortest-path trees by cost, then hops, then the smallest name: as a naive search finds them."""

from itertools import combinations, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.routing.topology import BrokerGraph, link, links_of

_NAMES = [f"b{number}" for number in range(9)]


@st.composite
def _networks(draw: st.DrawFn) -> dict[tuple[str, str], int]:
    names = _NAMES[: draw(st.integers(1, 9))]
    pairs = draw(st.lists(st.sampled_from(list(combinations(names, 2)) or [("b0", "b1")]), max_size=16))
    return {link(*pair): draw(st.integers(1, 3)) for pair in pairs}


def reached_from(links: dict[tuple[str, str], int], start: str) -> set[str]:
    found = {start}
    for _ in links:
        found |= {end for ends in links if found & set(ends) for end in ends}
    return found


def naive_parents(links: dict[tuple[str, str], int], root: str) -> dict[str, str]:
    """Bellman and Ford: distances (cost, hops) until nothing changes; then the smallest name among the nearest ways."""
    ways = [(one, other, cost) for ends, cost in links.items() for one, other in (ends, ends[::-1])]
    distances = {root: (0, 0)}
    for _ in range(len(links) + 1):
        for one, other, cost in ways:
            if one in distances:
                before = distances[one]
                there = before[0] + cost, before[1] + 1
                distances[other] = min(distances.get(other, there), there)
    return {
        name: min(
            one
            for one, other, cost in ways
            if other == name and one in distances and (distances[one][0] + cost, distances[one][1] + 1) == known
        )
        for name, known in distances.items()
        if name != root
    }


@examples(200, 5000)
@given(_networks())
def test_trees_are_those_of_a_naive_search(links: dict[tuple[str, str], int]) -> None:
    for around in {"b0", *(end for ends in links for end in ends)}:
        topology = BrokerGraph.of(links, around)
        assert topology.brokers == reached_from(links, around)
        for root in topology.brokers:
            assert topology.tree(root).parents == naive_parents(links, root)
        assert topology.shared is topology.tree(min(topology.brokers))


@examples(100, 2000)
@given(_networks())
def test_all_brokers_of_a_component_have_the_same_topology(links: dict[tuple[str, str], int]) -> None:
    for ends in links:
        assert BrokerGraph.of(links, ends[0]) is BrokerGraph.of(dict(reversed(links.items())), ends[1])


@examples(100, 2000)
@given(_networks())
def test_paths_and_what_is_below_follow_from_parents(links: dict[tuple[str, str], int]) -> None:
    topology = BrokerGraph.of(links, "b0")
    for root in topology.brokers:
        tree = topology.tree(root)
        assert tree.parent(root) is None
        for target in topology.brokers:
            path = tree.path(target)
            assert (path[0], path[-1]) == (root, target)
            assert all(tree.parent(other) == one for one, other in pairwise(path))
            assert all(link(one, other) in links for one, other in pairwise(path))
            onward: dict[str, Any] = dict(pairwise(path))
            for broker in topology.brokers:
                assert tree.below(broker, target) == onward.get(broker)
        for broker in topology.brokers:
            assert set(tree.children(broker)) == {one for one in topology.brokers if tree.parent(one) == broker}
            beside = set(tree.neighbours(broker))
            assert beside == {*tree.children(broker), tree.parent(broker)} - {None}


def test_the_cheaper_way_wins_though_it_has_more_hops() -> None:
    links = links_of([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d", 4)])
    assert BrokerGraph.of(links, "a").tree("a").path("d") == ["a", "b", "c", "d"]


def test_of_ways_of_the_same_cost_the_one_with_fewer_hops_wins() -> None:
    links = links_of([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d", 3)])
    assert BrokerGraph.of(links, "a").tree("a").path("d") == ["a", "d"]


def test_of_ways_of_the_same_cost_and_length_the_smaller_name_wins() -> None:
    links = links_of([("a", "c"), ("a", "b"), ("c", "d"), ("b", "d")])
    assert BrokerGraph.of(links, "a").tree("a").path("d") == ["a", "b", "d"]
    assert BrokerGraph.of(links, "a").tree("d").path("a") == ["d", "b", "a"]


def test_a_broker_sees_its_own_component_only() -> None:
    links = links_of([("a", "b"), ("c", "d")])
    assert BrokerGraph.of(links, "a").brokers == {"a", "b"}
    assert list(BrokerGraph.of(links, "d").links) == [("c", "d")]
    assert BrokerGraph.of(links, "e").brokers == {"e"}
    assert BrokerGraph.of(links, "e").shared.neighbours("e") == ()
