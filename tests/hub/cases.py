"""What the hub's tests work with: a clock that they move, and short ways to look at notifications."""

from collections.abc import Iterable

from tidings.model import Notification, Value

NOW = 1_700_000_000_000_000


class TestClock:
    """Stands still unless it is moved; what it draws 'at random' is counted up."""

    __test__ = False

    def __init__(self, now: int = NOW) -> None:
        self.time, self.drawn = now, 0

    def now(self) -> int:
        return self.time

    def entropy(self) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(10, "big")


def numbers(notes: Iterable[Notification], name: str = "n") -> list[Value | None]:
    return [note.attributes.get(name) for note in notes]
