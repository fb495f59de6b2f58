"""The gate in an engine: what is sealed is checked where it enters, and reaches only those who may have it."""

from typing import Any

import msgspec
import pytest

from tests.engine.messages import advertise, publish, subscribe
from tests.engine.overlay import on_publications
from tests.security.world import HOUR, NOW, World
from tidings import ContextFilter
from tidings.engine import Engine, Settings
from tidings.engine.effects import (
    Deliver,
    Effect,
    MetaEventPublished,
    Reject,
    SubscriptionExpelled,
    with_processing_time,
)
from tidings.engine.operations import ApplyNotice, LearnTopic, Publish, Revoke, Subscribe
from tidings.engine.security.sealed_events import may_keep
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.security import Gate, Right
from tidings.security.sealing.envelope import Seal

NBA = "Sports = 'NBA'"


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def engine(world: World, gate: Gate | None = None, **settings: Any) -> Engine:
    return Engine(Settings(**settings), gate=gate or world.gate())


def sealed(world: World, number: int = 1, **more: Any) -> Event:
    return world.sealer().seal(world.event(number, **more), NOW + number)


def reasons(effects: list[Effect]) -> list[str]:
    return [one.reason for one in effects if isinstance(one, Reject)]


def told(effects: list[Effect]) -> list[Notification]:
    return [one.notification for one in effects if isinstance(one, Deliver)]


def bobs(world: World, id: str = "s-bob", content: str = NBA, **more: Any) -> Subscribe:  # noqa: A002
    return subscribe(id, content, client="bob", token=more.pop("token", world.token("bob").data), **more)


def test_who_has_a_token_gets_what_is_sealed_and_can_open_it(world: World) -> None:
    broker = engine(world)
    assert not reasons(broker.handle(bobs(world), NOW))
    [note] = told(broker.handle(Publish(sealed(world)), NOW))
    assert note.subscriber == "bob"
    assert world.opener().open(note.event, NOW).payload == b"a secret of the team"


def test_who_asks_for_more_than_the_topic_gets_nothing_that_is_sealed_without_a_token(world: World) -> None:
    broker = engine(world)
    assert not reasons(broker.handle(subscribe("s-eve", "", client="eve"), NOW))
    assert not told(broker.handle(Publish(sealed(world)), NOW))
    assert told(broker.handle(publish({"Sports": "chess"}, client="carl"), NOW))
    assert broker.state.filters.subscriptions.get("s-eve") is not None


@pytest.mark.parametrize(
    "content", ["Sports = 'NBA' AND Team = 'NYK'", "Sports = 'NBA' AND Team IN ('NYK', 'LAL') AND score > 3"]
)
def test_who_asks_for_the_topic_alone_needs_a_token(world: World, content: str) -> None:
    broker = engine(world)
    [reason] = reasons(broker.handle(subscribe("s-eve", content, client="eve"), NOW))
    assert "subscribe with a token" in reason
    assert broker.gate is not None
    assert broker.gate.refused["token"] == 1


@pytest.mark.parametrize("content", [NBA, "Team = 'NYK'", "Sports = 'NBA' OR Sports = 'chess'", "1 = 2"])
def test_who_asks_for_more_needs_none(world: World, content: str) -> None:
    assert not reasons(engine(world).handle(subscribe("s-eve", content, client="eve"), NOW))


def test_a_subject_is_a_topic_too() -> None:
    world = World(template="/Sports/NBA")
    broker = engine(world)
    assert reasons(broker.handle(subscribe("s1", "", client="eve", subject="/Sports/NBA"), NOW))
    assert reasons(broker.handle(subscribe("s2", "topic('/Sports/NBA') AND a = 1", client="eve"), NOW))
    assert not reasons(broker.handle(subscribe("s3", "topic('/Sports/*')", client="eve"), NOW))


@pytest.mark.parametrize(
    ("attributes", "number"),
    [({"Floor": 3}, "3"), ({"Floor": "3"}, "3"), ({"Open": True}, "true"), ({"v": 0.5}, "0.5")],
)
def test_tags_mean_typed_values_as_the_templates_do(attributes: dict[str, Any], number: str) -> None:
    [(name, value)] = attributes.items()
    world = World(template=f"{name}={number}")
    said = f"'{value}'" if isinstance(value, str) else str(value)
    assert reasons(engine(world).handle(subscribe("s", f"{name} = {said}", client="eve"), NOW))


