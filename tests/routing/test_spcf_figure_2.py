"""Figure 2 of paper 004: eight brokers and four clients; what their tables hold, and where subscriptions and events go.

The figure's graph is not printed with all its costs; this one fits what the text says of it. Links cost one, but for
4-8 (3), which is the shorter way in hops and the longer one in cost, and 5-6 (2):

    9 - 1 --- 2 --- 8 - 12
        |     |   / |
        |  10-4 --  |          4-8 costs 3
        |     |     |
        |  11-5     |          5-6 costs 2
        |      \\    |
        3 ----- 6 - 7

The tree of broker 8: 2 and 7 below 8, 1 and 4 below 2, 5 below 4, 6 below 7, and 3 below 1 (by 6 it would be as far:
the smaller name).
"""

from typing import Any

import msgspec
import pytest

from tests.engine.overlay import Overlay
from tidings.engine.operations import Acknowledge, Announce, Publish, Subscribe, Unsubscribe
from tidings.model.values import Context
from tidings.routing.bloom import Bloom, context_id
from tidings.routing.spcf import content_table, destinations, partition

GRAPH = (
    ("b1", "b2", 1),
    ("b1", "b3", 1),
    ("b2", "b4", 1),
    ("b2", "b8", 1),
    ("b3", "b6", 1),
    ("b4", "b5", 1),
    ("b4", "b8", 3),
    ("b5", "b6", 2),
    ("b6", "b7", 1),
    ("b7", "b8", 1),
)
BROKERS = tuple(f"b{number}" for number in range(1, 9))
HOME = {"9": "b1", "10": "b4", "11": "b5", "12": "b8"}
CONTEXTS = {client: {"number": int(client)} for client in HOME}
C12 = context_id(Context.of(CONTEXTS["12"]))
M = {"a": 5, "b": 5}


def network() -> Overlay:
    """The figure before anybody has subscribed."""
    overlay = Overlay(GRAPH, strategy="spcf")
    for client, broker in HOME.items():
        overlay.set_context(broker, client, **CONTEXTS[client])
    overlay.clear()
    return overlay


def figure_2() -> Overlay:
    """Clients 9, 10 and 11 have a subscription each, for events of publishers like client 12."""
    overlay = network()
    for client, text in (("9", "a > 0"), ("10", "b > 0"), ("11", "a > 0 and b > 0")):
        overlay.subscribe(HOME[client], client, text, publishers="number >= 12", id=f"f{client}")
    overlay.clear()
    return overlay


def number(context: Context | None) -> int:
    """What the figure's contexts have; only a gateway announces that there may be any."""
    assert context is not None
    return int(context["number"])


def table(overlay: Overlay, broker: str) -> dict[tuple[str, int, str], set[str]]:
    """The content table, with the numbers of contexts in the place of their ids."""
    engine = overlay.engines[broker]
    announced = engine.state.contexts.announced
    numbers = {name: number(context) for one in BROKERS for name, context in announced.of(one).items()}
    return {
        (publisher, numbers[context], neighbour): ids
        for (publisher, context, neighbour), ids in content_table(
            engine.state.overlay, list(engine.state.filters.subscriptions)
        ).items()
    }


def context_table(overlay: Overlay, broker: str) -> dict[str, list[int]]:
    """Without brokers that have no clients."""
    announced = overlay.engines[broker].state.contexts.announced
    found = {name: sorted(map(number, announced.of(name).values())) for name in BROKERS}
    return {name: numbers for name, numbers in found.items() if numbers}


def links(overlay: Overlay, kind: Any) -> set[str]:
    return {f"{one}>{other}" for one, other in overlay.passed if overlay.on(one, other, kind)}


def test_the_tree_of_broker_8_goes_by_cost() -> None:
    overlay = network()
    for engine in overlay.engines.values():
        tree = engine.topology.tree("b8")
        assert {name: tree.children(name) for name in BROKERS if tree.children(name)} == {
            "b8": ("b2", "b7"),
            "b2": ("b1", "b4"),
            "b4": ("b5",),
            "b7": ("b6",),
            "b1": ("b3",),
        }


# 3.1: tables


