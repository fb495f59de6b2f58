"""A hub and its clients, method by method."""

import logging
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import tidings as td
from tests.hub.cases import NOW, numbers
from tidings.hub import Hub
from tidings.model.errors import ClosedError, InvalidValueError, PolicyError, RefusedError, TidingsError
from tidings.testing import VirtualClock

TRIM = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([secret]) } } }"


def test_the_example_of_the_public_face() -> None:
    hub = td.Hub()
    car, camera = hub.client("car-1"), hub.client("cam-1")
    car.set_context(x=10.0, y=20.0)
    sub = car.subscribe("msg = 'accident'", publishers="x between this.x - 20 and this.x + 20")
    camera.set_context(x=12.0, y=18.0)
    camera.advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=[], policy=None)
    camera.publish({"msg": "accident"}, subscribers="x < 100", payload=b"", subject=None, policy=None)
    camera.publish({"msg": "accident"}, subscribers="x > 100")
    camera.set_context(x=92.0)
    camera.publish({"msg": "accident"})
    (note,) = sub.take()
    assert isinstance(note, td.Notification)
    assert note.attributes == {"msg": "accident"}
    assert (note.event.publisher, note.subscription, note.subscriber) == ("cam-1", sub.id, "car-1")
    assert note.event.context == {"x": 12.0, "y": 18.0}
    assert (note.payload, sub.take()) == (None, [])


def test_one_client_for_each_name() -> None:
    hub = Hub(name="b1")
    assert hub.client("a") is hub.client("a")
    assert hub.client("a") is not hub.client("b")
    assert repr(hub.client("a")) == "<client a of b1>"
    with pytest.raises(InvalidValueError, match="'b1' is the hub's own name"):
        hub.client("b1")
    with pytest.raises(InvalidValueError, match="a client's name is a string"):
        hub.client("")
    assert (hub.stats().clients, repr(hub)) == (2, "<hub b1: 2 clients, 0 subscriptions>")


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"govern": "alice"},
            {"observers": "alice"},
            {"govern": [""]},
            {"name": ""},
            {"govern": None},
            {"observers": 7},
        ),
        *({"schemas": None}, {"schemas": "Loop"}, {"folder": 7}),
    ],
)
def test_bad_settings(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError) as refused:
        Hub(**{"folder": tmp_path, **given})
    Hub(tmp_path).close()  # while what was raised is still held: the folder is not locked
    assert refused.value.__traceback__ is not None


def test_events_are_counted_and_timed() -> None:
    clock = VirtualClock()
    hub = Hub(clock=clock)
    a, b = hub.client("a"), hub.client("b")
    receipts = [a.publish({"n": 1}), b.publish({"n": 2}), a.publish({"n": 3}, subject="s", payload=b"p")]
    assert [one.event.sequence for one in receipts] == [1, 1, 2]
    assert [one.event.timestamp for one in receipts] == [NOW + 1 - 1, NOW + 1, NOW + 2]
    assert [one.offset for one in receipts] == [0, 1, 2]
    assert [one.event.id.version for one in receipts] == [7, 7, 7]
    assert (receipts[2].event.subject, receipts[2].event.payload) == ("s", b"p")
    clock.time = NOW - 1_000_000  # a clock that was set back
    assert a.publish({}).event.timestamp == NOW + 3


