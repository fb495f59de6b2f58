"""Sealed events in a hub: who gets them, what comes again, and what outlives a restart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.overlay import on_publications
from tests.security.world import HOUR, NOW, World
from tidings import Hub
from tidings.hub.client import HubClient
from tidings.journal import JournalOptions
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    JournalFullError,
    PublishedBeforeError,
    RefusedError,
    SecurityError,
)
from tidings.model.event import Event
from tidings.security import Gate, Sealer
from tidings.security.sealing.envelope import Seal
from tidings.testing import VirtualClock

NBA = "Sports = 'NBA'"
ALONE = "Sports = 'NBA' AND Team = 'NYK'"


class Stage:
    """A hub that can be closed, or killed, and opened again; its gate begins anew each time."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world, self.clock = folder, world, VirtualClock(NOW)
        self.sealer: Sealer = world.sealer(world.token("ann", until=NOW + 100 * HOUR))
        self._number = 0
        self._hubs: list[Hub] = []
        self.open()

    def open(self, **options: Any) -> Hub:
        self.hub = Hub(self.folder, gate=Gate(self.world.credentials()), clock=self.clock, **options)
        self._hubs.append(self.hub)
        return self.hub

    def reopen(self, *, killed: bool = False) -> Hub:
        if killed:  # no snapshot is written: everything is read from the journal
            processor = self.hub.processor
            assert processor.journal_store is not None
            processor.journal_store.sync(processor.next)
            processor.journal_store.upkeep.rows_since_snapshot = 0
        self.hub.close()
        return self.open()

    def event(self, number: int | None = None, **more: Any) -> Event:
        self._number = self._number + 1 if number is None else number
        return self.sealer.seal(self.world.event(self._number, **more), self.clock.time + self._number)

    def ann(self) -> HubClient:
        return self.hub.client("ann")

    def bob(self, content: str = NBA, **more: Any) -> Any:
        token = more.pop("token", self.world.token("bob", until=NOW + 100 * HOUR).data)
        return self.hub.client("bob").subscribe(content, token=token, **more)

    def close(self) -> None:
        self.hub.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "hub", World())
    made.hub.learn(made.world.record.data)
    yield made
    made.close()


def test_a_sealed_event_reaches_who_has_a_token(stage: Stage) -> None:
    bob, eve = stage.bob(), stage.hub.client("eve").subscribe()
    event = stage.event()
    receipt = stage.ann().publish_event(event)
    assert (receipt.event.id, receipt.event.sequence) == (event.id, event.sequence)
    [note] = bob.take()
    assert stage.world.opener().open(note.event, NOW).payload == b"a secret of the team"
    assert not eve.take()


def test_what_is_missing_is_said(stage: Stage) -> None:
    with pytest.raises(RefusedError, match="subscribe with a token"):
        stage.hub.client("eve").subscribe(ALONE)
    with pytest.raises(RefusedError, match="publish with a token"):
        stage.hub.client("eve").publish({"Sports": "NBA", "Team": "NYK"})
    with pytest.raises(RefusedError, match="one of ann"):
        stage.hub.client("eve").publish_event(stage.event())
    with pytest.raises(InvalidValueError, match="takes an Event"):
        stage.ann().publish_event({"Sports": "NBA"})  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="the bytes that were signed"):
        stage.hub.learn(stage.world.record)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="topic record"):
        stage.hub.learn(b"nonsense")


@pytest.mark.parametrize("killed", [False, True])
def test_the_same_event_gets_its_first_receipt_and_goes_nowhere_also_after_a_restart(
    stage: Stage, killed: bool
) -> None:
    bob = stage.bob(durable="d")
    event = stage.event()
    first = stage.ann().publish_event(event)
    again = stage.ann().publish_event(event)
    assert (again.offset, again.event.timestamp) == (first.offset, first.event.timestamp)
    assert (first.safe, again.safe) == ("journaled", "journaled")
    assert stage.ann().publish_event(event, safe="accepted").safe == "accepted"
    assert len(bob.take()) == 1
    stage.reopen(killed=killed)
    assert stage.ann().publish_event(event).offset == first.offset
    assert stage.hub.stats().published == 0
    other = msgspec.structs.replace(stage.event(), id=event.id)
    with pytest.raises(RefusedError, match="another event was published under the id"):
        stage.ann().publish_event(other)


@pytest.mark.parametrize("killed", [False, True])
def test_a_replay_under_another_id_is_refused_also_after_a_restart(stage: Stage, killed: bool) -> None:
    stage.bob(durable="d")
    early, late = stage.event(), stage.event()
    stage.ann().publish_event(late)
    stage.reopen(killed=killed)
    assert set(stage.hub.processor.engine.gate.credentials.topics) == {stage.world.record.id}  # type: ignore[union-attr]
    with pytest.raises(RefusedError, match="came before"):
        stage.ann().publish_event(early)


def test_a_plain_event_under_a_known_id_is_still_refused(stage: Stage) -> None:
    event = stage.world.event(attributes={"Sports": "chess"})
    stage.ann().publish_event(event)
    with pytest.raises(PublishedBeforeError):
        stage.ann().publish_event(event)


def test_what_the_journal_could_not_take_may_be_sent_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    event = stage.event()
    journal_store = stage.hub.processor.journal_store
    assert journal_store is not None
    whole: Callable[..., Any] = journal_store.append

    def full(*_: Any) -> Any:
        raise JournalFullError("no room")

    monkeypatch.setattr(journal_store, "append", full)
    with pytest.raises(JournalFullError):
        stage.ann().publish_event(event)
    monkeypatch.setattr(journal_store, "append", whole)
    stage.ann().publish_event(event)