def test_the_context_table_is_the_same_at_all_brokers() -> None:
    overlay = network()
    for broker in BROKERS:
        assert context_table(overlay, broker) == {"b1": [9], "b4": [10], "b5": [11], "b8": [12]}


def test_content_tables_for_broker_8_are_those_of_brokers_2_and_4_in_the_figure() -> None:
    overlay = figure_2()
    assert table(overlay, "b2") == {("b8", 12, "b1"): {"f9"}, ("b8", 12, "b4"): {"f10", "f11"}}
    assert table(overlay, "b4") == {("b8", 12, "b5"): {"f11"}}  # f10 is of a client of its own
    assert table(overlay, "b8") == {("b8", 12, "b2"): {"f9", "f10", "f11"}}
    for broker in ("b1", "b3", "b5", "b6", "b7"):
        assert table(overlay, broker) == {}


def test_content_tables_have_rows_for_every_broker_whose_context_is_selected() -> None:
    overlay = network()
    overlay.subscribe("b1", "9", "a > 0", publishers="number >= 10", id="f9")
    assert table(overlay, "b2") == {("b4", 10, "b1"): {"f9"}, ("b5", 11, "b1"): {"f9"}, ("b8", 12, "b1"): {"f9"}}
    assert table(overlay, "b4") == {("b4", 10, "b2"): {"f9"}, ("b5", 11, "b2"): {"f9"}}
    assert table(overlay, "b5") == {("b5", 11, "b4"): {"f9"}}
    assert table(overlay, "b8") == {("b8", 12, "b2"): {"f9"}}


# 3.1.1: forwarding


def published(overlay: Overlay, subscribers: str | None) -> tuple[set[str], list[str]]:
    """The links that an event of client 12 passes, and the clients that get it."""
    overlay.clear()
    overlay.publish("b8", "12", M, context=CONTEXTS["12"], subscribers=subscribers)
    return overlay.busy_links(), [client for client in HOME if overlay.received(client)]


def test_an_event_for_all_follows_the_tree_to_all_whose_filters_match() -> None:
    overlay = figure_2()
    assert published(overlay, None) == ({"b8>b2", "b2>b1", "b2>b4", "b4>b5"}, ["9", "10", "11"])
    (first,) = overlay.on("b8", "b2", Publish)
    assert (first.journey.route.source, first.journey.route.context) == ("b8", C12)
    assert first.journey.route.audience is None  # an event for all says so


def test_an_event_for_client_10_goes_only_toward_broker_4() -> None:
    """m matches f9 and f10, and b includes c10 but not c9."""
    overlay = figure_2()
    assert published(overlay, "number = 10") == ({"b8>b2", "b2>b4"}, ["10"])
    audiences = {made.journey.route.audience for link in overlay.passed for made in overlay.on(*link, Publish)}
    assert audiences == {Bloom.of([context_id(Context.of(CONTEXTS["10"]))])}


@pytest.mark.parametrize(
    ("subscribers", "expected"),
    [
        ("number = 9", ({"b8>b2", "b2>b1"}, ["9"])),
        ("number = 11", ({"b8>b2", "b2>b4", "b4>b5"}, ["11"])),
        ("number between 10 and 11", ({"b8>b2", "b2>b4", "b4>b5"}, ["10", "11"])),
        ("number = this.number - 3", ({"b8>b2", "b2>b1"}, ["9"])),
        ("number = 12", (set(), [])),
        ("role = 'none has it'", (set(), [])),
    ],
)
def test_an_event_goes_toward_those_that_it_is_for(subscribers: str, expected: Any) -> None:
    assert published(figure_2(), subscribers) == expected


def test_forwarding_stops_at_broker_4_if_f11_does_not_match() -> None:
    overlay = figure_2()
    overlay.publish("b8", "12", {"b": 5}, context=CONTEXTS["12"])
    assert overlay.busy_links() == {"b8>b2", "b2>b4"}
    assert [client for client in HOME if overlay.received(client)] == ["10"]


def test_an_event_of_a_publisher_whose_context_no_filter_selects_goes_nowhere() -> None:
    overlay = figure_2()
    overlay.publish("b5", "11", M, context=CONTEXTS["11"])
    assert overlay.busy_links() == set()


