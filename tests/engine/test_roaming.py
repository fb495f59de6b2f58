"""Subscribers that move at the moment at which a link fails: no broker keeps what it knew of them."""

import pytest

from tests.engine.overlay import Overlay
from tidings import Context, ContextFilter, Filter
from tidings.engine.operations import Connect, Leave, SetContext, Subscribe
from tidings.model.subscription import Subscription

RING = (("b1", "b2"), ("b2", "b3"), ("b3", "b1"))
KIND = "kind = 'alert'"
STRATEGIES = ("advertisement", "asf", "gsf", "spcf")

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def populated(strategy: str) -> Overlay:
    """The unit at b1 publishes, the van at b2 subscribes to those who are where it is."""
    overlay = Overlay(RING, strategy=strategy)
    overlay.set_context("b1", "unit", lat=1)
    overlay.advertise("b1", "unit", KIND, publisher_context=("lat",))
    come(overlay, "b2", lat=5)
    return overlay


def come(overlay: Overlay, broker: str, *, lat: int, session: int = 1) -> None:
    """The van comes to a broker and says what it has; all hear of it."""
    arrive(overlay, broker, lat=lat, session=session)
    overlay.run()


def arrive(overlay: Overlay, broker: str, *, lat: int, session: int) -> None:
    """The same, and what others are to hear of it is under way."""
    wanted = Subscription.of(
        Filter.parse(KIND),
        id="s-van",
        subscriber="van",
        publishers=ContextFilter.parse("lat = this.lat"),
        durable="alerts",
    )
    overlay.step(broker, Connect("van", moved=session > 1, session=session))
    overlay.step(broker, SetContext("van", Context.of({"lat": lat})))
    overlay.step(broker, Subscribe(wanted))


def lose(overlay: Overlay, broker: str) -> None:
    """The others find out that a broker is gone, and it that they are; tables are not made anew yet."""
    for other in overlay.engines.keys() - {broker}:
        overlay.step(other, Leave(broker))
        overlay.step(broker, Leave(other))
    overlay.run()


def subscriptions(overlay: Overlay, broker: str) -> dict[str, str]:
    """Ids of subscriptions, and from where they came."""
    return {one.id: one.hop for one in overlay.engines[broker].state.filters.subscriptions}


@each_strategy
@pytest.mark.parametrize("is_lost_first", [True, False], ids=["after the loss", "before the loss"])
def test_a_subscriber_that_moves_when_its_broker_is_lost_is_known_as_a_client_of_its_new_broker_alone(
    strategy: str, is_lost_first: bool
) -> None:
    overlay = populated(strategy)
    if is_lost_first:
        lose(overlay, "b2")
        come(overlay, "b3", lat=5, session=2)
    else:
        come(overlay, "b3", lat=5, session=2)
        lose(overlay, "b2")
    assert not overlay.engines["b1"].state.contexts.is_here("van")
    overlay.settle()
    overlay.set_context("b3", "van", lat=1)
    assert not overlay.engines["b1"].state.contexts.is_here("van")
    assert subscriptions(overlay, "b1") == {"s-van": "b3"}
    assert subscriptions(overlay, "b3") == {"s-van": "van"}
    overlay.publish("b1", "unit", {"kind": "alert"}, context=Context.of({"lat": 1}))
    assert overlay.received("van") == [{"kind": "alert"}]


@each_strategy
def test_a_subscriber_that_comes_to_where_it_was_known_when_its_broker_is_lost_is_there_once(strategy: str) -> None:
    """The broker that it comes to has its subscription from the broker that is lost."""
    overlay = populated(strategy)
    lose(overlay, "b2")
    come(overlay, "b1", lat=5, session=2)
    overlay.settle()
    assert subscriptions(overlay, "b1") == {"s-van": "van"}
    overlay.set_context("b1", "van", lat=1)
    overlay.publish("b1", "unit", {"kind": "alert"}, context=Context.of({"lat": 1}))
    assert overlay.received("van") == [{"kind": "alert"}]
    overlay.unsubscribe("b1", "van")
    overlay.disconnect("b1", "van")
    assert not overlay.engines["b1"].state.contexts.is_here("van")


@each_strategy
def test_a_subscriber_that_is_back_before_its_broker_has_heard_that_it_left_is_known_from_there_alone(
    strategy: str,
) -> None:
    overlay = populated(strategy)
    before = {name: subscriptions(overlay, name) for name in overlay.engines}
    arrive(overlay, "b3", lat=5, session=2)
    while ("b3", "b1") in overlay.waiting():
        overlay.arrive("b3", "b1")
    arrive(overlay, "b2", lat=5, session=3)
    overlay.run()
    assert {name: subscriptions(overlay, name) for name in overlay.engines} == before