def test_an_id_is_published_once() -> None:
    hub = Hub()
    client = hub.client("a")
    sub = client.subscribe("n = 1")
    id = td.uuid7(NOW, bytes(10))  # noqa: A001
    assert client.publish({"n": 1}, id=id).event.id == id
    with pytest.raises(RefusedError, match=f"the event {id} was published before") as refused:
        hub.client("b").publish({"n": 1}, id=str(id))
    assert refused.value.step == "admit"
    with pytest.raises(RefusedError):
        client.publish({"n": 1}, id=client.publish({}).event.id)
    assert len(sub.take()) == 1
    for wrong, said in [(uuid4(), "UUIDv7"), ("x", "'x' is no UUID"), (7, "UUIDv7")]:
        with pytest.raises(InvalidValueError, match=said):
            client.publish({}, id=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attributes": {"n": float("nan")}}, "not a finite number"),
        ({"attributes": {"$n": 1}}, "such names are the system's"),
        ({"payload": "text"}, "encode text as UTF-8"),
        ({"subject": ""}, "subject"),
        ({"subscribers": 1}, "a context filter is a text or a ContextFilter"),
        ({"policy": 1}, "policy: must be a text or a Policy"),
        ({"safe": "no"}, "safe: must be 'journaled' or 'accepted'"),
    ],
)
def test_bad_publications_change_nothing(given: dict[str, object], said: str) -> None:
    hub = Hub()
    client = hub.client("a")
    with pytest.raises(InvalidValueError, match=said):
        client.publish(**given)  # type: ignore[arg-type]
    with pytest.raises(PolicyError):
        client.publish({}, policy="PolicyStatement {")
    assert client.publish({}).event.sequence == 1
    assert hub.stats().offset == 1


def test_contexts_replace_merge_and_skip_what_does_not_change() -> None:
    hub = Hub()
    client = hub.client("a")
    client.set_context(x=1, y=2)
    client.set_context({"x": 3, "of": "a name that is also an argument"})
    assert client.context == {"x": 3, "of": "a name that is also an argument"}
    client.set_context({"of": None}, merge=True, y=4)
    assert client.context == {"x": 3, "y": 4}
    offset = hub.stats().offset
    client.set_context(x=3, y=4)
    client.set_context(merge=True, y=4)
    assert hub.stats().offset == offset
    client.set_context({})
    assert client.context == {}
    with pytest.raises(InvalidValueError, match="x: a value is a bool"):
        client.set_context(x=b"")


def test_a_client_may_let_another_set_its_context() -> None:
    hub = Hub()
    car, gps = hub.client("car-1"), hub.client("gps")
    with pytest.raises(RefusedError, match="car-1 does not let gps set its context"):
        gps.set_context(of="car-1", x=1.0)
    assert car.context == {}
    car.let_set_context(gps)
    gps.set_context(of="car-1", x=1.0)
    gps.set_context(of="car-1", merge=True, y=2.0)
    assert (car.context, gps.context) == ({"x": 1.0, "y": 2.0}, {})
    car.let_set_context("gps", allowed=False)
    with pytest.raises(RefusedError):
        gps.set_context(of="car-1", x=2.0)


def test_subscribing_in_every_format() -> None:
    client = Hub().client("a")
    topic = client.subscribe("/Sports/*", format="topic")
    tags = client.subscribe("Team=*", format="tags")
    subject = client.subscribe(subject="/Sports/Football")
    value = client.subscribe(td.Filter.parse("Team = 'x'"), publishers=td.ContextFilter.parse("x = 1"))
    client.publish({"Team": "x"}, subject="/Sports/Football")
    assert [len(one.take()) for one in (topic, tags, subject, value)] == [1, 1, 1, 0]
    with pytest.raises(td.FilterError):
        client.subscribe("n >")
    with pytest.raises(InvalidValueError, match="content: must be a Filter"):
        client.subscribe(3)  # type: ignore[arg-type]


def test_subscriptions_have_ids_of_their_own_or_given_ones() -> None:
    hub = Hub()
    client = hub.client("a")
    first, second = client.subscribe("n > 1"), client.subscribe("n > 1", id="mine")
    assert first.id.startswith("a.")
    assert [one.id for one in client.subscriptions()] == [first.id, "mine"]
    again = client.subscribe("n > 5", id="mine")
    assert again is second
    client.publish({"n": 3})
    assert (len(first.take()), len(second.take())) == (1, 0)
    with pytest.raises(RefusedError, match="the id mine is taken"):
        hub.client("b").subscribe("n > 1", id="mine")


def test_unsubscribing() -> None:
    hub = Hub()
    client = hub.client("a")
    with client.subscribe("n > 1") as sub:
        client.publish({"n": 2})
    client.publish({"n": 3})
    assert sub.closed
    assert numbers(sub.take()) == [2]
    other = client.subscribe("n > 1")
    client.unsubscribe(other)
    with pytest.raises(RefusedError, match=f"a has no subscription {other.id}"):
        client.unsubscribe(other.id)
    with pytest.raises(RefusedError, match="b has no subscription"):
        hub.client("b").unsubscribe(client.subscribe("n > 1").id)
    other.close()  # once more is no mistake
    assert hub.stats().subscriptions == 1


