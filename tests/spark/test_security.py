"""Sealed events on Spark: checked, refused and handed out as an engine or a hub does it."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.security.attacks import HISTORY, attacks
from tests.security.world import HOUR, NOW, World
from tests.spark.test_beside import broker
from tidings import Hub, policies
from tidings.client import connect_sync
from tidings.engine import Engine, Settings
from tidings.engine.effects import Deliver, Reject
from tidings.engine.operations import Publish, Subscribe
from tidings.filters import Filter
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.security import Gate, Right, Token
from tidings.security.sealing.envelope import Seal
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.spark import history, retrace, route
from tidings.spark.pipeline.sinks import IntoBroker, IntoHub
from tidings.spark.shards import trusted_keys
from tidings.spark.sinks.broker_sink import BrokerClients
from tidings.testing import VirtualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = (
    "id string, timestamp bigint, publisher string, sequence bigint, payload binary, context string, "
    "attributes string, token binary, signature binary"
)
SUBSCRIPTIONS = "id string, subscriber string, content string, token binary, policy string"
SECOND = 1_000_000
PART = "Sports=NBA,Team=NYK"
REVOKED, ROTATED = NOW + 60 * SECOND, NOW + 30 * SECOND
TRIM = str(policies.remove("score"))


class Traffic:
    """Events at a time each, of which some are not to be trusted, and subscriptions of which some have a token."""

    def __init__(self, seed: int) -> None:
        self.random, self.world = Random(seed), World()
        world = self.world
        self.sealers = [
            world.sealer(world.token(until=NOW + 100 * HOUR)),
            world.sealer(world.token(template=PART)),
            world.sealer(world.token(until=NOW + 40 * SECOND)),
            world.sealer(world.token(), world.epoch_key(2)),
            world.sealer(world.token(kmc=world.other_kmc)),
        ]
        self.events = [(NOW + number * SECOND, event) for number in range(1, 90) for event in self._made(number)]
        world.authority.revoke("ann", REVOKED, reason="a stolen key")

    def _made(self, number: int) -> list[Event]:
        random, world = self.random, self.world
        team = random.choice(["NYK", "LAL"])
        said = {"Sports": random.choice(["NBA", "NBA", "NFL"]), "Team": team, "score": float(number), "n": number}
        plain = world.event(number, attributes=said)
        fitting = [one for one in self.sealers if one.token.template.matches(None, said)]
        if not fitting or random.random() < 0.2:
            return [plain]
        sealer = random.choice(fitting)
        if random.random() < 0.2:
            others = [world.event(1_000 * number + more, attributes=said) for more in range(3)]
            return sealer.seal_all([plain, *others], NOW + number)
        event = sealer.seal(plain, NOW + number)
        if random.random() < 0.3:
            changed = type(plain.attributes)({**plain.attributes, "score": -1.0})
            forged: list[dict[str, Any]] = [
                {"attributes": changed},
                {"payload": bytes(40)},
                {"signature": b"no seal"},
                {"token": None},
                {"publisher": "bob"},
            ]
            event = msgspec.structs.replace(event, **random.choice(forged))
        return [event]

    @property
    def subscriptions(self) -> list[Subscription]:
        world = self.world
        tokens: dict[str, Token | None] = {
            "whole": world.token("bob", Right.SUBSCRIBE, until=NOW + 100 * HOUR),
            "part": world.token("bob", Right.SUBSCRIBE, template=PART),
            "short": world.token("bob", Right.SUBSCRIBE, until=NOW + 20 * SECOND),
            "publisher": world.token("bob", Right.PUBLISH),
            "others": world.token("eve", Right.SUBSCRIBE),
            "none": None,
        }
        return [
            Subscription.of(
                Filter.parse("Team = 'NYK' or score > 30"),
                id=f"{name}{' trimmed' if policy else ''}",
                subscriber="bob",
                token=None if token is None else token.data,
                policy=policy,
            )
            for name, token in tokens.items()
            for policy in (None, TRIM)
        ]

    def notices(self) -> list[SignedNotice]:
        record = self.world.record.id
        told = [Notice(record, 1, 1, 1, 0, NOW), Notice(record, 2, 2, 1, ROTATED + 5 * SECOND, ROTATED)]
        return [SignedNotice.make(self.world.kmc, one) for one in told]

    def trust(self) -> list[tuple[str, bytes]]:
        authority = self.world.authority
        return [
            ("authority", authority.anchor.certificate.der),
            ("record", self.world.record.data),
            ("revocations", authority.revocations(NOW + 2 * HOUR).data),
            *(("notice", one.data) for one in self.notices()),
        ]


def event_rows(traffic: Traffic) -> list[tuple[Any, ...]]:
    return [
        (
            *(str(one.id), at, one.publisher, one.sequence, one.payload),
            *(msgspec.json.encode(one.context).decode(), msgspec.json.encode(one.attributes).decode()),
            *(one.token, one.signature),
        )
        for at, one in traffic.events
    ]


def subscription_rows(traffic: Traffic, *, governed: bool) -> list[tuple[Any, ...]]:
    wanted = [one for one in traffic.subscriptions if governed or one.policy is None]
    return [(one.id, one.subscriber, str(one.content), one.token, one.policy) for one in wanted]


def expected(traffic: Traffic, gate: Gate, *, governed: bool) -> tuple[set[Any], set[Any]]:
    """What an engine with that gate does, one by one: notifications, and what is refused."""
    engine = Engine(Settings(name="spark"), gate=gate)
    engine.is_replaying = True  # tokens of subscriptions are judged when something is due to them
    for one in traffic.subscriptions:
        if governed or one.policy is None:
            assert not [effect for effect in engine.handle(Subscribe(one), NOW) if isinstance(effect, Reject)]
    engine.is_replaying = False
    notes, refused = set(), set()
    for at, event in traffic.events:
        for effect in engine.handle(Publish(event), at):
            if isinstance(effect, Deliver):
                note = effect.notification
                attributes = json.dumps(dict(note.attributes), sort_keys=True)
                notes.add((str(event.id), note.subscription, attributes, note.payload))
            elif isinstance(effect, Reject):
                refused.add((str(event.id), effect.step, effect.reason))
    return notes, refused


def found(routed: Any) -> tuple[set[Any], set[Any]]:
    notes = {
        (
            *(row["event_id"], row["subscription_id"]),
            json.dumps(json.loads(row["attributes"]), sort_keys=True),
            bytes(row["payload"]),
        )
        for row in routed.notifications.collect()
    }
    return notes, {(row["event_id"], row["step"], row["reason"]) for row in routed.rejected.collect()}


@pytest.mark.parametrize(("seed", "governed"), [(1, False), (2, True)])
def test_events_are_checked_and_handed_out_as_an_engine_does_it(
    spark: "SparkSession", seed: int, governed: bool
) -> None:
    traffic = Traffic(seed)
    events = spark.createDataFrame(event_rows(traffic), EVENTS).repartition(2)
    wanted = spark.createDataFrame(subscription_rows(traffic, governed=governed), SUBSCRIPTIONS)
    tokens = spark.createDataFrame(traffic.trust(), trusted_keys.DDL)
    gate = trusted_keys.TrustedKeys.of(tokens).gate(knows_all=True)
    notes, refused = expected(traffic, gate, governed=governed)
    assert {name.split()[0] for _, name, _, _ in notes} == {"whole", "part", "short", "none", "publisher", "others"}
    sealed = {str(one.id) for _, one in traffic.events if one.signature is not None}
    assert {name.split()[0] for event, name, _, _ in notes if event in sealed} == {"whole", "part", "short"}
    reasons = {reason for _, _, reason in refused}
    assert len(reasons) >= 9
    routed = route(events, wanted, tokens=tokens)
    assert routed.registry.rejected == []
    assert found(routed) == (notes, refused)
    by_id, shown = {str(one.id): one for _, one in traffic.events}, 0
    for row in routed.notifications.filter("signature IS NOT NULL").collect():
        event = msgspec.structs.replace(
            by_id[row["event_id"]],
            attributes=Attributes.of(json.loads(row["attributes"])),
            token=bytes(row["token"]),
            signature=bytes(row["signature"]),
        )
        assert {name[1:] for name in Seal.of(event).salts} == {*event.attributes, *event.context}
        opener = traffic.world.opener(traffic.world.key, traffic.world.epoch_key(2))
        assert opener.open(event, NOW + SECOND).payload == b"a secret of the team"
        shown += 1
    assert shown == len([one for one in notes if one[0] in sealed])


def lived(folder: Path, traffic: Traffic, *, governed: bool) -> tuple[set[Any], int]:
    """The life of a hub with a gate: topics are learnt, keys change, a publisher is revoked, tokens end. What everybody
    got, and how many events were refused."""
    clock = VirtualClock(NOW)
    world = traffic.world
    world.authority.revoked.clear()
    notes: set[Any] = set()
    refused = 0
    with Hub(folder, gate=Gate(world.credentials()), clock=clock) as hub:
        hub.revoke(world.authority.revocations(NOW).data)
        bob = hub.client("bob")
        inboxes = {}

        def subscribe(one: Subscription) -> None:
            try:
                inboxes[one.id] = bob.subscribe(str(one.content), id=one.id, token=one.token, policy=one.policy)
            except TidingsError:
                return

        inboxes["slipped in"] = bob.subscribe(
            "Sports = 'NBA' and Team = 'NYK'", id="slipped in"
        )  # before anybody has heard of the topic
        wanted = [one for one in traffic.subscriptions if governed or one.policy is None]
        for one in wanted[::2]:
            subscribe(one)
        told = {NOW + 5 * SECOND: hub.learn, ROTATED: hub.heed, REVOKED: hub.revoke}
        for at, event in traffic.events:
            clock.time = at
            for due in [one for one in told if one <= at]:
                tell = told.pop(due)
                if due == REVOKED:
                    world.authority.revoke("ann", REVOKED, reason="a stolen key")
                    tell(world.authority.revocations(REVOKED).data)
                elif due == ROTATED:
                    tell(traffic.notices()[1].data)
                else:
                    tell(world.record.data)
                    for one in wanted[1::2]:
                        subscribe(one)
            try:
                hub.client(event.publisher).publish_event(event)
            except TidingsError:
                refused += 1
            for name, inbox in inboxes.items():
                with suppress(TidingsError):  # its token has ended, or it was expelled
                    notes |= {_told(name, one) for one in inbox.take(timeout=0)}
    return notes, refused


def _told(name: str, note: Any) -> tuple[Any, ...]:
    return str(note.event.id), name, json.dumps(dict(note.attributes), sort_keys=True), note.payload


@pytest.mark.parametrize(("seed", "governed"), [(3, False), (4, True)])
def test_a_hubs_journal_tells_who_got_what_was_sealed(
    spark: "SparkSession", tmp_path: Path, seed: int, governed: bool
) -> None:
    traffic = Traffic(seed)
    sealed = {str(one.id) for _, one in traffic.events if one.signature is not None}
    notes, refused = lived(tmp_path / "hub", traffic, governed=governed)
    assert refused > 10
    assert {name.split()[0] for _, name, _, _ in notes} >= {"whole", "part", "short", "none"}
    journal = history.read(spark, str(tmp_path / "hub")).cache()
    tokens = spark.createDataFrame([traffic.trust()[0]], trusted_keys.DDL)
    again, rejected = found(retrace(journal, tokens=tokens))
    # With a token that has ended nothing is taken from a hub any more, not even what was plain.
    assert notes <= again
    ended = {note for note in again - notes if note[0] not in sealed}
    assert again - ended == notes
    assert {name.split()[0] for _, name, _, _ in ended} <= {"whole", "part", "short"}
    assert rejected == set()


def test_what_is_found_of_sealed_events_is_told_to_nobody_in_the_clear(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where no gate would refuse it: neither by a sink into a hub, nor by one into a broker."""
    traffic = Traffic(5)
    events = spark.createDataFrame(event_rows(traffic), EVENTS)
    wanted = spark.createDataFrame(subscription_rows(traffic, governed=True), SUBSCRIPTIONS)
    routed = route(events, wanted, tokens=spark.createDataFrame(traffic.trust(), trusted_keys.DDL))
    notes = routed.notifications.cache()
    plain = {(row["event_id"], row["subscription_id"]) for row in notes.filter("signature IS NULL").collect()}
    count = notes.count()
    assert 0 < len(plain) < count
    outcome: Any = SimpleNamespace(notifications=notes, batch=0, folder=tmp_path, count=lambda _: count)
    with Hub() as hub:
        inbox = hub.client("desk").subscribe("subscription IS NOT NULL", limit=10_000)
        sink = IntoHub(hub)
        sink(outcome)
        assert (sink.hub_sink.published, sink.hub_sink.refused) == (len(plain), count - len(plain))
        assert len(inbox.take()) == len(plain)
    with broker(tmp_path) as child, connect_sync(child.address, "desk") as desk:
        found = desk.subscribe("subscription IS NOT NULL", limit=10_000)
        caplog.clear()
        IntoBroker(BrokerClients(addresses=child.address, partitions=2))(outcome)
        assert len(found.take(timeout=10)) == len(plain)
        assert "the event is sealed, and what is told of it here would be in the clear" in caplog.text
        assert not any("a secret" in record.getMessage() for record in caplog.records)


