"""The first paper's scenarios on several brokers, named after their topology, under every routing strategy that they
make sense for.

`test_paper_scenarios` has the same scenarios by the paper's own texts on a line; here are the networks that are not
lines, the strategies that are not the default, and what passes over links while publishers move.
"""

from collections import Counter
from typing import Any

import pytest

from tests.engine.overlay import LINE, Overlay
from tests.engine.test_paper_scenarios import PUBLIC, SECRET, ZONES, example
from tidings.engine.operations import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from tidings.policy import policies

RING = (*LINE, ("b4", "b1"))
STAR = (("b1", "b2"), ("b1", "b3"), ("b1", "b4"))
BROKERS = ("b1", "b2", "b3", "b4")
STRATEGIES = ("advertisement", "asf", "gsf", "spcf")
NETWORKS = {"line": LINE, "ring": RING, "star": STAR}
FILTERS = (Advertise, Unadvertise, Subscribe, Unsubscribe)

everywhere = pytest.mark.parametrize("links", NETWORKS.values(), ids=NETWORKS)
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def passed(overlay: Overlay) -> Counter[str]:
    """How many filters were sent and taken back, by type."""
    return Counter(
        type(made).__name__ for sent in overlay.passed.values() for made in sent if isinstance(made, FILTERS)
    )


# Fig. 8: flooding, on a ring. Brokers agree to flood subscriptions of a class.

FLEET = "class = 'fleet'"


def fleet(links: Any, *, floods: bool, strategy: str = "advertisement") -> Overlay:
    """Home is at b1, and every broker holds an advertisement of its own, as in the paper's setup."""
    overlay = Overlay(links, strategy=strategy)
    for name in BROKERS:
        overlay.advertise(name, name, FLEET, policy=policies.flood() if floods else None)
    overlay.subscribe("b1", "home", FLEET)
    overlay.clear()
    return overlay


def test_on_a_ring_a_flooded_subscription_goes_everywhere_once_and_its_events_come_once() -> None:
    overlay = Overlay(RING)
    for name in BROKERS:
        overlay.advertise(name, name, FLEET, policy=example("subscription_flooding"))
    assert overlay.passed == {}
    overlay.subscribe("b1", "home", FLEET)
    for name in BROKERS:
        assert overlay.engines[name].state.filters.subscriptions.get("s-home") is not None
    assert passed(overlay)["Subscribe"] <= 2 * len(RING)
    for broker in BROKERS:
        overlay.clear()
        overlay.publish(broker, "truck", {"class": "fleet", "at": broker})
        assert overlay.received("home") == [{"class": "fleet", "at": broker}]
    overlay.unsubscribe("b1", "home")
    for name in BROKERS:
        assert overlay.engines[name].state.filters.subscriptions.get("s-home") is None


@everywhere
def test_flooding_of_subscriptions_and_of_advertisements_side_by_side(links: Any) -> None:
    """Per class of events: the fleet's subscriptions flood, for orders the advertisements do."""
    overlay = Overlay(links)
    for name in BROKERS:
        overlay.advertise(name, name, FLEET, policy=policies.flood())
    overlay.advertise("b4", "shop", "class = 'order'")
    assert passed(overlay) == {"Advertise": 3}  # the shop's, once to every other broker
    overlay.clear()
    overlay.subscribe("b1", "home", FLEET)
    overlay.subscribe("b1", "bank", "class = 'order'")
    for name in BROKERS:
        assert overlay.engines[name].state.filters.subscriptions.get("s-home") is not None
    way = {name for name in BROKERS if overlay.engines[name].state.filters.subscriptions.get("s-bank") is not None}
    assert way == ({"b1", "b4"} if links is not LINE else set(BROKERS))
    overlay.publish("b3", "truck", {"class": "fleet"})
    overlay.publish("b4", "shop", {"class": "order"})
    assert overlay.received("home") == [{"class": "fleet"}]
    assert overlay.received("bank") == [{"class": "order"}]


# Figs. 9 to 12: publishers that move, subscribers that stay.

STOPS = ("b4", "b2", "b3", "b1", "b3")


def drive(overlay: Overlay, floods: bool) -> Counter[str]:
    """A truck advertises, reports and goes on; what passed meanwhile apart from its reports."""
    overlay.clear()
    for number, stop in enumerate(STOPS):
        policy = policies.flood() if floods else None
        overlay.advertise(stop, "truck", FLEET, id=f"stop{number}", policy=policy)
        overlay.publish(stop, "truck", {"class": "fleet", "stop": number})
        overlay.unadvertise(stop, "truck", f"stop{number}")
        overlay.disconnect(stop, "truck")
    assert [one["stop"] for one in overlay.received("home")] == list(range(len(STOPS)))
    return passed(overlay)