def test_nobody_publishes_on_the_topic_without_a_token(world: World) -> None:
    broker = engine(world)
    [reason] = reasons(broker.handle(Publish(world.event()), NOW))
    assert "publish with a token" in reason


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"other"},
        {"attributes": {"Sports": "NBA", "Team": "NYK", "score": 2}},
        {"attributes": {"Sports": "NBA", "Team": "NYK", "score": 1, "more": 1}},
        {"publisher": "bob"},
        {"token": None},
        {"signature": None},
        {"signature": b"nonsense"},
        {"token": b"nonsense"},
        {"subject": "/other"},
        {"policy": "@matching: Before"},
    ],
)
def test_what_was_changed_is_refused_and_counted(world: World, change: dict[str, Any]) -> None:
    broker = engine(world)
    event = msgspec.structs.replace(sealed(world), **change)
    assert reasons(broker.handle(Publish(event), NOW))
    assert broker.gate is not None
    assert sum(broker.gate.refused.values()) == 1


def test_what_came_before_is_refused_whatever_its_number(world: World) -> None:
    broker = engine(world)
    sealer = world.sealer()
    first, second = (sealer.seal(world.event(number), NOW + number) for number in (1, 2))
    assert not reasons(broker.handle(Publish(first), NOW))
    assert "came before" in reasons(broker.handle(Publish(first), NOW))[0]
    assert not reasons(broker.handle(Publish(second), NOW))
    assert "came before" in reasons(broker.handle(Publish(first), NOW))[0]


def test_what_was_refused_for_another_reason_may_come_again(world: World) -> None:
    broker = engine(world, advertisements_required=True)
    event = sealed(world)
    assert "advertise it first" in reasons(broker.handle(Publish(event), NOW))[0]
    broker.handle(advertise("a", NBA, client="ann"), NOW)
    assert not reasons(broker.handle(Publish(event), NOW))


def test_what_came_before_is_refused_after_a_restart(world: World) -> None:
    broker = engine(world)
    event = sealed(world)
    broker.handle(Publish(event), NOW)
    again = Engine.restore(None, broker.save(), gate=Gate(world.credentials()))
    assert again.gate is not None
    assert set(again.gate.credentials.topics) == {world.record.id}
    assert "came before" in reasons(again.handle(Publish(event), NOW))[0]


def test_an_engine_without_a_gate_keeps_what_it_cannot_read(world: World) -> None:
    broker = engine(world)
    event = sealed(world)
    broker.handle(Publish(event), NOW)
    blind = Engine.restore(None, broker.save())
    again = Engine.restore(None, blind.save(), gate=Gate(world.credentials()))
    assert "came before" in reasons(again.handle(Publish(event), NOW))[0]


def test_deliveries_stop_when_a_token_expires_and_go_on_with_a_fresh_one(world: World) -> None:
    broker = engine(world)
    sealer = world.sealer(world.token("ann", until=NOW + 5 * HOUR))
    short = world.token("bob", until=NOW + 10)
    broker.handle(bobs(world, token=short.data), NOW)
    assert told(broker.handle(Publish(sealer.seal(world.event(1), NOW + 1)), NOW + 1))
    assert not told(broker.handle(Publish(sealer.seal(world.event(2), NOW + 10)), NOW + 10))
    assert broker.state.filters.subscriptions.get("s-bob") is not None
    broker.handle(bobs(world), NOW + 11)
    assert told(broker.handle(Publish(sealer.seal(world.event(3), NOW + 12)), NOW + 12))


@pytest.mark.parametrize("who", ["bob", "ann", "kmc"])
def test_deliveries_stop_when_somebody_is_revoked(who: str) -> None:
    world = World()
    broker = engine(world)
    sealer = world.sealer()
    broker.handle(bobs(world), NOW)
    assert told(broker.handle(Publish(sealer.seal(world.event(1), NOW + 1)), NOW + 1))
    world.authority.revoke(who, NOW + 2)
    assert not reasons(broker.handle(Revoke(world.authority.revocations(NOW + 2).data), NOW + 2))
    assert not told(broker.handle(Publish(sealer.seal(world.event(2), NOW + 3)), NOW + 3))


