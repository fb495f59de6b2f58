"""Paper 001, sections 5.1 to 5.5 and 7, step by step on its network (Fig. 3), with the tables of B1 to B4.

A camera at B1 reports accidents, a car at B2 wants those within 20 km. Each step says what every table holds
afterwards, and what passed over which link.
"""

from typing import Any

import pytest

from tests.engine.overlay import Overlay
from tidings.engine.operations import Advertise, Publish, SetContext, Subscribe, Travelling, Unsubscribe
from tidings.model.values import Context

NETWORK = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
BROKERS = ("b1", "b2", "b3", "b4")
ACCIDENT = {"msg": "accident"}
A, A_CP = "msg = 'accident'", ("x", "y")
F = "msg = 'accident'"
F_CP = "x >= this.x - 20 AND x <= this.x + 20 AND y >= this.y - 20 AND y <= this.y + 20"
CAMERA, CAR = {"x": 100, "y": 50}, {"x": 110, "y": 45}


def advertisements(overlay: Overlay, *, with_subscribers: bool = False) -> dict[str, list[tuple[Any, ...]]]:
    """By broker the rows <hop; A, A_cp> (and A_cs) of clients' advertisements."""
    return {
        name: [
            (row.hop, str(row.value.content), row.value.publisher_context)
            + ((row.value.subscriber_context,) if with_subscribers else ())
            for row in engine.state.filters.advertisements
            if not row.id.startswith("$")
        ]
        for name, engine in overlay.engines.items()
    }


def subscriptions(overlay: Overlay) -> dict[str, list[tuple[str, str, str]]]:
    """By broker the rows <hop; f, f_cp>."""
    return {
        name: [
            (row.hop, str(row.value.content), str(row.value.publishers)) for row in engine.state.filters.subscriptions
        ]
        for name, engine in overlay.engines.items()
    }


def context_managers(overlay: Overlay) -> dict[str, dict[str, dict[str, Any]]]:
    """By broker the rows <client; context> of subscribers: the camera's own library holds that of the camera."""
    return {
        name: {client: dict(context) for client, context in engine.tables().contexts.items() if client != "cam1"}
        for name, engine in overlay.engines.items()
    }


def passed(overlay: Overlay) -> dict[str, list[type[Travelling]]]:
    """What went over each link since the last step."""
    found = {f"{one}>{other}": [type(made) for made in all_] for (one, other), all_ in overlay.passed.items()}
    overlay.clear()
    return found


def with_camera(**more: Any) -> Overlay:
    overlay = Overlay(NETWORK)
    overlay.set_context("b1", "cam1", **CAMERA)
    overlay.advertise("b1", "cam1", A, publisher_context=["x", "y"], **more)
    overlay.clear()
    return overlay


def with_car(**more: Any) -> Overlay:
    overlay = with_camera(**more)
    overlay.set_context("b2", "v1", **CAR)
    overlay.subscribe("b2", "v1", F, publishers=F_CP)
    overlay.clear()
    return overlay


def report(overlay: Overlay, **context: Any) -> list[dict[str, Any]]:
    """The camera tells of an accident; what the car got."""
    overlay.clear()
    overlay.publish("b1", "cam1", ACCIDENT, context=context or CAMERA)
    return overlay.received("v1")


# 5.1: a publisher with a context that changes


def test_a_camera_sets_its_context_and_nothing_is_sent() -> None:
    overlay = Overlay(NETWORK)
    assert advertisements(overlay) == subscriptions(overlay) == {name: [] for name in BROKERS}
    overlay.set_context("b1", "cam1", **CAMERA)
    assert passed(overlay) == {}


def test_its_advertisement_goes_everywhere() -> None:
    overlay = Overlay(NETWORK)
    overlay.set_context("b1", "cam1", **CAMERA)
    overlay.advertise("b1", "cam1", A, publisher_context=["x", "y"])
    assert passed(overlay) == {"b1>b2": [Advertise], "b2>b3": [Advertise], "b2>b4": [Advertise]}
    assert advertisements(overlay) == {
        "b1": [("cam1", A, A_CP)],
        "b2": [("b1", A, A_CP)],
        "b3": [("b2", A, A_CP)],
        "b4": [("b2", A, A_CP)],
    }
    assert subscriptions(overlay) == {name: [] for name in BROKERS}
    assert context_managers(overlay) == {name: {} for name in BROKERS}