def test_advertising() -> None:
    hub = Hub(advertisements_required=True)
    client = hub.client("a")
    with pytest.raises(RefusedError, match="a has advertised nothing like this event"):
        client.publish({"n": 1})
    made = client.advertise("n > 0", publisher_context="x > 0", id="ad")
    assert made.id == "ad"
    assert client.publish({"n": 1}).event.sequence == 1
    client.unadvertise(made)
    with pytest.raises(RefusedError):
        client.publish({"n": 1})
    with pytest.raises(RefusedError, match="a has no advertisement ad"):
        client.unadvertise("ad")
    assert hub.stats().refused == 3


def test_policies_of_owners_and_of_the_operator() -> None:
    hub = Hub()
    client = hub.client("a")
    sub = client.subscribe("n > 0", policy=td.Policy.parse(TRIM))
    client.publish({"n": 1, "secret": 2})
    assert sub.take()[0].attributes == {"n": 1}
    assert client.set_policy(sub, None) == []
    client.publish({"n": 1, "secret": 2})
    assert sub.take()[0].attributes == {"n": 1, "secret": 2}
    findings = client.set_policy(sub.id, TRIM.replace("secret", "n"))
    assert findings
    assert all(isinstance(one, str) for one in findings)
    hub.set_policy(sub.id, TRIM)
    client.publish({"n": 1, "secret": 2})
    assert "secret" not in sub.take()[0].attributes
    with pytest.raises(RefusedError, match="b has no subscription or advertisement"):
        hub.client("b").set_policy(sub.id, None)
    with pytest.raises(PolicyError):
        client.set_policy(sub.id, "On nothing")


def test_findings_stand_on_what_was_made() -> None:
    client = Hub().client("a")
    removes_what_it_needs = TRIM.replace("secret", "n")
    assert client.subscribe("n > 0", policy=removes_what_it_needs).findings
    assert client.subscribe("n > 0").findings == []


def test_the_hubs_own_filters() -> None:
    hub = Hub(name="b1")
    client = hub.client("a")
    own = hub.subscribe("n > 0")
    assert [one.id for one in hub.subscriptions()] == [own.id]
    assert own.subscriber == "b1"
    client.publish({"n": 1})
    assert numbers(own) == [1]
    hub.unsubscribe(own)
    made = hub.advertise("n > 0", policy=None)
    hub.unadvertise(made)


def test_what_policies_log_and_persist(caplog: pytest.LogCaptureFixture) -> None:
    hub = Hub()
    client = hub.client("a")
    keep = 'PolicyStatement { On(Forward, Publication) { If {} Then { Log("seen"), Persist(kept) } } }'
    client.subscribe("n > 0", policy=keep)
    with caplog.at_level(logging.INFO, "tidings"):
        client.publish({"n": 1})
    assert any("seen" in line for line in hub.log)
    assert "seen" in caplog.text
    assert len(hub.store("kept")) == 1
    assert "n" in hub.store("kept")[0]
    assert hub.store("other") == []


def test_load_is_what_policies_see() -> None:
    hub = Hub()
    client = hub.client("a")
    busy = "PolicyStatement { On(Forward, Publication) { If { BrokerLoadIndex() > 0.5 } Then { BlockMessage() } } }"
    sub = client.subscribe("n > 0", policy=busy)
    client.publish({"n": 1})
    hub.set_load(0.9)
    client.publish({"n": 2})
    hub.set_load(0)
    client.publish({"n": 3})
    assert numbers(sub.take()) == [1, 3]
    for wrong in (2, -1, "1", True):
        with pytest.raises(InvalidValueError, match="load"):
            hub.set_load(wrong)  # type: ignore[arg-type]


GUARDED = (
    "PolicyStatement { On(Forward, Publication) { If { AuthenticateReceiver(friends) } Then {} "
    "Elseif {} Then { BlockMessage() } } }"
)


