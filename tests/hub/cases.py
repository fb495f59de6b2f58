"""Short ways to look at notifications."""

from collections.abc import Iterable

from tidings.model import Notification, Value

NOW = 1_700_000_000_000_000


def numbers(notes: Iterable[Notification], name: str = "n") -> list[Value | None]:
    return [note.attributes.get(name) for note in notes]
