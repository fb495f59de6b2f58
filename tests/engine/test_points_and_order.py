"""'Points' and 'Order' of the semantics, sentence by sentence."""

from itertools import chain, combinations
from typing import Any

import pytest

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tidings.engine.operations import Publish, Subscribe
from tidings.policy import registry

POINTS = ("Ingress", "Egress", "Routing")
COMBINATIONS = list(chain.from_iterable(combinations(POINTS, size) for size in (1, 2, 3)))
# Where a line b1-b2-b3 has which points: b1 sends what a client published, b2 passes on, b3 delivers.
ALONG = {"b1": {"Ingress"}, "b2": {"Routing"}, "b3": {"Egress"}}
# The same, if b2 belongs to another sub-overlay than b1, and b3 to the same as b2.
# Or each of them is a sub-overlay of its own.
SUB_OVERLAYS: dict[str, Any] = {
    "b1": {"abroad": frozenset({"b2"})},
    "b2": {"abroad": frozenset({"b1", "b3"})},
    "b3": {"abroad": frozenset({"b2"})},
}
FEDERATED = {"b1": {"Ingress", "Egress"}, "b2": {"Ingress", "Routing"}, "b3": {"Egress"}}


def line(policy: str, **settings: Any) -> Overlay:
    overlay = Overlay(LINE[:2], **settings)
    overlay.advertise("b1", "pub", "class = 'x'", policy=policy)
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.clear()
    return overlay


def fired(overlay: Overlay) -> dict[str, int]:
    return {name: len(overlay.logs(name)) for name in overlay.engines}


# The points of a copy are a set. A rule fires once if its points and the copy's meet.


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_a_rule_fires_where_its_points_and_the_copys_meet(points: tuple[str, ...]) -> None:
    overlay = line(on_publications("Log()", broker=", ".join(points)))
    overlay.publish("b1", "pub", {"class": "x"})
    assert fired(overlay) == {name: int(bool(has & {*points})) for name, has in ALONG.items()}


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_another_sub_overlay_is_entered_and_left(points: tuple[str, ...]) -> None:
    abroad: dict[str, Any] = {"b1": {"abroad": frozenset({"b2"})}, "b2": {"abroad": frozenset({"b1"})}}
    overlay = line(on_publications("Log()", broker=", ".join(points)), **abroad)
    overlay.publish("b1", "pub", {"class": "x"})
    assert fired(overlay) == {name: int(bool(has & {*points})) for name, has in FEDERATED.items()}


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_from_abroad_to_abroad_a_copy_has_all_points(points: tuple[str, ...]) -> None:
    overlay = line(on_publications("Log()", broker=", ".join(points)), **SUB_OVERLAYS)
    overlay.publish("b1", "pub", {"class": "x"})
    assert fired(overlay)["b2"] == 1


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_inside_a_hub_a_copy_has_ingress_and_egress(points: tuple[str, ...]) -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=on_publications("Log()", broker=", ".join(points)))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {})
    assert len(hub.logs()) == int(points != ("Routing",))
    assert any("never fires in a hub" in one for one in hub.remarks()) is (points == ("Routing",))


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_what_the_broker_itself_publishes_enters_there(points: tuple[str, ...]) -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "b1", "class = 'x'", policy=on_publications("Log()", broker=", ".join(points)))
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.publish("b1", "b1", {"class": "x"})
    assert fired(overlay) == {name: int(bool(has & {*points})) for name, has in ALONG.items()}


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_insert_rules_look_at_the_previous_hop(points: tuple[str, ...]) -> None:
    overlay = line(statement(rule("Insert, Subscription", "Log()", broker=", ".join(points))))
    overlay.subscribe("b3", "other", "class = 'x'")
    assert fired(overlay) == {
        "b1": int("Routing" in points),
        "b2": int("Routing" in points),
        "b3": int("Ingress" in points),
    }


@pytest.mark.parametrize("points", COMBINATIONS, ids="+".join)
def test_insert_rules_at_the_edge_of_a_sub_overlay(points: tuple[str, ...]) -> None:
    overlay = line(statement(rule("Insert, Subscription", "Log()", broker=", ".join(points))), **SUB_OVERLAYS)
    overlay.subscribe("b3", "other", "class = 'x'")
    assert fired(overlay)["b2"] == int(bool({"Ingress", "Routing"} & {*points}))


# @matching: Before rules may refuse a message, or send it on without matching.


def test_before_rules_may_refuse_a_message() -> None:
    overlay = line(on_publications("Log(matched)"))
    overlay.publish("b1", "pub", {"class": "x"}, policy=on_publications("BlockMessage()", matching="Before"))
    assert overlay.rejected("b1") == ["blocked before matching by rule 1 of the message itself"]
    assert (overlay.logs(), overlay.busy_links()) == ([], set())


