"""Many sealed events at once: the gate says of each what it says one by one, and the same of what is let in."""

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.attacks import attacks
from tests.security.world import HOUR, NOW, World
from tests.sizes import examples
from tidings.engine import Engine, Settings
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.batch.security import BatchSecurity
from tidings.engine.security.token_requirements import TokenRequirements
from tidings.filters import ContextFilter
from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.values import Attributes
from tidings.security import Gate, Right, Role, TopicRecord
from tidings.security.batch_verifier import BatchVerifier
from tidings.security.sealing.envelope import Seal, trim
from tidings.security.tokens.credentials import HistoricalCredentials
from tidings.security.tokens.notices import Notice, SignedNotice

WORLD = World()
REVOKED, ROTATED, TAKEN_BACK = NOW + 70, NOW + 30, NOW + 50
SUBJECTS = pa.schema([(name, pa.string()) for name in ("id", "publisher", "subject", "subscribers", "policy")])
FIELDS = pa.schema(
    [
        *SUBJECTS,
        *(("timestamp", pa.int64()), ("payload", pa.binary()), ("token", pa.binary()), ("signature", pa.binary())),
    ]
)
NAMED = pa.schema([*FIELDS, ("attributes", pa.string()), ("context", pa.string())])
COLUMNS = pa.schema([*FIELDS, ("Sports", pa.string()), ("Team", pa.string()), ("score", pa.int64())])


