"""'Where a policy lives' and 'Defaults' of the semantics, sentence by sentence."""

import pytest

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tidings import Policy
from tidings.engine.operations import Publish, SetPolicy, Subscribe
from tidings.policy import policies
from tidings.policy.ast import ALL_POINTS, Attach, Matching

BLOCK = on_publications("BlockMessage()")
LOG = on_publications("Log(seen)")


@pytest.fixture
def line() -> Overlay:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub", "class = 'x'")
    overlay.subscribe("b4", "sub", "class = 'x'")
    overlay.clear()
    return overlay


# Attached: it travels with one message.


def test_an_attached_policy_travels_with_one_message_and_no_other(line: Overlay) -> None:
    line.publish("b1", "pub", {"class": "x", "n": 1}, policy=LOG)
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [["seen"]] * 4
    line.clear()
    line.publish("b1", "pub", {"class": "x", "n": 2})
    assert line.logs() == []
    assert line.received("sub") == [{"class": "x", "n": 2}]


# Associated: stored with an advertisement or a subscription, by client or by a broker itself.


def test_a_policy_given_with_an_advertisement_is_stored_wherever_the_advertisement_is() -> None:
    line = Overlay(LINE)
    line.advertise("b1", "pub", "class = 'x'", policy=LOG)
    line.subscribe("b4", "sub", "class = 'x'")
    line.publish("b1", "pub", {"class": "x"})
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [["seen"]] * 4


def test_a_policy_given_with_a_subscription_is_stored_along_its_path() -> None:
    line = Overlay(LINE)
    line.advertise("b2", "pub", "class = 'x'")
    line.subscribe("b4", "sub", "class = 'x'", policy=LOG)
    line.publish("b2", "pub", {"class": "x"})
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [[], ["seen"], ["seen"], ["seen"]]


def test_a_broker_may_hold_local_filters_with_policies(line: Overlay) -> None:
    line.subscribe("b2", "b2", "class = 'x' and n > 10", policy=policies.firewall(strict=False))
    for n in (5, 11):
        line.publish("b1", "pub", {"class": "x", "n": n})
    assert line.received("sub") == [{"class": "x", "n": 5}]


def test_a_brokers_own_filter_keeps_its_rules_before_matching_to_itself(line: Overlay) -> None:
    """The filter goes to other brokers as any other does, and there its rules before matching are idle."""
    line.subscribe("b2", "b2", "class = 'x'", policy=on_publications("BlockMessage()", matching="Before"))
    assert line.rejected() == []
    assert line.ids("b2", "b1", Subscribe) == ["s-b2"]
    line.publish("b1", "pub", {"class": "x"})
    assert line.busy_links() == {"b1>b2"}  # b2 refuses it, b1 does not
    assert [bool(line.rejected(name)) for name in ("b1", "b2", "b3")] == [False, True, False]


# Table 1 says which rules may stand where; anything else is refused when it is set.

ANYTHING = {
    kind: statement(rule(f"Forward, {kind}", "Log()"))
    for kind in ("Advertisement", "Subscription", "Publication", "Unadvertisement", "Unsubscription")
}
TABLE_1 = {
    "publish": {"Publication"},
    "subscribe": {"Subscription", "Publication", "Unsubscription"},
    "advertise": {"Advertisement", "Subscription", "Publication", "Unadvertisement"},
    "unsubscribe": {"Unsubscription"},
    "unadvertise": {"Unadvertisement"},
    "set on a subscription": {"Publication", "Unsubscription"},
    "set on an advertisement": {"Subscription", "Publication", "Unadvertisement"},
}


@pytest.mark.parametrize("kind", ANYTHING)
@pytest.mark.parametrize("where", TABLE_1)
def test_table_1_decides_what_may_stand_where(where: str, kind: str) -> None:
    hub, policy = Overlay(), ANYTHING[kind]
    hub.advertise("b1", "pub")
    hub.subscribe("b1", "sub")
    hub.clear()
    match where:
        case "publish":
            hub.publish("b1", "pub", {}, policy=policy)
        case "subscribe":
            hub.subscribe("b1", "sub", id="another", policy=policy)
        case "advertise":
            hub.advertise("b1", "pub", id="another", policy=policy)
        case "unsubscribe":
            hub.unsubscribe("b1", "sub", policy=policy)
        case "unadvertise":
            hub.unadvertise("b1", "pub", policy=policy)
        case "set on a subscription":
            hub.set_policy("b1", "sub", "s-sub", policy)
        case "set on an advertisement":
            hub.set_policy("b1", "pub", "a-pub", policy)
    assert (hub.rejected() == []) is (kind in TABLE_1[where]), hub.rejected()


def test_what_is_refused_changes_nothing() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=BLOCK)
    hub.set_policy("b1", "sub", "s-sub", "PolicyStatement { On(Forward, Advertisement) { If {} Then {} } }")
    hub.set_policy("b1", "sub", "s-sub", "nonsense")
    assert len(hub.rejected()) == 2
    hub.publish("b1", "pub", {})
    assert hub.received("sub") == []  # the policy of before is in force
    hub.unsubscribe("b1", "sub", policy=BLOCK)  # a rule on publications cannot stand there
    assert hub.engines["b1"].state.filters.subscriptions.get("s-sub") is not None


