"""The authority: issues certificates, and says whose count no more."""

import secrets
from collections.abc import Iterable
from datetime import timedelta
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.security.certificates import Anchor, Certificate, Role, moment, sign
from tidings.security.encoding import Signed, encoded
from tidings.security.identity import Identity
from tidings.security.revocation import PURPOSE, START, Entry, Head, Update, chained

DAY = 86_400_000_000  # microseconds
SKEW = 300_000_000  # by which clocks may differ
NEXT_UPDATE = 7 * DAY


class Issued(NamedTuple):
    serial: bytes
    name: str
    role: Role
    not_after: int


class Authority:
    """All of it in memory; `AuthorityFolder` keeps it."""

    def __init__(
        self,
        certificate: Certificate,
        key: ec.EllipticCurvePrivateKey,
        issued: Iterable[Issued] = (),
        revoked: Iterable[Entry] = (),
    ) -> None:
        self.anchor = Anchor(certificate)
        self._key = key
        self.issued = list(issued)
        self.revoked = list(revoked)

    @classmethod
    def found(cls, name: str, now: int, days: int = 3_650) -> "Authority":
        """A new one, with a certificate that it has signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, Role.AUTHORITY)
        built = _builder(subject, subject, key.public_key(), now, days)
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        built = built.add_extension(_usage(signs_certificates=True), critical=True)
        built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(Certificate(built.sign(key, hashes.SHA256())), key)

    def issue(self, name: str, role: Role, now: int, days: int = 365, hosts: Iterable[str] = ()) -> Identity:
        """A certificate with a new key. A broker's has its hosts in it too."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(key.public_key(), name, role, now, days, hosts)
        return Identity(certificate, key, self.anchor)

    def certify(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        role: Role,
        now: int,
        days: int = 365,
        hosts: Iterable[str] = (),
    ) -> Certificate:
        """A certificate for a key that its holder keeps."""
        checked_client(name)
        if role is Role.AUTHORITY:
            raise InvalidValueError("there is one authority, and it issues no other one")
        if not 0 < days <= 3_650:
            raise InvalidValueError("days: a certificate is valid for 1 to 3,650 days")
        own = self.anchor.certificate
        built = _builder(_subject(name, role), own.x509.subject, key, now, days)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"tidings:{_quoted(name)}")]
        names += [_host(one) for one in hosts]
        built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        built = built.add_extension(_usage(signs_certificates=False), critical=True)
        built = built.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        built = built.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own.key), critical=False)
        certificate = Certificate(built.sign(self._key, hashes.SHA256()))
        self.issued.append(Issued(certificate.serial_bytes, name, role, certificate.not_after))
        return certificate

    def revoke(self, name: str, now: int, *, since: int | None = None, reason: str = "") -> list[Entry]:
        """All certificates of that name that are not revoked yet; `since`: they were not to be trusted even before."""
        gone = {one.serial for one in self.revoked}
        found = [one for one in self.issued if one.name == name and one.serial not in gone]
        if not found:
            raise InvalidValueError(f"no certificate of {name} is valid; `tidings ca list` shows those that are")
        new = [Entry(one.serial, name, now if since is None else min(since, now), reason) for one in found]
        self.revoked += new
        return new

    def revocations(self, now: int, *, after: int = 0, next_update: int = NEXT_UPDATE) -> Update:
        """The list as it is now, after the first so many entries."""
        head = encoded(Head(len(self.revoked), chained(START, self.revoked), now, now + next_update))
        return Update(after, tuple(self.revoked[after:]), Signed(head, sign(self._key, PURPOSE, head)))

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        return self._key


def _subject(name: str, role: Role) -> x509.Name:
    if len(name) > 64:
        raise InvalidValueError(f"name: {name!r}: a certificate has room for 64 characters")
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: int, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(int.from_bytes(b"\x01" + secrets.token_bytes(15), "big"))
        .not_valid_before(moment(now - SKEW))
        .not_valid_after(moment(now) + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
