"""Receipts of sealed events: noted at once or a little later, they say the same."""

from typing import NamedTuple
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.runtime.receipts import Receipts

IDS = [uuid7(number, bytes(10)) for number in range(3)]


def event(id: UUID, seal: bytes | None, payload: bytes | None) -> Event:  # noqa: A002
    return Event(id=id, publisher="p", timestamp=7, sequence=1, signature=seal, payload=payload)


events = st.builds(
    event, st.sampled_from(IDS), st.sampled_from([None, b"s", b"sp"]), st.sampled_from([None, b"p", b"", b"pp"])
)


class Note(NamedTuple):
    event: Event
    offset: int


class Asked(NamedTuple):
    event: Event


SETTLED, SAVED = "settled", "saved"
steps = st.one_of(
    st.builds(Note, events, st.integers(0, 9)),
    st.builds(Asked, events),
    st.sampled_from(IDS),
    st.sampled_from([SETTLED, SAVED]),
)


def said(receipts: Receipts, about: Event) -> object:
    try:
        return receipts.first_receipt(about)
    except RefusedError as error:
        return str(error)


@given(st.lists(steps, max_size=30))
@examples(200, 2_000)
def test_what_is_noted_soon_is_known_like_what_is_noted(given_: list[Note | Asked | UUID | str]) -> None:
    at_once, soon = Receipts(), Receipts()
    for step in given_:
        match step:
            case Note(one, offset):
                if isinstance(said(at_once, one), str):
                    continue  # another one has its id: nobody notes it
                at_once.record(one, offset)
                soon.record_unhashed(one, offset)
            case Asked(one):
                assert said(soon, one) == said(at_once, one)
            case UUID():
                at_once.forget(step)
                soon.forget(step)
            case "settled":
                soon.hash_pending()
                assert not soon.unhashed
            case "saved":
                assert sorted(map(msgspec.json.encode, soon.state())) == sorted(
                    map(msgspec.json.encode, at_once.state())
                )
                kept, soon = soon.state(), Receipts()
                soon.restore(kept)


def test_another_payload_under_the_same_seal_is_another_event() -> None:
    receipts = Receipts()
    receipts.record_unhashed(event(IDS[0], b"seal", b"payload"), 3)
    again = receipts.first_receipt(event(IDS[0], b"seal", b"payload"))
    assert again is not None
    assert again.offset == 3
    assert "another event was published" in str(said(receipts, event(IDS[0], b"seal", b"another")))


def test_what_was_noted_without_a_place_gets_it_when_it_is_known() -> None:
    receipts = Receipts()
    sealed = event(IDS[0], b"seal", b"payload")
    receipts.record_unhashed(sealed, -1)
    assert receipts.first_receipt(sealed) is not None  # it came twice in one piece
    receipts.record_unhashed(sealed, 5)
    receipts.hash_pending()
    known = receipts.first_receipt(sealed)
    assert known is not None
    assert known.offset == 5
