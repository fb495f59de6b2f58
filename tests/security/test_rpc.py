"""Questions and answers: only the service reads the question, only the asker the answer, and both know from whom."""

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tests.security.world import HOUR, NOW, World
from tidings.model.errors import RefusedError, SecurityError
from tidings.security import Role
from tidings.security.encoding import SignedValue, encode_canonical
from tidings.security.rpc import messages
from tidings.security.rpc.kmc_messages import KeyRequest
from tidings.security.rpc.messages import (
    FRESHNESS,
    PendingCall,
    SeenRequests,
    ServiceRecord,
    answer,
    ask,
    read_answer,
    read_question,
)

WORLD = World()
KEM = X25519PrivateKey.generate()
SERVICE = ServiceRecord.make(WORLD.kmc, "ab" * 16, KEM.public_key().public_bytes_raw(), 1)


def asked(who: str = "ann", now: int = NOW) -> PendingCall:
    return ask(getattr(WORLD, who), SERVICE, "keys", b"body", now)


def read(
    payload: bytes, *, world: World = WORLD, seen: SeenRequests | None = None, now: int = NOW
) -> messages.RpcRequest:
    return read_question(payload, KEM, WORLD.kmc.certificate, world.credentials(), seen or SeenRequests(), now)


def test_a_question_is_answered() -> None:
    pending = asked()
    question = read(pending.payload)
    assert (question.kind, question.body, question.certificate) == ("keys", b"body", WORLD.ann.certificate)
    assert question.reply_to == pending.reply_to
    assert read_answer(pending, answer(WORLD.kmc, question, b"here")) == b"here"
    with pytest.raises(RefusedError, match="not for you"):
        read_answer(pending, answer(WORLD.kmc, question, refused="not for you"))


def test_nobody_else_reads_either() -> None:
    pending = asked()
    assert b"body" not in pending.payload
    with pytest.raises(SecurityError, match="not for this service"):
        read_question(
            pending.payload,
            X25519PrivateKey.generate(),
            WORLD.kmc.certificate,
            WORLD.credentials(),
            SeenRequests(),
            NOW,
        )
    with pytest.raises(SecurityError, match="not for this service"):
        read_question(pending.payload, KEM, WORLD.other_kmc.certificate, WORLD.credentials(), SeenRequests(), NOW)
    said = answer(WORLD.kmc, read(pending.payload), b"here")
    assert b"here" not in said
    with pytest.raises(SecurityError, match="no answer"):
        read_answer(asked(), said)
    for payload in (b"", b"x" * 31, pending.payload[:-1]):
        with pytest.raises(SecurityError, match="not for this service"):
            read(payload)


def test_a_question_is_answered_once_and_while_it_is_fresh() -> None:
    seen, pending = SeenRequests(), asked()
    read(pending.payload, seen=seen)
    with pytest.raises(SecurityError, match="came before"):
        read(pending.payload, seen=seen)
    for now in (NOW - FRESHNESS - 1, NOW + FRESHNESS + 1):
        with pytest.raises(SecurityError, match="too old, or from the future"):
            read(asked(now=now).payload)


def test_an_answer_that_the_service_has_not_signed_is_refused() -> None:
    pending = asked()
    question = read(pending.payload)
    with pytest.raises(SecurityError, match="not signed by kmc"):
        read_answer(pending, answer(WORLD.other_kmc, question, b"here"))


def test_a_question_in_somebody_elses_name_is_refused() -> None:
    sealed = _sealed_by_eve(certificate=WORLD.ann.certificate.der)
    with pytest.raises(SecurityError, match="not signed by ann"):
        read(sealed)


def test_a_question_for_another_service_is_refused_even_if_sealed_to_this_one() -> None:
    with pytest.raises(SecurityError, match="another service"):
        read(_sealed_by_eve(service=WORLD.other_kmc.certificate.fingerprint))


@pytest.mark.parametrize("kem", [b"", b"short", bytes(32), bytes(33)])
def test_a_key_for_the_answer_that_is_none_is_an_error_of_its_question(kem: bytes) -> None:
    question = read(_sealed_by_eve(kem=kem))
    with pytest.raises(SecurityError, match="no X25519 key"):
        answer(WORLD.kmc, question, b"here")