@everywhere
def test_moving_publishers_cause_traffic_where_advertisements_flood(links: Any) -> None:
    """Fig. 11: advertisements go to all others and are taken back, at every stop."""
    sent = drive(fleet(links, floods=False), floods=False)
    assert sent["Advertise"] == sent["Unadvertise"] == len(STOPS) * (len(BROKERS) - 1)


@pytest.mark.parametrize("links", [LINE, RING, STAR], ids=["line", "ring", "star"])
def test_moving_publishers_take_subscriptions_with_them_where_nobody_else_advertises(links: Any) -> None:
    """Fig. 11: re-advertising triggers the removal and the sending of subscriptions."""
    overlay = Overlay(links)
    overlay.subscribe("b1", "home", FLEET)
    sent = drive(overlay, floods=False)
    distance = {"b1": 0, "b2": 1, "b3": 1 if links is STAR else 2, "b4": 3 if links is LINE else 1}
    assert sent["Subscribe"] == sent["Unsubscribe"] == sum(distance[stop] for stop in STOPS)


@everywhere
def test_moving_publishers_cause_no_traffic_where_subscriptions_flood(links: Any) -> None:
    """Fig. 12: nothing but the reports."""
    assert drive(fleet(links, floods=True), floods=True) == {}


@each_strategy
@everywhere
def test_moving_publishers_are_heard_wherever_they_are(strategy: str, links: Any) -> None:
    overlay = Overlay(links, strategy=strategy)
    overlay.subscribe("b1", "home", FLEET)
    drive(overlay, floods=False)


# Fig. 6: tracing through every hop.

WAYS = {
    "line": {"b1": ["b4", "b3", "b2", "b1"], "b3": ["b4", "b3"]},
    "ring": {"b1": ["b4", "b1"], "b3": ["b4", "b3"]},
    "star": {"b1": ["b4", "b1"], "b3": ["b4", "b1", "b3"]},
}


@each_strategy
@pytest.mark.parametrize("network", NETWORKS)
def test_a_trace_names_every_hop(strategy: str, network: str) -> None:
    overlay = Overlay(NETWORKS[network], strategy=strategy)
    overlay.advertise("b4", "pub")
    for broker in ("b1", "b3"):
        overlay.subscribe(broker, f"at-{broker}", "n > 0")
    overlay.publish("b4", "pub", {"n": 1}, policy=example("tracing"))
    for broker, way in WAYS[network].items():
        (note,) = overlay.notifications(f"at-{broker}")
        found = [hop.broker for hop in note.trace]
        if network == "ring" and strategy in ("advertisement", "asf") and broker == "b3":
            way = ["b4", "b1", "b2", "b3"]  # the shared tree of the ring does without the link of b3 and b4
        assert found == way


# Fig. 13: authenticated scope.


def scoped(links: Any, strategy: str, **trust: set[str]) -> Overlay:
    overlay = Overlay(links, strategy=strategy, trust=trust)
    overlay.advertise("b1", "pub", "class = 'x'", policy=example("authenticated_scope"))
    for broker in BROKERS:
        overlay.subscribe(broker, f"at-{broker}", "class = 'x'")
    return overlay


@everywhere
def test_an_advertisement_stays_within_its_trust_groups(links: Any) -> None:
    overlay = scoped(links, "advertisement", TrustGroup1={"b2"}, TrustGroup2={"b3"})
    known = {name for name in BROKERS if overlay.engines[name].state.filters.advertisements.get("a-pub") is not None}
    assert known == {"b1", "b2", "b3"}
    overlay.publish("b1", "pub", {"class": "x"})
    assert [name for name in BROKERS if overlay.received(f"at-{name}")] == ["b1", "b2", "b3"]


def test_on_a_ring_a_broker_of_no_group_cuts_off_those_behind_it_in_the_tree() -> None:
    """The advertisement takes the shared tree: b3 is behind b2 there, though b4 is its neighbour, too."""
    overlay = scoped(RING, "advertisement", TrustGroup1={"b3"}, TrustGroup2={"b4"})
    overlay.publish("b1", "pub", {"class": "x"})
    assert [name for name in BROKERS if overlay.received(f"at-{name}")] == ["b1", "b4"]


