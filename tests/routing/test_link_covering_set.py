"""What a link carries follows from the subscriptions behind it, and nothing that they ask for is lost."""

from collections.abc import Callable, Iterable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.sizes import examples
from tests.strategies import conditions
from tidings import ContextFilter, Filter
from tidings.matching.covering import covers
from tidings.matching.reference import due
from tidings.model import filter as values
from tidings.model.event import Event
from tidings.model.expression import Attribute, Comparison, Constant, Or, all_of
from tidings.model.identity import uuid7
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.covering_classes import CoveringClass, CoveringClasses
from tidings.routing.link_covering_set import LinkCoveringSet, LinkUpdate

Candidate = tuple[Subscription, bool]

SCHEMA = Schema("news", {"a": int, "b": int})
numbers = st.builds(Constant, st.integers(0, 3))
comparisons = st.builds(
    Comparison,
    st.builds(Attribute, st.sampled_from("ab")),
    st.sampled_from(["=", "<", ">", "<=", ">="]),
    numbers,
)
simple = st.one_of(comparisons, st.lists(comparisons, min_size=2, max_size=3).map(all_of))
contents = st.one_of(comparisons, simple, st.builds(lambda one, two: Or((one, two)), simple, simple), conditions())
ids = st.sampled_from([f"s{number}" for number in range(8)])
PUBLISHERS = [None, ContextFilter.parse("a > 1"), ContextFilter.parse("a > this.a")]


# Most are alike in all but content, so that one often stands for another; some differ in everything.
ordinary = st.builds(
    lambda name, content: (Subscription(id=name, subscriber="ann", content=values.FilterValue(content)), False),
    ids,
    st.one_of(comparisons, simple),
)
special = st.tuples(
    st.builds(
        Subscription,
        id=ids,
        subscriber=st.sampled_from(["ann", "bob"]),
        subject=st.sampled_from([None, None, "news", "sports"]),
        structure=st.sampled_from([None, None, AttributeFilter(SCHEMA, ["a"])]),
        content=st.builds(values.FilterValue, contents),
        publishers=st.sampled_from(PUBLISHERS),
        policy=st.sampled_from([None, None, None, "on publish: drop"]),
        durable=st.sampled_from([None, "kept"]),
    ),
    st.booleans(),
)
candidates = st.one_of(ordinary, ordinary, special)


steps = st.lists(st.one_of(candidates, candidates, ids), min_size=8, max_size=24)
events = st.builds(
    lambda content, subject, context, subscribers: Event.of(
        content,
        id=uuid7(0, bytes(10)),
        publisher="p",
        timestamp=0,
        subject=subject,
        context=context,
        subscribers=subscribers,
    ),
    st.dictionaries(st.sampled_from("ab"), st.integers(-1, 4)),
    st.sampled_from([None, "news", "sports"]),
    st.dictionaries(st.just("a"), st.integers(0, 3)),
    st.sampled_from([None, None, ContextFilter.parse("a > 1"), ContextFilter.parse("a = this.a")]),
)


# The definition, word by word


def personal(one: Candidate) -> str | None:
    subscription, scoped = one
    publishers = subscription.publishers
    return subscription.subscriber if scoped or (publishers is not None and publishers.own_names) else None


def stands(one: Candidate, other: Candidate) -> bool:
    t, s = one[0], other[0]
    return (
        t.policy is None
        and s.policy is None
        and t.subject in (None, s.subject)
        and t.structure in (None, s.structure)
        and t.publishers == s.publishers
        and personal(one) == personal(other)
        and covers(t.content, s.content)
    )


def replaces(one: Candidate, other: Candidate) -> bool:
    return stands(one, other) and not (stands(other, one) and other[0].id < one[0].id)


def maximal(known: Iterable[Candidate]) -> dict[str, Subscription]:
    given = list(known)
    return {s[0].id: s[0] for s in given if not any(replaces(t, s) for t in given if t[0].id != s[0].id)}


def applied(covering_set: LinkCoveringSet, known: dict[str, Candidate], step: Candidate | str) -> LinkUpdate:
    if isinstance(step, str):
        known.pop(step, None)
        return covering_set.remove(step)
    known[step[0].id] = step
    return covering_set.put(*step)


