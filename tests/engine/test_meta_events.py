"""Meta-events: ordinary events of reserved classes that only brokers may publish, and that never trigger others."""

import pytest

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tidings.engine import meta_events
from tidings.engine.operations import Advertise, Publish, ReportLoss

TELLS = on_publications("Publish('[class,Seen],[message,$Message]')")


# Ordinary events of reserved classes that only brokers may publish.


@pytest.mark.parametrize("said", sorted(meta_events.RESERVED))
def test_clients_may_not_publish_reserved_classes(said: str) -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"class": said, "message": "a lie"})
    assert hub.rejected() == [f"events of the class {said!r} are published by brokers only; choose another class"]
    assert hub.received("sub") == []


@pytest.mark.parametrize("said", sorted(meta_events.BROKERS_OWN))
@pytest.mark.parametrize("how", ["publish", "subscribe", "advertise", "set_policy", "on_exception", "insert"])
def test_what_the_broker_alone_can_tell_no_rule_may_claim(said: str, how: str) -> None:
    hub, claims = Overlay(), f"Publish('[class,{said}],[cause,lies]')"
    hub.subscribe("b1", "sub")
    match how:
        case "publish":
            hub.publish("b1", "pub", {}, policy=on_publications(claims))
        case "subscribe":
            hub.subscribe("b1", "eve", policy=on_publications(claims))
        case "advertise":
            hub.advertise("b1", "eve", policy=on_publications(claims))
        case "set_policy":
            hub.set_policy("b1", "sub", "s-sub", on_publications(claims))
        case "on_exception":
            hub.subscribe("b1", "eve", policy=on_publications("Log()", on_exception=f"If {{}} Then {{{claims}}}"))
        case "insert":
            hub.advertise("b1", "eve", policy=statement(rule("Insert, Subscription", claims)))
    assert hub.rejected() == [
        f"policy: Publish: events of the class {said} are made by the broker itself, not by rules"
    ]


@pytest.mark.parametrize("event", ["[class,$Sender]", "[class,$Message],[a,1]", "[a,1]", "[class,7]"])
def test_the_class_of_what_a_rule_publishes_is_known_beforehand(event: str) -> None:
    """Else a client of the name PolicyException could have rules that claim to be exceptions."""
    hub = Overlay()
    hub.subscribe("b1", "PolicyException", policy=on_publications(f"Publish('{event}')"))
    hub.publish("b1", "pub", {})
    assert "needs a class that is a plain word" in hub.rejected()[0]
    assert hub.told() == []


def test_anyone_may_subscribe_to_meta_events_unless_observers_are_named() -> None:
    for observers, expected in ((None, 1), (frozenset({"other"}), 0), (frozenset({"watch"}), 1)):
        hub = Overlay(observers=observers)
        hub.subscribe("b1", "sub", "n > 0", policy=TELLS)
        hub.subscribe("b1", "watch", "class = 'Seen'")
        hub.publish("b1", "pub", {"n": 1})
        assert hub.told() == [{"class": "Seen", "message": "[n,1]"}]
        assert len(hub.received("watch", meta=True)) == expected


def test_a_meta_event_is_the_brokers() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", "n > 0", policy=TELLS)
    hub.subscribe("b1", "watch", "class = 'Seen'")
    hub.publish("b1", "pub", {"n": 1})
    (note,) = hub.notifications("watch", meta=True)
    assert note.event.publisher == "b1"
    assert note.event.id.version == 7


def test_lost_notifications_are_told() -> None:
    hub = Overlay()
    hub.subscribe("b1", "watch", "class = 'LostNotifications'")
    hub.do("b1", ReportLoss("sub", "s1", 3))
    (told,) = hub.received("watch", meta=True)
    assert (told["client"], told["subscription"], told["count"]) == ("sub", "s1", 3)


# A broker advertises what its rules can emit.


def test_a_broker_advertises_what_its_rules_can_emit() -> None:
    line = Overlay(LINE)
    line.subscribe("b4", "watch", "class = 'Seen'")
    line.clear()
    line.advertise("b1", "pub", "n > 0")
    line.subscribe("b1", "sub", "n > 0", policy=TELLS)  # from now on b1 may tell
    assert [type(one) for one in line.passed["b1", "b2"] if isinstance(one, Advertise)]
    line.publish("b1", "pub", {"n": 1})
    assert line.received("watch", meta=True) == [{"class": "Seen", "message": "[n,1]"}]


def test_with_set_policy_too_and_for_those_who_subscribed_before_and_after() -> None:
    line = Overlay(LINE)
    line.subscribe("b4", "before", "class = 'Seen'")
    line.subscribe("b1", "sub", "n > 0")
    line.set_policy("b1", "sub", "s-sub", TELLS)
    line.subscribe("b4", "after", "class = 'Seen'")
    line.publish("b1", "pub", {"n": 1})
    assert len(line.received("before", meta=True)) == len(line.received("after", meta=True)) == 1


