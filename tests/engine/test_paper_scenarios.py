"""The first paper's scenarios, by its own texts: sections 3.2 and 3.3 on one broker, section 5 on four in a line.

The texts stand in `examples/policies`. Where several brokers are needed, each test says what every broker and every
link does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.engine.overlay import LINE, Overlay, rule, statement
from tests.policy.paper import FIGURES
from tidings import Policy
from tidings.engine.operations import Advertise, Subscribe
from tidings.policy import policies, registry
from tidings.policy.ast import Attach

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
BROKERS = ("b1", "b2", "b3", "b4")


def example(name: str) -> Policy:
    return Policy.parse((EXAMPLES / f"{name}.policy").read_text())


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        (4, "notification_trimming"),
        (6, "tracing"),
        (7, "load_shedding"),
        (8, "subscription_flooding"),
        (13, "authenticated_scope"),
        (16, "security_zones"),
        (22, "firewall"),
    ],
)
def test_the_examples_are_what_the_paper_prints(figure: int, name: str) -> None:
    assert example(name) == Policy.parse(FIGURES[figure])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.policy")), ids=lambda path: path.stem)
def test_every_example_can_be_read_and_written(path: Path) -> None:
    policy = Policy.parse(path.read_text())
    assert Policy.parse(str(policy)) == policy == Policy.from_xml(policy.to_xml())


# Section 3.2: which policies a subscription and a publication trigger.


def test_matching_decides_which_policies_are_triggered() -> None:
    def policy(name: str, *kinds: str) -> str:
        return statement(*(rule(f"Forward, {kind}", f"Log({name})") for kind in kinds))

    hub = Overlay()
    both = ("Subscription", "Publication")
    hub.advertise("b1", "client", "x < 100 and y < 50", id="A1", policy=policy("Ta1", *both))
    hub.advertise("b1", "client", "x > 75 and y < 100", id="A2", policy=policy("Ta2", *both))
    triggered = {}
    for name, text, own in (
        ("S1", "x > 25 and y < 75", policy("Ts1", "Publication")),
        ("S2", "x < 100 and y > 75", None),
    ):
        hub.clear()
        hub.subscribe("b1", "subscriber", text, id=name, policy=own)
        triggered[name] = hub.logs()
    for name, x, y in (("P1", 90, 30), ("P2", 30, 30)):
        hub.clear()
        hub.publish("b1", "client", {"x": x, "y": y})
        triggered[name] = hub.logs()
    assert triggered == {"S1": ["Ta1", "Ta2"], "S2": ["Ta2"], "P1": ["Ta1", "Ta2", "Ts1"], "P2": ["Ta1", "Ts1"]}


# Section 3.3: inventory reports.

REPORT = {"class": "report", "d2": 20, "d3": 30, "d4": 40}


def inventory(notify: str, high: int, low: int) -> Overlay:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "warehouse", "class = 'report'")
    more: dict[str, Any] = {"notify": notify}
    s1, s2 = f"class = 'report' and d1 > {high}", f"class = 'report' and d1 < {low}"
    overlay.subscribe("b4", "management", s1, id="S1", policy=example("inventory_high"), **more)
    overlay.subscribe("b4", "management", s2, id="S2", policy=example("inventory_low"), **more)
    overlay.subscribe("b4", "audit", "class = 'report'")
    return overlay


def test_inventory_reports_above_and_below_a_threshold() -> None:
    overlay = inventory("subscription", high=100, low=10)
    for d1 in (101, 50, 9):
        overlay.publish("b1", "warehouse", {**REPORT, "d1": d1})
    assert overlay.received("management") == [{**REPORT, "d1": 101, "PrevHop": "b3"}, {"class": "report", "d1": 9}]
    # Without affecting other clients that subscribe to the same events.
    assert overlay.received("audit") == [{**REPORT, "d1": d1} for d1 in (101, 50, 9)]


def test_inventory_reports_with_both_depending_on_the_value() -> None:
    overlay = inventory("client", high=5, low=10)
    for d1 in (12, 7, 3):
        overlay.publish("b1", "warehouse", {**REPORT, "d1": d1})
    assert overlay.received("management") == [
        {**REPORT, "d1": 12, "PrevHop": "b3"},
        {"class": "report", "d1": 7, "PrevHop": "b3"},
        {"class": "report", "d1": 3},
    ]


# Fig. 4: notification trimming.


@pytest.mark.parametrize("policy", [example("notification_trimming"), policies.trim()], ids=["paper", "factory"])
def test_notification_trimming(policy: Policy) -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub", "class = 'event'")
    overlay.subscribe("b4", "sub", "class = 'event' and a1 > 0 and a2 > 0", policy=policy)
    event = {"class": "event", **{f"a{n}": n for n in range(1, 11)}}
    overlay.publish("b1", "pub", event)
    for link in LINE:
        assert overlay.attributes_on(*link) == [event]  # just before it is delivered, not on the way
    assert overlay.received("sub") == [{"class": "event", "a1": 1, "a2": 2}]


# Section 5.1: transformation chains, and proxies between domains.


@pytest.mark.parametrize("policy", [example("trim_to_xml"), policies.trim(convert="xml")], ids=["paper", "factory"])
def test_a_notification_is_trimmed_and_then_written_as_xml(policy: Policy) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", "a > 0", policy=policy)
    hub.subscribe("b1", "plain", "a > 0")
    hub.publish("b1", "pub", {"a": 1, "b": "<hidden>"})
    (note,), (plain,) = hub.notifications("sub"), hub.notifications("plain")
    assert dict(note.attributes) == {"a": 1}
    document = etree.fromstring(note.payload or b"")
    assert [one.get("name") for one in document.iter("attribute")] == ["a"]
    assert b"hidden" not in (note.payload or b"")
    assert (dict(plain.attributes), plain.payload) == ({"a": 1, "b": "<hidden>"}, None)


@pytest.fixture
def _formats() -> Iterator[None]:
    for name in ("ToFormat1", "ToFormat2"):

        def convert(rule_context: Any, said: str = name) -> None:
            rule_context.convert(lambda shaped: said.encode())

        registry.policy_action(name, effect="converts", messages=["Publication"])(convert)
    yield
    registry.unregister("ToFormat1")
    registry.unregister("ToFormat2")


@pytest.mark.usefixtures("_formats")
def test_a_proxy_broker_between_infrastructures() -> None:
    overlay = Overlay([("b1", "b2"), ("b2", "b3"), ("b2", "b4")], trust={"Domain1": {"b3"}, "Domain2": {"b4"}})
    chain = """PolicyStatement { On(Forward, Publication) { @broker: Routing
      If {AuthenticateReceiver(Domain1)} Then {ToFormat1()}
      Elseif {AuthenticateReceiver(Domain2)} Then {ToFormat2()} } }"""
    overlay.advertise("b1", "pub")
    overlay.advertise("b2", "b2", policy=chain)
    for broker, client in (("b2", "here"), ("b3", "third"), ("b4", "fourth")):
        overlay.subscribe(broker, client, "n > 0")
    overlay.publish("b1", "pub", {"n": 1}, payload=b"as published")
    payloads = {name: [one.payload for one in overlay.notifications(name)] for name in ("here", "third", "fourth")}
    assert payloads == {"here": [b"as published"], "third": [b"ToFormat1"], "fourth": [b"ToFormat2"]}


# Fig. 6: tracing.


def traced(overlay: Overlay, client: str) -> list[list[tuple[str, str | None, float | None]]]:
    return [[(hop.broker, hop.host, hop.load) for hop in one.trace] for one in overlay.notifications(client)]


WAY = [("b1", "h1", 0.1), ("b2", "h2", 0.2), ("b3", "h3", 0.3), ("b4", "h4", 0.4)]


@pytest.fixture
def hosts() -> Overlay:
    settings: dict[str, Any] = {name: {"host": f"h{name[1]}"} for name in BROKERS}
    overlay = Overlay(LINE, **settings)
    for name in BROKERS:
        overlay.load(name, int(name[1]) / 10)
    return overlay


def test_tracing_attached_to_single_publications(hosts: Overlay) -> None:
    hosts.advertise("b1", "pub")
    hosts.subscribe("b4", "sub", "n > 0")
    hosts.publish("b1", "pub", {"n": 1}, policy=example("tracing"))
    hosts.publish("b1", "pub", {"n": 2})
    assert traced(hosts, "sub") == [WAY, []]
    assert hosts.received("sub") == [{"n": 1}, {"n": 2}]


def test_tracing_for_all_by_an_advertisement(hosts: Overlay) -> None:
    assert policies.trace().rules == example("tracing").rules
    hosts.advertise("b1", "pub", "n > 0", policy=policies.trace(attach="Always"))
    hosts.subscribe("b4", "sub", "n > 0")
    hosts.subscribe("b2", "mid", "n > 0")
    hosts.publish("b1", "pub", {"n": 1})
    assert (traced(hosts, "sub"), traced(hosts, "mid")) == ([WAY], [WAY[:2]])


def test_tracing_for_one_subscriber(hosts: Overlay) -> None:
    hosts.advertise("b1", "pub")
    hosts.subscribe("b4", "sub", "n > 0", policy=example("tracing"))
    hosts.subscribe("b4", "other", "n > 0")
    hosts.publish("b1", "pub", {"n": 1})
    assert (traced(hosts, "sub"), traced(hosts, "other")) == ([WAY], [[]])


def test_tracing_at_certain_brokers_only(hosts: Overlay) -> None:
    hosts.advertise("b1", "pub")
    hosts.subscribe(
        "b4", "sub", "n > 0", policy=str(example("tracing")).replace("If {}", "If {BrokerLoadIndex() > 0.2}")
    )
    hosts.publish("b1", "pub", {"n": 1})
    assert traced(hosts, "sub") == [WAY[2:]]


def test_tracing_as_attributes(hosts: Overlay) -> None:
    policy = example("tracing_attributes")
    assert policy == policies.trace(attributes=True, attach="Always")
    hosts.advertise("b1", "pub", "n > 0", policy=policy)
    hosts.subscribe("b4", "sub", "n > 0", policy=policies.trim())  # what the system added is not trimmed
    hosts.publish("b1", "pub", {"n": 1, "m": 2})
    (found,) = hosts.received("sub")
    expected = {"n": 1}
    for broker, host, load in WAY:
        expected |= {f"$trace.{broker}.host": host, f"$trace.{broker}.load": load, f"$trace.{broker}.microseconds": 0}  # type: ignore[dict-item]
    assert found == expected
    assert traced(hosts, "sub") == [[]]


# Fig. 7: a meta-event under load.

LARGE = "class = 'CustomerOrder' and priority < 3 and customer in ('Anna', 'Bela', 'Cleo', 'Dora', 'Emil', 'Fritz')"


@pytest.mark.parametrize("policy", [example("load_shedding"), policies.shed_load()], ids=["paper", "factory"])
def test_a_busy_broker_drops_large_subscriptions_and_says_so(policy: Policy) -> None:
    overlay = Overlay(LINE, large_message_bytes=100, govern=frozenset({"shop"}))
    overlay.advertise("b1", "shop", "class = 'CustomerOrder' and priority < 5", policy=policy)
    overlay.advertise("b1", "shop", "class = 'CustomerOrder' and priority >= 5", id="important")
    overlay.subscribe("b1", "manager", "class = 'DropMessage'")
    overlay.clear()
    dropped = []
    for load, text in (
        (0.5, LARGE),
        (0.8, "class = 'CustomerOrder'"),
        (0.8, LARGE),
        (0.8, LARGE.replace("< 3", "> 6")),
    ):
        overlay.load("b4", load)
        overlay.clear()
        overlay.subscribe("b4", "client", text)
        path = [link for link in (("b4", "b3"), ("b3", "b2"), ("b2", "b1")) if overlay.ids(*link, Subscribe)]
        stored = [
            name for name in BROKERS if overlay.engines[name].state.filters.subscriptions.get("s-client") is not None
        ]
        dropped.append((len(path), len(stored), len(overlay.told("b4"))))
        said = overlay.received("manager", meta=True)
        if overlay.told():  # as the fourth line of Fig. 7 has it, with the offending subscription as a string
            assert [(one["class"], one["cause"]) for one in said] == [("DropMessage", "Broker load")]
            assert str(overlay.told()[0].get("message", "")).startswith("class = 'CustomerOrder' AND priority < 3")
        overlay.unsubscribe("b4", "client")
    # not busy; busy but small; both; both, but not matching the advertisement that has the policy
    assert dropped == [(3, 4, 0), (3, 4, 0), (0, 0, 1), (3, 4, 0)]


# Fig. 8: flooding, on four brokers in a line.

MANAGEMENT = "class = 'BrokerManagement'"


@pytest.mark.parametrize("policy", [example("subscription_flooding"), policies.flood()], ids=["paper", "factory"])
def test_brokers_agree_to_flood_subscriptions(policy: Policy) -> None:
    overlay = Overlay(LINE)
    for name in BROKERS:
        overlay.advertise(name, name, MANAGEMENT, policy=policy)
    # Every broker keeps its advertisement to itself: nothing passed on any link.
    assert overlay.passed == {}
    overlay.subscribe("b2", "operator", MANAGEMENT)
    # b2 floods to both sides; b3, which holds the policy too, floods on to b4; b1 and b4 are the ends.
    passed = {f"{one}>{other}" for (one, other) in overlay.passed if overlay.ids(one, other, Subscribe)}
    assert passed == {"b2>b1", "b2>b3", "b3>b4"}
    overlay.clear()
    # Wherever a publisher turns up, its publication takes the way back.
    for broker, links in (("b4", {"b4>b3", "b3>b2"}), ("b1", {"b1>b2"}), ("b2", set[str]())):
        overlay.clear()
        overlay.publish(broker, "roaming", {"class": "BrokerManagement", "at": broker})
        assert overlay.busy_links() == links
        assert overlay.received("operator") == [{"class": "BrokerManagement", "at": broker}]


def test_flooding_does_not_occur_at_brokers_that_do_not_store_the_policy() -> None:
    overlay = Overlay(LINE)
    for name in ("b1", "b2", "b4"):
        overlay.advertise(name, name, MANAGEMENT, policy=example("subscription_flooding"))
    overlay.subscribe("b1", "operator", MANAGEMENT)
    # b1 and b2 flood; b3 does not; b4 never hears of it.
    assert [overlay.ids(*link, Subscribe) for link in LINE] == [["s-operator"], ["s-operator"], []]
    assert overlay.engines["b4"].state.filters.subscriptions.get("s-operator") is None


def test_a_publisher_that_moves_causes_no_traffic_of_advertisements() -> None:
    flooding, plain = Overlay(LINE), Overlay(LINE)
    for overlay, policy in ((flooding, example("subscription_flooding")), (plain, None)):
        for name in BROKERS:  # brokers hold an advertisement of their own, as in the paper's setup
            overlay.advertise(name, name, "class = 'fleet'", policy=policy)
        overlay.subscribe("b1", "home", "class = 'fleet'")
        overlay.clear()
        for stop in ("b4", "b2", "b3"):
            overlay.advertise(stop, "truck", "class = 'fleet'", id=f"truck-{stop}", policy=policy)
            overlay.publish(stop, "truck", {"class": "fleet", "at": stop})
            overlay.unadvertise(stop, "truck", f"truck-{stop}")
        assert [one["at"] for one in overlay.received("home")] == ["b4", "b2", "b3"]
    control = [
        sum(1 for passed in overlay.passed.values() for one in passed if isinstance(one, Advertise))
        for overlay in (flooding, plain)
    ]
    assert control == [0, 9]  # three moves, three links each


# Fig. 13: authenticated event scope, on four brokers in a line.


@pytest.mark.parametrize(
    "policy",
    [example("authenticated_scope"), policies.authenticated("TrustGroup1", "TrustGroup2")],
    ids=["paper", "factory"],
)
def test_an_advertisement_goes_only_to_brokers_of_either_trust_group(policy: Policy) -> None:
    overlay = Overlay(LINE, trust={"TrustGroup1": {"b2"}, "TrustGroup2": {"b3"}})
    overlay.advertise("b1", "pub", "class = 'x'", policy=policy)
    # b1 sends it to b2, of the first group, b2 to b3, of the second; b3 keeps it from b4, of neither.
    assert [overlay.ids(*link, Advertise) for link in LINE] == [["a-pub"], ["a-pub"], []]
    assert overlay.asked == [
        ("b1", "b2", "TrustGroup1"),
        ("b2", "b3", "TrustGroup1"),
        ("b2", "b3", "TrustGroup2"),
        ("b3", "b4", "TrustGroup1"),
        ("b3", "b4", "TrustGroup2"),
    ]
    overlay.clear()
    overlay.subscribe("b4", "outside", "class = 'x'")
    overlay.subscribe("b3", "inside", "class = 'x'")
    # b4 does not know where to send its subscription: it stays there. b3's goes to b2 and b1.
    assert overlay.ids("b4", "b3", Subscribe) == []
    assert overlay.ids("b3", "b2", Subscribe) == overlay.ids("b2", "b1", Subscribe) == ["s-inside"]
    overlay.publish("b1", "pub", {"class": "x"})
    assert overlay.busy_links() == {"b1>b2", "b2>b3"}
    assert (len(overlay.received("inside")), overlay.received("outside")) == (1, [])


def test_only_brokers_of_both_trust_groups() -> None:
    both = """PolicyStatement { On(Forward,Advertisement) { @broker: Ingress,Routing
      If {AuthenticateReceiver(TrustGroup1)
      && AuthenticateReceiver(TrustGroup2)} Then {}
      Elseif {} Then {BlockMessage()} } }"""
    assert Policy.parse(both) == policies.authenticated("TrustGroup1", "TrustGroup2", every=True)
    overlay = Overlay(LINE, trust={"TrustGroup1": {"b2", "b3"}, "TrustGroup2": {"b2"}})
    overlay.advertise("b1", "pub", policy=both)
    assert [overlay.ids(*link, Advertise) for link in LINE] == [["a-pub"], [], []]


# Fig. 16: security zones, on four brokers in a line: b1 and b2 are restricted, b3 is controlled, b4 is neither.

SECRET = {"class": "app", "x": 1, "a": 10, "m": 20, "n": 30}
PUBLIC = {"class": "app", "x": 1}
ZONES = policies.security_zones(
    restricted="Restricted", controlled="Controlled", hidden=["a", "m", "n"], subscribers="AuthorizedSubscribers"
)


def zones(policy: Policy, **settings: Any) -> Overlay:
    trust = {
        "Restricted": {"b1", "b2", "local"},  # at the broker of the publisher, its own clients are receivers too
        "Controlled": {"b3"},
        "AuthorizedSubscribers": {"local", "inner", "ann"},
    }
    overlay = Overlay(LINE, trust=trust, **settings)
    overlay.subscribe("b1", "watch", "class = 'UnauthorizedSubscribe'")
    overlay.advertise("b1", "pub", "class = 'app' and x > 0 and a > 0", policy=policy)
    return overlay


def advertised(overlay: Overlay, broker: str) -> str | None:
    filed = overlay.engines[broker].state.filters.advertisements.get("a-pub")
    return None if filed is None else str(filed.value.content)


@pytest.mark.parametrize("policy", [example("security_zones"), ZONES], ids=["paper", "factory"])
def test_security_zones(policy: Policy) -> None:
    overlay = zones(policy)
    # b1 and b2 know all of the advertisement, b3 nothing of what is hidden, b4 nothing.
    whole, reduced = "class = 'app' AND x > 0 AND a > 0", "class = 'app' AND x > 0"
    assert [advertised(overlay, name) for name in BROKERS] == [whole, whole, reduced, None]
    overlay.subscribe("b1", "local", "class = 'app'")
    overlay.subscribe("b2", "inner", "class = 'app'")
    overlay.subscribe("b3", "ann", "class = 'app'")
    overlay.subscribe("b4", "stranger", "class = 'app'")
    assert overlay.told() == []
    assert overlay.ids("b4", "b3", Subscribe) == []
    overlay.publish("b1", "pub", SECRET)
    # b1 sends all to b2; b2 sends b3 what may be seen there; b3 sends nothing to b4.
    assert [overlay.attributes_on(*link) for link in LINE] == [[SECRET], [PUBLIC], []]
    seen = {name: overlay.received(name) for name in ("local", "inner", "ann", "stranger")}
    assert seen == {"local": [SECRET], "inner": [SECRET], "ann": [PUBLIC], "stranger": []}


@pytest.mark.parametrize("policy", [example("security_zones"), ZONES], ids=["paper", "factory"])
def test_nothing_is_seen_in_the_uncontrolled_zone_even_if_another_advertisement_attracts_subscriptions(
    policy: Policy,
) -> None:
    overlay = zones(policy)
    overlay.advertise("b2", "harmless", "class = 'app'")
    overlay.subscribe("b4", "stranger", "class = 'app'")
    assert overlay.ids("b4", "b3", Subscribe) == ["s-stranger"]  # toward b2, for harmless events
    overlay.publish("b1", "pub", SECRET)
    # The rule that the publication inherited stops it at b3, which has no other reason to.
    assert [overlay.attributes_on(*link) for link in LINE] == [[SECRET], [PUBLIC], []]
    overlay.publish("b2", "harmless", {"class": "app", "x": 2})
    assert overlay.received("stranger") == [{"class": "app", "x": 2}]


def test_the_papers_zones_report_unauthorised_subscriptions_and_let_them_pass() -> None:
    overlay = zones(example("security_zones"))
    overlay.subscribe("b3", "eve", "class = 'app'")
    (told,) = overlay.received("watch", meta=True)
    assert told == {"class": "UnauthorizedSubscribe", "message": "class = 'app'"}
    assert overlay.told_classes("b3") == ["UnauthorizedSubscribe"]  # told by b3, where it was tried
    # It was stored at b3 and went on to b2 and b1 ...
    assert overlay.ids("b3", "b2", Subscribe) == overlay.ids("b2", "b1", Subscribe) == ["s-eve"]
    overlay.publish("b1", "pub", SECRET)
    assert overlay.received("eve") == [PUBLIC]  # ... and eve gets what it was not meant to get


def test_the_factorys_zones_keep_unauthorised_subscriptions_from_the_zones_events() -> None:
    overlay = zones(ZONES)
    overlay.subscribe("b3", "eve", "class = 'app'")
    (told,) = overlay.received("watch", meta=True)
    assert told["class"] == "UnauthorizedSubscribe"
    assert overlay.ids("b3", "b2", Subscribe) == []
    filed = overlay.engines["b3"].state.filters.subscriptions["s-eve"]
    assert str(filed.value.content) == "class = 'app' AND $publisher != 'pub'"
    overlay.publish("b1", "pub", SECRET)
    assert overlay.received("eve") == []


def test_the_factorys_zones_keep_unauthorised_subscriptions_out_if_the_publisher_governs() -> None:
    overlay = zones(ZONES, govern=frozenset({"pub"}))
    overlay.subscribe("b3", "eve", "class = 'app'")
    (told,) = overlay.received("watch", meta=True)
    assert told["class"] == "UnauthorizedSubscribe"
    assert overlay.rejected("b3") == ["kept out of the tables by rule 2 of the advertisement a-pub"]
    assert overlay.ids("b3", "b2", Subscribe) == []
    assert all(engine.state.filters.subscriptions.get("s-eve") is None for engine in overlay.engines.values())
    overlay.publish("b1", "pub", SECRET)
    assert overlay.received("eve") == []


def test_the_rule_on_publications_is_handed_down_for_routing_alone() -> None:
    attached = {str(one.points): one.attach for one in example("security_zones").rules if one.message == "Publication"}
    assert sorted(attached.values()) == [Attach.ALWAYS, Attach.NEVER]


# Fig. 22: a content firewall, on four brokers in a line: b1 and b2 are outside, b3 and b4 inside; b2 and b3 are the
# external and the internal firewall broker.

WALL = "class = 'C' and a < 10"
FRAUD, HONEST, LARGER = {"class": "C", "a": 9}, {"class": "C", "a": 11}, {"class": "C", "a": 9, "b": 5}


def walled(policy: Any, **trust: set[str]) -> Overlay:
    overlay = Overlay(LINE, trust=trust)
    for broker in ("b1", "b2"):
        overlay.advertise(broker, f"pub-{broker}", "class = 'C'")
    overlay.subscribe("b4", "application", "class = 'C'")
    overlay.subscribe("b3", "inner", "class = 'C'")
    overlay.subscribe("b2", "outer", "class = 'C'")
    overlay.clear()
    if policy is not None:
        overlay.subscribe("b3", "b3", WALL, id="wall", policy=policy)
    return overlay


def through(overlay: Overlay, broker: str, event: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The links that the event passed, and the clients that got it."""
    overlay.clear()
    overlay.publish(broker, f"pub-{broker}", event)
    got = {name for name in ("application", "inner", "outer") if overlay.received(name)}
    return overlay.busy_links(), got


