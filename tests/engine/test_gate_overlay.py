"""The gate between brokers: what is sealed finds its way, what is not to be trusted goes no further, and what is known
of secure topics spreads."""

from typing import Any

import msgspec
import pytest

from tests.engine.overlay import LINE, Overlay, on_publications
from tests.security.world import NOW, World
from tidings.engine.effects import Deliver, PublicationSettled, Reject, SecurityNewsLearnt, Send
from tidings.engine.operations import (
    ApplyNotice,
    AskRevocations,
    LearnTopic,
    Leave,
    Publish,
    Receive,
    Republish,
    Revoke,
    Settle,
    Subscribe,
    TellNotices,
    TellRevocations,
    TellTopics,
    Tick,
    Travelling,
)
from tidings.model.event import Event
from tidings.security import Gate, Right
from tidings.security.sealing.envelope import Seal

NBA = "Sports = 'NBA'"
STRATEGIES = ("advertisement", "gsf", "asf", "spcf")


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def blind(world: World) -> Gate:
    """Of a broker that knows the authority, and no topic."""
    return Gate(world.credentials())


def overlay(world: World, links: Any = LINE, **more: Any) -> Overlay:
    return Overlay(links, gates=more.pop("gates", lambda _: blind(world)), now=NOW, **more)


def sealed(world: World, number: int = 1, **more: Any) -> Event:
    return world.sealer().seal(world.event(number, **more), NOW + number)


def publish(found: Overlay, broker: str, event: Event) -> list[tuple[str, str]]:
    """Who got it, and where."""
    found.clear()
    found.do(broker, Publish(event))
    return [
        (name, one.notification.subscriber)
        for name, one in found.effects
        if isinstance(one, Deliver) and one.notification.event.id == event.id
    ]