# set_policy follows the filter's path, is for its owner only, and None removes.


def test_set_policy_follows_the_path_of_the_filter(line: Overlay) -> None:
    line.set_policy("b4", "sub", "s-sub", BLOCK)
    path = [link for link, passed in line.passed.items() if any(isinstance(one, SetPolicy) for one in passed)]
    assert sorted(path) == [("b2", "b1"), ("b3", "b2"), ("b4", "b3")]
    line.publish("b1", "pub", {"class": "x"})
    assert line.busy_links() == set()  # blocked where it is published


def test_set_policy_on_an_advertisement_goes_where_the_advertisement_went(line: Overlay) -> None:
    line.set_policy("b1", "pub", "a-pub", LOG)
    line.publish("b1", "pub", {"class": "x"})
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [["seen"]] * 4


def test_set_policy_is_for_the_owner_only(line: Overlay) -> None:
    line.set_policy("b4", "mallory", "s-sub", BLOCK)
    line.set_policy("b1", "sub", "a-pub", BLOCK)
    assert line.rejected() == [
        "mallory has no subscription or advertisement s-sub",
        "sub has no subscription or advertisement a-pub",
    ]
    line.publish("b1", "pub", {"class": "x"})
    assert len(line.received("sub")) == 1


def test_none_removes(line: Overlay) -> None:
    line.set_policy("b4", "sub", "s-sub", BLOCK)
    line.set_policy("b4", "sub", "s-sub", None)
    line.publish("b1", "pub", {"class": "x"})
    assert len(line.received("sub")) == 1
    assert all(engine.state.filters.subscriptions["s-sub"].policy is None for engine in line.engines.values())


def test_what_an_operator_sets_is_local_and_beside_the_owners(line: Overlay) -> None:
    line.set_policy("b4", "sub", "s-sub", policies.trim())
    line.clear()
    line.set_policy("b2", "b2", "s-sub", LOG)
    assert line.passed == {}
    line.publish("b1", "pub", {"class": "x", "a": 1})
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [[], ["seen"], [], []]
    assert line.received("sub") == [{"class": "x"}]  # the owner's is still in force
    line.clear()
    line.set_policy("b4", "sub", "s-sub", None)
    line.publish("b1", "pub", {"class": "x", "a": 1})
    assert (line.logs(), line.received("sub")) == (["seen"], [{"class": "x", "a": 1}])
    line.clear()
    line.set_policy("b2", "b2", "s-sub", None)
    line.publish("b1", "pub", {"class": "x", "a": 1})
    assert line.logs() == []


def test_an_operators_rule_at_the_same_place_as_the_owners_is_told_as_well(line: Overlay) -> None:
    """Once per rule: these are two."""
    line.set_policy("b4", "sub", "s-sub", on_publications("Log(owner)"))
    line.set_policy("b4", "b4", "s-sub", on_publications("Log(operator)"))
    line.publish("b1", "pub", {"class": "x"})
    assert line.logs("b4") == ["owner", "operator"]


def test_an_operators_policy_outlives_a_new_version_of_the_subscription() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    hub.set_policy("b1", "b1", "s-sub", BLOCK)
    hub.subscribe("b1", "sub", "n > 0")
    hub.publish("b1", "pub", {"n": 1})
    assert hub.received("sub") == []


# Removal messages take a policy too; their rules run before the removal, and an exception lets it proceed.


@pytest.mark.parametrize("operation", ["Forward", "Insert"])
def test_rules_on_removals_run_before_the_removal(operation: str) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=statement(rule(f"{operation}, Unsubscription", "Log(associated, $Message)")))
    hub.unsubscribe("b1", "sub", policy=statement(rule(f"{operation}, Unsubscription", "Log(attached)")))
    assert hub.logs() == ["attached", "associated TRUE"]
    assert hub.engines["b1"].state.filters.subscriptions.get("s-sub") is None


def test_a_removal_goes_where_the_filter_went_under_its_rules(line: Overlay) -> None:
    line.unsubscribe("b4", "sub", policy=statement(rule("Forward, Unsubscription", "Log(gone)")))
    assert all(len(engine.state.filters.subscriptions) == 0 for engine in line.engines.values())
    # The policy is attached, so it travels: every broker on the way applies it.
    assert [line.logs(name) for name in ("b1", "b2", "b3", "b4")] == [["gone"]] * 4


