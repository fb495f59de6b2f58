"""Links are FIFO, but what is on one may arrive before or after what is on another: in all orders what is due under
every state of the network is told, once, and what is due under none is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay
from tests.sizes import examples
from tidings.engine.operations import Publish, SetContext
from tidings.matching.reference import due
from tidings.model.values import Context

_ACTIONS = st.one_of(
    st.tuples(st.just("arrive"), st.integers(0, 5)),
    st.tuples(st.just("drain"), st.integers(0, 5)),
    st.tuples(st.just("subscriber"), st.integers(0, 3)),
    st.tuples(st.just("publisher"), st.integers(0, 3)),
    st.tuples(st.just("publish"), st.sampled_from([None, "x > 0", "x < 3", "x between this.x - 1 and this.x + 1"])),
)
RING = (*LINE, ("b4", "b1"))
EVENT = {"a": 1}


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
@examples(36, 1000)
@given(
    st.sampled_from([LINE, RING]),
    st.sampled_from([None, "x > 0", "x = this.x", "x between this.x - 1 and this.x + 1"]),
    st.lists(_ACTIONS, min_size=4, max_size=25),
)
def test_what_is_due_throughout_is_told_once_and_what_is_never_due_is_not(
    strategy: str, links: Any, wanted: str | None, actions: list[tuple[str, Any]]
) -> None:
    """The subscription is there from the beginning; contexts change and events pass in all orders of arrival."""
    overlay = Overlay(links, strategy=strategy)
    subscriber, publisher = Context.of({"x": 1}), Context.of({"x": 1})
    overlay.advertise("b1", "pub", publisher_context=["x"], subscriber_context=["x"])
    overlay.set_context("b3", "ann", **subscriber)
    overlay.subscribe("b3", "ann", "a > 0", publishers=wanted)
    subscription = overlay.engines["b3"].state.filters.subscriptions["s-ann"].value
    events, had = [], [subscriber]
    for kind, given_ in actions:
        match kind:
            case "arrive" | "drain":
                waiting = sorted(overlay.waiting())
                link = waiting[given_ % len(waiting)] if waiting else ("", "")
                for _ in overlay.waiting().get(link, ())[: 1 if kind == "arrive" else None]:
                    overlay.arrive(*link)
            case "subscriber":
                had.append(Context.of({"x": given_}))
                overlay.step("b3", SetContext("ann", had[-1]))
            case "publisher":
                publisher = Context.of({"x": given_})
                overlay.step("b1", SetContext("pub", publisher))
            case _:
                events.append(overlay.event("pub", EVENT, context=publisher, subscribers=given_))
                overlay.step("b1", Publish(events[-1]))
    overlay.run()
    told = [note.event.id for note in overlay.notifications("ann")]
    assert told == sorted(set(told))
    for event in events:
        answers = {due(subscription, event, context) for context in had}
        assert answers != {True} or event.id in told
        assert answers != {False} or event.id not in told