def test_before_rules_may_send_a_message_on_without_matching() -> None:
    overlay = Overlay(LINE[:2])
    overlay.subscribe("b1", "local", "class = 'y'")
    overlay.subscribe("b2", "sub", "class = 'y'")  # nobody advertised: b1 knows nothing of it
    fast = on_publications("ForwardTo(b2)", matching="Before", broker="Ingress")
    overlay.publish("b1", "pub", {"class": "y"}, policy=fast)
    assert overlay.received("local") == []  # there was no matching
    assert overlay.received("sub") == [{"class": "y"}]


def test_what_is_forwarded_to_a_stranger_goes_nowhere_and_is_logged() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {}, policy=on_publications("ForwardTo(b7)", matching="Before"))
    assert hub.logs() == ["ForwardTo: b7 is no neighbour of b1"]
    assert hub.received("sub") == []


def test_before_rules_that_only_tell_let_the_message_go_on() -> None:
    hub = Overlay()
    hub.subscribe("b1", "b1", policy=on_publications("Log(early)", matching="Before"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {})
    assert hub.logs() == ["early"]
    assert len(hub.received("sub")) == 1


@pytest.mark.parametrize("kind", ["Subscription", "Advertisement"])
def test_before_rules_refuse_filters_too(kind: str) -> None:
    hub = Overlay()
    policy = statement(rule(f"Forward, {kind}", "BlockMessage()", matching="Before"))
    (hub.subscribe if kind == "Subscription" else hub.advertise)("b1", "someone", policy=policy)
    assert hub.rejected() == ["blocked before matching by rule 1 of the message itself"]
    assert (
        len(hub.engines["b1"].state.filters.subscriptions),
        len(hub.engines["b1"].state.filters.advertisements),
    ) == (0, 0)


@pytest.mark.parametrize("matching", ["Before", "After"])
def test_insert_rules_keep_a_subscription_out_whenever_they_are_applied(matching: str) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=statement(rule("Insert, Subscription", "UninsertMessage()", matching=matching)))
    hub.publish("b1", "pub", {})
    assert hub.received("sub") == []
    assert hub.rejected() == ["kept out of the tables by rule 1 of the message itself"]


# Then Insert rules, then Forward rules.


def test_insert_rules_come_before_forward_rules() -> None:
    overlay = line(
        statement(rule("Forward, Subscription", "Log(forward)"), rule("Insert, Subscription", "Log(insert)"))
    )
    overlay.subscribe("b3", "other", "class = 'x'")
    assert [overlay.logs(name) for name in ("b1", "b2", "b3")] == [["insert", "forward"]] * 3


# Forward is evaluated once per next hop; with none, once without a receiver.


def test_forward_is_evaluated_once_per_next_hop() -> None:
    seen: list[str | None] = []

    @registry.policy_condition("WhoReceives")
    def who_receives(rule_context: Any) -> bool:
        seen.append(rule_context.receiver)
        return False

    try:
        star = Overlay([("b1", "b2"), ("b1", "b3")])
        star.advertise("b1", "pub", policy=on_publications("BlockMessage()", when="WhoReceives()"))
        for broker, client in (("b1", "one"), ("b1", "two"), ("b2", "far"), ("b2", "away"), ("b3", "third")):
            star.subscribe(broker, client)
        star.subscribe("b1", "one", id="s-one-more")
        seen.clear()
        star.step("b1", Publish(star.event("pub", {})))
        assert sorted(map(str, seen)) == ["b2", "b3", "one", "two"]
    finally:
        registry.unregister("WhoReceives")


def test_with_no_next_hop_once_without_a_receiver() -> None:
    hub = Overlay(trust={"G": {"pub", "b1", ""}})
    hub.advertise(
        "b1",
        "pub",
        policy=statement(rule(then="Log(member)", when="AuthenticateReceiver(G)"), rule(then="Log(nobody, $Receiver)")),
    )
    hub.publish("b1", "pub", {})
    assert hub.logs() == ["nobody "]  # AuthenticateReceiver is false, and nobody is asked
    assert hub.asked == []


def test_a_subscription_without_a_next_hop_is_judged_too() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=statement(rule("Forward, Subscription", "Log($Sender)")))
    hub.subscribe("b1", "sub")
    assert hub.logs() == ["sub"]


# BlockMessage and transformations affect that copy, never the insertion.


def test_block_message_affects_the_copy_and_never_the_insertion() -> None:
    overlay = line(statement(rule("Forward, Subscription", "BlockMessage()", broker="Ingress")))
    overlay.subscribe("b3", "other", "class = 'x'")
    assert overlay.passed == {}
    assert overlay.engines["b3"].state.filters.subscriptions.get("s-other") is not None


