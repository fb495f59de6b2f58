"""An explanation says why a subscription was, or was not, forwarded toward a publisher at another broker."""

from typing import Any

import pytest

from tests.engine.messages import event
from tests.engine.overlay import LINE, Overlay
from tidings.engine.steps.explain import HIDDEN
from tidings.model.explanation import Explanation, ExplanationStep

BLOCK = "PolicyStatement { On(Forward, Subscription) { If {} Then {BlockMessage()} } }"
NEAR = "x between this.x - 2 and this.x + 2"
PAIR = (("b1", "b2"),)


def explained(overlay: Overlay, given: dict[str, Any], client: str = "sub", **about: Any) -> Explanation:
    """What the broker of the subscriber says, to the operator unless `viewer` is another."""
    broker = about.pop("broker", "b2")
    publisher = about.pop("publisher", "pub")
    [found] = overlay.engines[broker].explain(event(given, publisher), subscription=f"s-{client}", **about)
    return found


def first(found: Explanation) -> ExplanationStep:
    return found.steps[0]


def test_names_that_are_not_offered_are_named() -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub", publisher_context=["z"])
    overlay.set_context("b2", "sub", x=1)
    overlay.subscribe("b2", "sub", "n > 0", publishers=f"{NEAR} and y = 1 and z = 1")
    for viewer in (None, "sub"):
        found = explained(overlay, {"n": 1}, viewer=viewer)
        assert (found.delivered, found.step) == (False, "forward")
        assert found.reason == "the advertisement a-pub of pub does not offer x, y of its publisher's context"


def test_who_governs_does_not_see_what_the_filters_of_others_ask_for() -> None:
    overlay = Overlay(PAIR, govern=frozenset({"warden"}))
    overlay.advertise("b1", "pub", publisher_context=["z"])
    overlay.subscribe("b2", "sub", "n > 0", publishers="y = 1 and z = 1")
    found = explained(overlay, {"n": 1}, viewer="warden")
    assert (found.step, found.delivered, found.reason) == ("forward", False, HIDDEN)


def test_every_advertisement_says_why_it_does_not_attract() -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub", "n > 0", id="a-positive")
    overlay.advertise("b1", "pub", "m > 0", id="a-other")
    overlay.subscribe("b2", "sub", "n < 0")
    found = explained(overlay, {"n": 1}, viewer="sub")
    assert found.reason == (
        "the advertisement a-positive of pub does not overlap the subscription; "
        "the advertisement a-other of pub does not announce such an event"
    )


def test_where_no_advertisement_is_known_links_that_are_down_are_named() -> None:
    overlay = Overlay(PAIR)
    overlay.subscribe("b2", "sub", "n > 0")
    assert explained(overlay, {"n": 1}).reason == "b2 knows no advertisement of pub"
    found = explained(overlay, {"n": 1}, viewer="sub", links_down=["b9", "b3"])
    assert found.reason == "b2 knows no advertisement of pub; the link to b3 is down; the link to b9 is down"


def test_a_rule_that_blocks_the_subscription_is_told_to_its_owner() -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "sub", "n > 0", policy=BLOCK)
    for viewer in (None, "sub"):
        found = explained(overlay, {"n": 1}, viewer=viewer)
        assert (found.step, found.delivered) == ("forward", False)
        assert found.reason == (
            "the subscription is blocked on the way to b1: rule 1 of the message itself: If {} Then {BlockMessage()}"
        )


def test_a_rule_of_another_client_is_told_to_the_operator_alone() -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub", policy=BLOCK)
    overlay.subscribe("b2", "sub", "n > 0")
    assert "rule 1 of the advertisement a-pub" in explained(overlay, {"n": 1}).reason
    found = explained(overlay, {"n": 1}, viewer="sub")
    assert (found.step, found.reason) == ("forward", "stopped by a rule that is not yours")


def test_a_subscription_that_is_covered_is_forwarded_by_another() -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "wide", "n > 0")
    overlay.subscribe("b2", "sub", "n > 5")
    assert first(explained(overlay, {"n": 9})) == ExplanationStep(
        "forward", True, "covered on the link to b1: by s-wide"
    )
    seen = explained(overlay, {"n": 9}, viewer="sub")
    assert (seen.delivered, first(seen)) == (True, ExplanationStep("forward", True, "covered on the link to b1"))
    assert first(explained(overlay, {"n": 9}, "wide")) == ExplanationStep("forward", True, "forwarded to b1")


def test_brokers_on_the_way_are_asked_likewise() -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub", "n > 0")
    overlay.subscribe("b4", "sub", "n > 5")
    assert [first(explained(overlay, {"n": 9}, broker=name)).reason for name in ("b4", "b3", "b2")] == [
        "forwarded to b3",
        "forwarded to b2",
        "forwarded to b1",
    ]
    assert "forward" not in [step.name for step in explained(overlay, {"n": 9}, broker="b1").steps]


def test_contexts_that_nobody_announced_attract_nothing() -> None:
    overlay = Overlay(PAIR, strategy="spcf")
    overlay.set_context("b1", "pub", x=9)
    overlay.set_context("b2", "sub", x=1)
    overlay.subscribe("b2", "sub", "n > 0", publishers=NEAR)
    assert "announced" in explained(overlay, {"n": 1}).reason
    overlay.set_context("b1", "pub", x=2)
    assert explained(overlay, {"n": 1}).step != "forward"


def test_other_sub_overlays_go_by_advertisements() -> None:
    settings: dict[str, Any] = {"b1": {"abroad": frozenset({"b2"})}, "b2": {"abroad": frozenset({"b1"})}}
    overlay = Overlay(PAIR, strategy="asf", **settings)
    overlay.advertise("b1", "pub", publisher_context=[])
    overlay.subscribe("b2", "sub", "n > 0", publishers="x > 0")
    assert explained(overlay, {"n": 1}).reason.endswith("does not offer x of its publisher's context")


@pytest.mark.parametrize(("offered", "step"), [([], "forward"), (["x"], "publishers")])
def test_a_past_event_whose_context_did_not_travel_names_the_reason(offered: list[str], step: str) -> None:
    overlay = Overlay(PAIR)
    overlay.advertise("b1", "pub", publisher_context=offered)
    overlay.subscribe("b2", "sub", "n > 0", publishers="x > 0")
    assert explained(overlay, {"n": 1}, accepted=True).step == step


def test_what_was_accepted_may_come_again_though_nothing_is_advertised_any_more() -> None:
    overlay = Overlay(PAIR)
    overlay.subscribe("b2", "sub", "n > 0")
    assert explained(overlay, {"n": 1}, accepted=True).delivered
