"""Counters of the operations, and their bytes, that were sent over each link, by type."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.engine.operations import Travelling

Measure = Callable[[Travelling], int]


class LinkTally:
    """Counts the operations sent in one direction of a link. Retransmissions are not counted."""

    __slots__ = ("_measure", "bytes", "messages")

    def __init__(self, measure: Measure | None = None) -> None:
        self._measure = measure
        self.messages: dict[type[msgspec.Struct], int] = {}
        self.bytes: dict[type[msgspec.Struct], int] = {}

    def count(self, operation: Travelling) -> int:
        """Count an operation. Returns its size in bytes, or 0 if bytes are not counted."""
        kind = type(operation)
        self.messages[kind] = self.messages.get(kind, 0) + 1
        if self._measure is None:
            return 0
        size = self._measure(operation)
        self.bytes[kind] = self.bytes.get(kind, 0) + size
        return size


class CountRow(msgspec.Struct, frozen=True, order=True):
    """The count of one type of operation in one direction of a link."""

    sender: str
    receiver: str
    kind: str  # the operation's name on the wire
    messages: int
    bytes: int


class Counts(msgspec.Struct, frozen=True):
    """The counts at one moment, in a fixed order. The difference of two is what was sent in between."""

    rows: tuple[CountRow, ...] = ()

    def __sub__(self, earlier: "Counts") -> "Counts":
        before = {_key(row): row for row in earlier.rows}
        later = (_less(row, before.get(_key(row))) for row in self.rows)
        return Counts(tuple(row for row in later if row.messages))

    def of(self, *kinds: str) -> "Counts":
        """Return the counts of these types of operations only."""
        return Counts(tuple(row for row in self.rows if row.kind in kinds))

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return sum(row.messages for row in self.rows)

    @property
    def bytes(self) -> int:
        """The number of all bytes."""
        return sum(row.bytes for row in self.rows)

    def by_kind(self) -> dict[str, int]:
        """Return the number of messages by type."""
        return self._summed(lambda row: row.kind)

    def by_link(self) -> dict[tuple[str, str], int]:
        """Return the number of messages by sender and receiver."""
        return self._summed(lambda row: (row.sender, row.receiver))

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the number of bytes by type."""
        return self._summed(lambda row: row.kind, "bytes")

    def bytes_by_link(self) -> dict[tuple[str, str], int]:
        """Return the number of bytes by sender and receiver."""
        return self._summed(lambda row: (row.sender, row.receiver), "bytes")

    def _summed(self, key: Callable[[CountRow], Any], field: str = "messages") -> dict[Any, int]:
        sums: Counter[Any] = Counter()
        for row in self.rows:
            sums[key(row)] += getattr(row, field)
        return dict(sorted(sums.items()))


class Counters:
    """The tallies of all links of a world, by sender and receiver."""

    def __init__(self, paths: Iterable[tuple[str, str]], measure: Measure | None = None) -> None:
        self.tallies = {way: LinkTally(measure) for way in paths}

    def counts(self) -> Counts:
        """Return the counts so far."""
        rows = [
            CountRow(sender, receiver, _word(kind), messages, tally.bytes.get(kind, 0))
            for (sender, receiver), tally in self.tallies.items()
            for kind, messages in tally.messages.items()
        ]
        return Counts(tuple(sorted(rows)))


def _word(kind: type[msgspec.Struct]) -> str:
    """Return the name of an operation on the wire."""
    return str(kind.__struct_config__.tag)


def _key(row: CountRow) -> tuple[str, str, str]:
    return row.sender, row.receiver, row.kind


def _less(row: CountRow, before: CountRow | None) -> CountRow:
    if before is None:
        return row
    return msgspec.structs.replace(row, messages=row.messages - before.messages, bytes=row.bytes - before.bytes)