def test_a_neighbour_that_comes_later_learns_of_them() -> None:
    overlay = Overlay(brokers=["b1", "b2"])
    overlay.subscribe("b1", "sub", "n > 0", policy=TELLS)
    overlay.subscribe("b2", "watch", "class in ('Seen', 'PolicyException')")
    overlay.join("b1", "b2")
    overlay.publish("b1", "pub", {"n": 1})
    assert [one["class"] for one in overlay.received("watch", meta=True)] == ["Seen"]


def test_exceptions_and_conflicts_find_their_way_through_the_overlay() -> None:
    line = Overlay(LINE)
    line.subscribe("b4", "watch", "class in ('PolicyException', 'PolicyConflict')")
    line.subscribe("b1", "sub", "n > 0", policy=on_publications("Persist('no store')"))
    line.publish("b1", "pub", {"n": 1})
    assert [(one["class"], one["broker"]) for one in line.received("watch", meta=True)] == [("PolicyException", "b1")]


def test_a_class_that_is_known_is_not_advertised_again() -> None:
    line = Overlay(LINE[:1])
    line.subscribe("b1", "one", "n > 0", policy=TELLS)
    line.clear()
    line.subscribe("b1", "two", "n > 0", policy=TELLS)
    line.unsubscribe("b1", "one")
    line.subscribe("b1", "three", "n > 0", policy=TELLS)
    assert line.on("b1", "b2", Advertise) == []


# A meta-event never triggers itself, nor any other.


def test_a_meta_event_never_triggers_others() -> None:
    hub = Overlay()
    ring = ("A", "B", "C", "D")
    for one, next_one in zip(ring, (*ring[1:], ring[0]), strict=True):
        hub.subscribe("b1", f"c{one}", f"class = '{one}'", policy=on_publications(f"Publish('[class,{next_one}]')"))
    hub.subscribe("b1", "all", "true", policy=on_publications("Publish('[class,A]'), Publish('[class,B]')"))
    hub.subscribe("b1", "broken", "true", policy=on_publications("Persist('no store')"))
    hub.publish("b1", "pub", {"class": "A"})
    assert sorted(hub.told_classes()) == ["A", "B", "B", "PolicyException"]


def test_what_rules_log_and_keep_of_a_meta_event_they_log_and_keep() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", "n > 0", policy=TELLS)
    hub.subscribe(
        "b1", "b1", "class = 'Seen'", policy=on_publications("Log(kept), Persist(shelf), Publish('[class,Z]')")
    )
    hub.publish("b1", "pub", {"n": 1})
    assert hub.logs() == ["kept"]
    assert [store for store, _ in hub.persisted()] == ["shelf"]
    assert hub.told_classes() == ["Seen"]


def test_across_brokers_a_meta_event_stays_one() -> None:
    line = Overlay(LINE[:1])
    line.subscribe("b2", "b2", "class = 'Seen'", policy=on_publications("Publish('[class,More]')"))
    line.subscribe("b1", "sub", "n > 0", policy=TELLS)
    line.publish("b1", "pub", {"n": 1})
    (sent,) = line.on("b1", "b2", Publish)
    assert sent.journey.meta
    assert line.told_classes() == ["Seen"]


def test_rules_may_block_and_shape_meta_events() -> None:
    hub = Overlay()
    hub.subscribe("b1", "b1", "class = 'Seen'", policy=on_publications("RemoveAttributes(message)"))
    hub.subscribe("b1", "sub", "n > 0", policy=TELLS)
    hub.subscribe("b1", "watch", "class = 'Seen'")
    hub.publish("b1", "pub", {"n": 1})
    assert hub.received("watch", meta=True) == [{"class": "Seen"}]


@pytest.mark.parametrize("then", ["BlockMessage()", "RemoveAttributes(secret)", "Persist('no store')"])
def test_what_is_kept_from_somebody_is_not_told_to_everybody(then: str) -> None:
    """Exceptions and conflicts name the message, and do not repeat it: also where its copies wait for answers."""
    hub = Overlay(trust={"zone": ["friend"]}, expiry=0)
    zone = "If {AuthenticateReceiver(zone)} Then {}"
    hub.advertise(
        "b1", "pub", id="a1", policy=statement(f"On(Forward, Publication) {{ {zone} Elseif {{}} Then {{{then}}} }}")
    )
    hub.advertise("b1", "pub", id="a2", policy=on_publications("KeepOnlyAttributes(secret, n)"))
    hub.advertise("b1", "pub", id="a3", policy=on_publications(""))
    hub.subscribe("b1", "friend", "n = 1", policy=on_publications("Persist('no store')"))
    hub.subscribe("b1", "spy", "n = 1")
    hub.subscribe("b1", "watch", "class in ('PolicyConflict', 'PolicyException')")
    event = hub.event("pub", {"n": 1, "secret": "kept"})
    hub.do("b1", Publish(event))
    told = hub.received("watch", meta=True)
    assert {one["message"] for one in told} == {str(event.id)}
    assert "kept" not in str(told)
