"""Trust: what workers have to know to check sealed events; a DataFrame of few rows (`kind`, `data`).

| kind | data |
|---|---|
| `authority` | its certificate, DER or PEM |
| `overlay` | the name that tokens are for, as text; `tidings` where there is none |
| `record` | the record of a secure topic |
| `revocations` | an update of the authority's list; several, if they follow each other |
| `notice` | what a topic's centre has told; all of them, so that each moment has its own |
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.certificates import Anchor, Certificate
from tidings.security.credentials import Credentials
from tidings.security.gate import Gate
from tidings.security.notices import SignedNotice
from tidings.security.past import PastCredentials
from tidings.security.records import TopicRecord
from tidings.security.revocation import Update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DDL = "kind string, data binary"
_KINDS = ("authority", "overlay", "record", "revocations", "notice")


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    authority: bytes
    overlay: str = "tidings"
    records: tuple[bytes, ...] = ()
    revocations: tuple[bytes, ...] = ()
    notices: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, tokens: "DataFrame") -> "Trust":
        """What the rows say, checked: as much as there are topics, never as much as there are events."""
        missing = {"kind", "data"} - set(tokens.columns)
        if missing:
            raise InvalidValueError(f"tokens: there is no column {sorted(missing)[0]}; there are kind and data")
        told: dict[str, list[bytes]] = {kind: [] for kind in _KINDS}
        for row in tokens.select("kind", "data").collect():
            if row["kind"] not in told or row["data"] is None:
                raise InvalidValueError(f"tokens: a row of the kind {row['kind']!r}; there are {', '.join(_KINDS)}")
            told[row["kind"]].append(bytes(row["data"]))
        if len(told["authority"]) != 1 or len(told["overlay"]) > 1:
            raise InvalidValueError(
                "tokens: there is one row of the kind authority, and at most one of the kind overlay"
            )
        trust = cls(
            authority=told["authority"][0],
            **({"overlay": told["overlay"][0].decode()} if told["overlay"] else {}),
            records=tuple(told["record"]),
            revocations=tuple(told["revocations"]),
            notices=tuple(told["notice"]),
        )
        trust.gate()
        return trust

    def gate(self, *, knows_all: bool = False) -> Gate:
        """One that judges by the time at which an event was accepted, and leaves replays to who accepted it.

        With `knows_all` no other topics are learnt from tokens: so all workers say the same, whatever they have seen.
        """
        credentials = PastCredentials(Anchor(Certificate.read(self.authority)), self.overlay)
        try:
            for update in sorted(map(Update.read, self.revocations), key=lambda one: one.after):
                credentials.revoke(update)
            for record in sorted(map(TopicRecord, self.records), key=lambda one: one.version):
                credentials.learn(record, record.owner.not_before)
            for notice in sorted(map(SignedNotice, self.notices), key=lambda one: one.notice.version):
                credentials.heed(notice, notice.notice.issued)
        except SecurityError as error:
            raise InvalidValueError(f"tokens: {error.reason}") from None
        credentials.is_complete = knows_all
        return Gate(credentials, freshness=None)


@lru_cache(maxsize=2)
def shared_gate(trust: Trust) -> Gate:
    """One for all tasks of a worker process: tokens that were checked stay so."""
    return trust.gate(knows_all=True)


def rows(credentials: Credentials) -> list[tuple[str, bytes]]:
    """What a broker or a hub knows now, as rows of such a DataFrame."""
    update = credentials.revocations.since(0)
    return [
        ("authority", credentials.anchor.certificate.der),
        ("overlay", credentials.overlay.encode()),
        *(("record", one.data) for one in credentials.topics.values()),
        *(("notice", one.data) for one in credentials.notices.values()),
        *(() if update is None else (("revocations", update.data),)),
    ]
