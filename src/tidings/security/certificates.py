"""Certificates: X.509 with P-256 keys, issued by one authority. Name and role of a holder are in its subject."""

import hashlib
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.encoding import purpose

_ECDSA = ec.ECDSA(hashes.SHA256())
_REMEMBERED = 4_096  # certificates that were read, or whose signature was checked


class Role(Enum):
    AUTHORITY = "authority"
    ENTITY = "entity"
    BROKER = "broker"
    KMC = "kmc"  # a key management centre
    TDN = "tdn"  # a topic discovery node


class Certificate:
    """A certificate that can be read; whether it can be trusted, `Anchor.check` says."""

    def __init__(self, x509_certificate: x509.Certificate) -> None:
        self.x509 = x509_certificate
        key = x509_certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise SecurityError("certificate", "a certificate's key is one of P-256")
        self.key: ec.EllipticCurvePublicKey = key
        self.name = self._only(NameOID.COMMON_NAME, "name")
        try:
            self.role = Role(self._only(NameOID.ORGANIZATIONAL_UNIT_NAME, "role"))
        except ValueError:
            raise SecurityError("certificate", "a certificate says a role that there is not") from None
        self.serial = x509_certificate.serial_number
        if self.serial <= 0:
            raise SecurityError("certificate", "a certificate has a serial number above zero")
        self.serial_bytes = self.serial.to_bytes((self.serial.bit_length() + 7) // 8 or 1, "big")
        self.not_before = microseconds(x509_certificate.not_valid_before_utc)
        self.not_after = microseconds(x509_certificate.not_valid_after_utc)

    @classmethod
    def read(cls, data: bytes) -> "Certificate":
        """Of DER, or of PEM. The same few come again and again: with every question, and in every token."""
        return _read(data)

    def _only(self, oid: x509.ObjectIdentifier, what: str) -> str:
        found = self.x509.subject.get_attributes_for_oid(oid)
        if len(found) != 1:
            raise SecurityError("certificate", f"a certificate says one {what} of its holder")
        return str(found[0].value)

    @cached_property
    def der(self) -> bytes:
        return self.x509.public_bytes(serialization.Encoding.DER)

    @cached_property
    def pem(self) -> bytes:
        return self.x509.public_bytes(serialization.Encoding.PEM)

    @cached_property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(self.der).digest()

    def verify(self, name: str, body: bytes, signature: bytes) -> None:
        """Whether its holder has signed this, for this purpose."""
        try:
            self.key.verify(signature, purpose(name, body), _ECDSA)
        except InvalidSignature:
            raise SecurityError("signature", f"the {name} was not signed by {self.name}, or has been changed") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Certificate of {self.name}, {self.role.value}, {self.serial:x}>"


@lru_cache(_REMEMBERED)
def _read(data: bytes) -> Certificate:
    try:
        if data.startswith(b"-----"):
            return Certificate(x509.load_pem_x509_certificate(data))
        return Certificate(x509.load_der_x509_certificate(data))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise SecurityError("certificate", f"this is no certificate: {error}") from None


class Anchor:
    """The authority's own certificate: whom it has issued one, and for which role, is checked with it."""

    def __init__(self, certificate: Certificate) -> None:
        if certificate.role is not Role.AUTHORITY:
            raise SecurityError("certificate", f"{certificate.name} is no authority")
        self.certificate = certificate
        self._store = Store([certificate.x509])
        self._issued: dict[bytes, None] = {}  # fingerprints of those it has issued for certain; the oldest first

    def check(self, certificate: Certificate, now: int, role: Role | None = None) -> None:
        """Raises a `SecurityError` unless it was issued by the authority, is valid now, and for that role."""
        if role is not None and certificate.role is not role:
            raise SecurityError("role", f"{certificate.name} is no {role.value}, but a {certificate.role.value}")
        if not certificate.not_before <= now < certificate.not_after:
            raise SecurityError("expired", f"the certificate of {certificate.name} is not valid at this time")
        if not self.certificate.not_before <= now < self.certificate.not_after:
            raise SecurityError("expired", f"the certificate of {self.certificate.name} is not valid at this time")
        if certificate.fingerprint not in self._issued:
            self._check_issued(certificate, now)
            self._issued[certificate.fingerprint] = None
            if len(self._issued) > _REMEMBERED:
                self._issued.pop(next(iter(self._issued)), None)

    def _check_issued(self, certificate: Certificate, now: int) -> None:
        verifier = PolicyBuilder().store(self._store).time(moment(now)).max_chain_depth(0).build_client_verifier()
        try:
            verifier.verify(certificate.x509, [])
        except (VerificationError, ValueError, UnsupportedAlgorithm):
            raise SecurityError(
                "certificate", f"the certificate of {certificate.name} was not issued by {self.certificate.name}"
            ) from None


def sign(key: ec.EllipticCurvePrivateKey, name: str, body: bytes) -> bytes:
    """With a certificate's key, for one purpose."""
    return key.sign(purpose(name, body), _ECDSA)


def microseconds(when: datetime) -> int:
    return int(when.timestamp() * 1_000_000)


def moment(now: int) -> datetime:
    try:
        return datetime.fromtimestamp(now // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidValueError(f"{now} is no time, in microseconds since 1970") from None


def read_key(data: bytes, password: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """The private key of a certificate, in PEM."""
    try:
        key: Any = serialization.load_pem_private_key(data, password)
    except (ValueError, TypeError) as error:
        raise InvalidValueError(f"this is no private key in PEM, or not with this passphrase: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidValueError("the key of a certificate is one of P-256")
    return key


def written_key(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