def follow(
    covering_set: LinkCoveringSet, history: Iterable[Candidate | str], check: Callable[[dict[str, Candidate]], None]
) -> None:
    """Applies the steps; what is told says how the link changed."""
    known: dict[str, Candidate] = {}
    link: dict[str, Subscription] = {}
    for step in history:
        change = applied(covering_set, known, step)
        assert all(link.get(one.id) != one for one in change.sent)
        link.update({one.id: one for one in change.sent})
        assert not {one.id for one in change.sent} & set(change.withdrawn)
        for name in change.withdrawn:
            del link[name]
        assert covering_set.sent == link
        check(known)


@given(steps)
@examples(32, 700)
def test_the_maximal_ones_are_sent_whatever_came_and_went(history: list[Candidate | str]) -> None:
    covering_set = LinkCoveringSet()

    def check(known: dict[str, Candidate]) -> None:
        assert covering_set.sent == maximal(known.values())
        for name, one in covering_set.sent.items():
            expected = {other for other in known if other == name or stands(known[name], known[other])}
            assert covering_set.covered_by_sent(name) == expected, one
        assert not set().union(*map(covering_set.covered_by_sent, known.keys() - covering_set.sent.keys()))

    follow(covering_set, history, check)


@given(st.lists(steps, min_size=2, max_size=3))
@examples(30, 500)
def test_links_that_share_their_kinds_are_as_if_they_did_not(histories: list[list[Candidate | str]]) -> None:
    classes = CoveringClasses()
    fronts = [LinkCoveringSet(classes=classes) for _ in histories]
    known: list[dict[str, Candidate]] = [{} for _ in histories]
    for place in range(max(map(len, histories))):
        for covering_set, mine, history in zip(fronts, known, histories, strict=True):
            for step in history[place : place + 1]:
                applied(covering_set, mine, step)
                assert covering_set.sent == maximal(mine.values())
    for covering_set in fronts:
        covering_set.clear()
        assert covering_set.sent == {}
    assert len(classes) == 0


@pytest.mark.parametrize("merging", [False, True])
@given(steps, st.lists(events, min_size=1, max_size=8), st.integers(0, 3))
@examples(21, 600)
def test_whatever_concerns_a_candidate_concerns_one_that_is_sent(
    merging: bool, history: list[Candidate | str], published: list[Event], position: int
) -> None:
    covering_set = LinkCoveringSet(merging=merging, owner="b1")
    contexts = {"ann": Context({"a": position}), "bob": Context({"a": 1}), "b1": Context()}

    def goes_on(event: Event, two: Subscription, known: dict[str, Candidate]) -> bool:
        """Whom an event is for is asked upstream only of subscriptions that are judged by their subscriber."""
        scoped = two.id in known and known[two.id][1]
        asked = event if scoped else replace(event, subscribers=None)
        return due(two, asked, contexts[two.subscriber])

    def check(known: dict[str, Candidate]) -> None:
        for one, _ in known.values():
            standing = [two for name, two in covering_set.sent.items() if one.id in covering_set.covered_by_sent(name)]
            assert standing
            for event in published:
                if due(one, event, contexts[one.subscriber]):
                    assert all(goes_on(event, two, known) for two in standing)

    follow(covering_set, history, check)


@given(st.lists(candidates, max_size=10, unique_by=lambda one: one[0].id), st.randoms(use_true_random=False))
@examples(60, 2_000)
def test_merging_depends_on_the_set_alone(given: list[Candidate], chance: Random) -> None:
    first, second = LinkCoveringSet(merging=True, owner="b1"), LinkCoveringSet(merging=True, owner="b1")
    for one in given:
        first.put(*one)
    others = [(Subscription(id=f"x{number}", subscriber="x", content=Filter.parse("a > 1"))) for number in range(3)]
    for one in chance.sample(given, len(given)):
        second.put(*one)
        second.put(chance.choice(others))
    for other in others:
        second.remove(other.id)
    assert second.sent == first.sent


@given(steps, st.lists(events, min_size=1, max_size=8))
@examples(45, 1_500)
def test_merged_ones_let_nothing_more_through(history: list[Candidate | str], published: list[Event]) -> None:
    covering_set = LinkCoveringSet(merging=True, owner="b1")

    def check(known: dict[str, Candidate]) -> None:
        for name, one in covering_set.sent.items():
            if name.startswith("$merged."):
                assert one.subscriber == "b1"
                members = [known[member][0] for member in covering_set.covered_by_sent(name)]
                for event in (replace(one, subscribers=None) for one in published):
                    assert due(one, event, Context()) == any(due(two, event, Context()) for two in members)

    follow(covering_set, history, check)


