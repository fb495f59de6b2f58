"""What a rule denies is denied on every way: by replay, by a second subscription, for a sealed event too."""

import time
from pathlib import Path

import tidings as td
from tests.security.world import World
from tidings.model.event import Event
from tidings.security import Gate, Right


def load_gate(world: World) -> Gate:
    gate = world.gate()
    gate.credentials.revoke(world.authority.revocations(world.now))
    return gate


def test_a_deny_rule_is_not_bypassed(tmp_path: Path) -> None:
    world = World(now=time.time_ns() // 1_000)
    token = world.token("bob", Right.SUBSCRIBE).data
    sealer, numbers = world.sealer(), iter(range(1, 100))

    def sealed(team: str) -> Event:
        number = next(numbers)
        attributes = {"Sports": "NBA", "Team": team, "n": number}
        return sealer.seal(world.event(number, attributes=attributes), world.now + number, number)

    with td.Hub(tmp_path / "hub", gate=load_gate(world)) as hub:
        bob, ann = hub.client("bob"), hub.client("ann")
        first = bob.subscribe("Sports = 'NBA'", token=token, durable="mine")
        hub.subscribe("Team = 'LAL'", policy=td.policies.firewall(strict=False))
        second = bob.subscribe("Team = 'LAL' AND Sports = 'NBA'", token=token)
        everything = bob.subscribe("", token=token)
        for team in ("LAL", "NYK"):
            ann.publish_event(sealed(team))
            ann.publish({"Sports": "chess", "Team": team})
        got = {one.id: [note.attributes["Team"] for note in one.take()] for one in (first, second, everything)}
        assert got == {first.id: ["NYK"], second.id: [], everything.id: ["NYK", "NYK"]}
        replayed = [note.attributes["Team"] for one in (first, second, everything) for note in one.replay(since=0)]
        assert set(replayed) == {"NYK"}
    with td.Hub(tmp_path / "hub", gate=load_gate(world)) as hub:
        again = hub.client("bob").subscribe("Sports = 'NBA'", token=token, durable="mine")
        again.redeliver()
        assert {note.attributes["Team"] for note in again.replay(since=0)} == {"NYK"}
