"""Vectors by others, of NIST, the IETF and their implementers, through our own doors to the primitives: a package of
their own, of which nothing is kept here."""

from collections.abc import Iterator
from importlib.resources import files

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.strategies import LONG
from tidings.model.errors import SecurityError
from tidings.security.keys import EpochKey
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
    lines = text("asymmetric", "Ed25519", "sign.input").splitlines()[: MOST or None]
    for line in lines:
        secret, public, message, signature = line.split(":")[:4]
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)[:32])
        assert key.public_key().public_bytes_raw().hex() == public
        assert key.sign(bytes.fromhex(message)).hex() == signature[:128]
