"""Joining a trust group under certificates: the secret gets to who is on the list, and to nobody else."""

import hashlib

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical
from tidings.security.rpc.messages import HPKE
from tidings.security.trust_group import (
    FRESHNESS,
    INVITATION,
    NONCE_BYTES,
    REQUEST,
    ConnectionEnds,
    EnrolmentRequest,
    TrustGroup,
    invite,
    join,
    request,
)

NOW = 1_800_000_000_000_000
AUTHORITY = Authority.found("authority", NOW)
B1, B2, B3 = (AUTHORITY.issue(name, Role.BROKER, NOW) for name in ("b1", "b2", "b3"))
STRANGER = Authority.found("another", NOW).issue("b2", Role.BROKER, NOW)
GROUP = TrustGroup.new("Restricted")
ASKED = request(B2, "Restricted", NOW)
ANSWER = invite(GROUP, ASKED.data, B1, ["b2"], NOW)


def is_same(one: TrustGroup, other: TrustGroup) -> bool:
    ends, nonce = ConnectionEnds("b1", "b2"), bytes(NONCE_BYTES)
    return one.name == other.name and one.prove(ends, nonce, nonce) == other.prove(ends, nonce, nonce)


def test_who_is_on_the_list_gets_the_secret() -> None:
    assert is_same(join(ANSWER, ASKED, B2, NOW), GROUP)
    assert is_same(join(ANSWER, ASKED, B2, NOW, by=["b3", "b1"]), GROUP)
    assert GROUP.secret not in ANSWER


@pytest.mark.parametrize(
    ("given", "members", "when", "check"),
    [
        pytest.param(request(B3, "Restricted", NOW).data, ["b2"], NOW, "trust", id="not on the list"),
        pytest.param(request(B2, "Other", NOW).data, ["b2"], NOW, "trust", id="another group"),
        pytest.param(request(STRANGER, "Restricted", NOW).data, ["b2"], NOW, "certificate", id="another authority"),
        pytest.param(ASKED.data, ["b2"], NOW + FRESHNESS + 1, "expired", id="too old"),
        pytest.param(request(B2, "Restricted", NOW + 10**9).data, ["b2"], NOW, "expired", id="from the future"),
        pytest.param(b"nothing", ["b2"], NOW, "form", id="no request"),
        pytest.param(ASKED.data[:-1], ["b2"], NOW, "form", id="cut"),
    ],
)
def test_requests_that_are_not_answered(given: bytes, members: list[str], when: int, check: str) -> None:
    with pytest.raises(SecurityError) as refused:
        invite(GROUP, given, B1, members, when)
    assert refused.value.check == check


def test_a_request_with_another_key_in_it_is_refused() -> None:
    """As somebody would make it who wants to open the answer to another's request."""
    signed = decode_canonical(ASKED.data, SignedValue, "request")
    body = signed.body.replace(_kem(ASKED), _kem(request(B3, "Restricted", NOW)))
    assert body != signed.body
    with pytest.raises(SecurityError, match="was not signed by b2"):
        invite(GROUP, encode_canonical(SignedValue(body, signed.signature)), B1, ["b2"], NOW)


def _kem(requested: EnrolmentRequest) -> bytes:
    kem = msgspec.msgpack.decode(decode_canonical(requested.data, SignedValue, "request").body)[1]
    assert isinstance(kem, bytes)
    return kem


def test_answers_that_are_not_believed() -> None:
    other = request(B2, "Restricted", NOW)
    forger = invite(TrustGroup.new("Restricted"), ASKED.data, B3, ["b2"], NOW)
    with pytest.raises(SecurityError, match="no answer to the request"):
        join(ANSWER, other, B2, NOW)
    with pytest.raises(SecurityError, match="no answer to the request"):
        join(ANSWER, EnrolmentRequest(ASKED.data, other.key), B2, NOW)
    with pytest.raises(SecurityError, match="no answer to the request"):
        join(ANSWER[:-1] + bytes([ANSWER[-1] ^ 1]), ASKED, B2, NOW)
    with pytest.raises(SecurityError, match="from b3, not from b1"):
        join(forger, ASKED, B2, NOW, by=["b1"])
    with pytest.raises(SecurityError, match="that of b2, with another certificate"):
        join(ANSWER, ASKED, B3, NOW)


def _forged(giver: Identity, signer: Identity, group: str = "Restricted", request: bytes = ASKED.data) -> bytes:
    """As anybody can make it who has seen the request: sealed to the key in it."""
    digest = hashlib.sha256(ASKED.data).digest()
    body = encode_canonical((hashlib.sha256(request).digest(), group, bytes(32), giver.certificate.der))
    signed = encode_canonical(SignedValue(body, signer.sign(INVITATION, body)))
    return HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(_kem(ASKED)), digest)


def test_a_secret_from_who_is_no_member_of_this_overlay_is_refused() -> None:
    join(_forged(B1, B1), ASKED, B2, NOW)
    with pytest.raises(SecurityError, match="was not signed by b1"):
        join(_forged(B1, B3), ASKED, B2, NOW, by=["b1"])
    with pytest.raises(SecurityError, match="was not issued by"):
        join(_forged(STRANGER, STRANGER), ASKED, B2, NOW)
    for answer in (_forged(B1, B1, request=b"another"), _forged(B1, B1, group="Controlled")):
        with pytest.raises(SecurityError, match="the answer to another request"):
            join(answer, ASKED, B2, NOW)


def test_a_request_with_a_key_that_is_none_is_refused() -> None:
    body = encode_canonical(("Restricted", b"short", NOW, B2.certificate.der))
    with pytest.raises(SecurityError, match="cannot be used"):
        invite(GROUP, encode_canonical(SignedValue(body, B2.sign(REQUEST, body))), B1, ["b2"], NOW)