@pytest.mark.parametrize(
    ("policy", "trust"),
    [
        (example("firewall"), {}),
        (example("firewall_in_scope"), {"Firewalls": {"b2", "b3"}}),
        (policies.firewall(), {}),
    ],
    ids=["paper", "paper, in scope", "factory"],
)
def test_a_content_firewall(policy: Policy, trust: dict[str, set[str]]) -> None:
    overlay = walled(policy, **trust)
    # The firewall's subscription goes from b3 to b2; with its scope, no further.
    assert overlay.ids("b3", "b2", Subscribe) == ["wall"]
    assert overlay.ids("b2", "b1", Subscribe) == ([] if trust else ["wall"])
    # b1 sends to b2 as before, where the outer client gets it; b2 stops what strictly matches before it gets inside.
    assert through(overlay, "b1", FRAUD) == ({"b1>b2"}, {"outer"})
    assert through(overlay, "b1", HONEST) == ({"b1>b2", "b2>b3", "b3>b4"}, {"application", "inner", "outer"})
    # It matches the firewall's filter, but not strictly.
    assert through(overlay, "b1", LARGER) == ({"b1>b2", "b2>b3", "b3>b4"}, {"application", "inner", "outer"})
    # The application's own subscription did not change, and once the firewall is gone all is as before.
    overlay.unsubscribe("b3", "b3", "wall")
    assert through(overlay, "b1", FRAUD)[1] == {"application", "inner", "outer"}


