"""'Several rules', 'Matching and policies' and 'Notifications' of the semantics, sentence by sentence."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tests.sizes import examples
from tests.strategies import conditions, contents
from tidings import Filter
from tidings.engine.operations import Publish, Subscribe
from tidings.policy import policies, registry
from tidings.policy.evaluation.actions import without_attributes


@pytest.fixture(autouse=True)
def _stamp() -> Iterator[None]:
    """`Stamp(name, value)` adds an attribute, `Write(text)` converts to that text and what is left of the event."""

    @registry.policy_action("Stamp", effect="adds", messages=["Publication"])
    def stamp(rule_context: Any, name: str, value: str) -> None:
        rule_context.add(name, value)

    @registry.policy_action("Write", effect="converts", messages=["Publication"])
    def write(rule_context: Any, text: str) -> None:
        rule_context.convert(lambda shaped: f"{text}:{','.join(sorted(shaped.attributes))}".encode())

    yield
    registry.unregister("Stamp")
    registry.unregister("Write")


def conflicts(overlay: Overlay) -> list[tuple[str, str, str]]:
    return [(one["first"], one["second"], one["link"]) for one in overlay.told() if one["class"] == "PolicyConflict"]


# Conditions see the message as it was matched.


def test_conditions_see_the_message_as_it_was_matched() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", "a > 0", policy=policies.remove("b"))
    strict = on_publications("ToJSON()", when="StrictMatch()")
    hub.subscribe("b1", "sub", "a > 0", policy=strict)
    hub.publish("b1", "pub", {"a": 1, "b": 2})
    (note,) = hub.notifications("sub")
    assert (dict(note.attributes), note.payload) == ({"a": 1}, None)  # {a, b} is not strictly a > 0


# Then blocks, then removals, then additions, then conversions.


@pytest.mark.parametrize(
    "actions", ["Write(w), Stamp(a, new), RemoveAttributes(a)", "RemoveAttributes(a), Stamp(a, new), Write(w)"]
)
def test_removals_come_before_additions_and_those_before_conversions(actions: str) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=on_publications(actions))
    hub.publish("b1", "pub", {"a": "old", "b": 1})
    (note,) = hub.notifications("sub")
    assert (dict(note.attributes), note.payload) == ({"a": "new", "b": 1}, b"w:a,b")


def test_the_stages_come_in_their_order_across_rules() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=on_publications("Write(first)"))
    hub.subscribe("b1", "sub", policy=statement(rule(then="Stamp(a, new)"), rule(then="RemoveAttributes(a, b)")))
    hub.publish("b1", "pub", {"a": "old", "b": 1, "c": 2})
    (note,) = hub.notifications("sub")
    assert (dict(note.attributes), note.payload) == ({"a": "new", "c": 2}, b"first:a,c")


def test_a_block_stops_everything_else() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=on_publications("BlockMessage()"))
    hub.subscribe("b1", "sub", policy=on_publications("Write(w), Log(never)"))
    hub.publish("b1", "pub", {"a": 1})
    assert (hub.received("sub"), hub.logs()) == ([], [])


# Within each by message, advertisement, subscription id.


def test_within_each_by_message_advertisement_and_subscription_id() -> None:
    hub = Overlay()
    # The ids are in the other order than the filters were issued in.
    hub.subscribe("b1", "sub", "n = 1", id="s2", policy=on_publications("Stamp(w, s2), Log(s2)"), notify="client")
    hub.subscribe("b1", "sub", "n = 1", id="s1", policy=on_publications("Stamp(w, s1), Log(s1)"), notify="client")
    hub.advertise("b1", "pub", id="a2", policy=on_publications("Stamp(w, a2), Write(a2), Log(a2)"))
    hub.advertise("b1", "pub", id="a1", policy=on_publications("Stamp(w, a1), Write(a1), Log(a1)"))
    hub.publish("b1", "pub", {"n": 1}, policy=on_publications("Stamp(w, message), Log(message)"))
    (note,) = hub.notifications("sub")
    assert hub.logs() == ["message", "a1", "a2", "s1", "s2"]
    assert note.attributes["w"] == "s2"  # of additions the last one counts
    assert note.payload == b"a1:n,w"  # of conversions the first one


# Rules of advertisements and of the message itself act on every copy, always on their own link.


def test_rules_of_advertisements_and_of_the_message_act_on_every_copy() -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub", "class = 'x'", policy=policies.remove("a"))
    for broker, client in (("b1", "near"), ("b2", "mid"), ("b3", "far")):
        overlay.subscribe(broker, client, "class = 'x'")
    drop_b = on_publications("RemoveAttributes(b)")
    overlay.publish("b1", "pub", {"class": "x", "a": 1, "b": 2, "c": 3}, policy=drop_b)
    assert {str(overlay.received(name)) for name in ("near", "mid", "far")} == {str([{"class": "x", "c": 3}])}
    assert overlay.attributes_on("b1", "b2") == [{"class": "x", "a": 1, "c": 3}]  # policies.remove is for Egress


@pytest.mark.parametrize("then", ["RemoveAttributes(a)", "KeepOnlyAttributes(class)"])
def test_what_an_advertisement_takes_away_is_gone_behind_the_link_and_that_is_told(then: str) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub", "class = 'x'", policy=on_publications(then, broker="Ingress"))
    overlay.subscribe("b2", "sub", "class = 'x' and a > 0")
    overlay.publish("b1", "pub", {"class": "x", "a": 1})
    assert overlay.attributes_on("b1", "b2") == [{"class": "x"}]
    assert overlay.received("sub") == []  # behind the link it does not match any more
    assert conflicts(overlay) == [("rule 1 of the advertisement a-pub", "the subscription s-sub", "b2")]


# Rules of a subscription act on the copy made for it.


def test_rules_of_a_subscription_act_on_the_copy_made_for_it() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "trimmed", "a > 0", policy=policies.keep_only("a"))
    overlay.subscribe("b2", "whole", "a > 0")
    overlay.publish("b1", "pub", {"a": 1, "b": 2})
    assert overlay.received("trimmed") == [{"a": 1}]
    assert overlay.received("whole") == [{"a": 1, "b": 2}]


# A removal waits while any subscription behind the link, its own included, needs the attribute to match or to deliver.

EVERYWHERE = on_publications("RemoveAttributes(a, b, c)")


@pytest.mark.parametrize(
    ("own", "other", "other_policy", "on_the_link"),
    [
        ("d > 0", None, None, {"d": 4}),  # nobody needs them
        ("a > 0", None, None, {"a": 1, "d": 4}),  # its own filter needs a to match at the next broker
        ("d > 0", "b > 0", EVERYWHERE, {"b": 2, "d": 4}),  # another one needs b to match
        ("d > 0", "d > 0", None, {"a": 1, "b": 2, "c": 3, "d": 4}),  # another one gets them delivered
        ("d > 0", "d > 0", on_publications("RemoveAttributes(a)"), {"b": 2, "c": 3, "d": 4}),
    ],
)
def test_a_removal_waits_while_any_subscription_behind_the_link_needs_the_attribute(
    own: str, other: str | None, other_policy: str | None, on_the_link: dict[str, int]
) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "one", own, policy=EVERYWHERE)
    if other is not None:
        overlay.subscribe("b2", "two", other, policy=other_policy)
    overlay.publish("b1", "pub", {"a": 1, "b": 2, "c": 3, "d": 4})
    assert overlay.attributes_on("b1", "b2") == [on_the_link]
    assert overlay.received("one") == [{"d": 4}]  # it waited, and was not forgotten
    if other is not None:
        assert len(overlay.received("two")) == 1


def test_a_removal_that_waits_is_carried_under_the_subscriptions_id() -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub")
    overlay.subscribe("b4", "one", "d > 0", policy=on_publications("RemoveAttributes(a)", broker="Ingress"))
    overlay.subscribe("b4", "two", "d > 0")
    overlay.publish("b1", "pub", {"a": 1, "d": 4})
    for link in LINE:
        (made,) = overlay.on(*link, Publish)
        assert {name: shape.removed for name, shape in made.journey.own.items()} == {"s-one": {"a"}}
    assert overlay.received("one") == [{"d": 4}]
    assert overlay.received("two") == [{"a": 1, "d": 4}]


# What it adds travels under the subscription's id and shows only in its notifications.


def test_what_a_subscription_adds_travels_under_its_id_and_shows_only_in_its_notifications() -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b3", "one", "d > 0", policy=on_publications("Stamp(mark, mine), Write(w)", broker="Ingress"))
    overlay.subscribe("b3", "two", "d > 0 and mark is null")
    overlay.publish("b1", "pub", {"d": 4})
    for link in LINE[:2]:
        (made,) = overlay.on(*link, Publish)
        assert list(made.journey.own) == ["s-one"]
        assert dict(made.event.attributes) == {"d": 4}
    (one,), (two,) = overlay.notifications("one"), overlay.notifications("two")
    assert (dict(one.attributes), one.payload) == ({"d": 4, "mark": "mine"}, b"w:d,mark")
    assert (dict(two.attributes), two.payload) == ({"d": 4}, None)


# BlockMessage of a subscription stops its own copy; it vetoes the whole link only with `govern`.


@pytest.mark.parametrize("governs", [False, True])
def test_a_subscription_vetoes_the_whole_link_only_with_the_right_to_govern(governs: bool) -> None:
    overlay = Overlay(LINE[:2], govern=frozenset({"warden"} if governs else ()))
    overlay.advertise("b1", "pub")
    overlay.subscribe("b3", "warden", policy=on_publications("BlockMessage()", broker="Routing"))
    overlay.subscribe("b3", "other")
    overlay.subscribe("b2", "here")
    overlay.publish("b1", "pub", {"a": 1})
    assert overlay.received("warden") == []
    assert overlay.received("other") == ([] if governs else [{"a": 1}])
    assert overlay.received("here") == [{"a": 1}]  # another link
    assert overlay.busy_links() == ({"b1>b2"} if governs else {"b1>b2", "b2>b3"})
    expected = [] if governs else [("rule 1 of the subscription s-warden", "the subscription s-other", "b3")]
    assert conflicts(overlay) == expected


def test_a_copy_for_a_blocked_subscription_alone_is_not_sent() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "sub", policy=on_publications("BlockMessage()", broker="Ingress"))
    overlay.publish("b1", "pub", {"a": 1})
    assert overlay.busy_links() == set()


def test_a_block_on_the_way_holds_to_the_end_though_others_get_the_copy() -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b3", "one", policy=on_publications("BlockMessage()", broker="Ingress"))
    overlay.subscribe("b3", "two")
    overlay.publish("b1", "pub", {"a": 1})
    assert (overlay.received("one"), overlay.received("two")) == ([], [{"a": 1}])


@pytest.mark.parametrize("first", ["owner", "operator"])
def test_an_operators_block_on_a_subscription_vetoes_beside_the_owners(first: str) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    blocks = on_publications("BlockMessage()", broker="Ingress")
    overlay.subscribe("b2", "one", policy=blocks if first == "owner" else None)
    overlay.subscribe("b2", "two")
    overlay.set_policy("b1", "b1", "s-one", blocks)
    overlay.publish("b1", "pub", {"a": 1})
    assert overlay.received("two") == []


# ... and so do advertisement rules that touch other publishers' events.


@pytest.mark.parametrize("governs", [False, True])
@pytest.mark.parametrize("then", ["BlockMessage()", "RemoveAttributes(a)", "Stamp(b, yes)", "Log(touched)"])
def test_rules_of_advertisements_touch_others_events_only_with_the_right_to_govern(then: str, governs: bool) -> None:
    hub = Overlay(govern=frozenset({"warden"} if governs else ()))
    hub.advertise("b1", "warden", policy=on_publications(then))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1})
    touched = (hub.received("sub"), hub.logs()) != ([{"a": 1}], [])
    assert touched is governs
    hub.clear()
    hub.publish("b1", "warden", {"a": 1})
    assert (hub.received("sub"), hub.logs()) != ([{"a": 1}], [])  # its own, in any case


@pytest.mark.parametrize("governs", [False, True])
def test_what_others_hand_down_is_inherited_only_with_the_right_to_govern(governs: bool) -> None:
    hub = Overlay(govern=frozenset({"warden"} if governs else ()))
    hub.advertise("b1", "warden", policy=on_publications("RemoveAttributes(a)", attach="Always"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1})
    assert hub.received("sub") == [{} if governs else {"a": 1}]


def test_an_operators_policy_on_an_advertisement_governs() -> None:
    hub = Overlay()
    hub.advertise("b1", "someone", "a > 0")
    hub.set_policy("b1", "b1", "a-someone", policies.remove("b"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1, "b": 2})
    assert hub.received("sub") == [{"a": 1}]


# Deny overrides.


def test_deny_overrides_whatever_allows() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=on_publications("BlockMessage()"))
    hub.subscribe("b1", "b1", policy=on_publications(""))  # the broker itself lets it through, explicitly
    hub.subscribe("b1", "sub", policy=on_publications(""))
    hub.publish("b1", "pub", {"a": 1}, policy=on_publications(""))
    assert hub.received("sub") == []


# Each conflict is told in a meta-event, once per pair of rules and link.


def test_conflicts_are_told_once_per_pair_and_link() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=policies.remove("a"))
    hub.subscribe("b1", "one", policy=policies.keep_only("a", "b"))
    hub.subscribe("b1", "two", policy=policies.keep_only("a"))
    hub.subscribe("b1", "watch", "class = 'PolicyConflict'")
    for n in range(3):
        hub.publish("b1", "pub", {"a": n, "b": n})
    assert conflicts(hub) == [
        ("rule 1 of the advertisement a-pub", "rule 1 of the subscription s-one", "one"),
        ("rule 1 of the advertisement a-pub", "rule 1 of the subscription s-two", "two"),
    ]
    assert [one["class"] for one in hub.received("watch", meta=True)] == ["PolicyConflict"] * 2
    assert hub.received("one") == [{"b": n} for n in range(3)]


def test_a_pair_that_disagrees_about_ever_other_things_is_told_once() -> None:
    @registry.policy_action("StampNumbered", effect="adds", messages=["Publication"])
    def numbered(rule_context: Any, value: str) -> None:
        rule_context.add(f"n{rule_context.attributes['n']}", value)

    try:
        hub = Overlay()
        hub.advertise("b1", "pub", policy=on_publications("StampNumbered(one)"))
        hub.subscribe("b1", "sub", policy=on_publications("StampNumbered(other)"))
        for n in range(5):
            hub.publish("b1", "pub", {"n": n})
        assert len(conflicts(hub)) == 1
    finally:
        registry.unregister("StampNumbered")


def test_a_new_policy_may_be_in_conflict_anew() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=policies.remove("a"))
    hub.subscribe("b1", "sub", policy=policies.keep_only("a"))
    hub.publish("b1", "pub", {"a": 1})
    hub.set_policy("b1", "sub", "s-sub", policies.keep_only("a", "b"))
    hub.publish("b1", "pub", {"a": 1})
    assert len(conflicts(hub)) == 2


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("BlockMessage()", "", "it is blocked"),
        ("RemoveAttributes(a)", "KeepOnlyAttributes(a)", "it is removed"),
        ("Stamp(b, one)", "Stamp(b, other)", "the later one counts"),
        ("ToXML()", "ToJSON()", "the first one counts"),
    ],
)
def test_kinds_of_conflicts(one: str, other: str, reason: str) -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", id="a1", policy=on_publications(one))
    hub.advertise("b1", "pub", id="a2", policy=on_publications(other))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1})
    (told,) = hub.told()
    assert told["class"] == "PolicyConflict"
    assert told["reason"].endswith(reason)


# A filter that carries a policy neither covers, is covered, nor merges; one with `this.` only by the same client's.


@pytest.mark.parametrize("policy", [None, policies.trim()])
@pytest.mark.parametrize("publishers", [None, "x between this.x - 1 and this.x + 1"])
def test_a_filter_that_is_covered_by_one_with_a_policy_or_by_anothers_is_sent_all_the_same(
    policy: Any, publishers: str | None
) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub", publisher_context=["x"])
    overlay.subscribe("b2", "wide", "a > 0", policy=policy, publishers=publishers)
    overlay.subscribe("b2", "narrow", "a > 10", policy=policies.to_xml(), publishers=publishers)
    assert overlay.ids("b2", "b1", Subscribe) == ["s-wide", "s-narrow"]


# StrictMatch of a publication ignores what the system added; of filters it means equal filters.


def test_strict_match_ignores_what_the_system_added() -> None:
    overlay = Overlay(LINE[:2])
    traced = on_publications("AppendPrevHop(), AugmentBrokerHostInfo(attributes)")
    overlay.advertise("b1", "pub", "a > 0", policy=traced)
    overlay.subscribe("b2", "b2", "a > 0", policy=policies.firewall())
    overlay.subscribe("b3", "sub")
    overlay.publish("b1", "pub", {"a": 1})
    overlay.publish("b1", "pub", {"a": 1, "b": 2})
    assert [one["b"] for one in overlay.received("sub")] == [2]


@pytest.mark.parametrize(
    ("text", "blocked"),
    [("a > 0 AND b > 0", True), ("(a > 0) and (b > 0)", True), ("a > 0 and b > 1", False), ("a > 0", False)],
)
def test_strict_match_of_a_subscription_means_equal_filters(text: str, blocked: bool) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub", "a > 0 and b > 0", policy=policies.firewall(subscriptions=True))
    overlay.subscribe("b2", "sub", text)
    assert (overlay.ids("b2", "b1", Subscribe) == []) is blocked


# RemoveAttributes on a subscription or advertisement drops those predicates (it widens the filter).


@examples(87, 3000)
@given(conditions().map(Filter), st.sets(st.sampled_from(["a", "b", "c", "d"])), st.lists(contents, max_size=6))
def test_what_is_left_of_a_filter_covers_the_filter(
    content: Filter, removed: set[str], events: list[dict[str, Any]]
) -> None:
    wider = without_attributes(content, removed)
    assert not wider.names & removed
    for event in events:
        if content.matches(event):
            assert Filter(wider.expression).matches(event)


@pytest.mark.parametrize("kind", ["Advertisement", "Subscription"])
def test_remove_attributes_on_a_filter_drops_those_predicates(kind: str) -> None:
    overlay = Overlay(LINE[:1])
    policy = statement(rule(f"Forward, {kind}", "RemoveAttributes(a)"))
    if kind == "Advertisement":
        overlay.advertise("b1", "pub", "a > 0 and b > 0", policy=policy)
        assert str(overlay.engines["b2"].state.filters.advertisements["a-pub"].value.content) == "b > 0"
    else:
        overlay.advertise("b2", "pub")
        overlay.subscribe("b1", "sub", "a > 0 and (b > 0 or a = 7)", policy=policy)
        assert str(overlay.engines["b2"].state.filters.subscriptions["s-sub"].value.content) == "TRUE"


def test_keep_only_on_a_filter_drops_all_others() -> None:
    overlay = Overlay(LINE[:1])
    policy = statement(rule("Forward, Advertisement", "KeepOnlyAttributes(class)"))
    overlay.advertise("b1", "pub", "class = 'x' and a > 0 and b < 3", policy=policy)
    assert str(overlay.engines["b2"].state.filters.advertisements["a-pub"].value.content) == "class = 'x'"


def test_a_widened_subscription_is_decided_exactly_where_it_was_made() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b2", "pub")
    widens = statement(rule("Forward, Subscription", "RemoveAttributes(a)"))
    overlay.subscribe("b1", "sub", "a > 0 and b > 0", policy=widens)
    for a in (0, 1):
        overlay.publish("b2", "pub", {"a": a, "b": 1})
    assert len(overlay.attributes_on("b2", "b1")) == 2  # more traffic
    assert overlay.received("sub") == [{"a": 1, "b": 1}]  # the same notifications


# One notification per subscription by default; notify="client" gives one per client and event.


def test_one_notification_per_subscription_by_default() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", "a > 0", id="s1", policy=policies.trim())
    hub.subscribe("b1", "sub", "b > 0", id="s2", policy=policies.trim())
    hub.publish("b1", "pub", {"a": 1, "b": 2, "c": 3})
    assert [(one.subscription, dict(one.attributes)) for one in hub.notifications("sub")] == [
        ("s1", {"a": 1}),
        ("s2", {"b": 2}),
    ]


@pytest.mark.parametrize("points", ["Egress", "Ingress, Routing, Egress", "Ingress"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_notify_client_gives_one_per_client_and_event_and_trim_keeps_the_union(length: int, points: str) -> None:
    overlay = Overlay(LINE[:length])
    last = f"b{length + 1}"
    overlay.advertise("b1", "pub")
    trim = on_publications("TrimAttributes()", broker=points)
    overlay.subscribe(last, "sub", "a > 0", id="s1", policy=trim, notify="client")
    overlay.subscribe(last, "sub", "b > 0", id="s2", policy=trim, notify="client")
    overlay.subscribe(last, "sub", "c > 10", id="s3", policy=trim, notify="client")
    overlay.publish("b1", "pub", {"a": 1, "b": 2, "c": 3})
    (note,) = overlay.notifications("sub")
    assert dict(note.attributes) == {"a": 1, "b": 2}
    assert note.subscriptions == ("s1", "s2")


def test_notify_client_composes_the_rules_of_all_its_subscriptions() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", id="s1", policy=policies.remove("a"), notify="client")
    hub.subscribe("b1", "sub", id="s2", policy=policies.prev_hop(), notify="client")
    hub.subscribe("b1", "sub", id="s3", policy=policies.to_json(), notify="client")
    hub.subscribe("b1", "sub", id="s4", policy=on_publications("BlockMessage()"), notify="client")
    hub.subscribe("b1", "sub", id="s5")
    hub.subscribe("b1", "other", id="s6", notify="client")
    hub.publish("b1", "pub", {"a": 1, "b": 2})
    alone, together = hub.notifications("sub")
    assert (alone.subscription, dict(alone.attributes)) == ("s5", {"a": 1, "b": 2})
    assert together.subscriptions == ("s1", "s2", "s3")
    assert dict(together.attributes) == {"b": 2, "PrevHop": "pub"}
    assert together.payload is not None
    assert len(hub.notifications("other")) == 1


# What a policy took away is nowhere in the notification.


@pytest.mark.parametrize("length", [0, 2])
def test_what_was_removed_is_not_in_the_event_of_the_notification_either(length: int) -> None:
    overlay = Overlay(LINE[:length])
    overlay.advertise("b1", "pub", policy=policies.remove("secret"))
    overlay.subscribe(f"b{length + 1}", "sub", policy=policies.to_json())
    overlay.publish("b1", "pub", {"a": 1, "secret": "hidden"}, payload=b"a payload")
    (note,) = overlay.notifications("sub")
    assert "secret" not in note.event.attributes
    assert note.payload == note.event.payload
    assert b"hidden" not in (note.payload or b"")


def test_beside_an_operators_policy_the_owners_still_does_not_govern() -> None:
    hub = Overlay()
    hub.advertise("b1", "someone", "a > 0", policy=on_publications("RemoveAttributes(a)"))
    hub.set_policy("b1", "b1", "a-someone", on_publications("Log(operator)"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 1})
    assert (hub.received("sub"), hub.logs()) == ([{"a": 1}], ["operator"])


@pytest.mark.parametrize("length", [0, 1])
def test_trimming_that_travels_with_a_message_has_no_filter_to_go_by_and_takes_nothing_away(length: int) -> None:
    overlay = Overlay(LINE[:length])
    overlay.advertise("b1", "pub")
    overlay.subscribe(f"b{length + 1}", "sub", "a > 0")
    overlay.publish("b1", "pub", {"a": 1, "b": 2}, policy=policies.trim())
    assert overlay.received("sub") == [{"a": 1, "b": 2}]
