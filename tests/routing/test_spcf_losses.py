"""Five ways in which paper 004's protocol, taken literally, loses events in ordinary operation; here none is lost.

The network is a line of three brokers. Messages are held under way where their order matters: links are FIFO, but what
is on one link may arrive before or after what is on another.
"""

from typing import Any

import pytest

from tests.engine.overlay import Overlay
from tidings.engine.operations import Announce, Publish, SetContext, Subscribe
from tidings.model.values import Context

THREE = (("b1", "b2"), ("b2", "b3"))
EVENT = {"a": 1}


def line() -> Overlay:
    """A publisher with the context {"x": 1} at b1."""
    overlay = Overlay(THREE, strategy="spcf")
    overlay.set_context("b1", "pub", x=1)
    overlay.clear()
    return overlay


def publish(overlay: Overlay, **more: Any) -> None:
    overlay.publish("b1", "pub", EVENT, context=more.pop("context", {"x": 1}), **more)


@pytest.mark.parametrize("homes", [("b3", "b3"), ("b2", "b3"), ("b3", "b2")])
def test_two_clients_share_context_and_filter_and_one_unsubscribes(homes: tuple[str, str]) -> None:
    """Literally, tables hold pairs (filter, context): the two are one pair, and removing one's removes the other's."""
    overlay = line()
    for broker, client in zip(homes, ("ann", "bob"), strict=True):
        overlay.set_context(broker, client, y=1)
        overlay.subscribe(broker, client, "a > 0", publishers="x = 1")
    overlay.unsubscribe(homes[0], "ann")
    publish(overlay)
    assert (overlay.received("ann"), overlay.received("bob")) == ([], [EVENT])


@pytest.mark.parametrize("gone", ["x = 1", "x > 0"])
def test_one_content_under_two_context_filters_of_which_one_goes(gone: str) -> None:
    """Literally, both put the pair (filter, context) into the row of the publisher, and the removal of either takes it
    out."""
    overlay = line()
    for text in ("x = 1", "x > 0"):
        overlay.subscribe("b3", "ann", "a > 0", publishers=text, id=text.replace(" ", ""))
    overlay.unsubscribe("b3", "ann", gone.replace(" ", ""))
    publish(overlay)
    assert overlay.received("ann") == [EVENT]


def test_a_publication_right_behind_a_change_of_its_publishers_context() -> None:
    """Literally, there are no rows for the new context before the subscriptions that it attracts have come."""
    overlay = line()
    overlay.subscribe("b3", "ann", "a > 0", publishers="x = 2")
    overlay.step("b1", SetContext("pub", Context.of({"x": 2})))
    overlay.step("b1", Publish(overlay.event("pub", EVENT, context={"x": 2})))
    assert (
        overlay.engines["b1"].state.filters.subscriptions.get("s-ann") is None
    )  # nothing here says that anybody wants it
    overlay.run()
    assert overlay.received("ann") == [EVENT]
    publish(overlay, context={"x": 2})
    assert overlay.received("ann") == [EVENT, EVENT]
    # Once all is acknowledged, events with that context are pruned again.
    overlay.clear()
    overlay.unsubscribe("b3", "ann")
    publish(overlay, context={"x": 2})
    assert overlay.busy_links() == set()


def test_a_context_that_comes_back_before_its_removal_has_arrived() -> None:
    """Literally, the removal and the addition each start on their own, and rows may go that were just attracted."""
    overlay = line()
    overlay.subscribe("b3", "ann", "a > 0", publishers="x = 1")
    for x in (2, 1, 2, 1):
        overlay.step("b1", SetContext("pub", Context.of({"x": x})))
    overlay.step("b1", Publish(overlay.event("pub", EVENT, context={"x": 1})))
    overlay.run()
    publish(overlay)
    assert overlay.received("ann") == [EVENT, EVENT]


