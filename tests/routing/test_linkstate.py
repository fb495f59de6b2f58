"""Link state: numbered news about links, told on once, from which all brokers come to the same network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay
from tests.sizes import examples
from tidings import InvalidValueError
from tidings.engine.operations import Join, Leave, Receive, TellLinks
from tidings.model.limits import MAX_BROKERS, MAX_LINK_COST, MAX_LINKS
from tidings.routing.linkstate import LinkState, LinkStates


def links(states: LinkStates) -> dict[tuple[str, str], int]:
    return states.topology()[0].links


def digest(states: LinkStates) -> str:
    return states.topology()[1]


def test_a_link_counts_when_both_ends_say_that_it_is_up() -> None:
    one, other = LinkStates("a"), LinkStates("b")
    said = one.join("b", 1, now=10)
    assert links(one) == {}
    assert other.take([said], now=11) == [said]
    assert links(other) == {}
    answer = other.join("a", 1, now=12)
    one.take([answer], now=13)
    assert links(one) == links(other) == {("a", "b"): 1}
    assert digest(one) == digest(other)
    other.take([one.leave("b", now=14)], now=15)
    assert links(one) == links(other) == {}


@pytest.mark.parametrize(("here", "there"), [(2, 5), (5, 2), (5, 5)])
def test_the_larger_cost_that_its_ends_name_counts(here: int, there: int) -> None:
    one = LinkStates("a")
    one.join("b", here, now=1)
    one.take([LinkState("b", 1, {"a": there})], now=2)
    assert links(one) == {("a", "b"): 5}


def test_only_higher_numbers_are_news() -> None:
    states = LinkStates("a")
    fifth = LinkState("b", 5, {"c": 1})
    assert states.take([fifth], now=1) == [fifth]
    assert states.take([fifth], now=2) == []
    assert states.take([LinkState("b", 5, {"d": 1}), LinkState("b", 4, {})], now=3) == []
    assert states.all()[1] == fifth
    sixth = LinkState("b", 6, {})
    assert states.take([LinkState("b", 4, {}), sixth], now=4) == [sixth]


def test_numbers_rise_though_the_clock_does_not() -> None:
    states = LinkStates("a")
    numbers = [states.join(name, 1, now=7).number for name in ("b", "c", "d")] + [states.leave("c", now=3).number]
    assert numbers == [7, 8, 9, 10]
    assert states.own.links == {"b": 1, "d": 1}


def test_what_a_broker_said_before_its_restart_is_outdone() -> None:
    states = LinkStates("a")
    states.join("b", 1, now=50)
    before = LinkState("a", 90, {"c": 1})  # by a clock that was ahead
    (news,) = states.take([before], now=60)
    assert news == states.own == LinkState("a", 91, {"b": 1})
    assert states.take([before], now=61) == []


@pytest.mark.parametrize("cost", [0, -1, MAX_LINK_COST + 1])
def test_a_cost_outside_its_bounds_is_refused_and_changes_nothing(cost: int) -> None:
    states = LinkStates("a")
    with pytest.raises(InvalidValueError, match="MAX_LINK_COST"):
        states.join("b", cost, now=1)
    assert states.own == LinkState("a", 0, {})


def test_a_broker_has_at_most_so_many_links() -> None:
    states = LinkStates("a")
    for number in range(MAX_LINKS):
        states.join(f"b{number}", 1, now=number)
    with pytest.raises(InvalidValueError, match="MAX_LINKS"):
        states.join("one more", 1, now=0)
    assert states.join("b0", 2, now=0).links["b0"] == 2  # another cost is no other link


def test_a_broker_knows_at_most_so_many_others() -> None:
    states = LinkStates("a")
    many = [LinkState(f"b{number}", 1, {}) for number in range(MAX_BROKERS)]
    assert len(states.take(many, now=1)) == MAX_BROKERS - 1
    again = LinkState("b0", 2, {})
    assert states.take([again, LinkState("new", 1, {})], now=2) == [again]


def test_the_digest_tells_a_broker_that_was_gone_for_a_moment() -> None:
    states = LinkStates("a")
    states.join("b", 1, now=1)
    states.take([LinkState("b", 1, {"a": 1})], now=2)
    before = states.topology()
    states.take([LinkState("b", 2, {"a": 1})], now=3)
    assert states.topology()[0] is before[0]
    assert states.topology()[1] != before[1]


def test_the_digest_is_of_what_can_be_reached() -> None:
    states = LinkStates("a")
    states.join("b", 1, now=1)
    states.take([LinkState("b", 1, {"a": 1})], now=2)
    before = digest(states)
    states.take([LinkState("c", 1, {"d": 1}), LinkState("d", 1, {"c": 1})], now=3)
    assert digest(states) == before


_said = st.fixed_dictionaries(
    {(broker, number): st.sets(st.sampled_from("abcd")) for broker in "abcd" for number in (1, 2, 3)}
)


@examples(200, 5000)
@given(_said, st.data())
def test_in_whichever_order_news_comes_all_know_the_same(
    said: dict[tuple[str, int], set[str]], data: st.DataObject
) -> None:
    told = [
        LinkState(broker, number, dict.fromkeys(sorted(near - {broker}), number))
        for (broker, number), near in sorted(said.items())
    ]
    first, second = LinkStates("e"), LinkStates("e")
    for one in told:
        first.take([one], now=1)
    second.take(data.draw(st.permutations(told)), now=1)
    assert first.all() == second.all() == (*(one for one in told if one.number == 3), LinkState("e", 0, {}))
    assert digest(first) == digest(second)


# Between brokers


def test_news_goes_once_over_every_link_of_a_line() -> None:
    overlay = Overlay(LINE, brokers=("b0",))
    overlay.now += 1_000_000  # what is told soon after other news waits for more
    overlay.step("b1", Join("b0"))
    overlay.run()
    assert overlay.passed.keys() == {("b1", "b0"), *LINE}
    for link in LINE:
        assert [[one.broker for one in made.states] for made in overlay.on(*link, TellLinks)] == [["b1"]]


def test_news_floods_a_ring_and_stops() -> None:
    ring = (*LINE, ("b4", "b1"))
    overlay = Overlay(ring, brokers=("b0",))
    overlay.now += 1_000_000  # what is told soon after other news waits for more
    overlay.step("b1", Join("b0"))
    overlay.run()
    told = sum(len(overlay.on(*link, TellLinks)) for link in overlay.passed if "b0" not in link)
    assert told == len(ring) + 1  # once over each link, and twice where it meets itself
    digests = {digest(overlay.engines[name].convergence.states) for name in ("b1", "b2", "b3", "b4")}
    assert len(digests) == 1


def test_what_is_known_is_not_told_on() -> None:
    overlay = Overlay(LINE)
    known = overlay.engines["b2"].convergence.states.all()
    assert overlay.do("b2", Receive("b1", TellLinks(known))) == []
    assert overlay.passed == {}


def test_a_broker_that_comes_is_told_everything_and_one_that_goes_is_not_seen_any_more() -> None:
    overlay = Overlay(LINE, brokers=("b5",))
    overlay.join("b4", "b5")
    for engine in overlay.engines.values():
        assert engine.topology.brokers == {"b1", "b2", "b3", "b4", "b5"}
    overlay.leave("b2", "b3")
    seen = {name: engine.topology.brokers for name, engine in overlay.engines.items()}
    near, far = {"b1", "b2"}, {"b3", "b4", "b5"}
    assert seen == {**dict.fromkeys(near, near), **dict.fromkeys(far, far)}


def test_one_end_that_finds_a_link_gone_is_enough() -> None:
    overlay = Overlay(LINE)
    overlay.step("b2", Leave("b3"))
    overlay.settle()
    assert overlay.engines["b1"].topology.brokers == {"b1", "b2"}
    assert overlay.engines["b2"].topology.brokers == {"b1", "b2"}