def _sealed_by_eve(**changed: object) -> bytes:
    fields = {
        "service": WORLD.kmc.certificate.fingerprint,
        "nonce": bytes(16),
        "time": NOW,
        "reply_to": "x",
        "kem": bytes(32),
        "certificate": WORLD.eve.certificate.der,
        "kind": "keys",
        "body": b"",
    }
    inner = encode_canonical(messages._Question(**{**fields, **changed}))  # type: ignore[arg-type]
    signed = encode_canonical(SignedValue(inner, WORLD.eve.sign("question", inner)))
    return messages.HPKE.encrypt(signed, KEM.public_key(), WORLD.kmc.certificate.fingerprint)


def test_an_answer_to_another_question_is_refused() -> None:
    first, second = asked(), asked()
    question = read(first.payload)
    inner = encode_canonical(messages._Answer(second.digest, b"here"))
    signed = encode_canonical(SignedValue(inner, WORLD.kmc.sign("answer", inner)))
    swapped = messages.HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(question.kem), first.digest)
    with pytest.raises(SecurityError, match="another question"):
        read_answer(first, swapped)


@pytest.mark.parametrize("why", ["revoked", "of another authority", "out of date"])
def test_who_is_not_trusted_is_not_answered(why: str) -> None:
    world = World()
    credentials = world.credentials()
    service = ServiceRecord.make(world.kmc, "t", KEM.public_key().public_bytes_raw(), 1)
    asker, now = world.eve, NOW
    if why == "revoked":
        world.authority.revoke("eve", NOW)
        credentials.revoke(world.authority.revocations(NOW))
    elif why == "of another authority":
        asker = WORLD.eve
    else:
        now = NOW + 300 * 24 * HOUR
    pending = ask(asker, service, "keys", b"", now)
    with pytest.raises(SecurityError):
        read_question(pending.payload, KEM, world.kmc.certificate, credentials, SeenRequests(), now)


def test_questions_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_REMEMBERED_QUESTIONS", 5)
    seen = SeenRequests()
    for number in range(20):
        seen.check(bytes([number]), NOW, NOW)
    assert seen.size == 5


def test_a_service_that_was_revoked_is_not_asked() -> None:
    world = World()
    service = ServiceRecord.make(world.kmc, "t", KEM.public_key().public_bytes_raw(), 1)
    credentials = world.credentials()
    service.check(credentials, Role.KMC, NOW)
    world.authority.revoke("kmc", NOW)
    credentials.revoke(world.authority.revocations(NOW))
    with pytest.raises(SecurityError, match="kmc has been revoked"):
        service.check(credentials, Role.KMC, NOW)


def test_a_service_says_itself_where_it_is() -> None:
    again = ServiceRecord(SERVICE.data)
    again.check(WORLD.credentials(), Role.KMC, NOW)
    with pytest.raises(SecurityError, match="no tdn"):
        again.check(WORLD.credentials(), Role.TDN, NOW)
    signed = msgspec.msgpack.decode(SERVICE.data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    with pytest.raises(SecurityError, match="not signed"):
        ServiceRecord(encode_canonical(SignedValue(encode_canonical(["cd" * 16, *body[1:]]), signed.signature)))
    elsewhere = ServiceRecord.make(WORLD.kmc, "t", bytes(32), 1, "elsewhere")
    with pytest.raises(SecurityError, match="overlay"):
        elsewhere.check(WORLD.credentials(), Role.KMC, NOW)


def test_who_asks_for_keys_shows_that_it_has_the_signing_key() -> None:
    signing, (asker, kmc) = Ed25519PrivateKey.generate(), (WORLD.ann.certificate, WORLD.kmc.certificate)
    wanted = KeyRequest.make(WORLD.record.id, signing, asker, kmc)
    wanted.check(asker, kmc)
    for false in (
        msgspec.structs.replace(wanted, key=WORLD.signing["bob"].public_key().public_bytes_raw()),
        msgspec.structs.replace(wanted, topic=bytes(16)),
        msgspec.structs.replace(wanted, key=b"short"),
    ):
        with pytest.raises(SecurityError, match="has not shown"):
            false.check(asker, kmc)
    for one, other in ((WORLD.bob.certificate, kmc), (asker, WORLD.other_kmc.certificate)):
        with pytest.raises(SecurityError, match="has not shown"):
            wanted.check(one, other)
