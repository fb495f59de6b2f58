"""Signatures that are remembered say the same as signatures that are not."""

import os
from collections import Counter
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import NOW, World
from tests.sizes import examples
from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security.sealing import signatures
from tidings.security.sealing.envelope import Seal
from tidings.security.sealing.signatures import Signatures

WORLD = World()
BATCH = WORLD.sealer().seal_all([WORLD.event(number) for number in range(1, 12)], NOW)
OTHERS = WORLD.sealer().seal_all([WORLD.event(number) for number in range(1, 6)], NOW)
KEY = WORLD.token().key
OTHER_KEY = WORLD.token("eve").key


def verdict(known: Signatures, event: Event, seal: Seal, key: bytes) -> str:
    try:
        known.check(seal.digest(event), seal, key)
    except SecurityError as error:
        return error.reason
    return "good"


def changed(draw: st.DrawFn, event: Event) -> tuple[Event, Seal, bytes]:
    """As it was sealed, or with one thing in it another."""
    seal, key = Seal.of(event), KEY
    path = seal.path
    match draw(st.integers(0, 9)):
        case 0:
            event = msgspec.structs.replace(event, payload=os.urandom(20))
        case 1:
            seal = msgspec.structs.replace(seal, index=draw(st.integers(-1, 12)))
        case 2:
            seal = msgspec.structs.replace(seal, size=draw(st.integers(0, 13)))
        case 3:
            seal = msgspec.structs.replace(seal, path=path[: draw(st.integers(0, len(path)))])
        case 4:
            seal = msgspec.structs.replace(seal, path=(*path, draw(st.sampled_from(path))))
        case 5:
            place = draw(st.integers(0, len(path) - 1))
            seal = msgspec.structs.replace(seal, path=(*path[:place], bytes(32), *path[place + 1 :]))
        case 6:
            seal = msgspec.structs.replace(seal, signature=Seal.of(OTHERS[0]).signature)
        case 7:
            key = OTHER_KEY
        case _:
            pass
    return event, seal, key


@st.composite
def sealed(draw: st.DrawFn) -> tuple[Event, Seal, bytes]:
    return changed(draw, draw(st.sampled_from([*BATCH, *OTHERS])))


@examples(100, 2_000)
@given(st.lists(sealed(), max_size=12))
def test_it_does_not_matter_what_was_seen_before(given_: list[tuple[Event, Seal, bytes]]) -> None:
    known = Signatures()
    assert [verdict(known, *one) for one in given_] == [verdict(Signatures(), *one) for one in given_]


def test_a_batch_costs_one_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    class Counting:
        def __init__(self, key: bytes) -> None:
            self._key = Ed25519PublicKey.from_public_bytes(key)

        from_public_bytes = classmethod(lambda cls, key: cls(key))

        def verify(self, signature: bytes, said: bytes) -> None:
            nonlocal count
            count += 1
            self._key.verify(signature, said)

    monkeypatch.setattr(signatures, "Ed25519PublicKey", Counting)
    known = Signatures()
    for event in BATCH:
        known.check(Seal.of(event).digest(event), Seal.of(event), KEY)
    assert count == 1


def test_very_many_batches_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_MAX_CACHED", 3)
    known = Signatures()
    sealer = WORLD.sealer()
    for _ in range(10):
        for event in sealer.seal_all([WORLD.event(number) for number in range(1, 5)], NOW):
            known.check(Seal.of(event).digest(event), Seal.of(event), KEY)
    assert known.root_count == 3


# Places in trees

WHOLE = WORLD.sealer().seal_all([WORLD.event(number) for number in range(1, 65)], NOW)


@examples(100, 2_000)
@given(st.lists(sealed(), min_size=1, max_size=4))
def test_whoever_knows_a_whole_batch_is_told_nothing_else(given_: list[tuple[Event, Seal, bytes]]) -> None:
    known = Signatures()
    for event in [*BATCH, *OTHERS]:
        known.check(Seal.of(event).digest(event), Seal.of(event), KEY)
    assert [verdict(known, *one) for one in given_] == [verdict(Signatures(), *one) for one in given_]


def test_every_node_of_a_tree_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: Counter[bytes] = Counter()

    def counting(data: bytes) -> Any:
        hashed[data] += 1
        return sha256(data)

    monkeypatch.setattr(signatures, "sha256", counting)
    known = Signatures()
    for event in WHOLE:
        known.check(Seal.of(event).digest(event), Seal.of(event), KEY)
    assert len(hashed) == hashed.total() == 64 + 63


def test_nothing_is_remembered_of_what_was_not_signed() -> None:
    known = Signatures()
    for place, event in enumerate(WHOLE):
        seal = Seal.of(event)
        path = seal.path[: place % 6], bytes(32), seal.path[place % 6 + 1 :]
        forged = msgspec.structs.replace(seal, path=(*path[0], path[1], *path[2]))
        assert verdict(known, event, forged, KEY) == "the event is not as its publisher signed it"
    assert known.node_counts == []
    assert known.root_count == 0


def test_a_known_place_serves_no_other_batch_key_or_size() -> None:
    known = Signatures()
    first, second = WHOLE[:2]
    known.check(Seal.of(first).digest(first), Seal.of(first), KEY)
    seal = Seal.of(second)
    assert verdict(known, second, seal, KEY) == "good"
    other = Seal.of(BATCH[0])
    for changed_ in ({"signature": other.signature}, {"size": 65}, {"index": 3}, {"path": other.path}):
        assert verdict(known, second, msgspec.structs.replace(seal, **changed_), KEY) != "good"
    assert verdict(known, second, seal, OTHER_KEY) != "good"


def test_very_many_places_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_MAX_NODES", 10)
    known = Signatures()
    sealer = WORLD.sealer()
    for _ in range(10):
        for event in sealer.seal_all([WORLD.event(number) for number in range(1, 5)], NOW):
            known.check(Seal.of(event).digest(event), Seal.of(event), KEY)
            assert sum(known.node_counts) <= 10
    assert 0 < len(known.node_counts) <= 3


# Many at once


def verdict_of_all(known: Signatures, sealed_events: list[tuple[Event, Seal, bytes]], key: bytes) -> str:
    digests = [seal.digest(event) for event, seal, _ in sealed_events]
    try:
        known.check_all(digests, [seal for _, seal, _ in sealed_events], key)
    except SecurityError as error:
        return error.reason
    return "good"


@examples(100, 2_000)
@given(st.lists(sealed(), min_size=1, max_size=6))
def test_many_at_once_are_good_when_each_of_them_is(given_: list[tuple[Event, Seal, bytes]]) -> None:
    each = [verdict(Signatures(), event, seal, KEY) for event, seal, _ in given_]
    bad = next((one for one in each if one != "good"), "good")
    assert verdict_of_all(Signatures(), given_, KEY) == bad


@pytest.mark.parametrize("count", [2, 5, 11])
def test_a_whole_batch_is_refused_under_another_key_or_with_another_signature(count: int) -> None:
    batch = WORLD.sealer().seal_all([WORLD.event(number) for number in range(1, count + 1)], NOW)
    whole = [(event, Seal.of(event), KEY) for event in batch]
    assert verdict_of_all(Signatures(), whole, KEY) == "good"
    assert verdict_of_all(Signatures(), whole, OTHER_KEY) != "good"
    signature = Seal.of(OTHERS[0]).signature
    forged = [(event, msgspec.structs.replace(seal, signature=signature), KEY) for event, seal, _ in whole]
    assert verdict_of_all(Signatures(), forged, KEY) != "good"