# Figs. 15 and 16: zones; b1 and b2 are restricted, b3 is controlled, b4 is neither.


@each_strategy
@everywhere
def test_zones_show_each_broker_what_it_may_see(strategy: str, links: Any) -> None:
    trust = {
        "Restricted": {"b1", "b2", "at-b1"},  # at the broker of the publisher, its own clients are receivers too
        "Controlled": {"b3"},
        "AuthorizedSubscribers": {"at-b1", "at-b2", "at-b3"},
    }
    overlay = Overlay(links, strategy=strategy, trust=trust)
    overlay.advertise("b1", "pub", "class = 'app' and x > 0 and a > 0", policy=ZONES)
    for broker in BROKERS:
        overlay.subscribe(broker, f"at-{broker}", "class = 'app'")
    overlay.publish("b1", "pub", SECRET)
    seen = {broker: overlay.received(f"at-{broker}") for broker in BROKERS}
    assert seen == {"b1": [SECRET], "b2": [SECRET], "b3": [PUBLIC], "b4": []}
    for link, made in overlay.passed.items():
        shown = [dict(one.event.attributes) for one in made if isinstance(one, Publish)]
        assert shown in ([], [SECRET] if link[1] == "b2" else [PUBLIC] if link[1] == "b3" else [])


@each_strategy
@everywhere
def test_attempts_to_subscribe_are_reported_across_the_network(strategy: str, links: Any) -> None:
    """Fig. 15: the meta-event goes from where it was tried to where it is watched."""
    overlay = Overlay(links, strategy=strategy, trust={"Restricted": {"b1", "b2"}, "Controlled": {"b3"}})
    overlay.subscribe("b1", "watch", "class = 'UnauthorizedSubscribe'")
    overlay.advertise("b1", "pub", "class = 'app' and x > 0", policy=example("security_zones"))
    overlay.clear()
    overlay.subscribe("b3", "eve", "class = 'app'")
    assert overlay.told_classes() == overlay.told_classes("b3") == ["UnauthorizedSubscribe"]
    assert overlay.received("watch", meta=True) == [{"class": "UnauthorizedSubscribe", "message": "class = 'app'"}]


# Figs. 17 to 19: a content firewall; b1 and b2 are outside, b3 and b4 inside.

RULES = 100
BARRED = range(RULES)


def walls(links: Any, strategy: str, *, merged: bool) -> Overlay:
    overlay = Overlay(links, strategy=strategy)
    overlay.advertise("b1", "pub", "class = 'C'")
    for broker, client in (("b2", "outer"), ("b3", "inner"), ("b4", "application")):
        overlay.subscribe(broker, client, "class = 'C'")
    if merged:
        bounds = f"a between {BARRED[0]} and {BARRED[-1]}"
        overlay.subscribe("b3", "b3", f"class = 'C' and {bounds}", id="wall", policy=policies.firewall())
    else:
        for number in BARRED:
            text = f"class = 'C' and a = {number}"
            overlay.subscribe("b3", "b3", text, id=f"wall{number}", policy=policies.firewall())
    return overlay


@each_strategy
def test_a_hundred_firewall_rules_on_a_line_and_one_merged_rule_block_the_same(strategy: str) -> None:
    single, merged = walls(LINE, strategy, merged=False), walls(LINE, strategy, merged=True)
    for a in (-1, 0, 1, 50, 98, 99, 100):
        outcome = []
        for overlay in (single, merged):
            overlay.clear()
            overlay.publish("b1", "pub", {"class": "C", "a": a})
            got = {name for name in ("outer", "inner", "application") if overlay.received(name)}
            outcome.append((overlay.busy_links(), got))
        assert outcome[0] == outcome[1]
        expected = (
            ({"b1>b2"}, {"outer"}) if a in BARRED else (set(map(_arrow, LINE)), {"outer", "inner", "application"})
        )
        assert outcome[0] == expected


def _arrow(link: tuple[str, str]) -> str:
    return f"{link[0]}>{link[1]}"


@each_strategy
def test_one_merged_firewall_rule_is_one_subscription_in_the_tables(strategy: str) -> None:
    single, merged = walls(LINE, strategy, merged=False), walls(LINE, strategy, merged=True)
    held = [
        sum(1 for one in overlay.engines["b2"].state.filters.subscriptions if one.id.startswith("wall"))
        for overlay in (single, merged)
    ]
    assert held == [RULES, 1]
