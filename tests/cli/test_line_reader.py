"""Lines in whatever pieces they come, and streams that never end one."""

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.running_broker import running_broker
from tests.cli import command
from tests.sizes import examples
from tidings.cli.actions.publish import LONGEST, LineReader


@examples(200, 5_000)
@given(st.lists(st.binary(max_size=20)))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    lines = LineReader()
    found = [one for piece in pieces for one in lines.feed(piece)] + list(lines.end())
    whole = b"".join(pieces).split(b"\n")
    assert found == [(number, line) for number, line in enumerate(whole, 1) if line.strip()]


def test_of_a_line_that_does_not_end_a_part_is_kept() -> None:
    lines = LineReader(longest=10)
    for _ in range(5):
        assert list(lines.feed(b"x" * 7)) == []
        assert len(lines.rest) <= 11
    [(number, line), *_] = [*lines.feed(b"\nnext\n")]
    assert (number, len(line)) == (1, 11)
    assert list(lines.feed(b"more\n")) == [(3, b"more")]


def test_a_line_that_is_too_long_is_refused_and_the_next_is_published() -> None:
    with running_broker() as address:
        words = ("publish", "--json", "--connect", f"tidings://{address}")
        done = command.run(*words, stdin=b"x" * (LONGEST + 5) + b'\n{"n": 1}\n')
    assert (done.returncode, done.stdout) == (1, '{"published": 1, "refused": 1, "safe": {"accepted": 1}}\n')
    assert done.stderr.startswith(f"tidings: line 1: the line is longer than {LONGEST:,} bytes\n")