def test_b1_drops_what_nobody_has_subscribed_to() -> None:
    overlay = with_camera()
    report(overlay)
    assert passed(overlay) == {}


# 5.2: a subscriber with a context that changes


def test_a_car_sets_its_context_at_b2_which_keeps_it_to_itself() -> None:
    overlay = with_camera()
    overlay.set_context("b2", "v1", **CAR)
    assert passed(overlay) == {}
    assert context_managers(overlay) == {"b1": {}, "b2": {"v1": CAR}, "b3": {}, "b4": {}}


def test_its_subscription_goes_to_b1_behind_its_context_and_no_further() -> None:
    overlay = with_camera()
    overlay.set_context("b2", "v1", **CAR)
    overlay.subscribe("b2", "v1", F, publishers=F_CP)
    assert passed(overlay) == {"b2>b1": [SetContext, Subscribe]}
    assert subscriptions(overlay) == {"b1": [("b2", F, F_CP)], "b2": [("v1", F, F_CP)], "b3": [], "b4": []}
    assert context_managers(overlay) == {"b1": {"v1": CAR}, "b2": {"v1": CAR}, "b3": {}, "b4": {}}
    assert advertisements(overlay) == advertisements(with_camera())


def test_with_a_second_subscription_the_context_is_not_sent_again() -> None:
    overlay = with_car()
    overlay.subscribe("b2", "v1", "msg = 'accident' and lanes > 1", publishers="x > this.x", id="second")
    assert passed(overlay) == {"b2>b1": [Subscribe]}


def test_two_cars_with_the_same_filter_are_told_apart() -> None:
    overlay = with_car()
    overlay.set_context("b2", "v2", x=500, y=500)
    overlay.subscribe("b2", "v2", F, publishers=F_CP)
    assert passed(overlay) == {"b2>b1": [SetContext, Subscribe]}
    assert subscriptions(overlay)["b1"] == [("b2", F, F_CP)] * 2
    assert context_managers(overlay)["b1"] == {"v1": CAR, "v2": {"x": 500, "y": 500}}
    assert report(overlay, x=495, y=495) == []
    assert overlay.received("v2") == [ACCIDENT]


@pytest.mark.parametrize(
    ("content", "publishers"),
    [("msg = 'jam'", "x > this.x"), ("msg = 'accident'", "x > this.x and lane = 1")],
    ids=["content that is not advertised", "context that is not offered"],
)
def test_a_subscription_that_no_advertisement_matches_stays_at_b2(content: str, publishers: str) -> None:
    overlay = with_camera()
    overlay.set_context("b2", "v1", **CAR)
    overlay.subscribe("b2", "v1", content, publishers=publishers)
    assert passed(overlay) == {}
    assert [len(rows) for rows in subscriptions(overlay).values()] == [0, 1, 0, 0]


def test_from_b4_it_takes_the_way_that_the_advertisement_came() -> None:
    overlay = with_camera()
    overlay.set_context("b4", "v1", **CAR)
    overlay.subscribe("b4", "v1", F, publishers=F_CP)
    assert passed(overlay) == {"b4>b2": [SetContext, Subscribe], "b2>b1": [SetContext, Subscribe]}
    assert subscriptions(overlay) == {
        "b1": [("b2", F, F_CP)],
        "b2": [("b4", F, F_CP)],
        "b3": [],
        "b4": [("v1", F, F_CP)],
    }
    assert context_managers(overlay) == {"b1": {"v1": CAR}, "b2": {"v1": CAR}, "b3": {}, "b4": {"v1": CAR}}


# 5.3: delivery


def test_an_accident_near_the_car_is_told_with_the_context_that_is_asked_for_and_no_more() -> None:
    overlay = with_car()
    assert report(overlay, **CAMERA, zoom=3) == [ACCIDENT]
    (sent,) = overlay.on("b1", "b2", Publish)
    assert (dict(sent.event.attributes), dict(sent.event.context)) == (ACCIDENT, CAMERA)
    assert passed(overlay) == {"b1>b2": [Publish]}