def test_every_attack_is_rejected(spark: "SparkSession") -> None:
    world = World()
    forged = [one.event for one in attacks(world) if HISTORY in one.doors]
    good = world.sealer().seal(world.event(1), NOW)
    rows = [
        (
            *(str(one.id), NOW + 1, one.publisher, number, one.payload),
            *(msgspec.json.encode(one.context).decode(), msgspec.json.encode(one.attributes).decode()),
            *(one.token, one.signature, one.subject, one.policy),
            None if one.subscribers is None else str(one.subscribers),
        )
        for number, one in enumerate([good, *forged], 1)
    ]
    events = spark.createDataFrame(rows, f"{EVENTS}, subject string, policy string, subscribers string")
    token = world.token("bob", Right.SUBSCRIBE).data
    wanted = spark.createDataFrame([("s", "bob", "Sports = 'NBA'", token, None)], SUBSCRIPTIONS)
    told = [
        ("authority", world.authority.anchor.certificate.der),
        ("record", world.record.data),
        ("revocations", world.authority.revocations(NOW - HOUR).data),
    ]
    routed = route(events, wanted, tokens=spark.createDataFrame(told, trusted_keys.DDL))
    assert [row["event_id"] for row in routed.notifications.collect()] == [str(good.id)]
    assert routed.rejected.where("step = 'admit'").count() == len(forged) > 500
