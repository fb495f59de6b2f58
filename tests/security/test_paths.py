"""All attacks, on every path: a hub, a durable replay, a simulated overlay, an engine between brokers, live brokers.
Nothing of them reaches anybody. On Spark: `tests/spark/test_security.py`."""

import contextlib
import shutil
import time
from pathlib import Path

import pytest

from tests.broker.cases import Raw, run
from tests.broker.secured import LiveWorld, advertised, line, proven, publish, settled, wanted
from tests.security.attacks import BROKER, CLIENT, attacks
from tests.security.world import World
from tidings.engine.effects import Deliver, Send
from tidings.engine.engine import Engine
from tidings.engine.headers import ForwardingHeader, Route
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import Connect, Join, Publish, Receive, Subscribe
from tidings.engine.settings import Settings
from tidings.filters import Filter
from tidings.hub import Hub
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.protocol import answers
from tidings.security import Gate, Right
from tidings.simulation import World as Overlay
from tidings.simulation.topologies import line as chain


def today() -> World:
    return World(now=time.time_ns() // 1_000)


def load_gate(world: World) -> Gate:
    gate = world.gate()
    gate.credentials.revoke(world.authority.revocations(world.now))
    return gate


@pytest.mark.parametrize("is_durable", [False, True])
def test_through_a_hub(tmp_path: Path, is_durable: bool) -> None:
    world = today()
    with Hub(tmp_path if is_durable else None, gate=load_gate(world)) as hub:
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


@pytest.mark.parametrize("is_killed", [False, True])
def test_by_a_durable_replay(tmp_path: Path, is_killed: bool) -> None:
    """Nothing of them is in the journal: neither what waited nor the past has any of it."""
    world = today()
    token = world.token("bob", Right.SUBSCRIBE).data
    tried, good = 0, world.sealer().seal(world.event(1), world.now)
    hub = Hub(tmp_path, gate=load_gate(world))
    hub.client("bob").subscribe("Sports = 'NBA'", token=token, durable="d").close()
    for _, event, doors in attacks(world):
        if CLIENT in doors:
            tried += 1
            with contextlib.suppress(TidingsError):
                hub.client(event.publisher).publish_event(event)
    hub.client("ann").publish_event(good)
    if is_killed:  # a copy of what is on the disk: there is no snapshot
        hub = Hub(shutil.copytree(tmp_path, tmp_path.with_name("killed")), gate=load_gate(world))
    else:
        hub.close()
        hub = Hub(tmp_path, gate=load_gate(world))
    with hub:
        bob = hub.client("bob").subscribe("Sports = 'NBA'", token=token, durable="d")
        assert [note.event.id for note in bob.replay()] == [note.event.id for note in bob.take()] == [good.id]
    assert tried > 500


class Attacked:
    """The secrecy of a simulated overlay in which attacks are published."""

    def __init__(self, world: World) -> None:
        self._world, self.begins = world, world.now

    def gate(self, broker: str) -> Gate:
        return load_gate(self._world)

    def token(self, client: str) -> bytes | None:
        return self._world.token(client, Right.SUBSCRIBE).data if client == "bob" else None

    def sealed(self, event: Event) -> Event:
        return event


@pytest.mark.parametrize("strategy", ["advertisement", "spcf"])
def test_through_a_simulated_overlay(strategy: str) -> None:
    world = today()
    overlay = Overlay(chain(3), strategy=strategy, matcher=NaiveMatcher, secrecy=Attacked(world))
    ann, bob, eve = overlay.client("ann", "b1"), overlay.client("bob", "b3"), overlay.client("eve", "b2")
    ann.advertise("")
    bob.subscribe("Sports = 'NBA'", durable="d")
    eve.subscribe("")
    overlay.settle()
    tried = [event for _, event, doors in attacks(world) if CLIENT in doors]
    for event in tried:
        overlay.do("b1", Publish(event))
    assert len(overlay.brokers["b1"].rejected) == len(tried) > 500
    good = world.sealer().seal(world.event(1), overlay.now)
    overlay.do("b1", Publish(good))
    overlay.settle()
    assert [note.event.id for note in overlay.notifications("bob")] == [good.id]
    assert overlay.notifications("eve") == []


def test_between_brokers() -> None:
    world = today()
    engine = Engine(Settings(name="b1"), gate=load_gate(world))
    now = world.now
    engine.handle(Join("b2"), now)
    engine.handle(Connect("bob"), now)
    token = world.token("bob", Right.SUBSCRIBE).data
    wanted = Subscription.of(Filter.parse("Sports = 'NBA'"), id="s", subscriber="bob", token=token)
    engine.handle(Subscribe(wanted), now)

    def effects(event: object) -> list[object]:
        journey = ForwardingHeader(route=Route("b2", flood=True))
        return list(engine.handle(Receive("b2", Publish(event, journey)), now + 1))  # type: ignore[arg-type]

    told = {
        name: [one for one in effects(event) if isinstance(one, Deliver) or _goes_on(one)]
        for name, event, doors in attacks(world)
        if BROKER in doors
    }
    assert {name for name, found in told.items() if found} == set()
    assert len(told) > 500
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
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.RequestDone)
            await settled(brokers)
            refused = 0
            for number, (_, event, doors) in enumerate(attacks(world), 10):
                if CLIENT in doors and event.publisher == "ann" and event.id.version == 7:
                    ann.send(publish(event, number))
                    refused += 1
            for _ in range(refused):
                assert isinstance(await ann.answered(), answers.RequestRefused)
            assert refused > 500
            good = world.sealed(1)
            ann.send(publish(good, 5))
            note = await bob.next_note()
            assert note.event.id == good.id.bytes

    run(scenario())