class Friends:
    expiry = 10.0

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def is_member(self, party: str, group: str) -> bool:
        self.asked.append((party, group))
        return party == "a"


def test_trust_is_asked_of_a_provider_and_remembered() -> None:
    friends, clock = Friends(), VirtualClock()
    hub = Hub(trust=friends, clock=clock)
    subs = {name: hub.client(name).subscribe("n > 0", policy=GUARDED) for name in ("a", "b")}
    for n in (1, 2):
        hub.client("c").publish({"n": n})
    assert {name: numbers(sub.take()) for name, sub in subs.items()} == {"a": [1, 2], "b": []}
    assert sorted(friends.asked) == [("a", "friends"), ("b", "friends")]
    clock.time += 11_000_000
    hub.client("c").publish({"n": 3})
    assert len(friends.asked) == 4


def test_trust_by_a_function_by_nobody_and_by_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    def failing(party: str, group: str) -> bool:
        raise RuntimeError("no line to the provider")

    for trust, seen in [(lambda party, _: party == "a", [1]), (None, []), (failing, [])]:
        hub = Hub(trust=trust)
        sub = hub.client("a").subscribe("n > 0", policy=GUARDED)
        hub.client("c").publish({"n": 1})
        assert numbers(sub.take()) == seen
    assert "counts as no" in caplog.text


def test_a_provider_cannot_use_the_hub_that_asks() -> None:
    said: list[str] = []

    def nosy(party: str, group: str) -> bool:
        try:
            hub.client("x").publish({})
        except TidingsError as error:
            said.append(str(error))
        return True

    hub = Hub(trust=nosy)
    sub = hub.client("a").subscribe("n > 0", policy=GUARDED)
    hub.client("c").publish({"n": 1})
    assert numbers(sub.take()) == [1]
    assert "cannot use the hub that is asking it" in said[0]


def test_schemas_are_defined_and_enforced() -> None:
    loop = td.Schema("Loop", {"li": int})
    hub = Hub(schemas=[loop])
    client = hub.client("a")
    assert client.schema("Loop") == hub.schema("Loop") == loop
    sub = client.subscribe("li > 1", subject="Loop", structure=td.AttributeFilter(loop, {"li"}))
    client.publish({"li": 2}, subject="Loop")
    with pytest.raises(RefusedError, match="has no attribute lo"):
        client.publish({"lo": 2}, subject="Loop")
    longer = client.schema(loop.extend({"lo": str}))
    assert client.schema("Loop") == longer
    client.publish({"lo": "x", "li": 3}, subject="Loop")
    assert numbers(sub.take(), "li") == [2, 3]
    with pytest.raises(RefusedError, match="Loop"):
        client.schema(loop)
    with pytest.raises(RefusedError, match="the subject 'other' has no schema"):
        client.schema("other")


def test_explaining_to_the_operator_and_to_clients() -> None:
    hub = Hub()
    a, b = hub.client("a"), hub.client("b")
    sub = a.subscribe("n > 3", publishers="x > this.x")
    a.set_context(x=1)
    receipt = b.publish({"n": 3})
    assert not hub.explain(receipt, sub).delivered
    assert hub.explain(receipt, subscription=sub.id).step == "content"
    missing = hub.explain({"n": 4}, sub, publisher="b")
    assert (missing.delivered, missing.step) == (False, "publishers")
    b.set_context(x=2)
    assert hub.explain({"n": 4}, sub.id, publisher="b").delivered
    assert [one.delivered for one in hub.explain({"n": 4}, client="a", publisher="b")] == [True]
    assert [one.subscription for one in a.explain({"n": 4})] == [sub.id]
    assert a.explain({"n": 4}, sub).step == "publishers"
    with pytest.raises(RefusedError, match="that b may ask about"):
        b.explain({"n": 4}, sub)
    with pytest.raises(RefusedError, match="there is no subscription"):
        hub.client("c").explain(receipt, sub)
    with pytest.raises(RefusedError, match="there is no subscription nobody"):
        hub.explain(receipt, "nobody")
    with pytest.raises(InvalidValueError, match="a subscription or a client"):
        hub.explain(receipt)  # type: ignore[call-overload]
    with pytest.raises(InvalidValueError, match="keeps no events"):
        hub.explain(receipt.event.id, sub)
    assert sub.take() == []


