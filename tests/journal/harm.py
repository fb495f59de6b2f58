"""Harm that is done to the files of a journal: drawn at random, and small enough to be told in one line."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import assume
from hypothesis import strategies as st

_AMOUNT = 1 << 20


class Harm(NamedTuple):
    """What is done to which file, and where; the numbers are taken modulo what there is."""

    kind: str
    file: int
    at: int
    size: int
    other: int

    def do(self, files: Sequence[Path]) -> Path:
        """Does it, and says to which file."""
        path = files[self.file % len(files)]
        if self.kind == "removed":
            path.unlink(missing_ok=True)
            return path
        if self.kind == "renamed":
            if path.exists():
                path.rename(path.with_name(f"x{path.name}"))
            return path
        data = path.read_bytes() if path.exists() else b""
        if self.kind == "another file":
            other = files[self.other % len(files)]
            # The floor in the place of the mark is an older mark, as after a power cut: true, and not to be told apart.
            assume((path.name, other.name) != ("synced", "first"))
            path.write_bytes(other.read_bytes() if other.exists() else b"")
        else:
            path.write_bytes(_KINDS[self.kind](data, self))
        return path


def _stretch(data: bytes, harm: Harm) -> tuple[int, int]:
    start = harm.at % (len(data) + 1)
    return start, min(len(data), start + 1 + harm.size % 64)


def _flipped(data: bytes, harm: Harm) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[harm.at % len(data)] ^= 1 << harm.other % 8
    return bytes(changed)


def _cut(data: bytes, harm: Harm) -> bytes:
    return data[: harm.at % (len(data) + 1)]


def _zeroed(data: bytes, harm: Harm) -> bytes:
    start, end = _stretch(data, harm)
    return data[:start] + bytes(end - start) + data[end:]


def _swapped(data: bytes, harm: Harm) -> bytes:
    """Two blocks of the same size change places."""
    size = 1 + harm.size % 64
    first, second = sorted((harm.at % (len(data) + 1), harm.other % (len(data) + 1)))
    if first + size > second:
        return data
    one, two = data[first : first + size], data[second : second + size]
    return data[:first] + two + data[first + size : second] + one + data[second + size :]


def _doubled(data: bytes, harm: Harm) -> bytes:
    start, end = _stretch(data, harm)
    return data[:end] + data[start:end] + data[end:]


def _taken_out(data: bytes, harm: Harm) -> bytes:
    start, end = _stretch(data, harm)
    return data[:start] + data[end:]


def _garbage(data: bytes, harm: Harm) -> bytes:
    return data + (harm.at * 2654435761 % 2**64).to_bytes(8, "little") * (1 + harm.size % 64)


_KINDS: dict[str, Callable[[bytes, Harm], bytes]] = {
    "flipped": _flipped,
    "cut": _cut,
    "zeroed": _zeroed,
    "swapped": _swapped,
    "doubled": _doubled,
    "taken out": _taken_out,
    "garbage": _garbage,
}
harms = st.builds(
    Harm,
    st.sampled_from([*_KINDS, "flipped", "cut", "removed", "renamed", "another file"]),
    *(st.integers(0, _AMOUNT) for _ in range(4)),
)