def test_a_transformation_affects_only_its_copy() -> None:
    overlay = Overlay([("b1", "b2"), ("b1", "b3")], trust={"Inner": {"b3"}})
    overlay.advertise("b1", "pub", policy=on_publications("RemoveAttributes(a)", when="AuthenticateReceiver(Inner)"))
    for broker, client in (("b1", "near"), ("b2", "second"), ("b3", "third")):
        overlay.subscribe(broker, client)
    overlay.publish("b1", "pub", {"a": 1, "b": 2})
    assert overlay.attributes_on("b1", "b2") == [{"a": 1, "b": 2}]
    assert overlay.attributes_on("b1", "b3") == [{"b": 2}]
    assert overlay.received("near") == [{"a": 1, "b": 2}]


def test_a_filter_is_inserted_as_it_came_and_forwarded_as_it_was_changed() -> None:
    overlay = Overlay([("b1", "b2")])
    overlay.advertise("b2", "pub")
    policy = statement(rule("Forward, Subscription", "RemoveAttributes(a)"))
    overlay.subscribe("b1", "sub", "a > 1 and b > 1", policy=policy)
    assert str(overlay.engines["b1"].state.filters.subscriptions["s-sub"].value.content) == "a > 1 AND b > 1"
    assert str(overlay.engines["b2"].state.filters.subscriptions["s-sub"].value.content) == "b > 1"


# Publish, Log, Persist and FloodMessage run once per rule, message and broker.


def test_what_tells_runs_once_per_rule_message_and_broker() -> None:
    policy = on_publications("Publish('[class,Seen]'), Log(line), Persist(shelf)")
    overlay = line(policy)
    for n in range(3):
        overlay.subscribe("b3", f"more-{n}", "class = 'x'")
    overlay.clear()
    overlay.publish("b1", "pub", {"class": "x"})
    for broker in ("b1", "b2", "b3"):
        assert overlay.logs(broker) == ["line"]
        assert overlay.persisted(broker) == [("shelf", "[class,x]")]
        assert overlay.told_classes(broker) == ["Seen"]
    overlay.publish("b1", "pub", {"class": "x"})
    assert len(overlay.logs()) == 6


def test_two_filters_with_the_same_policy_are_two_rules() -> None:
    hub = Overlay()
    for client in ("one", "two"):
        hub.subscribe("b1", client, policy=on_publications("Log($Receiver)"))
    hub.publish("b1", "pub", {})
    assert hub.logs() == ["one", "two"]


# FloodMessage adds all neighbours but the previous hop, is not carried onward, and the added copies pass Forward rules.


@pytest.fixture
def star() -> Overlay:
    return Overlay([("b1", "b2"), ("b2", "b3"), ("b2", "b4"), ("b4", "b5")])


def test_flood_message_adds_all_neighbours_but_the_previous_hop(star: Overlay) -> None:
    star.advertise("b2", "b2", "class = 'x'", policy=statement(rule("Forward, Subscription", "FloodMessage()")))
    star.subscribe("b3", "away", "true")  # it does not matter who has asked before
    star.clear()
    star.subscribe("b1", "sub", "class = 'x'")
    assert star.ids("b2", "b3", Subscribe) == ["s-sub"]
    assert star.ids("b2", "b4", Subscribe) == ["s-sub"]
    assert star.ids("b2", "b1", Subscribe) == []


def test_flooding_is_not_carried_onward(star: Overlay) -> None:
    blocked = rule("Forward, Advertisement", "BlockMessage()")
    star.advertise(
        "b2", "b2", "class = 'x'", policy=statement(blocked, rule("Forward, Subscription", "FloodMessage()"))
    )
    star.subscribe("b2", "sub", "class = 'x'")
    assert star.ids("b2", "b4", Subscribe) == ["s-sub"]
    assert star.ids("b4", "b5", Subscribe) == []  # at b4 nothing says so


def test_flooded_copies_pass_the_forward_rules_too(star: Overlay) -> None:
    star.trust = {"Quiet": {"b4"}}
    star.advertise(
        "b2",
        "b2",
        "class = 'x'",
        policy=statement(
            rule("Forward, Advertisement", "BlockMessage()"),
            rule("Forward, Subscription", "FloodMessage()"),
            rule("Forward, Subscription", "BlockMessage()", when="AuthenticateReceiver(Quiet)"),
        ),
    )
    star.subscribe("b1", "sub", "class = 'x'")  # b1 has no such rule, and no advertisement either
    star.subscribe("b2", "two", "class = 'x'")
    assert star.ids("b2", "b3", Subscribe) == ["s-two"]
    assert star.ids("b2", "b4", Subscribe) == []