def test_past_events_can_be_explained_and_replayed_from_a_folder(tmp_path: Path) -> None:
    clock = VirtualClock()
    with Hub(tmp_path, clock=clock) as hub:
        client = hub.client("a")
        first = client.publish({"n": 1})
        clock.time += 1_000_000
        second = client.publish({"n": 2})
        third = client.publish({"n": 3, "m": 1}, safe="accepted")
        sub = client.subscribe("n > 1")
        other = client.subscribe("m = 1")
        why = hub.explain(second.event.id, sub)
        assert isinstance(why, td.Explanation)
        assert why.delivered
        assert client.explain(str(first.event.id), sub).step == "content"
        with pytest.raises(RefusedError, match="the journal has no event"):
            hub.explain(td.uuid7(NOW, bytes(10)), sub)
        assert numbers(sub.replay()) == [2, 3]
        assert numbers(sub.replay(third)) == [3]
        assert numbers(sub.replay(third.event.timestamp)) == [3]
        assert numbers(sub.replay(datetime.fromtimestamp(NOW / 1e6 + 0.5, UTC))) == [2, 3]
        assert numbers(client.replay(first)) == [2, 3, 3]
        assert [note.subscription for note in client.replay(third)] == [sub.id, other.id]
        assert (sub.take(), hub.stats().offset) == ([], 5)
        for wrong in (datetime(2024, 1, 1), True, "yesterday"):  # noqa: DTZ001
            with pytest.raises(InvalidValueError, match="since"):
                list(sub.replay(wrong))  # type: ignore[arg-type]


def test_a_hub_in_memory_has_nothing_to_replay() -> None:
    sub = Hub().client("a").subscribe("n > 1")
    with pytest.raises(InvalidValueError, match=r"Hub\(folder\) does"):
        sub.replay()


def test_a_client_that_comes_back_takes_from_its_durable_subscription_at_once() -> None:
    hub = Hub()
    car = hub.client("car")
    car.subscribe("n > 0", durable="all")
    car.close()
    hub.client("camera").publish({"n": 1})
    (held,) = hub.client("car").subscriptions()
    assert [note.attributes["n"] for note in held.take()] == [1]
    assert held.take() == []


def test_a_client_that_leaves() -> None:
    hub = Hub()
    client = hub.client("a")
    kept, gone = client.subscribe("n > 0", durable="kept"), client.subscribe("n > 0")
    with client:
        hub.client("b").publish({"n": 1})
    hub.client("b").publish({"n": 2})
    assert gone.closed
    assert numbers(gone.take()) == [1]
    client.close()
    with pytest.raises(ClosedError, match=r"the client a was closed; hub.client\('a'\) gives a new one"):
        client.publish({})
    back = hub.client("a")
    assert back is not client
    assert [one.id for one in back.subscriptions()] == [kept.id]
    assert numbers(back.subscribe("n > 0", durable="kept").take()) == [1, 2]


def test_a_hub_that_is_closed() -> None:
    with Hub() as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0")
        ended = threading.Event()

        def listen() -> None:
            list(sub.listen())
            ended.set()

        listener = threading.Thread(target=listen)
        listener.start()
        client.publish({"n": 1})
    assert ended.wait(60)
    listener.join()
    hub.close()
    for use in (lambda: client.publish({}), lambda: hub.client("b"), lambda: hub.set_load(0.5)):
        with pytest.raises(ClosedError, match="the hub hub is closed"):
            use()
    client.close()


def test_tables_and_stats() -> None:
    hub = Hub()
    client = hub.client("a")
    client.set_context(x=1)
    client.subscribe("n > 0", id="s1")
    client.advertise("n > 0", id="a1")
    client.publish({"n": 1})
    assert "s1" in str(hub.tables())
    stats = hub.stats()
    assert (stats.published, stats.delivered, stats.waiting, stats.offset) == (1, 1, 1, 4)
    assert hub.notes == []


