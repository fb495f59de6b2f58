"""Notices: what a key management centre tells everybody of a topic: its epoch now, which older ones still count until
when, and whose grants count no more. They hold no secret."""

import msgspec

from tidings.security.certificates import Certificate
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.identity import Identity

PURPOSE = "notice"


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """`version` rises; each says all there is to say."""

    topic: bytes
    version: int
    epoch: int  # the one that is sealed under now
    accepted: int  # the oldest epoch that is accepted from publishers
    accepted_until: int  # those before `epoch` are accepted until then
    issued: int
    grants: dict[str, int] = {}  # by the fingerprint of a holder's certificate, in hex: the oldest grant that counts


class SignedNotice:
    """One that can be read and whose signature is that of the certificate with it."""

    def __init__(self, data: bytes) -> None:
        outer = decoded(data, _Outer, "notice")
        self.data, self.kmc = data, Certificate.read(outer.kmc)
        self.kmc.verify(PURPOSE, outer.signed.body, outer.signed.signature)
        self.notice = decoded(outer.signed.body, Notice, "notice")

    @classmethod
    def make(cls, kmc: Identity, notice: Notice) -> "SignedNotice":
        body = encoded(notice)
        return cls(encoded(_Outer(Signed(body, kmc.sign(PURPOSE, body)), kmc.certificate.der)))


class _Outer(msgspec.Struct, frozen=True, array_like=True):
    signed: Signed
    kmc: bytes