@pytest.mark.parametrize("killed", [False, True])
def test_topics_notices_and_revocations_outlive_the_hub(stage: Stage, killed: bool) -> None:
    stage.hub.heed(stage.world.notice(2).data)
    stage.world.authority.revoke("eve", NOW)
    stage.hub.revoke(stage.world.authority.revocations(NOW).data)
    stage.reopen(killed=killed)
    gate = stage.hub.processor.gate
    assert gate is not None
    assert gate.credentials.revocations.version == 1
    assert gate.credentials.notice(stage.world.record.id) is not None
    with pytest.raises(RefusedError, match="epoch 1 is over"):
        stage.ann().publish_event(stage.event())


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_learnt_from_a_token_outlives_the_hub(tmp_path: Path, killed: bool) -> None:
    stage = Stage(tmp_path, World())
    stage.bob(durable="d")
    stage.reopen(killed=killed)
    with pytest.raises(RefusedError, match="publish with a token"):
        stage.ann().publish({"Sports": "NBA", "Team": "NYK"})
    [held] = stage.hub.client("bob").subscriptions()
    assert held.subscription.token is not None
    stage.close()


@pytest.mark.parametrize("killed", [False, True])
def test_what_waits_of_a_revoked_publisher_is_handed_out_if_it_was_accepted_in_time(stage: Stage, killed: bool) -> None:
    stage.bob(durable="d").close()
    stage.sealer = stage.world.sealer(who="eve")
    stage.hub.client("eve").publish_event(stage.event(publisher="eve"))
    stage.clock.time += 1_000
    stage.hub.client("eve").publish_event(stage.event(publisher="eve"))
    stage.world.authority.revoke("eve", NOW + 2_000, since=NOW + 500)
    stage.hub.revoke(stage.world.authority.revocations(NOW + 2_000).data)
    bob = stage.bob(durable="d")
    assert [note.event.sequence for note in bob.replay()] == [1]
    stage.reopen(killed=killed)
    bob = stage.bob(durable="d")
    assert [note.event.sequence for note in bob.take()] == [1]
    bob.acknowledge_all()
    assert bob.waiting == 0


def test_a_revoked_subscriber_gets_nothing_of_what_waits_nor_of_the_past(stage: Stage) -> None:
    bob = stage.bob(durable="d")
    stage.ann().publish_event(stage.event())
    stage.world.authority.revoke("bob", NOW)
    stage.hub.revoke(stage.world.authority.revocations(NOW).data)
    with pytest.raises(SecurityError, match="revoked"):
        bob.take()
    assert not list(bob.replay())


def test_a_token_that_expires_stops_what_is_handed_out_and_a_fresh_one_goes_on_without_loss(stage: Stage) -> None:
    bob = stage.bob(durable="d", token=stage.world.token("bob", until=NOW + 1_000).data)
    stage.ann().publish_event(stage.event())
    stage.clock.time += 2_000
    with pytest.raises(SecurityError, match="expired"):
        bob.take()
    assert [note.event.sequence for note in stage.bob(durable="d").take()] == [1]


def test_a_callback_waits_for_a_fresh_token(stage: Stage) -> None:
    got: list[int] = []
    token = stage.world.token("bob", until=NOW + 1_000).data
    stage.bob("", durable="d", token=token, callback=lambda note: got.append(note.event.sequence))
    stage.ann().publish_event(stage.event())
    stage.clock.time += 2_000
    stage.hub.client("carl").publish({"Sports": "chess"})
    assert got == [1]
    stage.bob("", durable="d", callback=lambda note: got.append(note.event.sequence))
    assert got == [1, 1]  # the first one of carl


def test_who_slipped_in_is_removed_for_good(tmp_path: Path) -> None:
    stage = Stage(tmp_path, World())
    eve = stage.hub.client("eve").subscribe(ALONE, durable="e")
    bob = stage.bob(durable="d")
    stage.ann().publish_event(stage.event())
    assert eve.closed
    with pytest.raises(ClosedError):
        eve.take()
    assert len(bob.take()) == 1
    assert any("is removed" in line for line in stage.hub.log)
    stage.reopen(killed=True)
    assert not stage.hub.client("eve").subscriptions()
    stage.close()


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_kept_of_a_cut_event_has_no_salts_of_what_is_gone(stage: Stage, killed: bool) -> None:
    policy = on_publications("RemoveAttributes(score)")
    stage.bob(durable="d", policy=policy).close()
    stage.ann().publish_event(stage.event())
    stage.reopen(killed=killed)
    [note] = stage.bob(durable="d").take()
    assert "score" not in note.event.attributes
    assert "ascore" not in Seal.of(note.event).salts
    assert stage.world.opener().open(note.event, NOW).payload == b"a secret of the team"


def test_a_hub_without_a_gate_carries_what_is_sealed(tmp_path: Path) -> None:
    world = World()
    with Hub(tmp_path, options=JournalOptions(convert=False)) as hub:
        bob = hub.client("bob").subscribe(NBA)
        event = world.sealer().seal(world.event(), NOW)
        hub.client("ann").publish_event(event)
        [note] = bob.take()
        assert note.payload == event.payload
        with pytest.raises(RefusedError, match="has no gate"):
            hub.learn(world.record.data)
