"""X.509 certificates with P-256 keys, the trust anchor that checks them, and signatures with their keys.

All certificates of an overlay are issued by one authority. The subject has the holder's name (common name) and
role (organizational unit). The last functions are the challenge by which a client proves to a broker that it has
the key of its certificate.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.encoding import encode_canonical, set_fields, signing_input

_ECDSA = ec.ECDSA(hashes.SHA256())
_MAX_CACHED = 4_096  # size of the caches of decoded and of verified certificates


class Role(Enum):
    """What the holder of a certificate is in the overlay."""

    AUTHORITY = "authority"
    ENTITY = "entity"
    BROKER = "broker"
    KMC = "kmc"  # a key management centre
    TDN = "tdn"  # a topic discovery node


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A decoded certificate, a value. Whether it can be trusted is for `TrustAnchor.check`.

    The constructor raises `SecurityError` unless it has a P-256 key, one name and one known role.
    """

    x509: x509.Certificate
    key: ec.EllipticCurvePublicKey = field(init=False)
    name: str = field(init=False)
    role: Role = field(init=False)
    serial: int = field(init=False)
    serial_bytes: bytes = field(init=False)
    not_before: int = field(init=False)  # microseconds since 1970
    not_after: int = field(init=False)

    def __post_init__(self) -> None:
        key = self.x509.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise SecurityError("certificate", "a certificate's key is one of P-256")
        name = self._single_attribute(NameOID.COMMON_NAME, "name")
        try:
            role = Role(self._single_attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "role"))
        except ValueError:
            raise SecurityError("certificate", "a certificate says a role that there is not") from None
        serial = self.x509.serial_number
        if serial <= 0:
            raise SecurityError("certificate", "a certificate has a serial number above zero")
        set_fields(
            self,
            key=key,
            name=name,
            role=role,
            serial=serial,
            serial_bytes=serial.to_bytes((serial.bit_length() + 7) // 8 or 1, "big"),
            not_before=microseconds(self.x509.not_valid_before_utc),
            not_after=microseconds(self.x509.not_valid_after_utc),
        )

    @classmethod
    def read(cls, data: bytes) -> "Certificate":
        """Decode a certificate in DER or PEM, cached: the same few occur in every request and token. Raises
        `SecurityError`."""
        return _read(data)

    def _single_attribute(self, oid: ObjectIdentifier, description: str) -> str:
        """Return the subject's only attribute with this object id."""
        attributes = self.x509.subject.get_attributes_for_oid(oid)
        if len(attributes) != 1:
            raise SecurityError("certificate", f"a certificate says one {description} of its holder")
        return str(attributes[0].value)

    @cached_property
    def der(self) -> bytes:
        return self.x509.public_bytes(serialization.Encoding.DER)

    @cached_property
    def pem(self) -> bytes:
        return self.x509.public_bytes(serialization.Encoding.PEM)

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the certificate in DER."""
        return hashlib.sha256(self.der).digest()

    def verify(self, name: str, body: bytes, signature: bytes) -> None:
        """Raise `SecurityError` unless the certificate's holder has signed `body` for the purpose `name`."""
        try:
            self.key.verify(signature, signing_input(name, body), _ECDSA)
        except InvalidSignature:
            raise SecurityError("signature", f"the {name} was not signed by {self.name}, or has been changed") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Certificate of {self.name}, {self.role.value}, {self.serial:x}>"


@lru_cache(_MAX_CACHED)
def _read(data: bytes) -> Certificate:
    try:
        if data.startswith(b"-----"):
            return Certificate(x509.load_pem_x509_certificate(data))
        return Certificate(x509.load_der_x509_certificate(data))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise SecurityError("certificate", f"this is no certificate: {error}") from None


class TrustAnchor:
    """The authority's certificate, which checks that it issued other certificates."""

    def __init__(self, certificate: Certificate) -> None:
        if certificate.role is not Role.AUTHORITY:
            raise SecurityError("certificate", f"{certificate.name} is no authority")
        self.certificate = certificate
        self._store = Store([certificate.x509])
        self._issued: dict[bytes, None] = {}  # fingerprints of verified certificates, the oldest first

    def check(self, certificate: Certificate, now: int, role: Role | None = None) -> None:
        """Raise `SecurityError` unless the authority issued the certificate, it is valid at `now`, and it has
        `role`, if given."""
        if role is not None and certificate.role is not role:
            raise SecurityError("role", f"{certificate.name} is no {role.value}, but a {certificate.role.value}")
        if not certificate.not_before <= now < certificate.not_after:
            raise SecurityError("expired", f"the certificate of {certificate.name} is not valid at this time")
        if not self.certificate.not_before <= now < self.certificate.not_after:
            raise SecurityError("expired", f"the certificate of {self.certificate.name} is not valid at this time")
        if certificate.fingerprint not in self._issued:
            self._check_issued(certificate, now)
            self._issued[certificate.fingerprint] = None
            if len(self._issued) > _MAX_CACHED:
                self._issued.pop(next(iter(self._issued)), None)

    def _check_issued(self, certificate: Certificate, now: int) -> None:
        verifier = PolicyBuilder().store(self._store).time(moment(now)).max_chain_depth(0).build_client_verifier()
        try:
            verifier.verify(certificate.x509, [])
        except (VerificationError, ValueError, UnsupportedAlgorithm):
            raise SecurityError(
                "certificate", f"the certificate of {certificate.name} was not issued by {self.certificate.name}"
            ) from None


def sign(key: ec.EllipticCurvePrivateKey, purpose: str, body: bytes) -> bytes:
    """Sign `body` with a certificate's key, for the purpose `purpose`."""
    return key.sign(signing_input(purpose, body), _ECDSA)


def microseconds(time: datetime) -> int:
    """Convert a datetime to microseconds since 1970."""
    return int(time.timestamp() * 1_000_000)


def moment(now: int) -> datetime:
    """Convert microseconds since 1970 to a datetime in UTC, in whole seconds. Raises `InvalidValueError` if out of
    range."""
    try:
        return datetime.fromtimestamp(now // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidValueError(f"{now} is no time, in microseconds since 1970") from None


def read_key(data: bytes, password: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """Decode a certificate's private key from PEM. Raises `InvalidValueError` if it is not a P-256 key or the
    password is wrong."""
    try:
        key: Any = serialization.load_pem_private_key(data, password)
    except (ValueError, TypeError) as error:
        raise InvalidValueError(f"this is no private key in PEM, or not with this passphrase: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidValueError("the key of a certificate is one of P-256")
    return key


def written_key(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """Encode a certificate's private key as PEM, encrypted if there is a password."""
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


PURPOSE = "challenge"
NONCE_BYTES = 32


def challenge_body(broker: str, name: str, nonce: bytes) -> bytes:
    """Return what a client signs in the challenge: the broker, the client's name and the broker's nonce."""
    return encode_canonical((broker, name, nonce))


def sign_challenge(key: str | Path, body: bytes) -> bytes:
    """Sign `body` as the answer to a broker's challenge, with the private key in a PEM file."""
    try:
        pem = Path(key).read_bytes()
    except OSError as error:
        raise InvalidValueError(f"identity: {key}: {error.strerror or error}") from None
    return sign(read_key(pem), PURPOSE, body)


def check_challenge(certificate: bytes, broker: str, name: str, nonce: bytes, signature: bytes) -> None:
    """Raise `SecurityError` unless the answer to a broker's challenge is signed with the key of the client's
    certificate.

    Args:
        certificate: The client's certificate in DER, which TLS has verified.
        broker: The name of the broker that sent the challenge.
        name: The client's name.
        nonce: The nonce of the challenge.
        signature: The client's signature over `challenge_body(broker, name, nonce)`.
    """
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except ValueError:
        raise SecurityError("certificate", "this is no certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SecurityError("certificate", f"the certificate of {name} has no key of P-256; issue another one")
    try:
        key.verify(signature, signing_input(PURPOSE, challenge_body(broker, name, nonce)), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise SecurityError("signature", f"{name} does not hold the key of the certificate that it came with") from None