class Arbitrary(CoveringClasses):
    """Kinds of which any may stand for any other, as told: `p = 1` for `p = 2`, or not."""

    def __init__(self, standing: set[tuple[str, str]]) -> None:
        super().__init__()
        self._standing = standing

    def _compare(self, number: int, kind: CoveringClass) -> None:
        self.wider[number] = self.narrower[number] = 0
        for other, two in self._classes.items():
            if (str(two.content), str(kind.content)) in self._standing:
                self.wider[number] |= 1 << other
                self.narrower[other] |= 1 << number
            if (str(kind.content), str(two.content)) in self._standing:
                self.narrower[number] |= 1 << other
                self.wider[other] |= 1 << number

    def _forget(self, number: int, kind: CoveringClass) -> None:
        """There is no index to take it out of."""


WORDS = [f"p = {number}" for number in range(6)]
pairs = st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)).filter(lambda pair: pair[0] != pair[1])


@given(st.sets(pairs), st.lists(st.tuples(ids, st.sampled_from([None, *WORDS])), max_size=20))
@examples(300, 5_000)
def test_each_one_has_one_that_is_sent_even_if_covering_does_not_carry_on(
    standing: set[tuple[str, str]], history: list[tuple[str, str | None]]
) -> None:
    covering_set = LinkCoveringSet(classes=Arbitrary(standing))
    known: dict[str, str] = {}
    for name, text in history:
        if text is None:
            known.pop(name, None)
            covering_set.remove(name)
        else:
            known[name] = text
            covering_set.put(asking(name, text))
        speakers = {text: min(one for one in known if known[one] == text) for text in known.values()}
        above = {
            one: {
                two
                for two in speakers
                if (two, one) in standing and not ((one, two) in standing and speakers[one] < speakers[two])
            }
            for one in speakers
        }
        maximal = {one for one in speakers if not above[one]}
        assert covering_set.sent.keys() == {speakers[one] for one in speakers if not above[one] & maximal}
        assert set().union(*map(covering_set.covered_by_sent, covering_set.sent)) == known.keys()


# Examples


def asking(name: str, text: str, subscriber: str = "ann", **about: object) -> Subscription:
    return Subscription(id=name, subscriber=subscriber, content=Filter.parse(text), **about)  # type: ignore[arg-type]


def test_what_is_covered_comes_back_when_the_wider_one_leaves() -> None:
    covering_set = LinkCoveringSet()
    narrow, wide = asking("a", "price > 10"), asking("b", "price > 5")
    assert covering_set.put(narrow) == LinkUpdate(sent=(narrow,))
    assert covering_set.put(wide) == LinkUpdate(sent=(wide,), withdrawn=("a",))
    assert covering_set.covered_by_sent("b") == {"a", "b"}
    assert covering_set.remove("b") == LinkUpdate(sent=(narrow,), withdrawn=("b",))


def test_of_equal_ones_the_smallest_id_is_sent() -> None:
    covering_set = LinkCoveringSet()
    first, second, third = asking("a", "price > 10"), asking("b", "price > 10"), asking("c", "10 < price")
    covering_set.put(second)
    assert covering_set.put(third) == LinkUpdate()
    assert covering_set.put(first) == LinkUpdate(sent=(first,), withdrawn=("b",))
    assert covering_set.remove("a") == LinkUpdate(sent=(second,), withdrawn=("a",))
    assert covering_set.remove("b") == LinkUpdate(sent=(third,), withdrawn=("b",))


def test_one_that_is_put_again_is_told_again_only_if_it_differs() -> None:
    covering_set = LinkCoveringSet()
    covering_set.put(asking("a", "price > 10"))
    assert covering_set.put(asking("a", "price > 10")) == LinkUpdate()
    other = asking("a", "price > 10", durable="kept")
    assert covering_set.put(other) == LinkUpdate(sent=(other,))
    wider = asking("a", "price > 1")
    assert covering_set.put(wider) == LinkUpdate(sent=(wider,))


def test_one_that_is_scoped_stands_for_its_own_subscriber_only() -> None:
    """Were Ann's context to decide what Bob hears of, he would miss what is not for her."""
    covering_set = LinkCoveringSet()
    covering_set.put(asking("a", "price > 5"), scoped=True)
    covering_set.put(asking("b", "price > 5", "bob"), scoped=True)
    covering_set.put(asking("c", "price > 7"), scoped=True)
    covering_set.put(asking("d", "price > 8", "bob"))
    assert covering_set.sent.keys() == {"a", "b", "d"}


