"""What is foreseen of events that come together changes nothing but how long they take."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.engine.matcher import FastMatcher, NaiveMatcher
from tidings.filters import ContextFilter, Filter
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context

CONTENTS = ("n = 1", "n > 1 and k = 'a'", "k like '%b%'", "n + m > 2", "$subject = 'x'", "$payload like '%b%'", "")
SCOPES = (None, "zone = this.zone", "x between this.x - 1 and this.x + 1")
numbers = st.integers(0, 3)

subscriptions = st.builds(
    lambda number, content, scope: Subscription.of(
        Filter.parse(content),
        id=f"s{number}",
        subscriber=f"c{number}",
        publishers=None if scope is None else ContextFilter.parse(scope),
    ),
    numbers,
    st.sampled_from(CONTENTS),
    st.sampled_from(SCOPES),
)
contexts = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "x": st.floats(-2, 2)}).map(Context)
events = st.builds(
    lambda attributes, context, wanted, subject: Event(
        id=uuid7(0, bytes(10)),
        publisher="p",
        timestamp=0,
        sequence=0,
        attributes=attributes,
        context=context,
        subscribers=None if wanted is None else ContextFilter.parse(wanted),
        subject=subject,
        payload=b"abc",
    ),
    st.fixed_dictionaries(
        {}, optional={"n": numbers, "m": st.floats(0, 3), "k": st.sampled_from(["a", "b", "ab"])}
    ).map(Attributes),
    contexts,
    st.sampled_from([None, None, "zone = 'a'", "x > this.x"]),
    st.sampled_from([None, "x"]),
)
changes = st.one_of(
    subscriptions.map(lambda one: ("put", one)),
    numbers.map(lambda number: ("remove", f"s{number}")),
    st.tuples(numbers, contexts).map(lambda one: ("set", (f"c{one[0]}", one[1]))),
)


def _change(matcher: FastMatcher | NaiveMatcher, known: set[str], change: tuple[str, object]) -> None:
    match change:
        case "put", Subscription() as subscription:
            matcher.put(subscription)
            known.add(subscription.id)
        case "remove", str(id) if id in known:
            matcher.remove(id)
            known.discard(id)
        case "set", (str(client), Context() as context):
            matcher.set_context(client, context)


@examples(60, 2_000)
@given(
    st.lists(changes, max_size=8),
    st.lists(events, min_size=4, max_size=9),
    st.lists(st.one_of(st.integers(0, 8), changes), max_size=12),
)
def test_answers_are_the_same_whatever_has_changed_since(
    before: list[tuple[str, object]], foreseen: list[Event], then: list[int | tuple[str, object]]
) -> None:
    fast, naive = FastMatcher(), NaiveMatcher()
    known: tuple[set[str], set[str]] = set(), set()

    def change(what: tuple[str, object]) -> None:
        _change(fast, known[0], what)
        _change(naive, known[1], what)

    for one in before:
        change(one)
    fast.prefetch(foreseen)
    for step in then:
        if isinstance(step, tuple):
            change(step)
        else:
            event = foreseen[step % len(foreseen)]
            assert sorted(fast.match_event(event)) == sorted(naive.match_event(event))


def test_an_event_that_was_foreseen_is_not_matched_again() -> None:
    matcher = FastMatcher()
    matcher.put(Subscription.of(Filter.parse("n > 0"), id="s", subscriber="c"))
    foreseen = [
        Event(id=uuid7(0, bytes(10)), publisher="p", timestamp=0, sequence=0, attributes=Attributes({"n": n}))
        for n in range(8)
    ]
    matcher.prefetch(foreseen)
    matched = int(matcher.parts.matcher.counters[0])
    assert [matcher.match_event(event) for event in foreseen] == [[], *[["s"]] * 7]
    assert int(matcher.parts.matcher.counters[0]) == matched
