"""Settling: the broker where an event was published hears when it has reached all, and never before. What is sent again
reaches those who missed it, and nobody twice."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.engine.overlay import LINE, Overlay, on_publications
from tests.engine.test_federations import TWO, federation
from tidings.engine.effects import (
    ClientMoved,
    Deliver,
    Effect,
    PublicationSettled,
    Send,
    TopologyChanging,
    TopologySettled,
)
from tidings.engine.operations import Connect, Join, Leave, Publish, Republish, SetLaggingBrokers, Settle, Tick
from tidings.engine.overlay import settlement
from tidings.engine.state.seen_events import SeenEvents, SeenStatus
from tidings.model.event import Event
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.routing import STRATEGIES

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
EVENT = uuid7(0, bytes(ENTROPY_BYTES))


def served(strategy: str = "advertisement", **more: Any) -> Overlay:
    """A publisher at b1, and durable subscribers at b2, b3 and b4."""
    overlay = Overlay(LINE, strategy=strategy, resends=True, **more)
    overlay.advertise("b1", "pub")
    for name in ("b2", "b3", "b4"):
        overlay.subscribe(name, f"at-{name}", durable="mine")
    overlay.clear()
    return overlay


def rest(overlay: Overlay) -> None:
    """Until all that is gathered has been told."""
    while any(not engine.settlement.has_sent_all for engine in overlay.engines.values()):
        for name in overlay.engines:
            overlay.step(name, Tick())
        overlay.run()


def settled(overlay: Overlay, broker: str = "b1") -> list[tuple[UUID, int]]:
    return [
        (one.event, one.round)
        for where, one in overlay.effects
        if where == broker and isinstance(one, PublicationSettled)
    ]


def told(overlay: Overlay, *clients: str) -> list[int]:
    return [len(overlay.notifications(client)) for client in clients]


def under_way(overlay: Overlay, broker: str, event: Event) -> list[Effect]:
    return overlay.step(broker, Publish(event))


@each_strategy
def test_the_ingress_broker_hears_when_an_event_has_reached_all(strategy: str) -> None:
    overlay = served(strategy)
    event = overlay.event("pub", {"n": 1})
    overlay.do("b1", Publish(event))
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 1, 1]
    assert settled(overlay) == []
    rest(overlay)
    assert settled(overlay) == [(event.id, 0)]
    for there, here in (("b4", "b3"), ("b3", "b2"), ("b2", "b1")):
        assert overlay.on(there, here, Settle) == [Settle(((event.id, 0),))]


@each_strategy
def test_not_before_the_last_one_has_it(strategy: str) -> None:
    overlay = served(strategy)
    under_way(overlay, "b1", overlay.event("pub", {"n": 1}))
    overlay.arrive("b1", "b2")
    overlay.arrive("b2", "b3")
    for _ in range(3):
        for name in overlay.engines:
            overlay.step(name, Tick())
        for link, waiting in overlay.waiting().items():
            if any(isinstance(one, Settle) for one in waiting):
                overlay.arrive(*link)
    assert settled(overlay) == []
    overlay.run()
    rest(overlay)
    assert len(settled(overlay)) == 1


def test_an_event_that_goes_nowhere_is_settled_at_once() -> None:
    overlay = served()
    overlay.advertise("b4", "other")
    event = overlay.event("other", {"n": 1})
    for name in ("b2", "b3"):
        overlay.unsubscribe(name, f"at-{name}")
    assert PublicationSettled(event.id, 0) in overlay.do("b4", Publish(event))
    assert overlay.on("b4", "b3", Publish) == []


def test_a_broker_without_neighbours_pays_nothing() -> None:
    overlay = Overlay(brokers=["b1"], resends=True)
    overlay.subscribe("b1", "sub", durable="mine")
    effects = overlay.publish("b1", "pub", {"n": 1})
    assert [type(one) for one in effects] == [Deliver]


def test_without_a_journal_nothing_is_settled() -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b1", "pub")
    overlay.subscribe("b4", "sub", durable="mine")
    overlay.publish("b1", "pub", {"n": 1})
    assert told(overlay, "sub") == [1]
    assert settled(overlay) == []
    assert not any(isinstance(one, TopologyChanging | TopologySettled | ClientMoved) for _, one in overlay.effects)


def test_many_are_settled_together() -> None:
    overlay = served()
    for number in range(settlement.TOGETHER + 1):
        overlay.publish("b1", "pub", {"n": number})
    assert [len(one.passed) for one in overlay.on("b4", "b3", Settle)] == [settlement.TOGETHER]
    rest(overlay)
    assert [len(one.passed) for one in overlay.on("b4", "b3", Settle)] == [settlement.TOGETHER, 1]
    assert len(settled(overlay)) == settlement.TOGETHER + 1


def test_what_a_link_that_is_gone_has_taken_along_is_never_settled() -> None:
    overlay = served()
    under_way(overlay, "b1", overlay.event("pub", {"n": 1}))
    overlay.arrive("b1", "b2")
    overlay.step("b2", Leave("b3"))
    overlay.step("b3", Leave("b2"))
    overlay.in_flight.pop(("b2", "b3"))
    overlay.run()
    rest(overlay)
    overlay.join("b2", "b3")
    rest(overlay)
    assert settled(overlay) == []


def test_more_than_are_remembered_are_never_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "MAX_UNSETTLED_PUBLICATIONS", 2)
    overlay = served()
    events = [overlay.event("pub", {"n": number}) for number in range(3)]
    for event in events:
        under_way(overlay, "b1", event)
    overlay.run()
    rest(overlay)
    assert settled(overlay) == [(event.id, 0) for event in events[1:]]


def test_a_copy_that_a_rule_stops_is_settled() -> None:
    overlay = served(govern=frozenset({"pub"}))
    overlay.set_policy("b1", "pub", "a-pub", on_publications("BlockMessage()"))
    event = overlay.event("pub", {"n": 1})
    assert PublicationSettled(event.id, 0) in overlay.do("b1", Publish(event))


def test_a_copy_that_waits_for_an_answer_is_settled_when_it_has_arrived_or_been_stopped() -> None:
    for member in (True, False):
        overlay = served(hold_answers=True)
        rule = on_publications("BlockMessage()", when="AuthenticateReceiver(Friends) = False", broker="Ingress")
        overlay.set_policy("b1", "pub", "a-pub", rule)
        event = overlay.event("pub", {"n": 1})
        overlay.do("b1", Publish(event))
        rest(overlay)
        assert settled(overlay) == []
        while overlay.questions:
            overlay.answer(*overlay.questions.pop(0), member=member)
            overlay.run()
        rest(overlay)
        assert told(overlay, "at-b2", "at-b3", "at-b4") == [int(member)] * 3
        assert settled(overlay) == [(event.id, 0)]


# While tables are made anew


@each_strategy
def test_what_is_published_then_is_for_the_clients_here_alone(strategy: str) -> None:
    overlay = served(strategy)
    overlay.subscribe("b1", "here")
    overlay.step("b1", Leave("b2"))
    overlay.step("b2", Leave("b1"))
    overlay.step("b1", Join("b2"))
    overlay.step("b2", Join("b1"))
    overlay.clear()
    event = overlay.event("pub", {"n": 1})
    effects = overlay.step("b1", Publish(event))
    assert [type(one) for one in effects] == [Deliver]
    overlay.settle()
    brokers = frozenset(overlay.engines)
    changes = [
        one for where, one in overlay.effects if where == "b1" and isinstance(one, TopologyChanging | TopologySettled)
    ]
    assert changes[-2:] == [TopologyChanging(brokers), TopologySettled(brokers)]
    assert told(overlay, "here", "at-b2", "at-b4") == [1, 0, 0]
    overlay.do("b1", Republish(event, 7, ("b2", "b3", "b4")))
    rest(overlay)
    assert told(overlay, "here", "at-b2", "at-b3", "at-b4") == [1, 1, 1, 1]
    assert settled(overlay) == [(event.id, 7)]


@each_strategy
def test_what_comes_before_tables_are_complete_waits_for_them(strategy: str) -> None:
    overlay = served(strategy)
    engine = overlay.engines["b3"]
    under_way(overlay, "b1", overlay.event("pub", {"n": 1}))
    overlay.arrive("b1", "b2")
    engine.convergence.is_complete = False
    overlay.run()
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 0, 0]
    assert settled(overlay) == []
    engine.convergence.is_complete = True
    engine.convergence._has_pending_change = True
    overlay.now += 1_000_000
    overlay.step("b3", Tick())
    overlay.run()
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 1, 1]
    assert len(settled(overlay)) == 1


@each_strategy
def test_what_was_sent_in_another_network_comes_to_nothing(strategy: str) -> None:
    """Later events of its publisher, which are sent in this one, cannot overtake it so."""
    overlay = served(strategy)
    under_way(overlay, "b1", overlay.event("pub", {"n": 1}))
    for one, other in (("b3", "b4"), ("b4", "b3")):
        overlay.step(one, Leave(other))
        overlay.step(one, Join(other))
    overlay.now += 1_000_000
    overlay.step("b2", Tick())
    kept = overlay.in_flight.pop(("b1", "b2"))
    overlay.settle()
    overlay.in_flight["b1", "b2"] = kept
    overlay.run()
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [0, 0, 0]
    assert settled(overlay) == []


# Sending again


@each_strategy
def test_what_is_sent_again_is_for_those_alone_who_may_have_missed_it(strategy: str) -> None:
    overlay = served(strategy)
    event = overlay.event("pub", {"n": 1})
    overlay.do("b1", Republish(event, 5, ("b3",)))
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [0, 1, 0]
    assert settled(overlay) == [(event.id, 5)]
    assert overlay.on("b3", "b4", Publish) == []
    overlay.do("b1", Republish(event, 6, ("b2", "b3", "b4")))
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 1, 1]
    assert settled(overlay) == [(event.id, 5), (event.id, 6)]


@each_strategy
def test_brokers_that_lag_pass_new_events_on_and_get_them_later(strategy: str) -> None:
    overlay = served(strategy)
    overlay.do("b1", SetLaggingBrokers(("b3",)))
    event = overlay.event("pub", {"n": 1})
    overlay.do("b1", Publish(event))
    rest(overlay)
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 0, 1]
    assert settled(overlay) == [(event.id, 0)]
    overlay.do("b1", SetLaggingBrokers(()))
    overlay.do("b1", Republish(event, 3, ("b3",)))
    assert told(overlay, "at-b2", "at-b3", "at-b4") == [1, 1, 1]


def test_what_is_for_a_client_that_has_come_is_for_its_durable_subscriptions_alone() -> None:
    overlay = served()
    overlay.subscribe("b3", "came", durable="mine")
    overlay.subscribe("b3", "came", id="other")
    event = overlay.event("pub", {"n": 1})
    overlay.do("b1", Republish(event, 5, ("b3",), ("came",)))
    assert [note.subscription for note in overlay.notifications("came")] == ["s-came"]
    assert told(overlay, "at-b3") == [0]
    overlay.subscribe("b1", "home", durable="mine")
    overlay.do("b1", Republish(event, 6, ("b1",), ("home",)))
    assert told(overlay, "home", "at-b3") == [1, 0]


def test_history_is_for_durable_subscriptions_alone() -> None:
    overlay = served()
    overlay.subscribe("b4", "fleeting")
    event = overlay.event("pub", {"n": 1})
    soon, late = overlay.now + 1_000_000, overlay.now + 3_600_000_000
    overlay.do("b1", Republish(event, late, ("b4",)))
    assert told(overlay, "fleeting", "at-b4") == [0, 1]
    overlay.do("b1", Republish(overlay.event("pub", {"n": 2}), soon, ("b4",)))
    assert told(overlay, "fleeting", "at-b4") == [1, 2]


def test_it_needs_no_advertisement_any_more() -> None:
    overlay = served()
    event = overlay.event("pub", {"n": 1})
    overlay.unadvertise("b1", "pub")
    overlay.do("b1", Republish(event, 5, ("b4",)))
    assert told(overlay, "at-b4") == [1]


def test_a_durable_subscription_gets_an_event_late_rather_than_never() -> None:
    overlay = served()
    overlay.subscribe("b4", "fleeting")
    first, second = overlay.event("pub", {"n": 1}), overlay.event("pub", {"n": 2})
    overlay.do("b1", Publish(msgspec.structs.replace(second, timestamp=first.timestamp + 1)))
    overlay.do("b1", Publish(first))
    assert told(overlay, "at-b4", "fleeting") == [2, 1]


@each_strategy
def test_the_source_of_an_event_hears_of_a_move_before_it_is_settled(strategy: str) -> None:
    """So what came to where the client was no longer is sent again, to where it is."""
    overlay = served(strategy)
    overlay.do("b4", Connect("at-b4", session=1))
    event = overlay.event("pub", {"n": 1})
    overlay.step("b1", Publish(event))
    overlay.do("b3", Connect("at-b4", moved=True, session=2))
    rest(overlay)
    here = [
        one for where, one in overlay.effects if where == "b1" and isinstance(one, ClientMoved | PublicationSettled)
    ]
    assert here == [ClientMoved("at-b4", "b3", 2), PublicationSettled(event.id, 0)]


# Sub-overlays


@each_strategy
def test_a_gateway_settles_what_the_other_side_has_settled(strategy: str) -> None:
    overlay = Overlay(LINE, **federation(TWO, ("advertisement", strategy), resends=True))
    overlay.advertise("b1", "pub")
    overlay.subscribe("b4", "sub", durable="mine")
    event = overlay.event("pub", {"n": 1})
    overlay.step("b1", Publish(event))
    overlay.arrive("b1", "b2")
    overlay.arrive("b2", "b3")
    for name in ("b3", "b2"):
        assert not any(isinstance(one, Send) for one in overlay.step(name, Tick()))
    overlay.run()
    rest(overlay)
    assert told(overlay, "sub") == [1]
    assert settled(overlay) == [(event.id, 0)]


def test_what_one_broker_is_sent_again_does_not_go_abroad() -> None:
    overlay = Overlay(LINE, **federation(TWO, ("advertisement", "advertisement"), resends=True))
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "near", durable="mine")
    overlay.subscribe("b4", "far", durable="mine")
    event = overlay.event("pub", {"n": 1})
    overlay.do("b1", Republish(event, 5, ("b2",)))
    assert told(overlay, "near", "far") == [1, 0]
    overlay.do("b1", Republish(event, 6, ("", "b2")))
    assert told(overlay, "near", "far") == [1, 1]


# What has passed


def test_an_event_of_a_higher_round_passes_again_and_is_delivered_once() -> None:
    seen_events = SeenEvents()
    assert seen_events.note(EVENT, 1, flood=False) is SeenStatus.FIRST
    assert seen_events.note(EVENT, 1, flood=False) is SeenStatus.AGAIN
    assert seen_events.note(EVENT, 1, flood=False, round=2) is SeenStatus.ONWARD
    assert seen_events.note(EVENT, 1, flood=False, round=1) is SeenStatus.AGAIN


def test_an_event_that_only_passed_is_delivered_when_it_is_sent_again() -> None:
    seen_events = SeenEvents()
    assert seen_events.note(EVENT, 1, flood=False, here=False) is SeenStatus.ONWARD
    assert seen_events.note(EVENT, 1, flood=False, round=1) is SeenStatus.FIRST
    assert seen_events.note(EVENT, 1, flood=False, round=2) is SeenStatus.ONWARD


def test_an_event_that_waits_for_an_answer_is_as_it_was_before_it_came() -> None:
    seen_events = SeenEvents()
    seen_events.note(EVENT, 1, flood=False, here=False)
    seen_events.note(EVENT, 1, flood=False, round=1)
    seen_events.forget(EVENT)
    assert seen_events.note(EVENT, 1, flood=False, round=1) is SeenStatus.FIRST