def test_nothing_stands_for_what_needs_another_publishers_context() -> None:
    covering_set = LinkCoveringSet()
    covering_set.put(asking("a", "price > 5"))
    covering_set.put(asking("b", "price > 5", publishers=ContextFilter.parse("zone = 1")))
    covering_set.put(asking("c", "price > 5", publishers=ContextFilter.parse("zone = this.zone")))
    covering_set.put(asking("d", "price > 6", publishers=ContextFilter.parse("zone = this.zone")))
    covering_set.put(asking("e", "price > 6", "bob", publishers=ContextFilter.parse("zone = this.zone")))
    assert covering_set.sent.keys() == {"a", "b", "c", "e"}


def test_merging_sends_one_for_several() -> None:
    covering_set = LinkCoveringSet(merging=True, owner="b1")
    covering_set.put(asking("a", "zone = 1 and price > 5"))
    covering_set.put(asking("b", "zone = 2 and price > 5", "bob"))
    (merged,) = covering_set.sent.values()
    assert merged.id.startswith("$merged.")
    assert merged.subscriber == "b1"
    assert str(merged.content) == "zone IN (1, 2) AND price > 5"
    assert covering_set.covered_by_sent(merged.id) == {"a", "b"}
    change = covering_set.remove("a")
    assert [one.id for one in change.sent] == ["b"]
    assert change.withdrawn == (merged.id,)


def test_a_merged_one_makes_others_needless() -> None:
    covering_set = LinkCoveringSet(merging=True, owner="b1")
    covering_set.put(asking("a", "zone between 1 and 5 and price > 5"))
    covering_set.put(asking("b", "zone between 5 and 9 and price > 5"))
    covering_set.put(asking("c", "zone between 4 and 6 and price > 7"))
    (merged,) = covering_set.sent
    assert covering_set.covered_by_sent(merged) == {"a", "b", "c"}


def test_what_is_needless_only_for_several_together_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one filter for all would be too long, those that it would have been made of are sent."""
    monkeypatch.setattr("tidings.matching.merging.is_within_limits", lambda _: False)
    covering_set = LinkCoveringSet(merging=True, owner="b1")
    covering_set.put(asking("a", "zone between 1 and 5 and price > 5"))
    covering_set.put(asking("b", "zone between 5 and 9 and price > 5"))
    covering_set.put(asking("c", "zone between 4 and 6 and price > 7"))
    assert covering_set.sent.keys() == {"a", "b", "c"}
    assert covering_set.covered_by_sent("c") == {"c"}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_could_be_merged_in_two_ways_is_merged_in_one(order: tuple[int, ...]) -> None:
    given = [asking("a", "x = 1 and y = 2"), asking("b", "y = 1 and x = 1"), asking("c", "y = 1 and x = 2")]
    covering_set = LinkCoveringSet(merging=True, owner="b1")
    for place in order:
        covering_set.put(given[place])
    assert sorted(str(one.content) for one in covering_set.sent.values()) == [
        "x = 1 AND y = 2",
        "x IN (1, 2) AND y = 1",
    ]


def test_a_policy_keeps_a_subscription_to_itself() -> None:
    covering_set = LinkCoveringSet(merging=True, owner="b1")
    covering_set.put(asking("a", "price > 5", policy="on publish: drop"))
    covering_set.put(asking("b", "price > 5"))
    covering_set.put(asking("c", "price > 7", policy="on publish: drop"))
    assert covering_set.sent.keys() == {"a", "b", "c"}


def test_a_candidate_that_is_not_sent_names_those_that_stand_for_it() -> None:
    covering_set = LinkCoveringSet()
    for name, content in [
        ("s1", "a > 0"),
        ("s2", "b > 0"),
        ("s3", "a > 1"),
        ("s4", "a > 1 and b > 1"),
        ("s5", "a > 0"),
    ]:
        covering_set.put(Subscription(id=name, subscriber="c", content=Filter.parse(content)))
    assert set(covering_set.sent) == {"s1", "s2"}
    assert [covering_set.covering(name) for name in ("s3", "s4", "s5")] == [["s1"], ["s1", "s2"], ["s1"]]
    assert (covering_set.covering("s1"), covering_set.covering("nobody")) == ([], [])