def told(found: Overlay, kind: type[Travelling]) -> list[tuple[str, str]]:
    return [link for link, passed in found.passed.items() for one in passed if isinstance(one, kind)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sealed_events_reach_who_has_a_token_and_go_nowhere_else(world: World, strategy: str) -> None:
    found = overlay(world, strategy=strategy)
    found.advertise("b1", "ann", NBA)
    found.subscribe("b3", "bob", NBA, token=world.token("bob").data)
    found.subscribe("b4", "eve", "true")
    sealer = world.sealer()
    publish(found, "b1", sealer.seal(world.event(1), NOW + 1))  # then the context of its publisher is known everywhere
    event = sealer.seal(world.event(2), NOW + 2)
    assert publish(found, "b1", event) == [("b3", "bob")]
    assert ("b3", "b4") not in {link for link, passed in found.passed.items() if any(_is(one, event) for one in passed)}


def _is(operation: Travelling, event: Event) -> bool:
    return isinstance(operation, Publish) and operation.event.id == event.id


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("merging", [False, True])
def test_a_subscription_with_a_token_is_told_for_itself(world: World, strategy: str, merging: bool) -> None:
    found = overlay(world, strategy=strategy, merging=merging)
    found.advertise("b1", "ann", "true")
    found.subscribe("b4", "eve", "true")  # it would stand for all others
    found.subscribe("b4", "bob", NBA, token=world.token("bob").data)
    assert publish(found, "b1", sealed(world)) == [("b4", "bob")]
    assert found.engines["b2"].state.filters.subscriptions.get("s-bob") is not None


def test_what_a_broker_learns_all_learn_once(world: World) -> None:
    found = overlay(world)
    found.do("b2", LearnTopic(world.record.data))
    assert sorted(told(found, TellTopics)) == [("b2", "b1"), ("b2", "b3"), ("b3", "b4")]
    assert all(_topics(found, name) == 1 for name in found.engines)
    assert [name for name, one in found.effects if isinstance(one, SecurityNewsLearnt)] == ["b1", "b3", "b4"]
    found.clear()
    found.do("b2", LearnTopic(world.record.data))
    assert not found.passed


def _topics(found: Overlay, name: str) -> int:
    gate = found.engines[name].gate
    assert gate is not None
    return len(gate.credentials.topics)


def test_a_token_that_is_seen_teaches_neighbours(world: World) -> None:
    found = overlay(world)
    found.subscribe("b4", "bob", NBA, token=world.token("bob").data)
    assert all(_topics(found, name) == 1 for name in found.engines)


def test_who_joins_is_told_what_is_known_and_only_the_revocations_that_it_lacks() -> None:
    world = World()
    for number in range(3):
        world.authority.issue(f"gone-{number}", world.eve.certificate.role, NOW)
    world.authority.revoke("gone-0", NOW)
    world.authority.revoke("gone-1", NOW)
    gates = {name: blind(world) for name in ("b1", "b2")}
    gates["b1"].credentials.learn(world.record, NOW)
    gates["b1"].credentials.heed(world.notice(2), NOW)
    world.authority.revoke("gone-2", NOW)
    gates["b1"].credentials.revoke(world.authority.revocations(NOW))
    found = Overlay((("b1", "b2"),), gates=gates.get, now=NOW)
    for name in ("b1", "b2"):
        credentials = gates[name].credentials
        assert (len(credentials.topics), len(credentials.notices), credentials.revocations.version) == (1, 1, 3)
    found.leave("b1", "b2")
    found.clear()
    world.authority.revoke("eve", NOW)
    found.do("b1", Revoke(world.authority.revocations(NOW).data))
    found.join("b1", "b2")
    [update] = [one.update for one in found.passed["b1", "b2"] if isinstance(one, TellRevocations)]
    assert b"gone" not in update
    assert b"eve" in update
    assert gates["b2"].credentials.revocations.version == 4


@pytest.mark.parametrize("name", ["b1", "b4"])
def test_revocations_and_notices_are_obeyed_everywhere_at_once(name: str) -> None:
    world = World()
    found = overlay(world)
    found.advertise("b1", "ann", NBA)
    found.subscribe("b4", "bob", NBA, token=world.token("bob").data)
    sealer = world.sealer()
    assert publish(found, "b1", sealer.seal(world.event(1), NOW + 1))
    world.authority.revoke("bob", NOW)
    found.do(name, Revoke(world.authority.revocations(NOW + 1).data))
    assert not publish(found, "b1", sealer.seal(world.event(2), NOW + 2))
    found.clear()
    found.do(name, ApplyNotice(world.notice(2).data))
    assert len(told(found, TellNotices)) == 3
    assert "epoch 1 is over" in _reasons(found, "b1", sealer.seal(world.event(3), NOW + 3))


def _reasons(found: Overlay, broker: str, event: Event) -> str:
    return " ".join(one.reason for one in found.do(broker, Publish(event)) if isinstance(one, Reject))


def test_lies_change_nothing_and_are_counted(world: World) -> None:
    found = overlay(world, LINE[:1])
    other = World()
    other.authority.revoke("bob", NOW)
    lies: list[Travelling] = [
        TellTopics((b"nonsense", other.record.data)),
        TellNotices((world.notice(2).data, other.notice(2).data, b"")),
        TellRevocations(other.authority.revocations(NOW).data),
        TellRevocations(b"nonsense"),
    ]
    for lie in lies:
        found.do("b1", Receive("b2", lie))
    gate = found.engines["b1"].gate
    assert gate is not None
    assert gate.refused["told"] == 7
    assert (_topics(found, "b1"), gate.credentials.revocations.version) == (0, 0)


@pytest.mark.parametrize(
    "operation",
    [TellTopics(()), TellNotices(()), AskRevocations(0, 0), TellRevocations(b"")],
    ids=lambda one: type(one),
)
def test_no_client_tells_of_topics(world: World, operation: Any) -> None:
    found = overlay(world, LINE[:1])
    assert any(isinstance(one, Reject) for one in found.do("b1", operation))


def test_a_neighbour_that_let_an_event_pass_without_a_token_is_told_the_topic_once(world: World) -> None:
    gates = {"b1": blind(world), "b2": blind(world)}
    found = Overlay(LINE[:1], gates=gates.get, now=NOW, resends=True)
    gates["b2"].credentials.learn(world.record, NOW)  # b1 has not heard of it
    assert found.engines["b2"].topic_gossip.news()  # type: ignore[union-attr]  # taken here, so that b1 is not told now
    found.subscribe("b2", "bob", "true")
    found.advertise("b1", "ann", "true")
    found.clear()
    plain = world.event()
    found.step("b1", Publish(plain))
    effects = found.arrive("b1", "b2")
    assert "publish with a token" in " ".join(one.reason for one in effects if isinstance(one, Reject))
    assert [one.operation for one in effects if isinstance(one, Send)] == [TellTopics((world.record.data,))]
    again = found.engines["b2"].handle(Receive("b1", Publish(world.event(2))), found.now)
    assert not [one for one in again if isinstance(one, Send)]
    settled = [one.operation for one in found.step("b2", Tick()) if isinstance(one, Send)]
    assert next(made[0] for one in settled if isinstance(one, Settle) for made in one.passed) == plain.id
    found.run()
    assert _topics(found, "b1") == 1
    assert "publish with a token" in _reasons(found, "b1", world.event(3))


@pytest.mark.parametrize(
    "change", [{"payload": b"other"}, {"token": None}, {"signature": b""}, {"attributes": {"Sports": "NBA", "Team": 1}}]
)
def test_what_a_broker_changed_goes_no_further(world: World, change: dict[str, Any]) -> None:
    found = overlay(world, LINE[:2])
    found.advertise("b1", "ann", NBA)
    found.subscribe("b3", "bob", NBA, token=world.token("bob").data)
    found.clear()
    found.step("b1", Publish(sealed(world)))
    [operation] = [one for one in found.in_flight["b1", "b2"] if isinstance(one, Publish)]
    forged = msgspec.structs.replace(operation, event=msgspec.structs.replace(operation.event, **change))
    found.in_flight["b1", "b2"].clear()
    effects = found.do("b2", Receive("b1", forged))
    assert any(isinstance(one, Reject) for one in effects)
    assert not any(isinstance(one, Deliver) for _, one in found.effects)


def test_a_subscription_with_another_ones_token_goes_no_further(world: World) -> None:
    found = overlay(world, LINE[:1])
    found.advertise("b1", "ann", NBA)
    made = found.engines["b2"]
    found.subscribe("b2", "bob", NBA, token=world.token("bob").data)
    stolen = msgspec.structs.replace(made.state.filters.subscriptions["s-bob"].value, id="s-eve", subscriber="eve")
    effects = found.receive("b1", "b2", Subscribe(stolen))
    assert "that of bob" in " ".join(one.reason for one in effects if isinstance(one, Reject))
    assert found.engines["b1"].state.filters.subscriptions.get("s-eve") is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_cut_on_the_way_leaves_no_salt_on_the_wire_and_can_be_opened(world: World, strategy: str) -> None:
    found = overlay(world, strategy=strategy)
    found.advertise("b1", "ann", NBA, policy=on_publications("RemoveAttributes(score)"))
    found.subscribe("b4", "bob", NBA, token=world.token("bob").data)
    event = sealed(world)
    assert publish(found, "b1", event) == [("b4", "bob")]
    for passed in found.passed.values():
        for one in passed:
            if isinstance(one, Publish) and one.event.id == event.id:
                salts = Seal.of(one.event).salts
                assert {name[1:] for name in salts} == {*one.event.attributes, *one.event.context}
                assert "score" not in one.event.attributes
    [note] = [one.notification for _, one in found.effects if isinstance(one, Deliver)]
    assert world.opener().open(note.event, NOW).payload == b"a secret of the team"


def test_what_is_converted_on_the_way_is_not_what_is_sealed(world: World) -> None:
    found = overlay(world, LINE[:1])
    found.advertise("b1", "ann", NBA, policy=on_publications("ToJSON()"))
    found.subscribe("b2", "bob", NBA, token=world.token("bob").data)
    event = sealed(world)
    assert publish(found, "b1", event) == [("b2", "bob")]
    [passed] = [one for one in found.passed["b1", "b2"] if isinstance(one, Publish) and one.event.id == event.id]
    assert (passed.event.payload, passed.journey.common.payload) == (event.payload, None)


def test_a_broker_without_a_gate_passes_on_what_others_check(world: World) -> None:
    found = overlay(world, LINE[:2], gates=lambda name: None if name == "b2" else blind(world))
    found.advertise("b1", "ann", NBA)
    found.subscribe("b3", "bob", NBA, token=world.token("bob").data)
    found.subscribe("b3", "eve", NBA)
    assert publish(found, "b1", sealed(world)) == [("b3", "bob")]


@pytest.mark.parametrize(("rights", "got"), [(Right.SUBSCRIBE, True), (Right.SUBSCRIBE | Right.GOVERN, False)])
def test_who_governs_by_a_token_vetoes_a_link(world: World, rights: Right, got: bool) -> None:
    found = overlay(world, LINE[:1])
    found.advertise("b1", "ann", NBA)
    found.subscribe("b2", "bob", NBA, token=world.token("bob").data)
    veto = on_publications("BlockMessage()", broker="Ingress")
    found.subscribe("b2", "eve", NBA, policy=veto, token=world.token("eve", rights).data)
    assert bool(publish(found, "b1", sealed(world))) is got


@pytest.mark.parametrize(("accepted", "goes"), [(NOW - 1, True), (NOW + 1, False)])
def test_what_a_revoked_publisher_had_accepted_is_sent_again_only_if_it_came_in_time(accepted: int, goes: bool) -> None:
    world = World()
    found = overlay(world, LINE[:1], resends=True)
    found.advertise("b1", "eve", NBA)
    found.subscribe("b2", "bob", NBA, durable="d", token=world.token("bob").data)
    event = world.sealer(who="eve").seal(world.event(publisher="eve"), NOW)
    world.authority.revoke("eve", NOW + 2, since=NOW)
    found.do("b1", Revoke(world.authority.revocations(NOW + 2).data))
    stored = msgspec.structs.replace(event, timestamp=accepted)
    found.clear()
    effects = found.do("b1", Republish(stored, found.now, ("b2",)))
    assert any(isinstance(one, Send) for one in effects) is goes
    assert any(isinstance(one, PublicationSettled) for one in effects) is not goes
    assert any(isinstance(one, Deliver) for _, one in found.effects) is goes


def test_a_link_that_is_gone_is_forgotten(world: World) -> None:
    found = overlay(world, LINE[:1])
    found.do("b1", Leave("b2"))
    found.clear()
    found.do("b1", LearnTopic(world.record.data))
    assert not [one for _, one in found.effects if isinstance(one, Send)]
