"""Revocations: whose certificate counts no more, and since when. The list only grows; a signed head says its length.

A reader that has the list up to some entry asks for what is after it, and checks the head over all of it.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_REVOKED
from tidings.security.certificates import Anchor, Certificate
from tidings.security.encoding import Signed, decoded, encoded

PURPOSE = "revocation list"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    serial: bytes  # of the certificate, in big-endian bytes
    name: str
    when: int  # from that moment on it is not valid; it may be before the entry was made
    reason: str = ""


class Head(msgspec.Struct, frozen=True, array_like=True):
    version: int  # how many entries there are
    chain: bytes  # a hash over all of them, in order
    issued: int
    next_update: int  # from then on a newer one is needed


class Update(msgspec.Struct, frozen=True, array_like=True):
    """The entries after the first `after`, and the head over all."""

    after: int
    entries: tuple[Entry, ...]
    head: Signed

    @property
    def data(self) -> bytes:
        return encoded(self)

    @classmethod
    def read(cls, data: bytes) -> "Update":
        return decoded(data, cls, "update of revocations")

    @property
    def says(self) -> Head:
        """The head, whose signature is not checked yet."""
        return decoded(self.head.body, Head, "head of revocations")


START = hashlib.sha256(b"tidings/1/revocations").digest()


def chained(chain: bytes, entries: Iterable[Entry]) -> bytes:
    for one in entries:
        chain = hashlib.sha256(chain + encoded(one)).digest()
    return chain


class Revocations:
    """What a broker, a centre or a client knows of the list. Without a head that is young enough nothing is trusted."""

    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self._entries: list[Entry] = []
        self._by_serial: dict[bytes, Entry] = {}
        self._chain = START
        self._signed: Signed | None = None
        self.head: Head | None = None

    @property
    def version(self) -> int:
        return len(self._entries)

    def take(self, update: Update) -> Sequence[Entry]:
        """What is new in it. One that does not fit, or is not newer, changes nothing; one that is not the authority's
        raises a `SecurityError`."""
        self._anchor.certificate.verify(PURPOSE, update.head.body, update.head.signature)
        head = update.says
        if self.head is not None and (head.version, head.issued) < (self.head.version, self.head.issued):
            return ()
        if update.after > self.version:
            raise SecurityError("revocations", f"entries {self.version} to {update.after} of the list are missing")
        new = update.entries[self.version - update.after :]
        chain = chained(self._chain, new)
        if self.version + len(new) != head.version or chain != head.chain or head.version > MAX_REVOKED:
            raise SecurityError("revocations", "the entries are not those that the head of the list is over")
        self._entries += new
        self._by_serial.update((one.serial, one) for one in new)
        self._chain, self.head, self._signed = chain, head, update.head
        return new

    def since(self, version: int) -> Update | None:
        """For someone who has so many entries; None if there is no list here."""
        if self._signed is None:
            return None
        start = max(0, min(version, self.version))
        return Update(start, tuple(self._entries[start:]), self._signed)

    def has_any(self, serials: frozenset[bytes]) -> bool:
        """Whether one of these is on the list, from whatever moment on."""
        return not serials.isdisjoint(self._by_serial)

    def turns(self, serials: frozenset[bytes]) -> list[int]:
        """The moments at which it may change what is said of these: they are revoked, or the list is too old."""
        entries = (self._by_serial.get(one) for one in serials)
        return [entry.when for entry in entries if entry is not None] + ([self.head.next_update] if self.head else [])

    def check(self, certificate: Certificate, at: int) -> None:
        """Raises a `SecurityError` if the certificate was revoked by then."""
        entry = self._by_serial.get(certificate.serial_bytes)
        if entry is not None and at >= entry.when:
            raise SecurityError("revoked", f"the certificate of {certificate.name} has been revoked")

    def check_fresh(self, now: int) -> None:
        """A list that is too old may lack what matters: then nobody is trusted."""
        if self.head is None:
            raise SecurityError("revocations", "no list of revocations is known here; fetch it from the authority")
        if now >= self.head.next_update:
            raise SecurityError("revocations", "the list of revocations is out of date; fetch it from the authority")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._entries)
