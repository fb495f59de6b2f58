"""The keys with which workers check sealed events, as a DataFrame of few rows with the columns `kind` and `data`.

| kind | data |
|---|---|
| `authority` | the certificate of the authority, DER or PEM; exactly one row |
| `overlay` | the name that tokens are issued for, as text; `tidings` if there is no row |
| `record` | the record of a secure topic |
| `revocations` | an update of the authority's revocation list; several rows if the updates follow each other |
| `notice` | a notice of a topic's centre; all of them, so that an event is checked with those of its time |
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.certificates import Certificate, TrustAnchor
from tidings.security.ca.revocation import CertificateTrust, RevocationUpdate
from tidings.security.gate import Gate
from tidings.security.tokens.credentials import HistoricalCredentials
from tidings.security.tokens.notices import SignedNotice
from tidings.security.topic_record import TopicRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DDL = "kind string, data binary"
_KINDS = ("authority", "overlay", "record", "revocations", "notice")


class TrustedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys with which workers check sealed events; it can be pickled."""

    authority: bytes
    overlay: str = "tidings"
    records: tuple[bytes, ...] = ()
    revocations: tuple[bytes, ...] = ()
    notices: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, tokens: "DataFrame") -> "TrustedKeys":
        """Collect and check the rows of a DataFrame; their number grows with the topics, not with the events.

        Raises an `InvalidValueError` if a column or the authority is missing, or if a row is invalid.
        """
        missing = {"kind", "data"} - set(tokens.columns)
        if missing:
            raise InvalidValueError(f"tokens: there is no column {sorted(missing)[0]}; there are kind and data")
        data_by_kind: dict[str, list[bytes]] = {kind: [] for kind in _KINDS}
        for row in tokens.select("kind", "data").collect():
            if row["kind"] not in data_by_kind or row["data"] is None:
                raise InvalidValueError(f"tokens: a row of the kind {row['kind']!r}; there are {', '.join(_KINDS)}")
            data_by_kind[row["kind"]].append(bytes(row["data"]))
        if len(data_by_kind["authority"]) != 1 or len(data_by_kind["overlay"]) > 1:
            raise InvalidValueError(
                "tokens: there is one row of the kind authority, and at most one of the kind overlay"
            )
        trust = cls(
            authority=data_by_kind["authority"][0],
            **({"overlay": data_by_kind["overlay"][0].decode()} if data_by_kind["overlay"] else {}),
            records=tuple(data_by_kind["record"]),
            revocations=tuple(data_by_kind["revocations"]),
            notices=tuple(data_by_kind["notice"]),
        )
        trust.gate()
        return trust

    def gate(self, *, knows_all: bool = False) -> Gate:
        """Return a gate that checks with the keys valid when an event was accepted. It does not check for replays.

        The accepting broker has checked for replays. With `knows_all` the gate learns no topics from tokens, so that
        all workers decide alike, whatever events they have seen.
        """
        credentials = HistoricalCredentials(TrustAnchor(Certificate.read(self.authority)), self.overlay)
        try:
            for update in sorted(map(RevocationUpdate.read, self.revocations), key=lambda element: element.after):
                credentials.revoke(update)
            for record in sorted(map(TopicRecord, self.records), key=lambda element: element.version):
                credentials.learn(record, record.owner.not_before)
            for notice in sorted(map(SignedNotice, self.notices), key=lambda element: element.notice.version):
                credentials.heed(notice, notice.notice.issued)
        except SecurityError as error:
            raise InvalidValueError(f"tokens: {error.reason}") from None
        credentials.is_complete = knows_all
        return Gate(credentials, freshness=None)


class StoredKeys(CertificateTrust, Protocol):
    """The verified topics and notices that a broker or a hub holds. `Credentials` are such."""

    topics: dict[bytes, TopicRecord]
    notices: dict[bytes, SignedNotice]


@lru_cache(maxsize=2)
def shared_gate(trust: TrustedKeys) -> Gate:
    """Return the gate that all tasks of a worker process share, so that tokens are checked once."""
    return trust.gate(knows_all=True)


def rows(credentials: StoredKeys) -> list[tuple[str, bytes]]:
    """Return the keys that a broker or a hub holds now, as rows of such a DataFrame."""
    update = credentials.revocations.since(0)
    return [
        ("authority", credentials.anchor.certificate.der),
        ("overlay", credentials.overlay.encode()),
        *(("record", record.data) for record in credentials.topics.values()),
        *(("notice", notice.data) for notice in credentials.notices.values()),
        *(() if update is None else (("revocations", update.data),)),
    ]
