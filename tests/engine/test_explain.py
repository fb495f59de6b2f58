"""Every decision can be explained, at the step where it fell, and only to those whose business it is."""

from typing import Any

import pytest

from tests.engine.messages import advertise, event, publish, situate, subscribe
from tidings import Schema, policies
from tidings.engine import Engine, Settings
from tidings.engine.effects import Deliver
from tidings.engine.operations import Define, SetLoad, SetPolicy
from tidings.engine.steps.explain import HIDDEN
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.schema import AttributeFilter

BLOCK = "PolicyStatement { On(Publication) { If {BrokerLoadIndex() >= 0} Then {BlockMessage()} } }"
EARLY = "PolicyStatement { On(Publication) { @matching: Before If {} Then {BlockMessage()} } }"
ZONE = """PolicyStatement { On(Publication) {
    If {AuthenticateReceiver(G)} Then {} Elseif {} Then {BlockMessage()} } }"""
LOOP = Schema("Loop", {"li": int, "n": int})


def engine(*operations: Any, **settings: Any) -> Engine:
    made = Engine(Settings(**settings))
    for operation in operations:
        made.handle(operation, 1)
    return made


def why(made: Engine, given: Event, viewer: str | None = None, subscription: str = "s1") -> Explanation:
    [found] = made.explain(given, subscription=subscription, viewer=viewer)
    return found


@pytest.mark.parametrize(
    ("wanted", "given", "step", "reason"),
    [
        ({"content": "n > 3"}, {"n": 1}, "content", "n > 3 is false: n is 1"),
        ({"content": "n > 3 and m = 'a'"}, {"n": 4}, "content", "m = 'a' is unknown: m is missing"),
        ({"subject": "Loop"}, {"n": 1}, "subject", "the subject is None, not 'Loop'"),
        ({"structure": AttributeFilter(LOOP, {"li"})}, {"n": 1, "subject": "Loop"}, "structure", "li is missing"),
        ({"publishers": "x > this.x"}, {"n": 1}, "publishers", "x > this.x is false: x is 2, this.x is 5"),
        ({}, {"n": 1, "subscribers": "x > 5"}, "subscribers", "x > 5 is false: x is 5"),
        ({}, {"class": "PolicyConflict"}, "admit", "published by brokers only"),
        ({}, {"n": 1, "policy": EARLY}, "before", "rule 1 of the message itself: If {} Then {BlockMessage()}"),
        ({}, {"n": 1, "policy": BLOCK}, "govern", "If {BrokerLoadIndex() >= 0} Then {BlockMessage()}"),
        ({"policy": BLOCK}, {"n": 1}, "govern", "rule 1 of the subscription s1"),
    ],
)
def test_where_an_event_stopped_and_why(wanted: dict[str, Any], given: dict[str, Any], step: str, reason: str) -> None:
    made = engine(situate("alice", x=5), subscribe("s1", **wanted))
    about = {name: given.pop(name) for name in ("subject", "subscribers", "policy") if name in given}
    happened = event(given, context={"x": 2}, **about)
    found = why(made, happened)
    assert (found.delivered, found.step) == (False, step)
    assert reason in found.reason
    assert found.steps[-1].passed is False
    assert all(one.passed for one in found.steps[:-1])
    assert not [one for one in made.handle(publish(given, context={"x": 2}, **about), 2) if isinstance(one, Deliver)]


def test_what_is_delivered_is_explained_with_its_shape() -> None:
    made = engine(subscribe("s1", "n > 3", policy=policies.trim(convert="json")))
    found = why(made, event({"n": 4, "m": 1}))
    assert found.delivered
    assert [one.name for one in found.steps] == ["admit", "content", "govern", "route"]
    assert "without m, converted" in str(found)
    [delivered] = made.handle(publish({"n": 4, "m": 1}), 2)
    assert isinstance(delivered, Deliver)
    assert found.notification == delivered.notification
    assert made.preview(event({"n": 4, "m": 1}), "s1", 2) == delivered.notification
    assert made.preview(event({"n": 1}), "s1", 2) is None
    assert made.preview(event({"n": 4}), "nothing", 2) is None


def test_the_rules_that_had_an_effect_are_named_to_the_operator() -> None:
    made = engine(
        subscribe("s1", "n > 3", policy=policies.trim()),
        subscribe("s2", "n > 3", policy=BLOCK),
        advertise("ad", "", "bob", policy=policies.remove("gone")),
    )
    assert why(made, event({"n": 4, "m": 1})).rules == ("rule 1 of the subscription s1",)
    assert why(made, event({"n": 4})).rules == ()  # nothing is left out
    assert why(made, event({"n": 4, "gone": 1}, "bob")).rules == (
        "rule 1 of the advertisement ad",
        "rule 1 of the subscription s1",
    )
    assert why(made, event({"n": 4}), subscription="s2").rules == ("rule 1 of the subscription s2",)
    assert why(made, event({"n": 4, "m": 1}), viewer="alice").rules == ()
    made.handle(SetPolicy(made.state.name, "s1", str(policies.remove("m"))), 2)
    assert why(made, event({"n": 4, "m": 1})).rules[1] == "rule 1 of the subscription s1, by the operator"


