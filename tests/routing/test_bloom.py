"""A Bloom filter holds what it was made of, and of everything else about one in a hundred."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import contents
from tidings.model.limits import MAX_BLOOM_BYTES
from tidings.model.values import Context
from tidings.routing.bloom import Bloom, context_id


def ids(kind: str, count: int) -> list[bytes]:
    return [context_id(Context({kind: number})) for number in range(count)]


@given(st.lists(contents, max_size=30))
@examples(100, 2_000)
def test_everything_that_went_in_is_in(given: list[dict[str, object]]) -> None:
    held = [context_id(Context(one)) for one in given]
    bloom = Bloom.of(held)
    assert all(one in bloom for one in held)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 50, 100, 1_000, 10_000])
def test_few_others_are_in(count: int) -> None:
    bloom = Bloom.of(ids("in", count))
    wrong = sum(one in bloom for one in ids("out", 10_000))
    assert wrong < 200


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_it_takes_about_ten_bits_an_id(count: int) -> None:
    assert 9 * count < 8 * len(Bloom.of(ids("in", count)).bits) < 10 * count


def test_nothing_is_in_an_empty_one() -> None:
    bloom = Bloom.of([])
    assert not any(one in bloom for one in ids("out", 1_000))


def test_past_its_greatest_size_it_only_holds_more_of_the_others() -> None:
    held = ids("in", 40_000)
    bloom = Bloom.of(held)
    assert len(bloom.bits) == MAX_BLOOM_BYTES
    assert all(one in bloom for one in held)
    assert 0.05 < sum(one in bloom for one in ids("out", 2_000)) / 2_000 < 0.5


@given(st.permutations(ids("in", 12)))
@examples(50, 500)
def test_it_depends_on_the_set_alone(held: list[bytes]) -> None:
    assert Bloom.of([*held, *held]) == Bloom.of(ids("in", 12))


@pytest.mark.parametrize(
    "said",
    [
        {"bits": b"", "hashes": 1},
        {"bits": bytes(MAX_BLOOM_BYTES + 1), "hashes": 1},
        {"bits": bytes(8), "hashes": 0},
        {"bits": bytes(8), "hashes": 1_000_000},
    ],
)
def test_one_that_came_from_elsewhere_is_within_limits(said: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=Bloom)


def test_it_survives_the_wire() -> None:
    bloom = Bloom.of(ids("in", 7))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(bloom), type=Bloom) == bloom
