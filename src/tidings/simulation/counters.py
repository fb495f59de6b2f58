"""Counters: how many operations went over which link, by type, and how many bytes they were."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.engine.operations import Travelling

Measure = Callable[[Travelling], int]


class Tally:
    """What was sent in one direction of a link: each operation once, however often it had to be sent again."""

    __slots__ = ("_measure", "bytes", "messages")

    def __init__(self, measure: Measure | None = None) -> None:
        self._measure = measure
        self.messages: dict[type, int] = {}
        self.bytes: dict[type, int] = {}

    def count(self, operation: Travelling) -> int:
        """Counts it; its size, or 0 if bytes are not counted."""
        kind = type(operation)
        self.messages[kind] = self.messages.get(kind, 0) + 1
        if self._measure is None:
            return 0
        size = self._measure(operation)
        self.bytes[kind] = self.bytes.get(kind, 0) + size
        return size


class Row(msgspec.Struct, frozen=True, order=True):
    sender: str
    receiver: str
    kind: str  # the name of the operation
    messages: int
    bytes: int


class Counts(msgspec.Struct, frozen=True):
    """What was counted up to some moment, in a fixed order: it can be listed, compared and taken away from later."""

    rows: tuple[Row, ...] = ()

    def __sub__(self, earlier: "Counts") -> "Counts":
        before = {_key(row): row for row in earlier.rows}
        later = (_less(row, before.get(_key(row))) for row in self.rows)
        return Counts(tuple(row for row in later if row.messages))

    def of(self, *kinds: str) -> "Counts":
        """Only operations of these types."""
        return Counts(tuple(row for row in self.rows if row.kind in kinds))

    @property
    def messages(self) -> int:
        return sum(row.messages for row in self.rows)

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    def by_kind(self) -> dict[str, int]:
        return self._summed(lambda row: row.kind)

    def by_link(self) -> dict[tuple[str, str], int]:
        """Messages by sender and receiver."""
        return self._summed(lambda row: (row.sender, row.receiver))

    def bytes_by_kind(self) -> dict[str, int]:
        return self._summed(lambda row: row.kind, "bytes")

    def bytes_by_link(self) -> dict[tuple[str, str], int]:
        return self._summed(lambda row: (row.sender, row.receiver), "bytes")

    def _summed(self, key: Callable[[Row], Any], what: str = "messages") -> dict[Any, int]:
        found: Counter[Any] = Counter()
        for row in self.rows:
            found[key(row)] += getattr(row, what)
        return dict(sorted(found.items()))


class Counters:
    """The tallies of a world, by sender and receiver."""

    def __init__(self, ways: Iterable[tuple[str, str]], measure: Measure | None = None) -> None:
        self.tallies = {way: Tally(measure) for way in ways}

    def counts(self) -> Counts:
        """What was counted so far; the difference of two is what was sent in between."""
        rows = [
            Row(sender, receiver, kind.__name__, messages, tally.bytes.get(kind, 0))
            for (sender, receiver), tally in self.tallies.items()
            for kind, messages in tally.messages.items()
        ]
        return Counts(tuple(sorted(rows)))


def _key(row: Row) -> tuple[str, str, str]:
    return row.sender, row.receiver, row.kind


def _less(row: Row, before: Row | None) -> Row:
    if before is None:
        return row
    return msgspec.structs.replace(row, messages=row.messages - before.messages, bytes=row.bytes - before.bytes)
