"""Vectors by others, of NIST, the IETF and their implementers, through our own doors to the primitives: a package of
their own, of which nothing is kept here."""

from collections.abc import Iterator
from contextlib import nullcontext
from importlib.resources import files

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.sizes import LONG
from tidings.model.errors import SecurityError
from tidings.security.ca import certificates
from tidings.security.ca.certificates import Certificate
from tidings.security.encoding import set_fields
from tidings.security.sealing.keys import EpochKey
from tidings.security.sealing.signatures import Signatures
from tidings.security.suites import Suite

vectors = pytest.importorskip("cryptography_vectors", reason="the vectors are a package of the development group")
MOST = None if LONG else 200


def text(*path: str) -> str:
    return files("cryptography_vectors").joinpath(*path).read_text()


def blocks(lines: str) -> Iterator[dict[str, str]]:
    """`Name = value` lines between empty ones; `FAIL` stands alone."""
    for block in lines.replace("\r", "").split("\n\n"):
        said = [line.partition("=") for line in block.split("\n") if line and line[0] not in "#["]
        found = {name.strip().lower(): value.strip() for name, _, value in said}
        if found:
            yield found


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_aes_gcm(bits: int) -> None:
    suite, opened = Suite.of("aes-gcm", bits), 0
    for one in blocks(text("ciphers", "AES", "GCM", f"gcmDecrypt{bits}.rsp")):
        # Ours are nonces of 96 bits and whole tags.
        if "iv" not in one or len(one["iv"]) != 24 or len(one["tag"]) != 32:
            continue
        cipher = suite.cipher(bytes.fromhex(one["key"]))
        nonce, aad = bytes.fromhex(one["iv"]), bytes.fromhex(one["aad"])
        sealed = bytes.fromhex(one["ct"] + one["tag"])
        if "fail" in one:
            with pytest.raises(Exception):  # noqa: B017, PT011 - the library's own, of its private parts
                cipher.decrypt(nonce, sealed, aad)
            continue
        assert cipher.decrypt(nonce, sealed, aad).hex() == one["pt"]
        assert cipher.encrypt(nonce, bytes.fromhex(one["pt"]), aad) == sealed
        opened += 1
        if opened == MOST:
            break
    assert opened > 100


def test_chacha20_poly1305() -> None:
    opened = 0
    for one in blocks(text("ciphers", "ChaCha20Poly1305", "boringssl.txt")):
        if "key" not in one or len(one["nonce"]) != 24 or len(one["tag"]) != 32 or "failed" in one:
            continue
        cipher = Suite.CHACHA20_POLY1305.cipher(bytes.fromhex(one["key"]))
        plain = one["in"][1:-1].encode() if one["in"].startswith('"') else bytes.fromhex(one["in"])
        aad = one["ad"][1:-1].encode() if one["ad"].startswith('"') else bytes.fromhex(one["ad"])
        sealed = cipher.encrypt(bytes.fromhex(one["nonce"]), plain, aad)
        assert sealed.hex() == one["ct"].strip('"') + one["tag"]
        assert cipher.decrypt(bytes.fromhex(one["nonce"]), sealed, aad) == plain
        opened += 1
    assert opened > 20


@pytest.mark.parametrize(("bits", "suite"), [(128, 1), (192, 2), (256, 3)])
def test_wrapping_of_content_keys(bits: int, suite: int) -> None:
    wrapped = 0
    for one in blocks(text("keywrap", "kwtestvectors", f"KW_AE_{bits}.txt")):
        if "p" in one:
            key = EpochKey(bytes(16), 1, suite, bytes.fromhex(one["k"]), 0, 1)
            assert key.wrap(bytes.fromhex(one["p"])).hex() == one["c"]
            assert key.unwrap(bytes.fromhex(one["c"])).hex() == one["p"]
            wrapped += 1
            if wrapped == MOST:
                break
    assert wrapped > 50


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_keys_that_were_not_wrapped_so_are_refused(bits: int) -> None:
    refused = 0
    for one in blocks(text("keywrap", "kwtestvectors", f"KW_AD_{bits}.txt")):
        if "fail" in one:
            key = EpochKey(bytes(16), 1, {128: 1, 192: 2, 256: 3}[bits], bytes.fromhex(one["k"]), 0, 1)
            with pytest.raises(SecurityError, match="not wrapped"):
                key.unwrap(bytes.fromhex(one["c"]))
            refused += 1
    assert refused > 10


def test_signatures_of_events() -> None:
    signatures = Signatures()
    for line in text("asymmetric", "Ed25519", "sign.input").splitlines()[: MOST or None]:
        secret, public, said, signed = (bytes.fromhex(one) for one in line.split(":")[:4])
        key, signature = Ed25519PrivateKey.from_private_bytes(secret[:32]), signed[:64]
        assert key.public_key().public_bytes_raw() == public
        assert key.sign(said) == signature
        signatures.verify(public, signature, said)
        with pytest.raises(SecurityError, match="not as its publisher signed it"):
            signatures.verify(public, signature, said + b"x")


def test_signatures_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the purpose that ours are made for: those who made the vectors know of none."""
    monkeypatch.setattr(certificates, "signing_input", lambda purpose, body: body)
    _, _, lines = text("asymmetric", "ECDSA", "FIPS_186-3", "SigVer.rsp").partition("[P-256,SHA-256]")
    results = {"P": 0, "F": 0}
    for one in blocks(lines.partition("\n[")[0]):
        holder = object.__new__(Certificate)
        numbers = ec.EllipticCurvePublicNumbers(int(one["qx"], 16), int(one["qy"], 16), ec.SECP256R1())
        set_fields(holder, key=numbers.public_key(), name="somebody")
        signature = encode_dss_signature(int(one["r"], 16), int(one["s"], 16))
        refused = one["result"].startswith("F")
        with pytest.raises(SecurityError) if refused else nullcontext():
            holder.verify("vector", bytes.fromhex(one["msg"]), signature)
        results[one["result"][0]] += 1
    assert min(results.values()) >= 3