@pytest.mark.parametrize("matching", ["Before", "After"])
@pytest.mark.parametrize("operation", ["Forward", "Insert"])
@pytest.mark.parametrize("kind", ["Unsubscription", "Unadvertisement"])
def test_an_exception_lets_a_removal_proceed(kind: str, operation: str, matching: str) -> None:
    overlay = Overlay([("b1", "b2")])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "sub")
    failing = statement(rule(f"{operation}, {kind}", "Persist('no store')", matching=matching))
    if kind == "Unsubscription":
        overlay.unsubscribe("b2", "sub", policy=failing)
    else:
        overlay.unadvertise("b1", "pub", policy=failing)
    assert "PolicyException" in overlay.told_classes()
    left = [
        one.id
        for engine in overlay.engines.values()
        for table in (engine.state.filters.subscriptions, engine.state.filters.advertisements)
        for one in table
    ]
    assert {one for one in left if not one.startswith("$")} == {"a-pub" if kind == "Unsubscription" else "s-sub"}


# Defaults.


def test_defaults_are_those_of_the_semantics() -> None:
    (only,) = Policy.parse("PolicyStatement { On(Forward, Publication) { If {} Then {} } }").rules
    assert (only.matching, only.points, only.attach, only.yield_attach) == (
        Matching.AFTER,
        ALL_POINTS,
        Attach.NEVER,
        False,
    )


def test_if_nothing_is_true() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=BLOCK)
    hub.publish("b1", "pub", {})
    assert hub.received("sub") == []


@pytest.mark.parametrize(
    ("when", "holds", "asks"),
    [
        ("BrokerLoadIndex() > 0.5 && AuthenticateReceiver(G)", False, []),  # && short-circuits
        ("BrokerLoadIndex() < 0.5 && AuthenticateReceiver(G)", True, [("b1", "sub", "G")]),
        ("BrokerLoadIndex() < 0.5 || AuthenticateReceiver(G)", True, []),
        ("BrokerLoadIndex() > 0.5 || AuthenticateReceiver(G)", True, [("b1", "sub", "G")]),
        ("(BrokerLoadIndex() > 0.5 || BrokerLoadIndex() < 0.1) && BrokerLoadIndex() = 0", True, []),
        ("BrokerLoadIndex() < 0.1 || (BrokerLoadIndex() > 0.5 && BrokerLoadIndex() = 1)", True, []),
    ],
)
def test_conditions_short_circuit_and_may_be_grouped(when: str, holds: bool, asks: list[tuple[str, str, str]]) -> None:
    hub = Overlay(trust={"G": {"sub"}})
    hub.subscribe("b1", "sub", policy=on_publications("BlockMessage()", when=when))
    hub.publish("b1", "pub", {})
    assert (hub.received("sub") == []) is holds
    assert hub.asked == asks


def test_a_publication_with_a_policy_passes_to_the_next_broker_with_it(line: Overlay) -> None:
    line.publish("b1", "pub", {"class": "x"}, policy=LOG)
    (sent,) = line.on("b1", "b2", Publish)
    assert sent.journey.policy is not None
    assert Policy.parse(sent.journey.policy) == Policy.parse(LOG)


def test_an_operators_rule_before_matching_needs_a_filter_of_the_brokers_own() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    hub.set_policy("b1", "b1", "s-sub", on_publications("BlockMessage()", matching="Before"))
    assert "it is matching that finds the filter" in hub.rejected()[0]


def test_in_an_overlay_rules_for_routing_are_not_suspicious() -> None:
    rare = on_publications("BlockMessage()", broker="Routing", when="StrictMatch()")
    alone, line = Overlay(), Overlay(LINE)
    for overlay in (alone, line):
        overlay.subscribe("b1", "sub", policy=rare)
    assert any("never fires in a hub" in one for one in alone.remarks())
    assert line.remarks() == []


@pytest.mark.parametrize("set_to", [LOG, None])
def test_what_is_set_leaves_alone_the_rules_that_travel_with_the_advertisement_itself(set_to: str | None) -> None:
    """Set_policy cannot restate them; a scope must not be lost because a rule on publications is changed."""
    overlay = Overlay(LINE[:1], brokers=["b1", "b2", "b3"], trust={"Inner": {"b2"}})
    overlay.advertise("b1", "pub", "n > 0", policy=policies.authenticated("Inner"))
    overlay.set_policy("b1", "pub", "a-pub", set_to)
    overlay.join("b2", "b3")  # later, and of no such group
    assert overlay.engines["b3"].state.filters.advertisements.get("a-pub") is None
    overlay.publish("b1", "pub", {"n": 1})
    assert bool(overlay.logs()) is (set_to is not None)
    kept = overlay.engines["b2"].state.filters.advertisements["a-pub"].value.policy
    assert kept is not None
    assert "AuthenticateReceiver" in kept


def test_what_was_set_before_is_replaced_by_what_is_set() -> None:
    hub = Overlay()
    hub.advertise(
        "b1", "pub", "n > 0", policy=statement(rule("Forward, Advertisement", "Log(sent)"), rule(then="Log(one)"))
    )
    for said in ("two", "three"):
        hub.set_policy("b1", "pub", "a-pub", on_publications(f"Log({said})"))
    hub.subscribe("b1", "sub", "n > 0")
    hub.clear()
    hub.publish("b1", "pub", {"n": 1})
    assert hub.logs() == ["three"]
