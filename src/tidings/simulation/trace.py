"""The trace of a run: a hash over everything that happens. Two runs with equal digests have done the same."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from tidings.engine.operations import Publish
from tidings.model.notification import Notification

_DIGEST_BYTES = 16


class RunTrace:
    """A running hash over operations, notifications and faults."""

    def __init__(self, *, keep: bool = False) -> None:
        """With `keep`, the lines are stored in `lines`, to be read and compared."""
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self.lines: list[str] | None = [] if keep else None

    def operation(self, now: int, broker: str, sender: str, operation: msgspec.Struct) -> None:
        """Record that a broker handles an operation.

        Args:
            now: The time, in microseconds.
            broker: The broker's name.
            sender: The client or neighbour that sent it; `-` if none.
            operation: The operation.
        """
        if type(operation) is Publish:
            description = f"Publish {operation.event.id.int:x}"
        else:
            description = " ".join([str(operation.__struct_config__.tag), *_words(operation)])
        self.note(now, broker, f"{sender} {description}")

    def notification(self, now: int, broker: str, note: Notification) -> None:
        """Record that a broker notifies a client."""
        self.note(now, broker, f"{note.subscriber} got {note.event.id.int:x} for {note.subscription}")

    def note(self, now: int, where: str, what: str) -> None:
        """Add one line to the hash."""
        line = f"{now} {where} {what}\n"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def digest(self) -> str:
        """Return the hash of everything so far, in hexadecimal."""
        return self._hash.hexdigest()


def _words(value: msgspec.Struct) -> Iterator[str]:
    """Yield the texts, numbers and ids of an operation, in the same order in every process."""
    for name in value.__struct_fields__:
        field: Any = getattr(value, name)
        if isinstance(field, str | int | float):
            yield str(field)
        elif isinstance(field, Mapping):
            yield " ".join(f"{key}={field[key]}" for key in sorted(field, key=str))
        elif isinstance(field, msgspec.Struct) and hasattr(field, "id"):
            yield str(field.id)