def test_broker_4_decides_exactly_where_the_bloom_filter_says_yes_too_often() -> None:
    overlay = figure_2()
    overlay.publish("b8", "12", M, context=CONTEXTS["12"], subscribers="number = 9")
    (sent,) = overlay.on("b8", "b2", Publish)
    route = msgspec.structs.replace(sent.journey.route, audience=Bloom(b"\xff", 1))
    journey = msgspec.structs.replace(sent.journey, route=route)
    overlay = figure_2()
    overlay.receive("b2", "b8", Publish(sent.event, journey))
    assert overlay.busy_links() == {"b2>b1", "b2>b4", "b4>b5"}
    assert [client for client in HOME if overlay.received(client)] == ["9"]


# 3.1.2: subscribing


def parts(overlay: Overlay, broker: str, id: str) -> tuple[set[str], dict[str, set[str]]]:  # noqa: A002
    engine = overlay.engines[broker]
    filed = engine.state.filters.subscriptions[id]
    return destinations(engine.state.overlay, filed), partition(engine.state.overlay, filed)


def test_a_subscription_goes_to_d_and_is_parted_at_each_hop() -> None:
    overlay = network()
    overlay.subscribe("b5", "11", "a > 0", publishers="number != 11", id="f11")
    # Everything toward 8 and 1 goes by 4, which is one of D itself.
    assert parts(overlay, "b5", "f11") == ({"b1", "b4", "b8"}, {"b4": {"b1", "b4", "b8"}})
    assert parts(overlay, "b4", "f11") == ({"b1", "b8"}, {"b2": {"b1", "b8"}})
    assert parts(overlay, "b2", "f11") == ({"b1", "b8"}, {"b1": {"b1"}, "b8": {"b8"}})
    assert parts(overlay, "b1", "f11") == parts(overlay, "b8", "f11") == (set(), {})
    assert links(overlay, Subscribe) == {"b5>b4", "b4>b2", "b2>b1", "b2>b8"}


def test_d_is_found_by_the_context_filter() -> None:
    overlay = network()
    overlay.subscribe("b4", "10", "a > 0", publishers="number = this.number + 1", id="f10")
    assert parts(overlay, "b4", "f10") == ({"b5"}, {"b5": {"b5"}})
    assert links(overlay, Subscribe) == {"b4>b5"}
    (sent,) = overlay.on("b4", "b5", Subscribe)
    assert str(sent.subscription.publishers) == "number = 10 + 1"  # bound where it starts
    assert sent.way is not None
    assert sent.way.context == context_id(Context.of(CONTEXTS["10"]))


def test_the_subscribers_own_broker_is_never_in_d() -> None:
    overlay = network()
    overlay.subscribe("b4", "10", "a > 0", publishers="number = 10", id="f10")
    assert parts(overlay, "b4", "f10") == (set(), {})
    assert overlay.passed == {}
    overlay.publish("b4", "10", M, context=CONTEXTS["10"])
    assert overlay.received("10") == [M]  # its own broker tells it all the same


def test_an_unsubscription_takes_the_same_way_and_leaves_nothing() -> None:
    overlay = figure_2()
    overlay.unsubscribe("b5", "11", "f11")
    assert links(overlay, Unsubscribe) == {"b5>b4", "b4>b2", "b2>b8"}
    assert table(overlay, "b2") == {("b8", 12, "b1"): {"f9"}, ("b8", 12, "b4"): {"f10"}}
    assert table(overlay, "b4") == {}
    assert table(overlay, "b8") == {("b8", 12, "b2"): {"f9", "f10"}}
    assert published(overlay, None) == ({"b8>b2", "b2>b1", "b2>b4"}, ["9", "10"])


# 3.1.2: contexts that change. The tree of broker 8 is what announcements follow.

TREE_OF_8 = {"b8>b2", "b8>b7", "b2>b1", "b2>b4", "b4>b5", "b7>b6", "b1>b3"}