def test_all_of_a_client() -> None:
    made = engine(subscribe("s2", "n > 9"), subscribe("s1", "n > 3"), subscribe("s3", "", "carol"))
    found = made.explain(event({"n": 4}), client="alice")
    assert [(one.subscription, one.delivered) for one in found] == [("s1", True), ("s2", False)]
    assert made.explain(event({"n": 4}), subscription="s9") == []


def test_one_notification_a_client_is_explained_with_all_that_shaped_it() -> None:
    keep = "PolicyStatement { On(Publication) { If {} Then {RemoveAttributes(m)} } }"
    made = engine(subscribe("s1", "n > 3", notify="client"), subscribe("s2", "m > 3", notify="client", policy=keep))
    note = why(made, event({"n": 4, "m": 4})).notification
    assert note is not None
    assert (note.attributes, note.subscriptions) == ({"n": 4}, ("s1", "s2"))


def test_a_policy_of_the_broker_stops_it_for_everyone() -> None:
    made = engine(subscribe("s1"), subscribe("wall", "n > 3", "hub", policy=BLOCK))
    assert "the broker wall" in why(made, event({"n": 4})).reason
    assert why(made, event({"n": 3})).delivered


def test_what_nobody_knows_yet_waits_and_can_be_asked() -> None:
    zone = (
        "PolicyStatement { On(Publication) { If {AuthenticateReceiver(G)} Then {} Elseif {} Then {BlockMessage()} } }"
    )
    made = engine(subscribe("s1"), advertise("a1", policy=zone))
    assert why(made, event({"n": 1})).reason == "waits for an answer: does alice belong to G?"
    [member] = made.explain(
        event({"n": 1}), subscription="s1", trusts=lambda party, group: (party, group) == ("alice", "G")
    )
    assert member.delivered
    [stranger] = made.explain(event({"n": 1}), subscription="s1", trusts=lambda *_: False)
    assert "rule 1 of the advertisement a1" in stranger.reason


# Who sees what


def test_a_stranger_learns_nothing() -> None:
    made = engine(subscribe("s1", "n > 3"))
    assert made.explain(event({"n": 4}), subscription="s1", viewer="eve") == []
    assert made.explain(event({"n": 4}), client="alice", viewer="eve") == []


def test_a_subscriber_sees_its_own_predicate_and_not_what_others_published() -> None:
    made = engine(subscribe("s1", "salary > 3000", publishers="floor = this.floor"), situate("alice", floor=2))
    found = why(made, event({"salary": 2500}), viewer="alice")
    assert (found.step, found.reason) == ("content", "salary > 3000 is false")
    found = why(made, event({"salary": 3500}, context={"floor": 7}), viewer="alice")
    assert found.reason == "floor = this.floor is false"
    assert "7" not in str(found)


def test_a_publisher_does_not_feel_for_the_situation_of_a_subscriber() -> None:
    """Asking again and again, with `floor <= 1`, `floor <= 2`, ..., it would find out where somebody is."""
    made = engine(subscribe("s1", "salary > 3000"), situate("alice", floor=2))
    assert made.explain(event({"salary": 3500}, subscribers="floor = 9"), subscription="s1", viewer="bob") == []


def test_who_governs_may_ask_and_still_does_not_see_what_others_say() -> None:
    made = engine(subscribe("s1", "salary > 3000"), situate("alice", floor=2), govern=frozenset({"warden"}))
    found = why(made, event({"salary": 2500}), viewer="warden")
    assert (found.step, found.reason, found.notification) == ("content", HIDDEN, None)


def test_the_rules_of_others_are_not_quoted() -> None:
    made = engine(subscribe("s1"), subscribe("wall", "n > 3", "hub", policy=BLOCK), advertise("a1", policy=BLOCK))
    found = why(made, event({"n": 4}), viewer="alice")
    assert found.reason == "stopped by a rule that is not yours"
    own = engine(subscribe("s1", policy=BLOCK))
    assert "the subscription s1" in why(own, event({"n": 4}), viewer="alice").reason


def test_asking_changes_nothing() -> None:
    told = 'PolicyStatement { On(Publication) { If {} Then {Publish("[class,Seen]"), Log(seen)} } }'
    made = engine(Define("alice", LOOP), subscribe("s1", policy=told), advertise("a1", policy=policies.trace()))
    made.handle(SetLoad(0.5), 1)
    before = made.save()
    why(made, event({"n": 1}))
    made.preview(event({"n": 1}), "s1", 7)
    assert made.save() == before


@pytest.mark.parametrize(
    ("policy", "subscribers", "step"), [(BLOCK, None, "govern"), (None, "floor = 9", "subscribers")]
)
@pytest.mark.parametrize("content", ["salary > 3000", "salary <= 3000", "nothing = 1"])
def test_filters_cannot_feel_for_the_content_of_what_is_kept_from_one(
    policy: str | None, subscribers: str | None, step: str, content: str
) -> None:
    made = engine(subscribe("s1", content), situate("alice", floor=2), advertise("a1", policy=policy))
    found = why(made, event({"salary": 2500}, subscribers=subscribers), viewer="alice")
    assert [(one.name, one.passed) for one in found.steps] == [("admit", True), (step, False)]