def test_old_epochs_are_over_when_the_centre_says_so(world: World) -> None:
    broker = engine(world)
    broker.handle(bobs(world), NOW)
    assert not broker.handle(ApplyNotice(world.notice(2).data), NOW)
    assert "epoch 1 is over" in reasons(broker.handle(Publish(sealed(world)), NOW))[0]
    assert told(broker.handle(Publish(world.sealer(key=world.epoch_key(2)).seal(world.event(), NOW)), NOW))


@pytest.mark.parametrize("operation", [LearnTopic(b"x"), ApplyNotice(b"x"), Revoke(b"x")])
def test_what_cannot_be_trusted_is_refused(world: World, operation: Any) -> None:
    assert reasons(engine(world).handle(operation, NOW))
    assert "has no gate" in reasons(Engine().handle(operation, NOW))[0]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ({"holder": "ann"}, "that of ann"),
        ({"holder": "bob", "rights": Right.PUBLISH}, "no right to subscribe"),
        ({"holder": "bob", "until": NOW}, "expired"),
        ({"holder": "bob", "since": NOW + 1}, "not valid yet"),
    ],
)
def test_a_token_that_is_no_good_is_refused(world: World, token: dict[str, Any], reason: str) -> None:
    effects = engine(world).handle(bobs(world, token=world.token(**token).data), NOW)
    assert reason in reasons(effects)[0]


def test_a_token_for_a_part_of_the_topic_gives_that_part(world: World) -> None:
    broker = engine(world)
    sealer = world.sealer()
    broker.handle(bobs(world, token=world.token("bob", template="Sports=NBA,Team=LAL").data), NOW)
    other = world.event(2, attributes={"Sports": "NBA", "Team": "LAL"})
    assert not told(broker.handle(Publish(sealer.seal(world.event(1), NOW + 1)), NOW))
    assert told(broker.handle(Publish(sealer.seal(other, NOW + 2)), NOW))


def test_a_token_teaches_the_topic(world: World) -> None:
    broker = engine(world, Gate(world.credentials()))
    assert not reasons(broker.handle(Publish(world.event()), NOW))
    broker.handle(bobs(world), NOW)
    assert reasons(broker.handle(Publish(world.event(2)), NOW))


def test_who_slipped_in_is_removed_when_a_sealed_event_meets_it(world: World) -> None:
    broker = engine(world, Gate(world.credentials()))
    for operation in (
        subscribe("s-eve", "Sports = 'NBA' AND Team = 'NYK'", client="eve"),
        subscribe("s-all", "", client="eve"),
        subscribe("s-meta", "class = 'ExpelledSubscription'", client="olga"),
        bobs(world),
    ):
        assert not reasons(broker.handle(operation, NOW))
    effects = broker.handle(Publish(sealed(world)), NOW)
    assert [(one.client, one.subscription) for one in effects if isinstance(one, SubscriptionExpelled)] == [
        ("eve", "s-eve")
    ]
    assert [one.event.attributes["subscription"] for one in effects if isinstance(one, MetaEventPublished)] == ["s-eve"]
    assert {one.subscriber for one in told(effects)} == {"bob", "olga", "eve"}
    assert [one.subscription for one in told(effects) if one.subscriber == "eve"] == ["s-all"]  # of the removal
    assert broker.state.filters.subscriptions.get("s-eve") is None
    assert not [one for one in broker.handle(Publish(sealed(world, 2)), NOW) if isinstance(one, SubscriptionExpelled)]


def test_what_another_broker_has_carried_here_is_kept_for_who_may_have_it() -> None:
    world = World()
    broker = engine(world)
    broker.handle(bobs(world), NOW)
    [note] = told(broker.handle(Publish(sealed(world)), NOW))
    assert may_keep(broker.state, broker.gate, note, NOW)
    world.authority.revoke("bob", NOW)
    broker.handle(Revoke(world.authority.revocations(NOW).data), NOW)
    assert not may_keep(broker.state, broker.gate, note, NOW)
    assert may_keep(broker.state, broker.gate, msgspec.structs.replace(note, subscription="not here yet"), NOW)


# What is handed out


