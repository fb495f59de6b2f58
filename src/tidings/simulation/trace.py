"""The trace: a running hash over everything that happens. Two runs that agree on it have done the same."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from tidings.engine.operations import Publish
from tidings.model.notification import Notification

_DIGEST_BYTES = 16


class Trace:
    def __init__(self, *, keep: bool = False) -> None:
        """With `keep`, the lines are there to be read and compared."""
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self.lines: list[str] | None = [] if keep else None

    def operation(self, now: int, broker: str, sender: str, operation: msgspec.Struct) -> None:
        """A broker was given an operation."""
        if type(operation) is Publish:
            said = f"Publish {operation.event.id.int:x}"
        else:
            said = " ".join([type(operation).__name__, *_words(operation)])
        self.note(now, broker, f"{sender} {said}")

    def notification(self, now: int, broker: str, note: Notification) -> None:
        """A client was told of an event."""
        self.note(now, broker, f"{note.subscriber} got {note.event.id.int:x} for {note.subscription}")

    def note(self, now: int, where: str, what: str) -> None:
        line = f"{now} {where} {what}\n"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()


def _words(value: msgspec.Struct) -> Iterator[str]:
    """The texts, numbers and ids that an operation has: in an order that no process changes."""
    for name in value.__struct_fields__:
        one: Any = getattr(value, name)
        if isinstance(one, str | int | float):
            yield str(one)
        elif isinstance(one, Mapping):
            yield " ".join(f"{key}={one[key]}" for key in sorted(one, key=str))
        elif isinstance(one, msgspec.Struct) and hasattr(one, "id"):
            yield str(one.id)
