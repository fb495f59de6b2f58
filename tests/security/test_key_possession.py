"""Challenges: the signature of who holds a certificate's key, for one broker and one nonce."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca import certificates
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role, moment
from tidings.security.ca.identity import KEY

NOW = 1_800_000_000_000_000
AUTHORITY = Authority.found("authority", NOW)
CAR, THIEF = (AUTHORITY.issue(name, Role.ENTITY, NOW) for name in ("car", "thief"))
NONCE = bytes(certificates.NONCE_BYTES)
SIGNED = CAR.sign(certificates.PURPOSE, certificates.challenge_body("b1", "car", NONCE))


def test_who_holds_the_key_proves_it_from_a_file_too(tmp_path: Path) -> None:
    certificates.check_challenge(CAR.certificate.der, "b1", "car", NONCE, SIGNED)
    CAR.save(tmp_path)
    certificates.check_challenge(
        CAR.certificate.der,
        "b1",
        "car",
        NONCE,
        certificates.sign_challenge(tmp_path / KEY, certificates.challenge_body("b1", "car", NONCE)),
    )
    with pytest.raises(InvalidValueError, match="No such file"):
        certificates.sign_challenge(tmp_path / "nothing", b"")


@pytest.mark.parametrize(
    ("certificate", "broker", "name", "nonce", "signature"),
    [
        pytest.param(THIEF.certificate.der, "b1", "car", NONCE, SIGNED, id="another certificate"),
        pytest.param(CAR.certificate.der, "b2", "car", NONCE, SIGNED, id="for another broker"),
        pytest.param(CAR.certificate.der, "b1", "bus", NONCE, SIGNED, id="under another name"),
        pytest.param(CAR.certificate.der, "b1", "car", b"\x01" + NONCE[1:], SIGNED, id="an older challenge"),
        pytest.param(CAR.certificate.der, "b1", "car", NONCE, b"", id="no signature"),
        pytest.param(CAR.certificate.der, "b1", "car", NONCE, SIGNED[:-1], id="cut"),
        pytest.param(
            *(CAR.certificate.der, "b1", "car", NONCE),
            CAR.sign("another purpose", certificates.challenge_body("b1", "car", NONCE)),
            id="another purpose",
        ),
    ],
)
def test_what_is_no_answer_is_refused(
    certificate: bytes, broker: str, name: str, nonce: bytes, signature: bytes
) -> None:
    with pytest.raises(SecurityError, match="does not hold the key"):
        certificates.check_challenge(certificate, broker, name, nonce, signature)


def test_certificates_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(SecurityError, match="no certificate"):
        certificates.check_challenge(b"nothing", "b1", "car", NONCE, SIGNED)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "car")])
    for key in (ec.generate_private_key(ec.SECP384R1()), Ed25519PrivateKey.generate()):
        built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        built = built.serial_number(7).not_valid_before(moment(NOW)).not_valid_after(moment(NOW + 10**12))
        made = built.sign(key, None if isinstance(key, Ed25519PrivateKey) else hashes.SHA256())
        with pytest.raises(SecurityError, match=r"no key of P-256"):
            certificates.check_challenge(made.public_bytes(serialization.Encoding.DER), "b1", "car", NONCE, SIGNED)
