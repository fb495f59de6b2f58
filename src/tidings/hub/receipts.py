"""Receipts of sealed events: the same one sent again gets its first receipt; another one under its id is refused."""

import hashlib
from uuid import UUID

import msgspec

from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.limits import MAX_REMEMBERED_EVENTS
from tidings.model.receipt import Receipt


class First(msgspec.Struct, frozen=True, array_like=True):
    id: str
    digest: bytes
    offset: int
    accepted: int  # microseconds


class Receipts:
    """Of the last ones; changed only by who holds the hub's lock."""

    def __init__(self) -> None:
        self._first: dict[UUID, First] = {}

    def note(self, event: Event, offset: int) -> None:
        if event.signature is None:
            return
        known = self._first.get(event.id)  # it has passed `of`: where it is known, it is the same
        digest = _digest(event) if known is None else known.digest
        self._put(event.id, First(str(event.id), digest, offset, event.timestamp))

    def forget(self, event: UUID) -> None:
        """It was not published after all."""
        self._first.pop(event, None)

    def of(self, event: Event) -> Receipt | None:
        """The receipt that the event got when it came first; None if it is new, as far as is remembered."""
        first = self._first.get(event.id)
        if first is None or event.signature is None:
            return None
        if first.digest != _digest(event):
            raise RefusedError("admit", f"another event was published under the id {event.id}; seal it under a new one")
        return Receipt(msgspec.structs.replace(event, timestamp=first.accepted), first.offset)

    def state(self) -> list[First]:
        return list(self._first.values())

    def restore(self, known: list[First]) -> None:
        for one in known:
            self._put(UUID(one.id), one)

    def _put(self, event: UUID, first: First) -> None:
        self._first[event] = first
        if len(self._first) > MAX_REMEMBERED_EVENTS:
            del self._first[next(iter(self._first))]


def _digest(event: Event) -> bytes:
    """Of all that the publisher has signed: the seal says what that was."""
    return hashlib.sha256((event.signature or b"") + (event.payload or b"")).digest()
