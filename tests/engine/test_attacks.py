"""What a hostile client, a hostile neighbour and a tired operator try, and what becomes of it."""

import time
from typing import Any

import msgspec
import pytest

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tidings import Filter
from tidings.engine.headers import CopyChanges, ForwardingHeader
from tidings.engine.operations import (
    Advertise,
    DelegateContext,
    Join,
    Publish,
    Receive,
    SetContext,
    SetPolicy,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from tidings.engine.state import filter_rules
from tidings.model.advertisement import Advertisement
from tidings.model.limits import MAX_META_EVENTS_PER_MESSAGE, MAX_POLICY_CHARACTERS
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.policy import policies

BLOCK = on_publications("BlockMessage()")
TAGS = on_publications("RemoveAttributes(a), AppendPrevHop(), ToJSON()")
WALL = policies.firewall(strict=False)


def subscription(client: str, name: str = "forged", policy: Any = None) -> Subscribe:
    made = Subscription.of(
        Filter.parse("true"), id=name, subscriber=client, policy=None if policy is None else str(policy)
    )
    return Subscribe(made)


# A journey of one's own making.


@pytest.mark.parametrize(
    "journey",
    [
        ForwardingHeader(meta=True),
        ForwardingHeader(own={"s-sub": CopyChanges(blocked=True)}),
        ForwardingHeader(common=CopyChanges(payload=b"forged")),
        ForwardingHeader(policy=BLOCK),
    ],
    ids=["pretends to be a broker", "blocks others", "forges", "hides its policy"],
)
def test_a_client_does_not_say_what_happened_on_the_way(journey: ForwardingHeader) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    hub.do("b1", Publish(hub.event("pub", {"class": "PolicyException"}), journey))
    assert hub.rejected() == ["only a broker says what happened to an event on its way"]
    assert hub.received("sub") == []


# Names equal to brokers'.


def test_a_client_has_no_name_of_a_neighbour() -> None:
    line, name = Overlay(LINE), "b2"
    line.subscribe("b1", name, policy=WALL)
    line.advertise("b1", name)
    line.publish("b1", name, {})
    line.set_context("b1", name, x=1)
    line.do("b1", DelegateContext(name, "mallory"))
    line.disconnect("b1", name)
    assert line.rejected().pop() == f"{name} is the name of a broker; a link that is gone is left"
    assert line.engines["b1"].state.filters.advertisements.get("$meta.b2") is not None
    assert line.rejected()[:-1] == [f"{name} is the name of a broker; choose another one for a client"] * 5


def test_a_client_of_a_distant_brokers_name_does_not_govern_where_that_one_is_a_neighbour() -> None:
    """All brokers know each other by link state; and what comes as a client's of another one is refused, too."""
    line = Overlay(LINE)
    line.advertise("b3", "pub")
    line.subscribe("b1", "victim", "n > 0")
    line.subscribe("b1", "b3", "n > 0", policy=WALL)
    assert line.rejected("b1") == ["b3 is the name of a broker; choose another one for a client"]
    line.receive("b2", "b1", subscription("b3", policy=WALL))
    assert line.rejected("b2") == ["b3 is the name of a broker, and this came from b1"]
    line.publish("b3", "pub", {"n": 1})
    assert line.received("victim") == [{"n": 1}]


def test_a_client_of_a_distant_brokers_name_does_not_become_that_broker() -> None:
    line = Overlay(LINE[:2])
    line.advertise("b1", "pub", "n > 0")
    line.subscribe("b1", "victim", "n > 0")
    line.subscribe("b3", "b1", "n > 0", policy=WALL)
    line.advertise("b3", "b1", "n > 0", policy=BLOCK)
    line.publish("b3", "b1", {"n": 7})
    assert set(line.rejected("b3")) == {"b1 is the name of a broker; choose another one for a client"}
    line.receive("b2", "b3", subscription("b1", policy=WALL))
    line.receive("b2", "b3", Publish(line.event("b1", {"n": 7})))
    assert line.rejected("b2") == ["b1 is the name of a broker, and this came from b3"] * 2
    line.publish("b1", "pub", {"n": 1})
    assert line.received("victim") == [{"n": 1}]


@pytest.mark.parametrize(
    "operation",
    [
        subscription("b1", policy=WALL),
        Advertise(Advertisement.of(Filter.parse("true"), id="forged", publisher="b1", policy=BLOCK)),
        SetPolicy("b1", "s-victim", BLOCK),
        SetContext("b1", Context.of({"x": 1})),
        SetPolicy("b1", "wall", None),
        Unsubscribe("b1", "wall"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_neighbour_does_not_act_in_the_brokers_own_name(operation: Any) -> None:
    line = Overlay(LINE[:1])
    line.subscribe("b1", "victim", "n > 0")
    line.subscribe("b1", "b1", "n > 5", id="wall", policy=WALL)
    line.clear()
    line.receive("b1", "b2", operation)
    assert len(line.rejected("b1")) == (0 if isinstance(operation, Unsubscribe) else 1)  # of what b2 did not send
    line.publish("b1", "pub", {"n": 1})
    line.publish("b1", "pub", {"n": 6})
    assert line.received("victim") == [{"n": 1}]


@pytest.mark.parametrize(
    "operation",
    [SetPolicy("victim", "s-victim", BLOCK), Unsubscribe("victim", "s-victim"), Unadvertise("victim", "a-victim")],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("where", ["from a neighbour", "from a namesake at another broker"])
def test_only_where_a_filter_came_from_it_is_changed(where: str, operation: Any) -> None:
    line = Overlay(LINE[:1])
    line.advertise("b2", "pub")
    line.advertise("b1", "victim", "m > 0")
    line.subscribe("b1", "victim", "n > 0")
    line.clear()
    if where == "from a neighbour":
        line.receive("b1", "b2", operation)
    else:
        line.do("b2", operation)
        assert len(line.rejected()) == 1
    line.publish("b2", "pub", {"n": 1})
    assert line.received("victim") == [{"n": 1}]
    assert line.engines["b2"].state.filters.advertisements.get("a-victim") is not None


def test_a_namesake_that_disconnects_elsewhere_takes_nothing_along() -> None:
    line = Overlay(LINE[:1])
    line.advertise("b2", "pub")
    line.subscribe("b1", "victim")
    line.disconnect("b2", "victim")
    line.publish("b2", "pub", {"n": 1})
    assert line.received("victim") == [{"n": 1}]


def test_operations_over_a_link_that_is_none_are_refused() -> None:
    hub = Overlay()
    hub.do("b1", Receive("b9", subscription("someone")))
    assert hub.rejected() == ["b9 is no neighbour of b1"]


# Another's ids.


def test_anothers_ids_are_taken() -> None:
    line = Overlay(LINE[:1])
    line.advertise("b1", "pub", "n > 0", id="one")
    line.subscribe("b2", "sub", "n > 0", id="two")
    line.clear()
    for broker in ("b1", "b2"):
        line.subscribe(broker, "eve", id="one")
        line.subscribe(broker, "eve", id="two")
        line.advertise(broker, "eve", id="one")
        line.advertise(broker, "eve", id="two")
    assert len(line.rejected()) == 8
    assert line.passed == {}


def test_ids_of_the_system_are_the_brokers_alone() -> None:
    """Else a client could take the id of what a broker is going to issue, and so keep it from being issued."""
    overlay = Overlay(brokers=["b1", "b2"])
    overlay.advertise("b1", "eve", id="$meta.b1")
    overlay.subscribe("b1", "eve", id="$wall")
    assert all("such ids are the system's" in one for one in overlay.rejected())
    overlay.join("b1", "b2")
    overlay.subscribe("b1", "b1", id="$wall", policy=WALL)
    assert len(overlay.rejected()) == 2
    assert overlay.engines["b2"].state.filters.advertisements.get("$meta.b1") is not None


# Evading a firewall.


def firewalled(owner: str = "b2", **settings: Any) -> Overlay:
    """b1 - b2 - b3 with a firewall of b2's, or of a client with the right to govern, on b1's link to b2."""
    overlay = Overlay(LINE[:2], **settings)
    overlay.advertise("b1", "pub", "class = 'x'")
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.subscribe("b2", "mid", "class = 'x'")
    overlay.subscribe("b2", owner, "class = 'x' and n > 5", id="wall", policy=WALL)
    overlay.set_context("b3", "sub", role="clerk")
    overlay.set_context("b2", "mid", role="clerk")
    overlay.clear()
    return overlay


@pytest.mark.parametrize(("owner", "govern"), [("b2", frozenset[str]()), ("warden", frozenset({"warden"}))])
@pytest.mark.parametrize("subscribers", ["role = 'clerk'", "this.x = 1 or role is not null", "no = 'one'"])
def test_a_firewall_is_not_evaded_by_saying_for_whom_an_event_is(
    owner: str, govern: frozenset[str], subscribers: str
) -> None:
    overlay = firewalled(owner, govern=govern)
    overlay.publish("b1", "pub", {"class": "x", "n": 6}, subscribers=subscribers)
    assert (overlay.received("sub"), overlay.received("mid"), overlay.busy_links()) == ([], [], set())
    overlay.publish("b1", "pub", {"class": "x", "n": 5}, subscribers="role = 'clerk'")
    assert overlay.received("sub") == overlay.received("mid") == [{"class": "x", "n": 5}]


def test_a_firewall_is_not_evaded_by_removing_what_it_looks_at() -> None:
    """Others' removals wait while the firewall behind the link needs the attribute, even if the event is not for it."""
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub", "class = 'x'")
    overlay.subscribe("b3", "sub", "class = 'x'", policy=on_publications("RemoveAttributes(n)"))
    wall = on_publications("BlockMessage()", broker="Routing")  # at b1 it does not fire
    overlay.subscribe("b2", "b2", "class = 'x' and n > 5", id="wall", policy=wall)
    overlay.set_context("b3", "sub", role="clerk")
    for subscribers in (None, "role = 'clerk'"):
        overlay.clear()
        overlay.publish("b1", "pub", {"class": "x", "n": 6}, subscribers=subscribers)
        assert overlay.attributes_on("b1", "b2") == [{"class": "x", "n": 6}]
        assert overlay.attributes_on("b2", "b3") == overlay.received("sub") == []


@pytest.mark.parametrize(("owner", "govern"), [("b2", frozenset[str]()), ("warden", frozenset({"warden"}))])
def test_a_firewall_is_not_evaded_by_going_without_matching(owner: str, govern: frozenset[str]) -> None:
    fast = on_publications("ForwardTo(b2)", matching="Before", broker="Ingress")
    overlay = firewalled(owner, govern=govern)
    overlay.publish("b1", "pub", {"class": "x", "n": 6}, policy=fast)
    assert overlay.busy_links() == set()
    overlay.publish("b1", "pub", {"class": "x", "n": 5}, policy=fast)
    assert len(overlay.received("sub")) == 1


def test_the_brokers_own_firewall_is_not_evaded_by_going_without_matching() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b2", "sub", "true")
    overlay.subscribe("b2", "sub", "n > 0")
    overlay.subscribe("b1", "b1", "n > 5", id="wall", policy=WALL)
    fast = on_publications("ForwardTo(b2)", matching="Before", broker="Ingress")
    overlay.publish("b1", "pub", {"n": 6}, policy=fast)
    overlay.publish("b1", "pub", {"n": 4}, policy=fast)
    assert overlay.received("sub") == [{"n": 4}]


def test_an_authorisation_is_not_evaded_by_a_subscription_that_goes_without_matching() -> None:
    overlay = Overlay(LINE[:1], trust={}, govern=frozenset({"pub"}))
    guard = statement(
        rule("Insert, Subscription", "UninsertMessage()", broker="Ingress", when="AuthenticateSender(Ok) = False"),
        rule("Forward, Subscription", "BlockMessage()", broker="Ingress", when="AuthenticateSender(Ok) = False"),
    )
    overlay.advertise("b1", "pub", policy=guard)
    fast = statement(rule("Forward, Subscription", "ForwardTo(b1)", matching="Before", broker="Ingress"))
    overlay.subscribe("b2", "eve", policy=fast)
    assert overlay.ids("b2", "b1", Subscribe) == []
    assert all(engine.state.filters.subscriptions.get("s-eve") is None for engine in overlay.engines.values())


@pytest.mark.parametrize("policy", ["ForwardTo(b1)", "Log()"])
def test_what_a_client_leaves_behind_goes_when_it_goes(policy: str) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    fast = statement(
        rule("Forward, Subscription", policy, matching="Before", broker="Ingress"),
        rule("Insert, Subscription", "UninsertMessage()", broker="Ingress", when="BrokerLoadIndex() > 0.5"),
    )
    for load in (0.0, 0.9):
        overlay.load("b2", load)
        overlay.subscribe("b2", "eve", id=f"s{load}", policy=fast)
    overlay.disconnect("b2", "eve")
    assert all(len(engine.state.filters.subscriptions) == 0 for engine in overlay.engines.values())


def test_what_goes_without_matching_does_not_overtake_what_waits() -> None:
    overlay = Overlay(LINE[:1], hold_answers=True)
    overlay.advertise("b1", "pub", policy=on_publications("Log()", when="AuthenticateReceiver(G)", broker="Ingress"))
    overlay.subscribe("b2", "sub", "n > 0")
    overlay.publish("b1", "pub", {"n": 1})
    overlay.publish("b1", "pub", {"n": 2}, policy=on_publications("ForwardTo(b2)", matching="Before", broker="Ingress"))
    assert overlay.received("sub") == []
    overlay.answer("b1", "b2", "G", member=True)
    overlay.run()
    assert [one["n"] for one in overlay.received("sub")] == [1, 2]


def test_a_strict_firewall_is_not_evaded_by_names_of_the_system() -> None:
    """No door lets such a name in; should one ever, the firewall does not count it."""
    hub = Overlay()
    hub.subscribe("b1", "b1", "n > 5", policy=policies.firewall())
    hub.subscribe("b1", "sub", "n > 0")
    event = hub.event("pub", {"n": 6})
    hub.do("b1", Publish(msgspec.structs.replace(event, attributes=Attributes.trusted({"n": 6, "$x": 1}))))
    assert hub.received("sub") == []


def test_a_firewalls_structure_and_subject_count_whoever_an_event_is_for() -> None:
    hub = Overlay()
    hub.subscribe("b1", "b1", "n > 5", subject="orders", policy=WALL)
    hub.subscribe("b1", "sub", "n > 0")
    for subject, expected in (("orders", 0), ("news", 1)):
        hub.clear()
        hub.publish("b1", "pub", {"n": 6}, subject=subject, subscribers="role is null")
        assert len(hub.received("sub")) == expected


# Reading what rules keep from one.


@pytest.mark.parametrize(
    "then", ["Publish('[class,Leak],[m,$Message]')", "Persist('no store')", "KeepOnlyAttributes(secret)"]
)
def test_a_subscribers_rules_do_not_tell_what_others_rules_take_away(then: str) -> None:
    """By a meta-event of its own, by an exception, by a conflict: none quotes what an advertisement hides."""
    hub = Overlay()
    hub.advertise("b1", "pub", "n > 0", policy=policies.remove("secret"))
    hub.subscribe("b1", "eve", "n > 0", policy=on_publications(then))
    hub.subscribe("b1", "eve", "class is not null", id="ears")
    hub.publish("b1", "pub", {"n": 1, "secret": "the plan"})
    assert len(hub.notifications("eve", meta=True)) == 1
    assert "the plan" not in repr([one for _, one in hub.effects])


def test_nor_do_they_hear_of_what_is_blocked() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", "n > 0", policy=BLOCK)
    hub.subscribe("b1", "eve", "n > 0", policy=on_publications("Publish('[class,Leak],[m,$Message]'), Log($Message)"))
    hub.publish("b1", "pub", {"n": 1, "secret": "the plan"})
    assert (hub.told(), hub.logs()) == ([], [])


def test_the_advertisers_own_rules_may_tell_all_of_it() -> None:
    hub = Overlay()
    told = statement(rule(then="RemoveAttributes(secret)"), rule(then="Publish('[class,Audit],[m,$Message]')"))
    hub.advertise("b1", "pub", "n > 0", policy=told)
    hub.subscribe("b1", "sub", "n > 0")
    hub.publish("b1", "pub", {"n": 1, "secret": "the plan"})
    assert "the plan" in hub.told()[0]["m"]


@pytest.mark.parametrize("store", ["../../etc/passwd", "a/b", "", "$Message", "C:\\\\x", "x\ny", "s" * 300])
def test_a_store_is_a_name_and_no_path(store: str) -> None:
    hub = Overlay()
    said = store if store.startswith("$") else f'"{store}"'
    hub.subscribe("b1", "sub", "n > 0", policy=on_publications(f"Persist({said})"))
    hub.publish("b1", "pub", {"n": 1})
    assert hub.persisted() == []


# Contexts set for others.


def test_nobody_sets_anothers_context_unless_it_is_let() -> None:
    hub = Overlay()
    hub.do("b1", SetContext("car", Context.of({"x": 1}), by="gps"))
    assert hub.rejected() == ["car does not let gps set its context"]
    hub.do("b1", DelegateContext("car", "gps"))
    hub.do("b1", SetContext("car", Context.of({"x": 1}), by="gps"))
    hub.do("b1", SetContext("car", Context.of({"x": 2}), by="mallory"))
    hub.do("b1", DelegateContext("car", "gps", entrusted=False))
    hub.do("b1", SetContext("car", Context.of({"x": 3}), by="gps"))
    assert len(hub.rejected()) == 3
    assert hub.engines["b1"].state.contexts.context("car") == Context.of({"x": 1})


# Much of it.


@pytest.mark.parametrize("then", ["Publish('[class,Seen]')", "Persist('no store')"])
def test_however_many_rules_tell_the_number_of_meta_events_is_bounded(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_META_EVENTS_PER_MESSAGE == 1000
    monkeypatch.setattr("tidings.engine.steps.report.MAX_META_EVENTS_PER_MESSAGE", 20)
    hub = Overlay()
    for n in range(100):
        hub.subscribe("b1", f"c{n}", "n > 0", policy=on_publications(then))
    hub.clear()
    hub.publish("b1", "pub", {"n": 1})
    assert len(hub.told()) == 20
    (line,) = hub.logs()
    assert line == "80 meta-events about one message more than MAX_META_EVENTS_PER_MESSAGE: they are not published"


def test_many_rules_of_one_publisher_are_compared_in_bounded_time() -> None:
    hub = Overlay()
    for n in range(600):
        hub.step("b1", Advertise(Advertisement.of(Filter.parse("n > 0"), id=f"a{n}", publisher="pub", policy=TAGS)))
    hub.subscribe("b1", "sub", "n > 0")
    hub.clear()
    began = time.perf_counter()
    hub.publish("b1", "pub", {"n": 1})
    assert len(hub.received("sub")) == 1
    assert time.perf_counter() - began < 5


def test_subscriptions_with_policies_do_not_cost_more_the_more_there_are() -> None:
    overlay = Overlay(LINE[:1])
    tells = on_publications("Publish('[class,Seen]')")

    def time_of(first: int, last: int) -> float:
        began = time.perf_counter()
        for n in range(first, last):
            made = Subscription.of(Filter.parse("n > 0"), id=f"s{n}", subscriber="sub", policy=tells)
            overlay.engines["b1"].handle(Subscribe(made), n)
        return time.perf_counter() - began

    early = time_of(0, 500)
    time_of(500, 3000)
    assert time_of(3000, 3500) < 5 * early + 0.5


def test_policies_that_are_too_large_are_refused_and_those_just_below_are_quick() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    began = time.perf_counter()
    rules = [rule(then=", ".join(["RemoveAttributes(a)"] * 15)) for _ in range(64)]
    hub.publish("b1", "pub", {"n": 1}, policy=statement(*rules))
    assert (hub.rejected(), len(hub.received("sub"))) == ([], 1)
    for policy in (
        statement(*rules, rule()),
        statement(rule(then=", ".join(["Log()"] * 1025))),
        statement(rule(when="(" * 40 + "StrictMatch()" + ")" * 40)),
    ):
        hub.clear()
        hub.publish("b1", "pub", {"n": 1}, policy=policy)
        assert len(hub.rejected()) == 1
        assert hub.received("sub") == []
    big = "PolicyStatement {" + " " * MAX_POLICY_CHARACTERS
    event = msgspec.structs.replace(hub.event("pub", {}), policy=big)  # past the door that checks
    hub.clear()
    hub.do("b1", Publish(event))
    assert len(hub.rejected()) == 1
    assert time.perf_counter() - began < 20


def test_large_policies_that_are_always_others_do_not_fill_the_memory() -> None:
    for n in range(80):
        filter_rules.compiled_text(statement(rule(then=f"Log('{n:05}{'x' * 3000}')")))
    assert filter_rules._of_long_text.cache_info().currsize <= 64


# Tired operators.


def test_a_link_that_comes_back_carries_again() -> None:
    line = Overlay(LINE[:1])
    line.advertise("b1", "pub", "n > 0", policy=policies.remove("a"))
    line.subscribe("b2", "sub", "n > 0", policy=policies.to_json())
    for _ in range(2):
        line.leave("b1", "b2")
        line.publish("b1", "pub", {"n": 1})
        assert line.received("sub") == []
        line.join("b1", "b2")
    line.publish("b1", "pub", {"n": 1, "a": 2})
    (note,) = line.notifications("sub")
    assert dict(note.attributes) == {"n": 1}
    assert note.payload is not None


def test_a_link_that_goes_takes_along_what_came_over_it_even_if_a_rule_waits() -> None:
    line = Overlay(LINE[:1], hold_answers=True)
    line.advertise("b1", "pub")
    waits = statement(rule("Insert, Unsubscription", "Log()", when="AuthenticateSender(G)"))
    line.subscribe("b2", "sub", policy=waits)
    line.leave("b1", "b2")
    assert len(line.engines["b1"].state.filters.subscriptions) == 0


def test_joining_twice_or_under_a_clients_name_does_no_harm() -> None:
    line = Overlay(LINE[:1])
    line.subscribe("b1", "carol", "n > 0")
    line.join("b1", "b2")
    line.step("b1", Join("carol"))
    assert line.rejected("b1") == ["carol is the name of this broker or of a client"]


def test_a_durable_subscription_keeps_its_name_in_a_common_notification() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", id="s1", notify="client")
    hub.subscribe("b1", "sub", id="s2", notify="client", durable="mine")
    effects: list[Any] = hub.publish("b1", "pub", {"n": 1})
    assert [one.durable for one in effects] == ["mine"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PolicyStatement",
        "PolicyStatement {}",
        "\0",
        "PolicyStatement { On(Forward, Publication) { If {} Then {Nope()} } }",
    ],
)
def test_what_cannot_be_read_is_refused_everywhere_and_raises_nowhere(text: str) -> None:
    line = Overlay(LINE[:1])
    line.advertise("b1", "pub")
    line.subscribe("b2", "sub")
    line.clear()
    line.set_policy("b2", "sub", "s-sub", text)
    line.set_policy("b1", "b1", "s-sub", text)
    line.unsubscribe("b2", "sub", policy=text)
    line.publish("b1", "pub", {}, policy=text)
    line.receive("b1", "b2", subscription("eve", policy=text))
    line.do("b2", Receive("b1", Publish(line.event("pub", {}), ForwardingHeader(policy=text))))
    assert len(line.rejected()) == 6
    assert all(one.startswith("policy: ") for one in line.rejected())
    assert line.received("sub") == []


def test_links_may_form_a_ring() -> None:
    """Filters and events follow a tree in it that all brokers agree on."""
    line = Overlay(LINE[:2])
    line.join("b3", "b1")
    line.advertise("b1", "pub", "n > 0")
    line.subscribe("b3", "sub", "n > 0")
    line.publish("b1", "pub", {"n": 1})
    assert line.received("sub") == [{"n": 1}]
    assert line.busy_links() == {"b1>b3"}


def test_no_client_keeps_others_from_subscribing() -> None:
    """A policy of an advertisement decides about its owner's events, whatever it claims to advertise."""
    hub = Overlay()
    shut = statement(
        rule("Insert, Subscription", "UninsertMessage()"),
        rule("Forward, Subscription", "BlockMessage()"),
    )
    hub.advertise("b1", "eve", "true", policy=shut)
    hub.subscribe("b1", "sub", "n > 0")
    assert hub.rejected() == []
    assert hub.remarks("b1") == ["not for the events of eve: kept out by rule 1 of the advertisement a-eve"]
    hub.publish("b1", "pub", {"n": 1})
    hub.publish("b1", "eve", {"n": 2})
    assert hub.received("sub") == [{"n": 1}]


def test_nor_from_having_their_subscriptions_sent_on() -> None:
    line = Overlay(LINE[:1])
    line.advertise("b1", "pub", "n > 0")
    line.advertise("b1", "eve", "true", policy=statement(rule("Insert, Subscription", "UninsertMessage()")))
    line.subscribe("b2", "sub", "n > 0")
    line.publish("b1", "pub", {"n": 1})
    line.publish("b1", "eve", {"n": 2})
    assert line.received("sub") == [{"n": 1}]
