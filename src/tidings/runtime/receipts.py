"""Receipts of recent sealed events, so that an event sent again gets its first receipt and an id is not used twice."""

import hashlib
from typing import NamedTuple
from uuid import UUID

import msgspec

from tidings.model.errors import RefusedError, SecurityError
from tidings.model.event import Event
from tidings.model.limits import MAX_REMEMBERED_EVENTS
from tidings.model.receipt import Receipt


class FirstReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The receipt of a sealed event in a snapshot, with a digest of the event."""

    id: str
    digest: bytes
    offset: int
    accepted: int  # microseconds


class _StoredReceipt(NamedTuple):
    digest: bytes
    offset: int
    accepted: int


class Receipts:
    """The receipts of the most recent sealed events. Changes need the hub's lock."""

    def __init__(self) -> None:
        self._first: dict[UUID, _StoredReceipt] = {}
        self.unhashed: dict[UUID, tuple[Event, int]] = {}  # events that `hash_pending` has yet to hash

    def record(self, event: Event, offset: int) -> None:
        """Remember the receipt of a sealed event."""
        if event.signature is None:
            return
        stored = self._first.get(event.id)  # if known, `first_receipt` has found it to be the same event
        digest = _digest(event) if stored is None else stored.digest
        self._put(event.id, _StoredReceipt(digest, offset, event.timestamp))

    def record_unhashed(self, event: Event, offset: int) -> None:
        """Remember the receipt of a sealed event; `hash_pending` hashes it later, so that deliveries do not wait."""
        if event.signature is None:
            return
        if event.id in self._first:
            self.record(event, offset)
        else:
            self.unhashed[event.id] = event, offset

    def hash_pending(self) -> None:
        """Hash the events of `record_unhashed`."""
        unhashed, self.unhashed = self.unhashed, {}
        for event, offset in unhashed.values():
            self.record(event, offset)

    def forget(self, event: UUID) -> None:
        """Forget an event that could not be journaled."""
        self._first.pop(event, None)
        self.unhashed.pop(event, None)

    def first_receipt(self, event: Event) -> Receipt | None:
        """Return the receipt that the sealed event got when it came first; None if it is new or no longer remembered.

        Raises:
            RefusedError: Another event was published under its id.
        """
        if event.id in self.unhashed:
            self.hash_pending()
        stored = self._first.get(event.id)
        if stored is None or event.signature is None:
            return None
        if stored.digest != _digest(event):
            raise RefusedError("admit", f"another event was published under the id {event.id}; seal it under a new one")
        return Receipt(msgspec.structs.replace(event, timestamp=stored.accepted), stored.offset, epoch_of(event))

    def state(self) -> list[FirstReceipt]:
        """Return all receipts, for a snapshot."""
        self.hash_pending()
        return [FirstReceipt(str(id), *stored) for id, stored in self._first.items()]  # noqa: A001

    def restore(self, receipts: list[FirstReceipt]) -> None:
        """Restore the receipts of a snapshot."""
        for receipt in receipts:
            self._put(UUID(receipt.id), _StoredReceipt(receipt.digest, receipt.offset, receipt.accepted))

    def _put(self, event: UUID, receipt: _StoredReceipt) -> None:
        self._first[event] = receipt
        if len(self._first) > MAX_REMEMBERED_EVENTS:
            del self._first[next(iter(self._first))]


def _digest(event: Event) -> bytes:
    """Return a digest of the event's signature and payload, which cover all that the publisher signed."""
    digest = hashlib.sha256(event.signature or b"")
    digest.update(event.payload or b"")
    return digest.digest()


def epoch_of(event: Event) -> int | None:
    """Return the epoch of the key that sealed the event; None if it is not sealed, or its seal cannot be read."""
    if event.signature is None:
        return None
    from tidings.security.sealing.envelope import Seal  # loads cryptography, only when needed

    try:
        return Seal.of(event).epoch
    except SecurityError:
        return None