def test_an_accident_far_away_is_dropped_at_b1() -> None:
    overlay = with_car()
    assert report(overlay, x=100, y=500) == []
    assert passed(overlay) == {}


def test_where_no_filter_asks_for_the_context_none_is_sent() -> None:
    overlay = with_car()
    overlay.subscribe("b3", "radio", F)
    overlay.clear()
    overlay.publish("b1", "cam1", ACCIDENT, context=CAMERA)
    (near,), (far,) = overlay.on("b1", "b2", Publish), overlay.on("b2", "b3", Publish)
    assert (dict(near.event.context), dict(far.event.context)) == (CAMERA, {})
    assert overlay.received("v1") == overlay.received("radio") == [ACCIDENT]


# 5.4: the subscriber's context changes


def test_a_change_of_the_cars_context_is_one_message_on_each_link_of_the_way() -> None:
    overlay = with_camera()
    overlay.set_context("b4", "v1", **CAR)
    overlay.subscribe("b4", "v1", F, publishers=F_CP)
    overlay.subscribe("b4", "v1", "msg = 'accident' and lanes > 1", publishers="x > this.x", id="second")
    overlay.clear()
    before = subscriptions(overlay)
    overlay.set_context("b4", "v1", x=300, y=50)
    assert passed(overlay) == {"b4>b2": [SetContext], "b2>b1": [SetContext]}
    moved = {"v1": {"x": 300, "y": 50}}
    assert context_managers(overlay) == {"b1": moved, "b2": moved, "b3": {}, "b4": moved}
    assert subscriptions(overlay) == before  # subscriptions do not depend on contexts


def test_an_unchanged_value_stops_at_b2() -> None:
    overlay = with_car()
    overlay.set_context("b2", "v1", **CAR)
    assert passed(overlay) == {}


def test_an_unchanged_value_stops_at_a_broker_on_the_way() -> None:
    """B4 may say again what B2 knows, as after a restart: it goes no further."""
    overlay = with_camera()
    overlay.set_context("b4", "v1", **CAR)
    overlay.subscribe("b4", "v1", F, publishers=F_CP)
    overlay.clear()
    overlay.receive("b2", "b4", SetContext("v1", Context.of(CAR)), origin="b4")
    assert passed(overlay) == {}
    overlay.receive("b2", "b4", SetContext("v1", Context.of({"x": 1, "y": 1})), origin="b4")
    assert passed(overlay) == {"b2>b1": [SetContext]}


def test_afterwards_b1_judges_by_the_new_context() -> None:
    overlay = with_car()
    overlay.set_context("b2", "v1", x=300, y=50)
    assert report(overlay) == []
    assert passed(overlay) == {}
    assert report(overlay, x=310, y=50) == [ACCIDENT]


# 5.5: the publisher's context changes


def test_a_change_of_the_cameras_context_is_not_sent_until_it_publishes() -> None:
    overlay = with_car()
    tables = subscriptions(overlay), context_managers(overlay)
    overlay.set_context("b1", "cam1", x=400, y=50)
    assert passed(overlay) == {}
    assert (subscriptions(overlay), context_managers(overlay)) == tables
    assert report(overlay, x=400, y=50) == []
    assert passed(overlay) == {}
    overlay.set_context("b1", "cam1", x=120, y=50)
    assert passed(overlay) == {}
    assert report(overlay, x=120, y=50) == [ACCIDENT]


# What was set up is taken down again


def test_when_the_car_unsubscribes_b1_forgets_it() -> None:
    overlay = with_car()
    overlay.unsubscribe("b2", "v1")
    assert passed(overlay) == {"b2>b1": [Unsubscribe]}
    assert subscriptions(overlay) == {name: [] for name in BROKERS}
    assert context_managers(overlay) == {"b1": {}, "b2": {"v1": CAR}, "b3": {}, "b4": {}}
    overlay.set_context("b2", "v1", x=1, y=1)
    assert passed(overlay) == {}  # no subscription of the car is anywhere else


