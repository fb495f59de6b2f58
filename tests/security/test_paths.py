"""All attacks, on every path: a hub, an engine between brokers, live brokers. Nothing of them reaches anybody."""

import contextlib
import time
from pathlib import Path

import pytest

from tests.live.cases import Raw, run
from tests.live.secured import LiveWorld, advertised, line, proven, publish, settled, wanted
from tests.security.attacks import BROKER, CLIENT, attacks
from tests.security.world import World
from tidings.engine.effects import Deliver, Send
from tidings.engine.engine import Engine
from tidings.engine.journey import Journey, Route
from tidings.engine.operations import Connect, Join, Publish, Receive, Subscribe
from tidings.engine.settings import Settings
from tidings.filters import Filter
from tidings.hub import Hub
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription
from tidings.protocol import answers
from tidings.security import Gate, Right


def today() -> World:
    return World(now=time.time_ns() // 1_000)


def gate_of(world: World) -> Gate:
    gate = world.gate()
    gate.credentials.revoke(world.authority.revocations(world.now))
    return gate


@pytest.mark.parametrize("is_durable", [False, True])
def test_through_a_hub(tmp_path: Path, is_durable: bool) -> None:
    world = today()
    with Hub(tmp_path if is_durable else None, gate=gate_of(world)) as hub:
        bob = hub.client("bob").subscribe("Sports = 'NBA'", token=world.token("bob", Right.SUBSCRIBE).data)
        everything = hub.client("eve").subscribe("")
        ann, passed = hub.client("ann"), []
        for name, event, doors in attacks(world):
            if CLIENT in doors and event.publisher == "ann":
                with contextlib.suppress(TidingsError):
                    ann.publish_event(event)
                    passed.append(name)
        assert passed == []
        assert bob.take() == everything.take() == []
        good = world.sealer().seal(world.event(1), world.now)
        ann.publish_event(good)
        (note,) = bob.take()
        assert world.opener().open(note.event, note.event.timestamp).payload == world.event().payload
        assert everything.take() == []


def test_between_brokers() -> None:
    world = today()
    engine = Engine(Settings(name="b1"), gate=gate_of(world))
    now = world.now
    engine.handle(Join("b2"), now)
    engine.handle(Connect("bob"), now)
    token = world.token("bob", Right.SUBSCRIBE).data
    wanted = Subscription.of(Filter.parse("Sports = 'NBA'"), id="s", subscriber="bob", token=token)
    engine.handle(Subscribe(wanted), now)

    def effects(event: object) -> list[object]:
        journey = Journey(route=Route("b2", flood=True))
        return list(engine.handle(Receive("b2", Publish(event, journey)), now + 1))  # type: ignore[arg-type]

    told = {
        name: [one for one in effects(event) if isinstance(one, Deliver) or _goes_on(one)]
        for name, event, doors in attacks(world)
        if BROKER in doors
    }
    assert {name for name, found in told.items() if found} == set()
    assert len(told) > 400
    good = world.sealer().seal(world.event(1), now)
    assert [one.notification.subscription for one in effects(good) if isinstance(one, Deliver)] == ["s"]


def _goes_on(effect: object) -> bool:
    return isinstance(effect, Send) and isinstance(effect.operation, Publish)


def test_through_live_brokers(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)

    async def scenario() -> None:
        async with (
            line(world, ("b1", "b2")) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[1], "bob") as bob,
        ):
            await advertised(ann)
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.Done)
            await settled(brokers)
            refused = 0
            for number, (_, event, doors) in enumerate(attacks(world), 10):
                if CLIENT in doors and event.publisher == "ann" and event.id.version == 7:
                    ann.send(publish(event, number))
                    refused += 1
            for _ in range(refused):
                assert isinstance(await ann.answered(), answers.Refused)
            assert refused > 400
            good = world.sealed(1)
            ann.send(publish(good, 5))
            note = await bob.next_note()
            assert note.event.id == good.id.bytes

    run(scenario())
