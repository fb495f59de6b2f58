"""Challenges: whoever is connected shows that it still holds the key of the certificate that it came with."""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.certificates import read_key, sign
from tidings.security.encoding import encoded, purpose

PURPOSE = "challenge"
NONCE_BYTES = 32


def said(broker: str, name: str, nonce: bytes) -> bytes:
    """What is signed: by whom, for one broker and one nonce."""
    return encoded((broker, name, nonce))


def signed(key: str | Path, body: bytes) -> bytes:
    """By who holds the private key in that file (PEM)."""
    try:
        pem = Path(key).read_bytes()
    except OSError as error:
        raise InvalidValueError(f"identity: {key}: {error.strerror or error}") from None
    return sign(read_key(pem), PURPOSE, body)


def check(certificate: bytes, broker: str, name: str, nonce: bytes, signature: bytes) -> None:
    """Whether the holder of the certificate (DER), which TLS has checked, has signed this."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except ValueError:
        raise SecurityError("certificate", "this is no certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SecurityError("certificate", f"the certificate of {name} has no key of P-256; issue another one")
    try:
        key.verify(signature, purpose(PURPOSE, said(broker, name, nonce)), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise SecurityError("signature", f"{name} does not hold the key of the certificate that it came with") from None
