"""Frames: one table of cases, each read whole, byte by byte, in pieces, and with more behind it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.model.limits import MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO
from tidings.protocol.frames import FrameKind, FrameSplitter, FramingError, frame

Frame = tuple[int, bytes]
LIMIT = 100


class Case(NamedTuple):
    name: str
    data: bytes
    frames: list[Frame]
    error: str = ""


CASES = [
    Case("nothing", b"", []),
    Case("a kind without a body", b"\0\0\0\1\x03", [(3, b"")]),
    Case("a kind and a body", b"\0\0\0\3\x0bab", [(11, b"ab")]),
    Case("two frames", b"\0\0\0\2\x03x\0\0\0\1\x04", [(3, b"x"), (4, b"")]),
    Case("a kind that nobody knows", b"\0\0\0\2\xffx", [(255, b"x")]),
    Case("as long as may be", b"\0\0\0\x64\x01" + 99 * b"x", [(1, 99 * b"x")]),
    Case("a byte too long", b"\0\0\0\x65\x01" + 100 * b"x", [], "a frame of 101 bytes; the most are 100"),
    Case("two gigabytes", b"\x80\0\0\0\x01", [], "a frame of 2,147,483,648 bytes"),
    Case("four gigabytes", b"\xff\xff\xff\xff\x01", [], "a frame of 4,294,967,295 bytes"),
    Case("no bytes at all", b"\0\0\0\0", [], "a frame of no bytes"),
    Case("text", b"GET / HTTP/1.1\r\n\r\n", [], "a frame of 1,195,725,856 bytes"),
    Case("a good one, then a bad one", b"\0\0\0\2\x03x\0\0\0\0", [(3, b"x")], "a frame of no bytes"),
    Case("a beginning", b"\0\0\0\5\x03x", []),
    Case("half a length", b"\0\0", []),
]


def read(pieces: Iterable[bytes]) -> tuple[list[Frame], str]:
    """The frames of a stream, and what was wrong with it."""
    splitter, found = FrameSplitter(LIMIT), list[Frame]()
    try:
        for piece in pieces:
            found += splitter.feed(piece)
    except FramingError as error:
        return [*found, *error.before], str(error)
    return found, ""


WAYS: dict[str, Callable[[bytes], list[bytes]]] = {
    "whole": lambda data: [data],
    "byte by byte": lambda data: [bytes([one]) for one in data],
    "in pieces of three": lambda data: [data[at : at + 3] for at in range(0, len(data), 3)],
    "with nothing in between": lambda data: [part for one in data for part in (b"", bytes([one]))],
    "all but the last byte": lambda data: [data[:-1], data[-1:]],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_frames_come_out_the_same_however_their_bytes_come_in(case: Case, way: str) -> None:
    found, error = read(WAYS[way](case.data))
    assert found == case.frames
    assert error.startswith(case.error)
    assert bool(error) == bool(case.error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", [case for case in CASES if case.frames and not case.error], ids=lambda case: case.name)
def test_what_follows_a_frame_is_kept_for_the_next_one(case: Case, way: str) -> None:
    following = frame(FrameKind.BYE, b"later")
    found, _ = read([*WAYS[way](case.data + following[:7]), following[7:]])
    assert found == [*case.frames, (FrameKind.BYE, b"later")]


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=6), st.data())
@examples(150, 3_000)
def test_whatever_is_framed_comes_out_again_wherever_it_is_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(frame(kind, body) for kind, body in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == (frames, "")


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
@examples(300, 10_000)
def test_garbage_is_refused_at_the_same_place_wherever_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    ends = sorted(min(one, len(stream)) for one in cuts)
    pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
    assert read(pieces) == read([stream])


def test_little_is_taken_until_it_is_known_who_speaks() -> None:
    splitter = FrameSplitter()
    large = frame(FrameKind.PUBLISH, bytes(MAX_FRAME_BYTES_BEFORE_HELLO))
    with pytest.raises(FramingError, match="the most are 4,096"):
        splitter.feed(large[:5])
    splitter = FrameSplitter()
    splitter.welcome()
    assert splitter.feed(large) == [(FrameKind.PUBLISH, bytes(MAX_FRAME_BYTES_BEFORE_HELLO))]
    with pytest.raises(FramingError, match=f"the most are {MAX_FRAME_BYTES:,}"):
        splitter.feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_no_two_kinds_have_the_same_number() -> None:
    assert len({int(kind) for kind in FrameKind}) == len(FrameKind.__members__)