def test_the_papers_firewall_misses_publishers_at_the_firewall_broker_itself() -> None:
    overlay = walled(example("firewall"))
    # At b2 the copy comes from a client: it is no routing there, and it gets inside. b3 stops it on its way to b4, but
    # not on its way to its own client.
    assert through(overlay, "b2", FRAUD) == ({"b2>b3"}, {"outer", "inner"})


def test_the_factorys_firewall_does_not() -> None:
    overlay = walled(policies.firewall())
    assert through(overlay, "b2", FRAUD) == (set(), {"outer"})
    assert through(overlay, "b2", HONEST) == ({"b2>b3", "b3>b4"}, {"application", "inner", "outer"})


def test_many_firewall_subscriptions_and_one_merged_block_the_same() -> None:
    single, merged = walled(None), walled(None)
    for n in range(8):
        single.subscribe("b3", "b3", f"class = 'C' and a = {n}", id=f"wall{n}", policy=policies.firewall())
    merged.subscribe("b3", "b3", "class = 'C' and a between 0 and 7", id="wall", policy=policies.firewall())
    for a in range(10):
        event = {"class": "C", "a": a}
        assert through(single, "b1", event) == through(merged, "b1", event)
        assert ("application" in through(single, "b1", event)[1]) is (a >= 8)


