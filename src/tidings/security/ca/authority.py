"""The certificate authority: issues certificates and revokes them."""

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
from tidings.security.ca.certificates import Certificate, Role, TrustAnchor, moment, sign
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import (
    PURPOSE,
    START,
    RevocationEntry,
    RevocationHead,
    RevocationUpdate,
    extend_chain,
)
from tidings.security.encoding import SignedValue, encode_canonical

DAY = 86_400_000_000  # microseconds
SKEW = 300_000_000  # microseconds by which clocks may differ
NEXT_UPDATE = 7 * DAY


class IssuedCertificate(NamedTuple):
    """The register entry of an issued certificate."""

    serial: bytes
    name: str
    role: Role
    not_after: int


class Authority:
    """A certificate authority in memory: its key, the register of issued certificates and the revocation list.

    `AuthorityStore` stores it on disk.
    """

    def __init__(
        self,
        certificate: Certificate,
        key: ec.EllipticCurvePrivateKey,
        issued: Iterable[IssuedCertificate] = (),
        revoked: Iterable[RevocationEntry] = (),
    ) -> None:
        """Create an authority from its stored state; `found` creates a new one.

        Args:
            certificate: The authority's own certificate.
            key: The private key of the certificate.
            issued: The certificates that were issued before.
            revoked: The entries of the revocation list.
        """
        self.anchor = TrustAnchor(certificate)
        self._key = key
        self.issued = list(issued)
        self.revoked = list(revoked)

    @classmethod
    def found(cls, name: str, now: int, days: int = 3_650) -> "Authority":
        """Create a new authority with a self-signed certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, Role.AUTHORITY)
        builder = _builder(subject, subject, key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(Certificate(builder.sign(key, hashes.SHA256())), key)

    def issue(self, name: str, role: Role, now: int, days: int = 365, hosts: Iterable[str] = ()) -> Identity:
        """Create a key and a certificate for it, and return them as an identity.

        Args:
            name: The holder's name.
            role: The holder's role; any but `Role.AUTHORITY`.
            now: The time, in microseconds.
            days: How long the certificate is valid.
            hosts: Host names and addresses for the certificate, for brokers.
        """
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
        """Issue a certificate for a key whose private half the holder has.

        Raises `InvalidValueError` if the name, the role or the number of days is not permitted.

        Args:
            key: The holder's public key.
            name: The holder's name.
            role: The holder's role; any but `Role.AUTHORITY`.
            now: The time, in microseconds.
            days: How long the certificate is valid, at most 3,650 days.
            hosts: Host names and addresses for the certificate, for brokers.
        """
        checked_client(name)
        if role is Role.AUTHORITY:
            raise InvalidValueError("there is one authority, and it issues no other one")
        if not 0 < days <= 3_650:
            raise InvalidValueError("days: a certificate is valid for 1 to 3,650 days")
        own = self.anchor.certificate
        builder = _builder(_subject(name, role), own.x509.subject, key, now, days)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"tidings:{_quoted(name)}")]
        names += [_host(host) for host in hosts]
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own.key), critical=False)
        certificate = Certificate(builder.sign(self._key, hashes.SHA256()))
        self.issued.append(IssuedCertificate(certificate.serial_bytes, name, role, certificate.not_after))
        return certificate

    def revoke(self, name: str, now: int, *, since: int | None = None, reason: str = "") -> list[RevocationEntry]:
        """Revoke all certificates of a name that are not revoked yet, and return the new entries.

        Raises `InvalidValueError` if there are none.

        Args:
            name: The holder's name.
            now: The time, in microseconds.
            since: The time from which they are not valid, if that is before `now`.
            reason: A reason for people to read.
        """
        revoked = {entry.serial for entry in self.revoked}
        valid = [issued for issued in self.issued if issued.name == name and issued.serial not in revoked]
        if not valid:
            raise InvalidValueError(f"no certificate of {name} is valid; `tidings ca list` shows those that are")
        new = [
            RevocationEntry(issued.serial, name, now if since is None else min(since, now), reason) for issued in valid
        ]
        self.revoked += new
        return new

    def revocations(self, now: int, *, after: int = 0, next_update: int = NEXT_UPDATE) -> RevocationUpdate:
        """Return the signed revocation list with the entries after the first `after`."""
        head = encode_canonical(
            RevocationHead(len(self.revoked), extend_chain(START, self.revoked), now, now + next_update)
        )
        return RevocationUpdate(after, tuple(self.revoked[after:]), SignedValue(head, sign(self._key, PURPOSE, head)))

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """The authority's private key, for storage."""
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