@pytest.mark.parametrize("wanted", [None, "x is null", "x = 3"])
def test_a_publisher_that_never_set_a_context(wanted: str | None) -> None:
    """Literally, a broker without announced contexts attracts no subscription, so that its table has no row at all."""
    overlay = Overlay(THREE, strategy="spcf")
    overlay.subscribe("b3", "ann", "a > 0", publishers=wanted)
    context = {"x": 3} if wanted == "x = 3" else {}
    for _ in range(2):
        overlay.publish("b1", "newcomer", EVENT, context=context)
    assert overlay.received("ann") == [EVENT, EVENT]


def test_what_a_newcomer_announces_goes_ahead_of_its_event() -> None:
    overlay = Overlay(THREE, strategy="spcf")
    overlay.publish("b1", "newcomer", EVENT, context={"x": 3})
    kinds = [type(made) for made in overlay.passed["b1", "b2"]]
    assert kinds.index(Publish) > max(place for place, kind in enumerate(kinds) if kind is Announce)
    overlay.clear()
    overlay.publish("b1", "newcomer", EVENT, context={"x": 3})
    assert overlay.passed == {}  # it is announced now, and nobody wants it


def test_a_subscriber_changes_while_an_event_for_both_its_contexts_is_under_way() -> None:
    """Literally, the row at b2 has the new context, and the Bloom filter, made at b1 before it was announced, only the
    old one: the event stops at b2, though its filter selects both."""
    overlay = line()
    overlay.set_context("b3", "ann", y=1)
    overlay.subscribe("b3", "ann", "a > 0")
    overlay.step("b1", Publish(overlay.event("pub", EVENT, context={"x": 1}, subscribers="y > 0")))
    overlay.step("b3", SetContext("ann", Context.of({"y": 2})))
    while ("b3", "b2") in overlay.waiting():
        overlay.arrive("b3", "b2")
    assert [type(made) for made in overlay.waiting()["b1", "b2"]] == [Publish]
    overlay.run()
    assert overlay.received("ann") == [EVENT]


def test_a_subscribers_filter_changes_with_its_context_while_an_event_for_both_is_under_way() -> None:
    """Literally, a change is an unsubscription and a subscription: in between there is no row at b2."""
    overlay = line()
    overlay.set_context("b3", "ann", y=1)
    overlay.subscribe("b3", "ann", "a > 0", publishers="x between this.y - 1 and this.y + 1")
    overlay.step("b1", Publish(overlay.event("pub", EVENT, context={"x": 1})))
    overlay.step("b3", SetContext("ann", Context.of({"y": 2})))
    while ("b3", "b2") in overlay.waiting():
        overlay.arrive("b3", "b2")
        assert overlay.engines["b2"].state.filters.subscriptions.get("s-ann") is not None
    overlay.run()
    assert overlay.received("ann") == [EVENT]


def test_the_context_before_does_not_count_for_ever() -> None:
    overlay = line()
    overlay.set_context("b3", "ann", y=1)
    overlay.subscribe("b3", "ann", "a > 0")
    overlay.set_context("b3", "bob", y=1)  # so that y = 1 stays announced
    overlay.set_context("b3", "ann", y=2)
    overlay.now += 20_000_000
    overlay.clear()
    publish(overlay, subscribers="y = 1")
    assert overlay.busy_links() == set()


def test_a_subscription_under_its_id_takes_the_place_of_the_one_before_without_a_gap() -> None:
    overlay = line()
    overlay.subscribe("b3", "ann", "a > 0", publishers="x = 1")
    overlay.step("b1", Publish(overlay.event("pub", EVENT, context={"x": 1})))
    filed = overlay.engines["b3"].state.filters.subscriptions["s-ann"].value
    overlay.step("b3", Subscribe(filed))
    while ("b3", "b2") in overlay.waiting():
        overlay.arrive("b3", "b2")
    overlay.run()
    assert overlay.received("ann") == [EVENT]
