"""Retention: how much of a journal is kept, and which of its files may go. It only decides; the shelf removes."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidings.model.errors import InvalidValueError

DAY = 86_400_000_000  # microseconds


class Retention(msgspec.Struct, frozen=True):
    """Records of so many days, and so many bytes of files; what is not given is no limit."""

    days: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("days", self.days), ("bytes", self.bytes)):
            if value is not None and not 0 <= value < float("inf"):
                raise InvalidValueError(f"retention: {name} is a number from 0 on, not {value}")

    def limits(self, now: int) -> tuple[int | None, int | None]:
        """What `Journal.retain` takes: the time (microseconds) before which records may go, and the bytes."""
        return (None if self.days is None else max(0, now - int(self.days * DAY))), self.bytes


class Candidate(NamedTuple):
    """A file that may go: the offset and the time after which it holds nothing, and its size."""

    next: int
    timestamp: int
    size: int


def surplus(
    oldest_first: Iterable[Candidate], limit: int, total: int, before_timestamp: int | None, max_bytes: int | None
) -> int:
    """How many of the oldest files go: those that are too old, and those that are over the size, as long as each
    ends at or before the offset `limit`. The first that must stay keeps all behind it."""
    count = 0
    for one in oldest_first:
        too_old = before_timestamp is not None and one.timestamp < before_timestamp
        too_much = max_bytes is not None and total > max_bytes
        if one.next > limit or not (too_old or too_much):
            break
        total -= one.size
        count += 1
    return count
