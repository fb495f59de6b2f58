"""Receipts of sealed events: the same one sent again gets its first receipt; another one under its id is refused."""

import hashlib
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidings.hub.members import epoch_of
from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.limits import MAX_REMEMBERED_EVENTS
from tidings.model.receipt import Receipt


class First(msgspec.Struct, frozen=True, array_like=True):
    id: str
    digest: bytes
    offset: int
    accepted: int  # microseconds


class _Known(NamedTuple):
    digest: bytes
    offset: int
    accepted: int


class Receipts:
    """Of the last ones; changed only by who holds the hub's lock."""

    def __init__(self) -> None:
        self._first: dict[UUID, _Known] = {}
        self._fresh: dict[UUID, tuple[Event, int]] = {}  # not hashed yet

    def note(self, event: Event, offset: int) -> None:
        if event.signature is None:
            return
        known = self._first.get(event.id)  # it has passed `of`: where it is known, it is the same
        digest = _digest(event) if known is None else known.digest
        self._put(event.id, _Known(digest, offset, event.timestamp))

    def note_soon(self, event: Event, offset: int) -> None:
        """The same for who calls `settle` a little later: to hash a large event takes a while, which nobody need wait
        for who is to be told of it."""
        if event.signature is None:
            return
        if event.id in self._first:
            self.note(event, offset)
        else:
            self._fresh[event.id] = event, offset

    @property
    def is_fresh(self) -> bool:
        """Whether there is something to settle."""
        return bool(self._fresh)

    def settle(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for event, offset in fresh.values():
            self.note(event, offset)

    def forget(self, event: UUID) -> None:
        """It was not published after all."""
        self._first.pop(event, None)
        self._fresh.pop(event, None)

    def of(self, event: Event) -> Receipt | None:
        """The receipt that the event got when it came first; None if it is new, as far as is remembered."""
        if event.id in self._fresh:
            self.settle()
        first = self._first.get(event.id)
        if first is None or event.signature is None:
            return None
        if first.digest != _digest(event):
            raise RefusedError("admit", f"another event was published under the id {event.id}; seal it under a new one")
        return Receipt(msgspec.structs.replace(event, timestamp=first.accepted), first.offset, epoch_of(event))

    def state(self) -> list[First]:
        self.settle()
        return [First(str(id), *known) for id, known in self._first.items()]  # noqa: A001

    def restore(self, known: list[First]) -> None:
        for one in known:
            self._put(UUID(one.id), _Known(one.digest, one.offset, one.accepted))

    def _put(self, event: UUID, known: _Known) -> None:
        self._first[event] = known
        if len(self._first) > MAX_REMEMBERED_EVENTS:
            del self._first[next(iter(self._first))]


def _digest(event: Event) -> bytes:
    """Of all that the publisher has signed: the seal says what that was."""
    digest = hashlib.sha256(event.signature or b"")
    digest.update(event.payload or b"")
    return digest.digest()