def test_a_flooded_publication_reaches_neighbours_that_did_not_ask(star: Overlay) -> None:
    star.subscribe("b3", "sub", "class = 'x'")  # nobody has advertised: it stays at b3
    star.publish("b2", "pub", {"class": "x"}, policy=on_publications("FloodMessage()", broker="Ingress"))
    assert star.busy_links() == {"b2>b1", "b2>b3", "b2>b4"}
    assert star.received("sub") == [{"class": "x"}]


def test_flooding_decided_only_when_an_answer_comes_is_not_lost(star: Overlay) -> None:
    star.hold_answers = True
    star.advertise("b3", "pub", "class = 'x'")
    star.advertise(
        "b2",
        "b2",
        "class = 'x'",
        id="own",
        policy=statement(
            rule("Forward, Advertisement", "BlockMessage()"),
            rule("Forward, Subscription", "FloodMessage()", when="AuthenticateReceiver(G)"),
        ),
    )
    star.clear()
    star.subscribe("b1", "sub", "class = 'x'")
    assert star.ids("b2", "b3", Subscribe) == star.ids("b2", "b4", Subscribe) == []
    star.answer("b2", "b3", "G", member=True)
    star.run()
    assert star.ids("b2", "b3", Subscribe) == ["s-sub"]
    assert star.questions[1:] == [("b2", "b4", "G")]  # the added copy passes the rules, and waits
    star.answer("b2", "b4", "G", member=False)
    star.run()
    assert star.ids("b2", "b4", Subscribe) == ["s-sub"]


def test_a_flooded_subscription_stays_when_an_advertisement_goes(star: Overlay) -> None:
    star.advertise("b2", "b2", "class = 'x'", policy=statement(rule("Forward, Subscription", "FloodMessage()")))
    star.subscribe("b1", "sub", "class = 'x'")
    star.advertise("b4", "pub", "class = 'x'")
    star.unadvertise("b4", "pub")
    star.publish("b4", "pub", {"class": "x"})
    assert star.received("sub") == [{"class": "x"}]
    star.unsubscribe("b1", "sub")
    assert all(engine.state.filters.subscriptions.get("s-sub") is None for engine in star.engines.values())


# Values of conditions are fixed per message, broker and receiver.


def test_values_of_conditions_are_fixed_per_message_broker_and_receiver() -> None:
    calls: list[str | None] = []

    @registry.policy_condition("Alternating")
    def alternating(rule_context: Any) -> bool:
        calls.append(rule_context.receiver)
        return len(calls) % 2 == 1

    try:
        hub = Overlay()
        twice = statement(
            rule(then="RemoveAttributes(a)", when="Alternating()"),
            rule(then="RemoveAttributes(b)", when="Alternating()"),
        )
        hub.advertise("b1", "pub", policy=twice)
        hub.subscribe("b1", "one")
        hub.subscribe("b1", "two")
        hub.publish("b1", "pub", {"a": 1, "b": 2})
        assert calls == ["one", "two"]  # asked once each
        assert hub.received("one") == [{}]
        assert hub.received("two") == [{"a": 1, "b": 2}]
    finally:
        registry.unregister("Alternating")


def test_trust_is_fixed_for_a_message_even_where_it_is_not_remembered() -> None:
    hub = Overlay(trust={"G": {"sub"}}, expiry=0)
    both = statement(
        rule(then="RemoveAttributes(a)", when="AuthenticateReceiver(G)"),
        rule(then="RemoveAttributes(b)", when="AuthenticateReceiver(G)"),
    )
    hub.advertise("b1", "pub", policy=both)
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1, "b": 2})
    assert (hub.asked, hub.received("sub")) == ([("b1", "sub", "G")], [{}])
    hub.publish("b1", "pub", {"a": 1, "b": 2})
    assert hub.asked == [("b1", "sub", "G")]  # asked again, for the next message


def test_load_is_that_of_the_moment_when_the_message_came() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=on_publications("BlockMessage()", when="BrokerLoadIndex() > 0.5"))
    for load in (0.4, 0.6, 0.5, float("nan"), 7.0, -3.0):
        hub.load("b1", load)
        hub.publish("b1", "pub", {"load": str(load)})
    assert [one["load"] for one in hub.received("sub")] == ["0.4", "0.5", "nan", "-3.0"]


def test_a_rule_before_matching_that_does_not_apply_loses_nothing() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", "n > 0")
    idle = statement(rule("Forward, Publication", "BlockMessage()", matching="Before", when="BrokerLoadIndex() > 0.5"))
    hub.publish("b1", "pub", {"n": 1}, policy=idle)
    assert hub.received("sub") == [{"n": 1}]