class Told:
    """At a time each the epoch changes, what bob was granted is taken back, and eve is revoked."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.authority.revoke("eve", REVOKED, reason="a stolen key")
        self.update = world.authority.revocations(NOW - HOUR)
        grants = {world.bob.certificate.fingerprint.hex(): 2}
        notices = [
            Notice(world.record.id, 1, 1, 1, 0, NOW),
            Notice(world.record.id, 2, 2, 1, ROTATED + 10, ROTATED),
            Notice(world.record.id, 3, 2, 2, 0, TAKEN_BACK, grants),
        ]
        self.notices = [SignedNotice.make(world.kmc, one) for one in notices]

    def gate(self, **options: Any) -> Gate:
        credentials = HistoricalCredentials(self.world.authority.anchor)
        credentials.revoke(self.update)
        credentials.learn(self.world.record, NOW)
        for one in self.notices:
            credentials.heed(one, one.notice.issued)
        return Gate(credentials, **{"freshness": None, **options})


@cache
def told() -> Told:
    return Told(World())


def rows(events: list[Event], times: list[int], schema: pa.Schema) -> pa.Table:
    said = [
        {
            **one.attributes,
            **msgspec.structs.asdict(one),
            "id": str(one.id),
            "timestamp": time,
            "subscribers": None if one.subscribers is None else str(one.subscribers),
            "attributes": msgspec.json.encode(one.attributes).decode(),
            "context": msgspec.json.encode(one.context).decode(),
        }
        for one, time in zip(events, times, strict=True)
    ]
    return pa.Table.from_pylist(said, schema)


def one_by_one(gate: Gate, events: list[Event], times: list[int]) -> dict[int, str]:
    found = {}
    for place, (event, time) in enumerate(zip(events, times, strict=True)):
        try:
            gate.check(event, time)
        except SecurityError as error:
            gate.refused[error.check] += 1
            found[place] = error.reason
    return found


def together(gate: Gate, table: pa.Table) -> dict[int, str]:
    publications = PublicationColumns(table)
    assert publications.problems == {}
    engine = Engine(Settings(name="b1"), gate=gate)
    vetting = BatchSecurity(engine.state, gate, TokenRequirements(gate.credentials), publications)
    found = list(vetting.refused(np.ones(table.num_rows, bool)))
    assert [row for row, _ in found] == sorted(row for row, _ in found)
    return dict(found)


def certain(gate: Gate, table: pa.Table) -> set[int]:
    return set(BatchVerifier(gate).certain(PublicationColumns(table).claims(list(range(table.num_rows)))))


def test_every_attack_among_good_events_has_its_own_reason() -> None:
    whole = WORLD.sealer().seal_all([WORLD.event(number) for number in range(1, 9)], NOW)
    part = WORLD.sealer().seal_all([WORLD.event(number) for number in range(11, 22)], NOW)[2:7]
    single = [WORLD.sealer().seal(WORLD.event(number), NOW) for number in range(31, 35)]
    events = [*whole, *(one.event for one in attacks(WORLD)), *part, *single]
    times = [NOW + 1] * len(events)
    alone, batch = (WORLD.gate(freshness=None) for _ in range(2))
    expected = one_by_one(alone, events, times)
    assert len(expected) > 500
    assert len(set(expected.values())) > 25
    assert together(batch, rows(events, times, NAMED)) == expected
    assert batch.refused == alone.refused
    let_in = set(range(len(events))) - expected.keys()
    assert let_in >= {*range(8), *range(len(events) - 9, len(events))}
    assert certain(batch, rows(events, times, NAMED)) == let_in


SEALERS: dict[str, dict[str, Any]] = {
    "ann": {},
    "part": {"template": "Sports=NBA,Team=NYK"},
    "early": {"until": NOW + 20},
    "late": {"since": NOW + 20},
    "to subscribe": {"rights": Right.SUBSCRIBE},
    "of a false centre": {"kmc": "other_kmc"},
    "bob": {"holder": "bob"},
    "bob again": {"holder": "bob", "grant": 2},
    "eve": {"holder": "eve"},
    "new record": {"record": "later"},
}


@cache
def sealed(name: str, epoch: int, many: int) -> list[Event]:
    """By somebody, under an epoch, in one batch."""
    world, said = told().world, dict(SEALERS[name])
    if "kmc" in said:
        said["kmc"] = world.other_kmc
    if "record" in said:
        said["record"] = TopicRecord.make(
            world.ann, id=world.record.id, template="Sports=NBA,Team=*", kmc=world.kmc.certificate, version=2
        )
    who = said.get("holder", "ann")
    token = world.token(**said)
    sealer = world.sealer(world.token(**{**said, "rights": Right.PUBLISH}), world.epoch_key(epoch), who)
    first = 1_000 * (100 * list(SEALERS).index(name) + 10 * epoch) + 20 * many
    events = [
        world.event(
            first + number,
            who,
            attributes={"Sports": "NBA", "Team": "NYK", **({"score": number} if number % 3 else {})},
            context={},
            subscribers=ContextFilter.parse("rank > 1") if number % 4 == 3 else None,
        )
        for number in range(many)
    ]
    return [msgspec.structs.replace(one, token=token.data) for one in sealer.seal_all(events, NOW)]


def forged(event: Event, how: int, other: Event) -> Event:
    """As it was sealed, or with one thing in it another."""
    said, seal = dict(event.attributes), Seal.of(event)

    def resealed(**changed: Any) -> Event:
        return msgspec.structs.replace(event, signature=msgspec.structs.replace(seal, **changed).data)

    match how:
        case 0:
            return msgspec.structs.replace(event, attributes=Attributes({**said, "score": 77}))
        case 1:
            return msgspec.structs.replace(event, attributes=Attributes({**said, "Team": "LAL"}))
        case 2:
            return msgspec.structs.replace(event, payload=other.payload)
        case 3:
            return msgspec.structs.replace(event, signature=other.signature)
        case 4:
            return msgspec.structs.replace(event, token=other.token)
        case 5:
            return msgspec.structs.replace(event, publisher="bob")
        case 6:
            return msgspec.structs.replace(event, token=None)
        case 7:
            return msgspec.structs.replace(event, signature=None, token=None)
        case 8:
            return msgspec.structs.replace(event, signature=b"\xdc\x00\x14" + (event.signature or b"")[3:])
        case 9:
            return msgspec.structs.replace(event, subscribers=ContextFilter.parse("rank > 2"))
        case 10:
            return resealed(path=seal.path[::-1])
        case 11:
            return resealed(index=seal.index + 1)
        case 12:
            return resealed(leaves=seal.leaves[32:] + seal.leaves[:32])
        case 13:
            return resealed(salts={**seal.salts, "aTeam": b"short"})
        case 14:
            return resealed(epoch=seal.epoch + 1)
        case 15:  # this is not forged: a policy has taken it away
            return trim(
                msgspec.structs.replace(event, attributes=Attributes({"Sports": said["Sports"], "Team": said["Team"]}))
            )
        case _:
            return event


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Event], list[int]]:
    """Batches of which some events are forged, left out or out of order, accepted at any time."""
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 4))):
        name, epoch = draw(st.sampled_from(list(SEALERS))), draw(st.integers(1, 2))
        events += sealed(name, epoch, draw(st.sampled_from([1, 2, 5, 8])))
    hows = draw(st.lists(st.integers(0, 60), min_size=len(events), max_size=len(events)))
    others = draw(st.lists(st.sampled_from(events), min_size=len(events), max_size=len(events)))
    made = [forged(*one) for one in zip(events, hows, others, strict=True)]
    order = draw(st.one_of(st.just(list(range(len(made)))), st.permutations(range(len(made)))))
    made = [made[place] for place in order][: draw(st.integers(1, len(made)))]
    turns = [0, 10, 20, 29, 30, 39, 40, 49, 50, 70, 71, 2 * HOUR, 10_000 * HOUR]
    same = draw(st.sampled_from(turns))
    late = draw(st.lists(st.sampled_from([same, same, same, *turns]), min_size=len(made), max_size=len(made)))
    return made, [NOW + one for one in late]


@examples(64, 1_500)
@given(traffic(), st.sampled_from([NAMED, COLUMNS]), st.booleans())
def test_what_is_said_together_is_what_is_said_one_by_one(
    given: tuple[list[Event], list[int]], schema: pa.Schema, verifies: bool
) -> None:
    events, times = given
    alone, batch = (told().gate(verifies=verifies) for _ in range(2))
    table = rows(events, times, schema)
    for _ in range(2):  # once more, when all tokens are known
        expected = one_by_one(alone, events, times)
        assert together(batch, table) == expected
        assert batch.refused == alone.refused
        assert not certain(batch, table) & expected.keys()


@pytest.mark.parametrize("schema", [NAMED, COLUMNS])
def test_what_is_good_is_certain(schema: pa.Schema) -> None:
    """Whole batches, parts of them, single ones, and what a policy has left of some: none is asked of the gate."""
    whole, part = sealed("ann", 1, 8), sealed("ann", 2, 8)[3:]
    cut = [forged(one, 15, one) for one in sealed("part", 1, 5)]
    events = [*whole[::-1], *part, *cut, *sealed("ann", 1, 1)]
    times = [NOW] * len(events)
    gate, table = told().gate(), rows(events, times, schema)
    assert certain(gate, table) == set()  # nobody knows the tokens
    assert one_by_one(gate, events, times) == {}
    assert certain(gate, table) == set(range(len(events)))
    assert certain(told().gate(freshness=HOUR), table) == set()


@pytest.mark.parametrize("brief", ["holder", "kmc", "owner"])
def test_nothing_is_certain_once_a_certificate_has_ended(brief: str) -> None:
    """A token ends with each of them: events before and behind that moment come together."""
    world, day = World(), 24 * HOUR
    roles = {"holder": Role.ENTITY, "kmc": Role.KMC, "owner": Role.ENTITY}
    who = {name: world.authority.issue(name, role, NOW, days=1 if name == brief else 9) for name, role in roles.items()}
    world.record = TopicRecord.make(who["owner"], id=bytes(16), template="Sports=NBA", kmc=who["kmc"].certificate)
    world.ann = who["holder"]
    sealer = world.sealer(world.token(kmc=who["kmc"], until=NOW + 5 * day), world.epoch_key(1))
    events = sealer.seal_all([world.event(number, "holder") for number in range(1, 9)], NOW)
    times = [NOW + number * day // 4 for number in range(8)]
    alone, batch = (world.gate(freshness=None) for _ in range(2))
    expected = one_by_one(alone, events, times)
    assert expected.keys() == {4, 5, 6, 7}
    for gate in (alone, batch):
        gate.credentials.token(sealer.token.data, NOW)
        assert certain(gate, rows(events, times, NAMED)) == {0, 1, 2, 3}
        assert together(gate, rows(events, times, NAMED)) == expected


def test_nothing_is_certain_once_the_list_of_revocations_is_too_old() -> None:
    gate = WORLD.gate(freshness=None)
    head = gate.credentials.revocations.head
    assert head is not None
    sealer = WORLD.sealer(WORLD.token(until=head.next_update + HOUR))
    events = sealer.seal_all([WORLD.event(number) for number in range(1, 5)], NOW)
    times = [NOW, head.next_update - 1, head.next_update, head.next_update + 1]
    refused = one_by_one(gate, events, times)
    assert refused.keys() == {2, 3}
    assert certain(gate, rows(events, times, NAMED)) == {0, 1}
    assert together(gate, rows(events, times, NAMED)) == refused
