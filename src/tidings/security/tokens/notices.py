"""Notices: public statements of a key management centre about a topic, signed by the centre.

A notice says which epoch is current, until when older epochs are accepted, and which grants are revoked. It
contains no secret. Brokers and members receive notices, revocation updates and topic records as events; the
constants at the end are the attributes of those events.
"""

import msgspec

from tidings.security.ca.certificates import Certificate
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical

PURPOSE = "notice"


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """The state of a topic as its centre announces it. Each notice is complete and replaces those with a lower
    `version`."""

    topic: bytes
    version: int
    epoch: int  # the current epoch, which publishers seal under
    accepted: int  # the oldest epoch that brokers accept from publishers
    accepted_until: int  # until when epochs before `epoch` are accepted
    issued: int
    grants: dict[str, int] = {}  # lowest valid grant version by the fingerprint (hex) of the holder's certificate


class SignedNotice:
    """A decoded notice with a valid signature by the certificate that comes with it.

    The constructor raises `SecurityError` for malformed data or a wrong signature. Whether that certificate
    counts for the topic, `Credentials` checks.
    """

    def __init__(self, data: bytes) -> None:
        outer = decode_canonical(data, _Outer, "notice")
        self.data, self.kmc = data, Certificate.read(outer.kmc)
        self.kmc.verify(PURPOSE, outer.signed.body, outer.signed.signature)
        self.notice = decode_canonical(outer.signed.body, Notice, "notice")

    @classmethod
    def make(cls, kmc: Identity, notice: Notice) -> "SignedNotice":
        """Sign a notice as the key management centre."""
        body = encode_canonical(notice)
        return cls(encode_canonical(_Outer(SignedValue(body, kmc.sign(PURPOSE, body)), kmc.certificate.der)))


class _Outer(msgspec.Struct, frozen=True, array_like=True):
    signed: SignedValue
    kmc: bytes


KIND = "security"  # the attribute that says what the event carries
REVOCATIONS, NOTICE, RECORD = "revocations", "notice", "record"  # values of `KIND`
TOPIC = "topic"  # the attribute with the topic's id in hexadecimal, on notices and records
EVERYTHING = f"{KIND} IN ('{REVOCATIONS}', '{NOTICE}', '{RECORD}')"  # a filter that matches all of them