def test_a_context_that_changed_while_no_subscription_was_there_goes_before_the_next_one() -> None:
    overlay = with_car()
    overlay.unsubscribe("b2", "v1")
    overlay.set_context("b2", "v1", x=300, y=50)
    overlay.clear()
    overlay.subscribe("b2", "v1", F, publishers=F_CP)
    assert passed(overlay) == {"b2>b1": [SetContext, Subscribe]}
    assert report(overlay, x=310, y=50) == [ACCIDENT]


# 7: publishers that say for whom an event is


A_CS = ("role",)


def test_what_is_asked_of_subscribers_stands_in_all_advertisement_tables() -> None:
    overlay = with_camera(subscriber_context=["role"])
    assert advertisements(overlay, with_subscribers=True) == {
        "b1": [("cam1", A, A_CP, A_CS)],
        "b2": [("b1", A, A_CP, A_CS)],
        "b3": [("b2", A, A_CP, A_CS)],
        "b4": [("b2", A, A_CP, A_CS)],
    }


@pytest.mark.parametrize("asked", [True, False], ids=["asked for", "not asked for"])
def test_a_subscribers_context_goes_where_an_advertisement_asks_for_it(asked: bool) -> None:
    overlay = with_camera(subscriber_context=["role"] if asked else [])
    overlay.set_context("b4", "medic", role="ambulance")
    overlay.subscribe("b4", "medic", F)  # it does not use its own context itself
    kinds = [SetContext, Subscribe] if asked else [Subscribe]
    assert passed(overlay) == {"b4>b2": kinds, "b2>b1": kinds}
    assert [("medic" in known) for known in context_managers(overlay).values()] == [asked, asked, False, True]


def test_events_for_some_stop_at_b1_if_nobody_behind_a_link_is_among_them() -> None:
    overlay = with_camera(subscriber_context=["role"])
    for broker, client, role in (("b3", "medic", "ambulance"), ("b4", "press", "reporter")):
        overlay.set_context(broker, client, role=role)
        overlay.subscribe(broker, client, F)
    overlay.clear()
    ways = {"ambulance": {"b1>b2", "b2>b3"}, "reporter": {"b1>b2", "b2>b4"}, "police": set()}
    told = {"ambulance": ["medic"], "reporter": ["press"], "police": []}
    for role, links in ways.items():
        overlay.clear()
        overlay.publish("b1", "cam1", ACCIDENT, context=CAMERA, subscribers=f"role = '{role}'")
        assert overlay.busy_links() == links
        assert [name for name in ("medic", "press") if overlay.received(name)] == told[role]


def test_who_an_event_is_for_may_depend_on_the_cameras_own_context() -> None:
    overlay = with_camera(subscriber_context=["x"])
    overlay.set_context("b4", "v1", x=110, y=45)
    overlay.subscribe("b4", "v1", F)
    near = "x between this.x - 20 and this.x + 20"
    for x, links in ((100, {"b1>b2", "b2>b4"}), (500, set())):
        overlay.clear()
        overlay.publish("b1", "cam1", ACCIDENT, context={"x": x, "y": 50, "zoom": 3}, subscribers=near)
        assert overlay.busy_links() == links
        assert overlay.received("v1") == ([ACCIDENT] if links else [])
        for link in (("b1", "b2"), ("b2", "b4")):  # the context goes along as far as the filter asks for it
            assert [dict(made.event.context) for made in overlay.on(*link, Publish)] == ([{"x": x}] if links else [])


def test_a_subscriber_that_comes_to_be_among_them_is_reached_at_once() -> None:
    overlay = with_camera(subscriber_context=["role"])
    overlay.set_context("b4", "medic", role="off duty")
    overlay.subscribe("b4", "medic", F)
    overlay.publish("b1", "cam1", ACCIDENT, context=CAMERA, subscribers="role = 'ambulance'")
    assert overlay.received("medic") == []
    overlay.clear()
    overlay.set_context("b4", "medic", role="ambulance")
    assert passed(overlay) == {"b4>b2": [SetContext], "b2>b1": [SetContext]}
    overlay.publish("b1", "cam1", ACCIDENT, context=CAMERA, subscribers="role = 'ambulance'")
    assert overlay.received("medic") == [ACCIDENT]