def test_what_a_policy_takes_away_leaves_no_salt(world: World) -> None:
    broker = engine(world)
    policy = on_publications("RemoveAttributes(score)")
    broker.handle(bobs(world, policy=policy), NOW)
    [note] = told(broker.handle(Publish(sealed(world)), NOW))
    assert "score" not in note.event.attributes
    assert "ascore" not in Seal.of(note.event).salts
    assert world.opener().open(note.event, NOW).payload == b"a secret of the team"


def test_what_a_policy_adds_is_signed_by_the_broker(world: World) -> None:
    broker = engine(world)
    broker.handle(bobs(world, policy=on_publications("AppendPrevHop(), AugmentProcessingTime(attributes)")), NOW)
    effects = with_processing_time(broker.handle(Publish(sealed(world)), NOW), "hub", 1_234)
    [note] = told(effects)
    opened = world.opener().open(note.event, NOW)
    assert opened.payload == b"a secret of the team"
    added = opened.attributes.keys() - world.event().attributes.keys()
    assert added
    assert opened.attributes == note.attributes


def test_for_whom_it_is_stays_with_the_publisher(world: World) -> None:
    broker = engine(world)
    broker.handle(bobs(world), NOW)
    event = sealed(world, subscribers=ContextFilter.parse("this.x = 1.5"))
    [note] = told(broker.handle(Publish(event), NOW))
    assert note.event.subscribers is None
    assert Seal.of(note.event).scope_salt == b""
    assert world.opener().open(note.event, NOW).payload == b"a secret of the team"


def test_a_sealed_payload_is_not_converted_and_that_is_told_once(world: World) -> None:
    broker = engine(world)
    sealer = world.sealer()
    broker.handle(bobs(world, policy=on_publications("ToJSON()")), NOW)
    for number, news in ((1, 1), (2, 0)):
        event = sealer.seal(world.event(number), NOW + number)
        effects = broker.handle(Publish(event), NOW)
        assert [note.payload for note in told(effects) if note.subscriber == "bob"] == [event.payload]
        assert len([one for one in effects if isinstance(one, MetaEventPublished)]) == news


def test_brokers_without_a_gate_trim_as_well(world: World) -> None:
    broker = Engine()
    policy = on_publications("RemoveAttributes(score)")
    broker.handle(bobs(world, policy=policy), NOW)
    [note] = told(broker.handle(Publish(sealed(world)), NOW))
    assert "ascore" not in Seal.of(note.event).salts


# The right to govern


@pytest.mark.parametrize(("rights", "blocked"), [(Right.SUBSCRIBE, False), (Right.SUBSCRIBE | Right.GOVERN, True)])
def test_who_governs_by_a_token_decides_for_others_on_that_topic(world: World, rights: Right, blocked: bool) -> None:
    broker = engine(world)
    broker.handle(bobs(world), NOW)
    broker.handle(subscribe("s-carl", "Sports = 'chess'", client="carl"), NOW)
    eves = subscribe("s-eve", NBA, client="eve", token=world.token("eve", rights).data)
    assert not reasons(broker.handle(eves, NOW))
    policy = on_publications("BlockMessage()")
    broker.handle(advertise("a-eve", "Sports IS NOT NULL", client="eve", policy=policy), NOW)
    assert bool(told(broker.handle(Publish(sealed(world)), NOW))) is not blocked
    assert told(broker.handle(publish({"Sports": "chess"}, client="dora"), NOW))  # on no topic of that token


# Why


def test_explanations_say_what_is_missing_without_secrets(world: World) -> None:
    broker = engine(world)
    broker.handle(bobs(world), NOW)
    broker.handle(subscribe("s-eve", "", client="eve"), NOW)
    event = sealed(world)
    [found] = broker.explain(event, subscription="s-eve", accepted=True)
    assert (found.step, found.delivered) == ("token", False)
    assert "no token" in found.reason
    [seen] = broker.explain(event, subscription="s-bob", accepted=True)
    assert seen.delivered
    assert seen.notification is not None
    [late] = broker.explain(event, subscription="s-bob", accepted=True, now=NOW + 2 * HOUR)
    assert "expired" in late.reason
    [plain] = broker.explain(world.event(), subscription="s-bob")
    assert (plain.step, plain.delivered) == ("admit", False)
    assert broker.gate is not None
    assert not broker.gate.refused
    assert not reasons(broker.handle(Publish(event), NOW))
