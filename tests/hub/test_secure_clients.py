"""Members among the clients of a hub: they seal and open by themselves, and nobody else sees more than before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.world import HOUR, NOW, World
from tidings import Hub, policies
from tidings.model.errors import InvalidValueError, RefusedError, SecurityError
from tidings.security import Gate, Member, Right
from tidings.security.rpc.kmc_messages import KeyResponse
from tidings.security.sealing.envelope import Seal

ALONE = "Sports = 'NBA' AND Team = 'NYK'"
GAME = {"Sports": "NBA", "Team": "NYK", "score": 3}


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> int:
        self.time += 1
        return self.time

    def entropy(self) -> bytes:
        return self.time.to_bytes(10, "big")


def member(world: World, name: str, rights: Right, epoch: int = 1) -> Member:
    """With the key of that epoch, as the centre gives it."""
    made = Member({"ann": world.ann, "bob": world.bob}[name], world.credentials())
    made.credentials.learn(world.record, world.now)
    wanted = made.wants(world.record, world.kmc.certificate)
    token = world.token(name, rights, key=wanted.key)
    given = KeyResponse(token.data, (world.epoch_key(epoch),), world.notice(epoch).data, 2**32, NOW + HOUR)
    made.take(given, world.now)
    return made


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def hub(tmp_path: Path, world: World) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", gate=Gate(world.credentials()), clock=Clock()) as made:
        made.learn(world.record.data)
        yield made


def test_what_a_member_publishes_is_sealed_and_what_it_takes_is_open(hub: Hub, world: World) -> None:
    ann = hub.client("ann", member=member(world, "ann", Right.PUBLISH))
    bob = hub.client("bob", member=member(world, "bob", Right.SUBSCRIBE))
    held, kept = (
        bob.subscribe(ALONE),
        bob.subscribe(ALONE, durable="games", policy=policies.remove("score", convert="json")),
    )
    for number in range(3):
        receipt = ann.publish(GAME, payload=b"%d" % number)
        assert receipt.event.payload == b"%d" % number
    notes = held.take()
    assert [note.payload for note in notes] == [b"0", b"1", b"2"]
    assert all(note.event.signature is None and note.event.token is None for note in notes)
    assert [note.payload for note in held.replay()] == [b"0", b"1", b"2"]
    first, *_ = kept.take()
    assert first.payload is not None
    assert b'"payload":"0"' in first.payload
    assert "score" not in first.attributes
    assert (held.refused, kept.refused) == (0, 0)


def test_who_is_no_member_gets_what_is_sealed_as_it_is(hub: Hub, world: World) -> None:
    ann = hub.client("ann", member=member(world, "ann", Right.PUBLISH))
    held = hub.client("bob").subscribe(ALONE, token=world.token("bob", Right.SUBSCRIBE).data)
    ann.publish(GAME, payload=b"secret")
    (note,) = held.take()
    assert note.payload is not None
    assert b"secret" not in note.payload
    assert Seal.of(note.event).epoch == 1


def test_what_a_member_has_no_key_for_is_counted_and_stays_for_a_durable_one(hub: Hub, world: World) -> None:
    ann = hub.client("ann", member=member(world, "ann", Right.PUBLISH))
    late = member(world, "bob", Right.SUBSCRIBE, epoch=2)
    held = hub.client("bob", member=late).subscribe(ALONE, durable="games")
    ann.publish(GAME, payload=b"secret")
    assert held.take() == []
    assert held.refused == 1
    late.keyring.put(world.epoch_key(1))
    assert held.redeliver() == 1
    assert [note.payload for note in held.take()] == [b"secret"]


def test_who_may_not_is_told_so(hub: Hub, world: World) -> None:
    bob = hub.client("bob", member=member(world, "bob", Right.SUBSCRIBE))
    with pytest.raises(SecurityError, match="gives no right to publish"):
        bob.publish(GAME)
    with pytest.raises(RefusedError, match="is secure: publish with a token for it"):
        hub.client("eve").publish(GAME)
    with pytest.raises(RefusedError, match="is secure: subscribe with a token for it"):
        hub.client("eve").subscribe(ALONE)
    with pytest.raises(InvalidValueError, match="member: is ann, and the client is eve"):
        hub.client("eve", member=member(world, "ann", Right.PUBLISH))
    assert bob.publish({"Sports": "NFL"}).offset >= 0


def test_a_client_that_was_closed_is_no_member_when_it_comes_back(hub: Hub, world: World) -> None:
    hub.client("ann", member=member(world, "ann", Right.PUBLISH)).close()
    with pytest.raises(RefusedError, match="publish with a token"):
        hub.client("ann").publish(GAME)


def test_a_receipt_says_the_epoch_and_what_has_to_be_sealed_never_goes_in_the_clear(hub: Hub, world: World) -> None:
    ann = hub.client("ann", member=member(world, "ann", Right.PUBLISH))
    held = hub.client("bob").subscribe()
    game = {"Sports": "NBA", "Team": "NYK"}
    assert ann.publish(game, sealed=True).sealed == ann.publish(game).sealed == 1
    assert ann.publish({"Sports": "NFL"}).sealed is None
    with pytest.raises(SecurityError, match="would go in the clear"):
        ann.publish({"Sport": "NBA", "Team": "NYK"}, sealed=True)
    with pytest.raises(InvalidValueError, match="bob is no member, and cannot seal events"):
        hub.client("bob").publish(game, sealed=True)
    assert [note.attributes for note in held.take()] == [{"Sports": "NFL"}]
