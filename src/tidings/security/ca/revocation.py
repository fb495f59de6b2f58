"""The revocation list: which certificates are revoked, and since when.

The list only grows. The authority signs a head with its length and a hash chain over all entries. A reader that
has the first n entries fetches only the later ones and verifies the head over all of them. A list whose
`next_update` has passed is out of date: nothing is trusted until a newer head is received.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_REVOKED
from tidings.security.ca.certificates import Certificate, TrustAnchor
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical

PURPOSE = "revocation list"


class RevocationEntry(msgspec.Struct, frozen=True, array_like=True):
    """The revocation of one certificate."""

    serial: bytes  # the certificate's serial number, big-endian
    name: str
    when: int  # the certificate is not valid from then on; may be before the entry was made
    reason: str = ""


class RevocationHead(msgspec.Struct, frozen=True, array_like=True):
    """The length and hash of the revocation list at one time; the authority signs it."""

    version: int  # the number of entries
    chain: bytes  # a hash over all entries, in order
    issued: int
    next_update: int  # from then on the head is out of date


class RevocationUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The entries after the first `after`, and the signed head over the whole list."""

    after: int
    entries: tuple[RevocationEntry, ...]
    head: SignedValue

    @property
    def data(self) -> bytes:
        return encode_canonical(self)

    @classmethod
    def read(cls, data: bytes) -> "RevocationUpdate":
        """Decode an update, without verifying it. Raises `SecurityError` if it is malformed."""
        return decode_canonical(data, cls, "update of revocations")

    @property
    def unverified_head(self) -> RevocationHead:
        """The decoded head, whose signature is not verified here."""
        return decode_canonical(self.head.body, RevocationHead, "head of revocations")


START = hashlib.sha256(b"tidings/1/revocations").digest()


def extend_chain(chain: bytes, entries: Iterable[RevocationEntry]) -> bytes:
    """Extend the hash chain `chain` by the entries."""
    for entry in entries:
        chain = hashlib.sha256(chain + encode_canonical(entry)).digest()
    return chain


class Revocations:
    """The revocation list as a broker, centre or client knows it. Starts empty and out of date."""

    def __init__(self, anchor: TrustAnchor) -> None:
        self._anchor = anchor
        self._entries: list[RevocationEntry] = []
        self._by_serial: dict[bytes, RevocationEntry] = {}
        self._chain = START
        self._signed_head: SignedValue | None = None
        self.head: RevocationHead | None = None

    @property
    def version(self) -> int:
        """The number of known entries."""
        return len(self._entries)

    def apply(self, update: RevocationUpdate) -> Sequence[RevocationEntry]:
        """Apply an update and return the new entries.

        An update that is older than the known head changes nothing. Raises `SecurityError` if the authority did
        not sign the head, if entries are missing, or if entries and head do not match.
        """
        self._anchor.certificate.verify(PURPOSE, update.head.body, update.head.signature)
        head = update.unverified_head
        if self.head is not None and (head.version, head.issued) < (self.head.version, self.head.issued):
            return ()
        if update.after > self.version:
            raise SecurityError("revocations", f"entries {self.version} to {update.after} of the list are missing")
        new = update.entries[self.version - update.after :]
        chain = extend_chain(self._chain, new)
        if self.version + len(new) != head.version or chain != head.chain or head.version > MAX_REVOKED:
            raise SecurityError("revocations", "the entries are not those that the head of the list is over")
        self._entries += new
        self._by_serial.update((entry.serial, entry) for entry in new)
        self._chain, self.head, self._signed_head = chain, head, update.head
        return new

    def since(self, version: int) -> RevocationUpdate | None:
        """Return an update for a reader that has the first `version` entries, or None if no head is known here."""
        if self._signed_head is None:
            return None
        start = max(0, min(version, self.version))
        return RevocationUpdate(start, tuple(self._entries[start:]), self._signed_head)

    def has_any(self, serials: frozenset[bytes]) -> bool:
        """Return whether any of these certificates is on the list, whatever the time of its revocation."""
        return not serials.isdisjoint(self._by_serial)

    def turns(self, serials: frozenset[bytes]) -> list[int]:
        """Return the moments at which `check` or `check_fresh` may change their result for these certificates."""
        entries = (self._by_serial.get(serial) for serial in serials)
        return [entry.when for entry in entries if entry is not None] + ([self.head.next_update] if self.head else [])

    def check(self, certificate: Certificate, at: int) -> None:
        """Raise `SecurityError` if the certificate was revoked at the time `at`."""
        entry = self._by_serial.get(certificate.serial_bytes)
        if entry is not None and at >= entry.when:
            raise SecurityError("revoked", f"the certificate of {certificate.name} has been revoked")

    def check_fresh(self, now: int) -> None:
        """Raise `SecurityError` if the list is unknown or out of date: it may then lack revocations, so nothing is
        trusted."""
        if self.head is None:
            raise SecurityError("revocations", "no list of revocations is known here; fetch it from the authority")
        if now >= self.head.next_update:
            raise SecurityError("revocations", "the list of revocations is out of date; fetch it from the authority")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._entries)


class CertificateTrust(Protocol):
    """What certificates are checked with: the overlay's authority and revocation list. `Credentials` are one."""

    anchor: TrustAnchor
    overlay: str
    revocations: Revocations


class UpdatableTrust(CertificateTrust, Protocol):
    """What certificates are checked with, where updates of the revocation list are applied to it."""

    def revoke(self, update: RevocationUpdate) -> tuple[RevocationEntry, ...]: ...