@pytest.mark.parametrize("by_factory", [False, True])
def test_subscriptions_are_blocked_by_an_advertisement_of_the_external_firewall_broker(by_factory: bool) -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub", "class = 'C'")
    policy = policies.firewall(subscriptions=True)
    if not by_factory:
        policy = Policy.parse(str(example("firewall")).replace("Publication", "Subscription"))
    overlay.advertise("b2", "b2", WALL, id="wall", policy=policy)
    overlay.clear()
    overlay.subscribe("b4", "strict", WALL)
    overlay.subscribe("b4", "other", "class = 'C' and a < 9")
    # b4 sends both to b3 under the paper's rule, which is for Routing; b3 stops the strict one on its way outside.
    expected = ["s-other"] if by_factory else ["s-strict", "s-other"]
    assert overlay.ids("b4", "b3", Subscribe) == expected
    assert overlay.ids("b3", "b2", Subscribe) == overlay.ids("b2", "b1", Subscribe) == ["s-other"]
    overlay.clear()
    overlay.subscribe("b3", "inner", WALL)  # a client of the internal firewall broker itself
    assert (overlay.ids("b3", "b2", Subscribe) == []) is by_factory


def test_a_firewall_against_events_that_say_for_whom_they_are() -> None:
    overlay = walled(policies.firewall(strict=False))
    overlay.set_context("b4", "application", role="clerk")
    overlay.clear()
    overlay.publish("b1", "pub-b1", FRAUD, subscribers="role = 'clerk'")
    assert overlay.busy_links() == {"b1>b2"}
    assert overlay.received("application") == []
