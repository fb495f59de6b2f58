"""Topologies: who is linked to whom."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings import InvalidValueError
from tidings.simulation.topologies import Topology, line, random_graph, ring, star, tree


def links(topology: Topology) -> list[str]:
    return [f"{one}-{other}" for one, other, _ in topology.edges]


def test_the_plain_ones() -> None:
    assert links(line(4)) == ["b1-b2", "b2-b3", "b3-b4"]
    assert links(star(4)) == ["b1-b2", "b1-b3", "b1-b4"]
    assert links(ring(4)) == ["b1-b2", "b2-b3", "b3-b4", "b4-b1"]
    assert links(ring(2)) == ["b1-b2"]
    assert links(tree(7)) == ["b1-b2", "b1-b3", "b2-b4", "b2-b5", "b3-b6", "b3-b7"]
    assert links(tree(4, branches=3)) == ["b1-b2", "b1-b3", "b1-b4"]
    assert line(1).brokers == ("b1",)


def test_a_list_of_links_with_costs() -> None:
    made = Topology.of([("x", "y", 3), ("y", "z")], brokers=["alone"])
    assert made.brokers == ("x", "y", "z", "alone")
    assert [edge.cost for edge in made.edges] == [3, 1]
    assert made.neighbours("y") == ["x", "z"]


@pytest.mark.parametrize(
    ("given_links", "said"),
    [
        ([("x", "x")], "linked to itself"),
        ([("x", "y"), ("y", "x")], "linked once"),
        ([("x", "y", 0)], "costs 0"),
        ([], "at least one broker"),
    ],
)
def test_what_is_no_topology(given_links: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        Topology.of(given_links)


@examples(100, 1000)
@given(st.integers(1, 40), st.integers(2, 8), st.integers(0, 1000))
def test_a_random_graph_is_connected_and_keeps_to_its_degree(brokers: int, degree: int, seed: int) -> None:
    made = random_graph(brokers, degree, seed)
    assert made == random_graph(brokers, degree, seed)
    seen, found = {"b1"}, ["b1"]
    while found:
        more = set(made.neighbours(found.pop())) - seen
        seen |= more
        found += more
    assert seen == set(made.brokers)
    degrees = Counter(name for one, other, _ in made.edges for name in (one, other))
    assert max(degrees.values(), default=0) <= degree


def test_nearly_all_brokers_have_the_degree() -> None:
    degrees = Counter(name for one, other, _ in random_graph(20, 6, 1).edges for name in (one, other))
    assert sum(count == 6 for count in degrees.values()) >= 18


def test_another_seed_gives_another_graph() -> None:
    assert random_graph(20, 6, 1) != random_graph(20, 6, 2)