def test_notify_once_per_client() -> None:
    client = Hub().client("a")
    subs = [client.subscribe(f"n > {least}", notify="client") for least in (0, 1)]
    client.publish({"n": 2})
    notes = [note for sub in subs for note in sub.take()]
    assert len(notes) == 1
    assert set(notes[0].subscriptions) == {sub.id for sub in subs}


def test_ids_are_uuids(tmp_path: Path) -> None:
    assert isinstance(Hub(tmp_path).client("a").publish({}).event.id, UUID)


def test_wrong_arguments_are_told_as_such() -> None:
    hub = Hub()
    client = hub.client("a")
    sub = client.subscribe("n = 1", durable="d")
    wrong: Any = 7
    for use in (
        *(lambda: client.set_policy(wrong, None), lambda: client.unsubscribe(wrong), lambda: client.unadvertise(wrong)),
        *(lambda: client.explain({}, wrong), lambda: hub.explain({}, wrong), lambda: hub.set_policy(wrong, None)),
        *(
            lambda: client.schema(wrong),
            lambda: client.set_context(wrong),
            lambda: client.subscribe("", callback=wrong),
        ),
        *(lambda: sub.acknowledge(wrong), lambda: sub.acknowledge(str(uuid4())), lambda: sub.acknowledge([])),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidValueError):
            use()
    wrongs: list[Any] = [float("nan"), -1, "1", True, []]
    for timeout in wrongs:
        with pytest.raises(InvalidValueError, match="timeout: seconds from 0 on, or None"):
            sub.take(timeout=timeout)
        with pytest.raises(InvalidValueError, match="timeout"):
            next(sub.listen(timeout))


@pytest.mark.parametrize("timeout", [10**30, float("inf")])
def test_waiting_very_long(timeout: float) -> None:
    hub = Hub()
    sub = hub.client("a").subscribe("n = 1")
    threading.Timer(0.05, hub.client("b").publish, [{"n": 1}]).start()
    assert len(sub.take(timeout=timeout)) == 1


def test_guessing_the_context_of_another_is_refused_like_setting_it() -> None:
    hub = Hub()
    hub.client("car").set_context(x=1)
    for given, merge in (({"x": 1}, False), ({"x": 2}, False), ({}, True)):
        with pytest.raises(RefusedError, match="car does not let spy set its context"):
            hub.client("spy").set_context(given, of="car", merge=merge)


def test_replay_gives_one_notification_per_client_and_event_where_that_was_asked_for(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        client = hub.client("a")
        one = client.subscribe("n > 0", id="s1", notify="client")
        client.subscribe("n > 1", id="s2", notify="client")
        client.subscribe("n > 0", id="s3")
        client.publish({"n": 1})
        client.publish({"n": 2})
        live = [(note.subscription, note.subscriptions) for held in client.subscriptions() for note in held.take()]
        again = [(note.subscription, note.subscriptions) for note in client.replay()]
        assert sorted(again) == sorted(live)
        assert [note.subscriptions for note in one.replay()] == [("s1",), ("s1", "s2")]


TELLS = (
    "PolicyStatement { On(Forward, Publication) { If {} Then {"
    """Publish("[class,Seen],[message,$Message]"), Publish("[class,DropMessage]")} } }"""
)


def test_meta_events_can_be_looked_at_again_by_those_who_may_see_them(tmp_path: Path) -> None:
    with Hub(tmp_path, observers=["watch"]) as hub:
        hub.client("a").subscribe("n = 1", policy=TELLS)
        subs = {
            name: hub.client(name).subscribe("class in ('Seen', 'DropMessage')", durable="d")
            for name in ("watch", "spy")
        }
        hub.client("b").publish({"n": 1})
        live = [note.attributes["class"] for note in subs["watch"].take()]
        assert live == ["Seen", "DropMessage"]
        assert [note.attributes["class"] for note in subs["watch"].replay()] == live
        assert (subs["spy"].take(), list(subs["spy"].replay())) == ([], [])
        (event, _) = (note.event for note in subs["watch"].replay())
        assert hub.explain(event.id, subs["watch"]).delivered
        why = hub.client("spy").explain(event.id, subs["spy"])
        assert (why.delivered, why.step, why.notification) == (False, "govern", None)