def announced(overlay: Overlay) -> tuple[list[int], int]:
    """The numbers that broker 8 announced, and how many contexts it said are gone."""
    told = overlay.on("b8", "b2", Announce)
    return [number(one) for made in told for one in made.added], sum(len(made.gone) for made in told)


def two_at_8(first: int, second: int) -> Overlay:
    """Two clients of broker 8 with these contexts; client 9 wants events of publishers from 13 on."""
    overlay = network()
    overlay.set_context("b8", "12", number=first)
    overlay.set_context("b8", "13", number=second)
    overlay.subscribe("b1", "9", "a > 0", publishers="number >= 13", id="f9")
    overlay.clear()
    return overlay


def test_the_set_of_contexts_stays_the_same_and_nothing_is_told() -> None:
    overlay = two_at_8(12, 12)
    overlay.set_context("b8", "14", number=14)
    overlay.clear()
    overlay.set_context("b8", "13", number=14)  # 12 has the old one, 14 the new one
    assert overlay.passed == {}
    assert context_table(overlay, "b3")["b8"] == [12, 14]


def test_one_is_added_and_one_removed() -> None:
    overlay = two_at_8(12, 14)
    assert links(overlay, Subscribe) == set()
    overlay.set_context("b8", "12", number=13)
    assert announced(overlay) == ([13], 1)
    assert links(overlay, Announce) == TREE_OF_8
    assert links(overlay, Acknowledge) == {f"{other}>{one}" for one, other in (way.split(">") for way in TREE_OF_8)}
    for broker in BROKERS:
        assert context_table(overlay, broker)["b8"] == [13, 14]
    assert table(overlay, "b2") == {("b8", 13, "b1"): {"f9"}, ("b8", 14, "b1"): {"f9"}}


def test_one_is_added_and_attracts_subscriptions_ahead_of_the_acknowledgement() -> None:
    overlay = two_at_8(12, 12)
    assert table(overlay, "b2") == {}
    overlay.set_context("b8", "13", number=13)  # 12 has the old one still
    assert announced(overlay) == ([13], 0)
    assert links(overlay, Subscribe) == {"b1>b2", "b2>b8"}
    for link in (("b1", "b2"), ("b2", "b8")):
        order = [type(made) for made in overlay.passed[link] if isinstance(made, Subscribe | Acknowledge)]
        assert order == [Subscribe, Acknowledge]
    assert context_table(overlay, "b3")["b8"] == [12, 13]
    assert table(overlay, "b2") == {("b8", 13, "b1"): {"f9"}}


def test_one_is_removed_and_what_it_attracted_goes() -> None:
    overlay = two_at_8(12, 13)
    assert table(overlay, "b8") == {("b8", 13, "b2"): {"f9"}}
    overlay.set_context("b8", "13", number=12)  # which 12 has already
    assert announced(overlay) == ([], 1)
    assert links(overlay, Announce) == TREE_OF_8
    for broker in BROKERS:
        assert context_table(overlay, broker)["b8"] == [12]
        assert table(overlay, broker) == {}
    assert overlay.engines["b8"].state.filters.subscriptions.get("f9") is None


def test_a_subscriber_whose_context_changes_sends_its_subscriptions_anew() -> None:
    overlay = network()
    overlay.subscribe("b4", "10", "a > 0", publishers="number = this.number + 1", id="f10")
    overlay.clear()
    before = overlay.engines["b4"].state.filters.subscriptions["f10"].version
    overlay.set_context("b4", "10", number=8)
    # Those only in the old D have it no more, those of the new one have the new version.
    assert parts(overlay, "b4", "f10") == ({"b1"}, {"b2": {"b1"}})
    assert links(overlay, Unsubscribe) == {"b4>b5"}
    assert links(overlay, Subscribe) == {"b4>b2", "b2>b1"}
    (sent,) = overlay.on("b2", "b1", Subscribe)
    assert sent.way is not None
    assert sent.way.version > before
    assert overlay.engines["b5"].state.filters.subscriptions.get("f10") is None
    overlay.publish("b1", "9", M, context=CONTEXTS["9"])
    overlay.publish("b5", "11", M, context=CONTEXTS["11"])
    assert overlay.received("10") == [M]
