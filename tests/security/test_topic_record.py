"""Certificates, topic records, revocations and templates: who is believed what."""

import contextlib
import hashlib

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import HOUR, NOW, TEMPLATE, World
from tests.sizes import examples
from tidings.filters import Filter
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_SECURE_TOPICS, MAX_SIGNED_BATCH
from tidings.security import Authority, Credentials, Gate, Identity, Right, Role, Suite, Token, TopicRecord
from tidings.security.ca.authority import DAY, NEXT_UPDATE
from tidings.security.ca.certificates import Certificate, TrustAnchor, moment, sign
from tidings.security.ca.revocation import RevocationHead, Revocations, RevocationUpdate, extend_chain
from tidings.security.encoding import SignedValue, encode_canonical
from tidings.security.sealing.envelope import ContentKeys, Seal
from tidings.security.sealing.keys import Keyring
from tidings.security.sealing.signatures import root_of, tree
from tidings.security.template import Template
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.topic_record import provenance

WORLD = World()


# Certificates


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.AUTHORITY])
def test_a_certificate_says_who_and_what_its_holder_is(role: Role) -> None:
    issued = WORLD.authority.issue("some one", role, NOW).certificate
    again = Certificate.read(issued.pem)
    assert (again.name, again.role, again) == ("some one", role, issued)
    WORLD.authority.anchor.check(again, NOW, role)
    with pytest.raises(SecurityError, match="is no"):
        WORLD.authority.anchor.check(again, NOW, Role.KMC if role is not Role.KMC else Role.TDN)


@pytest.mark.parametrize("when", [NOW - HOUR, NOW + 366 * DAY])
def test_a_certificate_out_of_its_time_is_refused(when: int) -> None:
    with pytest.raises(SecurityError, match="not valid at this time"):
        WORLD.authority.anchor.check(WORLD.ann.certificate, when)


def test_nobody_is_trusted_by_an_authority_whose_own_time_is_over() -> None:
    authority = Authority.found("authority", NOW, days=1)
    ann = authority.issue("ann", Role.ENTITY, NOW, days=365).certificate
    authority.anchor.check(ann, NOW)
    with pytest.raises(SecurityError, match="certificate of authority is not valid at this time"):
        authority.anchor.check(ann, NOW + 2 * DAY)


def test_a_certificate_of_another_authority_of_the_same_name_is_refused() -> None:
    other = Authority.found("authority", NOW).issue("ann", Role.ENTITY, NOW)
    with pytest.raises(SecurityError, match="was not issued by"):
        WORLD.authority.anchor.check(other.certificate, NOW)


def test_nobody_but_an_authority_is_an_anchor() -> None:
    with pytest.raises(SecurityError, match="no authority"):
        TrustAnchor(WORLD.ann.certificate)


def _self_made(key: object, *names: x509.NameAttribute[str], serial: int = 1) -> bytes:
    name = x509.Name(names)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())  # type: ignore[attr-defined]
        .serial_number(serial)
        .not_valid_before(moment(NOW))
        .not_valid_after(moment(NOW + DAY))
    )
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return made.sign(key, algorithm).public_bytes(serialization.Encoding.DER)  # type: ignore[arg-type]


_COMMON = x509.NameAttribute(NameOID.COMMON_NAME, "ann")
_ROLE = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "entity")
_P256 = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n", "no certificate"),
        (_self_made(ed25519.Ed25519PrivateKey.generate(), _COMMON, _ROLE), "P-256"),
        (_self_made(ec.generate_private_key(ec.SECP384R1()), _COMMON, _ROLE), "P-256"),
        (_self_made(_P256, _COMMON), "one role"),
        (_self_made(_P256, _ROLE), "one name"),
        (_self_made(_P256, _COMMON, _ROLE, _ROLE), "one role"),
        (_self_made(_P256, _COMMON, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "king")), "there is not"),
    ],
)
def test_other_certificates_are_not_read(data: bytes, reason: str) -> None:
    with pytest.raises(SecurityError, match=reason):
        Certificate.read(data)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_certificate_without_a_number_cannot_be_revoked_and_is_not_read() -> None:
    data = bytearray(_self_made(_P256, _COMMON, _ROLE, serial=1))
    place = data.index(b"\x02\x01\x01\x30")
    data[place + 2] = 0
    with pytest.raises(SecurityError, match="above zero"):
        Certificate.read(bytes(data))


def test_identities_are_kept_in_folders_that_others_cannot_read(tmp_path: object) -> None:
    folder = tmp_path / "ann"  # type: ignore[operator]
    WORLD.ann.save(folder)
    again = Identity.load(folder)
    assert again.certificate == WORLD.ann.certificate
    WORLD.ann.certificate.verify("test", b"body", again.sign("test", b"body"))
    assert (folder / "key.pem").stat().st_mode & 0o077 == 0
    (folder / "key.pem").unlink()
    with pytest.raises(InvalidValueError, match="key"):
        Identity.load(folder)


@pytest.mark.parametrize(
    ("name", "role", "days"),
    [("", Role.ENTITY, 1), ("a" * 65, Role.ENTITY, 1), ("a", Role.AUTHORITY, 1), ("a", Role.KMC, 0)],
)
def test_an_authority_does_not_issue_everything(name: str, role: Role, days: int) -> None:
    with pytest.raises(InvalidValueError):
        WORLD.authority.issue(name, role, NOW, days)


# Topic records


def test_whoever_has_the_authoritys_certificate_can_check_who_owns_a_topic() -> None:
    record = TopicRecord(WORLD.record.data)
    record.check(WORLD.authority.anchor, "tidings", NOW)
    assert provenance(record).owner == "ann"
    assert record.suite is Suite.AES_256_GCM


def test_a_record_that_was_changed_is_not_read() -> None:
    signed = msgspec.msgpack.decode(WORLD.record.data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    for index, value in [(0, bytes(16)), (1, "Sports=MLB"), (2, 1), (3, bytes(32)), (4, 7), (5, "x")]:
        changed = encode_canonical([*body[:index], value, *body[index + 1 :]])
        with pytest.raises(SecurityError, match="not signed by ann"):
            TopicRecord(encode_canonical(SignedValue(changed, signed.signature)))


@pytest.mark.parametrize(
    ("index", "value", "reason"),
    [
        (0, b"short", "16 bytes"),
        (3, b"short", "16 bytes"),
        (2, 77, "no suite"),
        (1, "Team=*,Sports=NBA", "canonical form"),
        (1, "Sports=*", "at least one"),
    ],
)
def test_a_record_that_says_nonsense_is_not_read_even_if_signed(index: int, value: object, reason: str) -> None:
    signed = msgspec.msgpack.decode(WORLD.record.data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    changed = encode_canonical([*body[:index], value, *body[index + 1 :]])
    with pytest.raises(SecurityError, match=reason):
        TopicRecord(encode_canonical(SignedValue(changed, WORLD.ann.sign("topic record", changed))))


@pytest.mark.parametrize(("index", "value"), [(3, b"short"), (4, 0), (4, 8), (1, "Sports=*"), (1, "Sports")])
def test_a_token_that_says_nonsense_is_not_taken_even_if_signed(index: int, value: object) -> None:
    signed = msgspec.msgpack.decode(WORLD.token().data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    changed = encode_canonical([*body[:index], value, *body[index + 1 :]])
    forged = encode_canonical(SignedValue(changed, WORLD.kmc.sign("token", changed)))
    with pytest.raises(SecurityError):
        WORLD.credentials().token(forged, NOW)


def test_a_later_record_of_the_owner_takes_the_place_of_the_one_before() -> None:
    credentials, token = WORLD.credentials(), WORLD.token()
    credentials.token(token.data, NOW)
    later = TopicRecord.make(
        WORLD.ann, id=WORLD.record.id, template=TEMPLATE, kmc=WORLD.other_kmc.certificate, version=2
    )
    assert credentials.learn(later, NOW)
    assert not credentials.learn(later, NOW)
    with pytest.raises(SecurityError, match="another record"):
        credentials.token(token.data, NOW)
    with pytest.raises(SecurityError, match="another record"):
        credentials.learn(WORLD.record, NOW)
    credentials.token(WORLD.token(kmc=WORLD.other_kmc, record=later).data, NOW)


def test_topics_of_other_owners_that_overlap_are_refused() -> None:
    credentials = WORLD.gate().credentials
    for template in ("Team=NYK", "Sports=NBA", "Sports=NBA,Team=LAL"):
        claimed = TopicRecord.make(
            WORLD.eve, id=template.encode().ljust(16, b" ")[:16], template=template, kmc=WORLD.kmc.certificate
        )
        with pytest.raises(SecurityError, match="overlaps"):
            credentials.learn(claimed, NOW)
    beside = TopicRecord.make(WORLD.eve, id=bytes(16), template="Sports=MLB", kmc=WORLD.kmc.certificate)
    assert credentials.learn(beside, NOW)


def test_a_second_centre_does_not_get_the_same_topic_under_another_id() -> None:
    """Who publishes would seal for the one, who subscribes have keys of the other, and nobody would see why."""
    credentials = WORLD.gate().credentials
    second = TopicRecord.make(WORLD.ann, id=bytes(16), template=TEMPLATE, kmc=WORLD.other_kmc.certificate, version=2)
    with pytest.raises(SecurityError, match="is a topic already, under another id"):
        credentials.learn(second, NOW)
    token = WORLD.token(kmc=WORLD.other_kmc, record=second)
    with pytest.raises(SecurityError, match="is a topic already, under another id"):
        credentials.token(token.data, NOW)
    within = TopicRecord.make(WORLD.ann, id=bytes(16), template="Sports=NBA,Team=NYK", kmc=WORLD.kmc.certificate)
    assert credentials.learn(within, NOW)  # an owner's own topics may overlap


def test_a_topic_of_a_revoked_owner_is_not_learnt() -> None:
    world = World()
    credentials = world.credentials()
    world.authority.revoke("ann", NOW)
    credentials.revoke(world.authority.revocations(NOW))
    with pytest.raises(SecurityError, match="revoked"):
        credentials.learn(world.record, NOW)


def test_there_is_an_end_to_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.tokens.credentials.MAX_SECURE_TOPICS", 1)
    credentials = WORLD.gate().credentials
    with pytest.raises(SecurityError, match="MAX_SECURE_TOPICS"):
        credentials.learn(TopicRecord.make(WORLD.ann, id=bytes(16), template="a=1", kmc=WORLD.kmc.certificate), NOW)
    assert MAX_SECURE_TOPICS > 1


def test_there_is_an_end_to_the_topics_of_one_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.tokens.credentials.MAX_SECURE_TOPICS_OF_ONE", 1)
    credentials = WORLD.gate().credentials
    later = TopicRecord.make(WORLD.ann, id=WORLD.record.id, template=TEMPLATE, kmc=WORLD.kmc.certificate, version=2)
    assert credentials.learn(later, NOW)  # it is the same topic
    with pytest.raises(SecurityError, match="MAX_SECURE_TOPICS_OF_ONE"):
        credentials.learn(TopicRecord.make(WORLD.ann, id=bytes(16), template="a=1", kmc=WORLD.kmc.certificate), NOW)
    others = TopicRecord.make(WORLD.eve, id=bytes(16), template="Sports=MLB", kmc=WORLD.kmc.certificate)
    assert credentials.learn(others, NOW)


def test_notices_are_of_topics_that_are_known_and_signed_by_a_centre() -> None:
    with pytest.raises(SecurityError, match="not known"):
        WORLD.credentials().heed(WORLD.notice(2), NOW)
    data = msgspec.msgpack.decode(WORLD.notice(2).data)
    with pytest.raises(SecurityError, match="not signed"):
        SignedNotice(
            encode_canonical(((encode_canonical(Notice(WORLD.record.id, 1, 9, 9, 0, NOW)), data[0][1]), data[1]))
        )


def test_a_notice_is_a_centres_also_if_a_record_names_somebody_else() -> None:
    named = TopicRecord.make(WORLD.ann, id=bytes(16), template=TEMPLATE, kmc=WORLD.broker.certificate)
    credentials = WORLD.credentials()
    credentials.learn(named, NOW)
    with pytest.raises(SecurityError, match="b1 is no kmc"):
        credentials.heed(SignedNotice.make(WORLD.broker, Notice(named.id, 1, 9, 9, 0, NOW)), NOW)


def test_a_centre_that_was_revoked_tells_nothing_more() -> None:
    world = World()
    credentials = world.gate().credentials
    world.authority.revoke("kmc", NOW)
    credentials.revoke(world.authority.revocations(NOW))
    with pytest.raises(SecurityError, match="revoked"):
        credentials.heed(world.notice(2), NOW)


@pytest.mark.parametrize("brief", ["holder", "kmc", "owner"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_token_ends_with_the_certificates_in_it(brief: str, is_known: bool) -> None:
    """Also one that was good before, and is remembered: else two brokers would not say the same."""
    authority = Authority.found("authority", NOW)
    roles = {"holder": Role.ENTITY, "kmc": Role.KMC, "owner": Role.ENTITY}
    who = {name: authority.issue(name, role, NOW, days=1 if name == brief else 9) for name, role in roles.items()}
    record = TopicRecord.make(who["owner"], id=bytes(16), template=TEMPLATE, kmc=who["kmc"].certificate)
    token = Token.make(
        *(who["kmc"], record),
        holder=who["holder"].certificate,
        key=bytes(32),
        rights=Right.SUBSCRIBE,
        not_before=NOW,
        not_after=NOW + 5 * DAY,
        grant=1,
    )
    gate = Gate(Credentials(authority.anchor))
    gate.credentials.revoke(authority.revocations(NOW))
    gate.credentials.learn(record, NOW)
    if is_known:
        gate.subscription(token.data, "holder", NOW)
    with pytest.raises(SecurityError, match=r"not valid at this time|has expired"):
        gate.subscription(token.data, "holder", NOW + 2 * DAY)


def test_a_token_is_for_somebody_whom_the_authority_knows() -> None:
    stranger = Authority.found("authority", NOW).issue("bob", Role.ENTITY, NOW)
    token = Token.make(
        *(WORLD.kmc, WORLD.record),
        holder=stranger.certificate,
        key=bytes(32),
        rights=Right.SUBSCRIBE,
        not_before=NOW,
        not_after=NOW + HOUR,
        grant=1,
    )
    with pytest.raises(SecurityError, match="bob was not issued by"):
        WORLD.gate().subscription(token.data, "bob", NOW)


def test_good_and_bad_tokens_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.tokens.credentials.MAX_CHECKED_TOKENS", 3)
    monkeypatch.setattr("tidings.security.tokens.credentials.MAX_REFUSED_TOKENS", 3)
    credentials = WORLD.credentials()
    good = [WORLD.token(grant=grant).data for grant in range(10)]
    bad = [WORLD.token(grant=grant, kmc=WORLD.other_kmc).data for grant in range(10)]
    for one, other in zip(good, bad, strict=True):
        credentials.token(one, NOW)
        with pytest.raises(SecurityError):
            credentials.token(other, NOW)
    assert [credentials.has_judged(one) for one in good] == [False] * 7 + [True] * 3
    assert [credentials.has_judged(one) for one in bad] == [False] * 7 + [True] * 3
    with pytest.raises(SecurityError, match="not the centre"):
        credentials.token(WORLD.token(grant=9, kmc=WORLD.other_kmc).data, NOW)


# Revocations


def _known(authority: Authority) -> Revocations:
    made = Revocations(authority.anchor)
    made.apply(authority.revocations(NOW))
    return made


def test_only_what_is_new_is_taken_and_told() -> None:
    world = World()
    known = _known(world.authority)
    assert known.version == 0
    world.authority.revoke("eve", NOW + 1)
    assert [one.name for one in known.apply(world.authority.revocations(NOW + 1))] == ["eve"]
    world.authority.revoke("bob", NOW + 2)
    difference = world.authority.revocations(NOW + 2, after=1)
    assert [one.name for one in difference.entries] == ["bob"]
    assert [one.name for one in known.apply(RevocationUpdate.read(difference.data))] == ["bob"]
    assert known.apply(world.authority.revocations(NOW + 2)) == ()
    told = known.since(1)
    assert told is not None
    assert [one.name for one in told.entries] == ["bob"]
    behind = _known(World().authority)
    assert behind.since(0) is not None
    assert Revocations(world.authority.anchor).since(0) is None


def test_an_older_list_changes_nothing() -> None:
    world = World()
    known, empty = _known(world.authority), world.authority.revocations(NOW)
    world.authority.revoke("eve", NOW + 1)
    known.apply(world.authority.revocations(NOW + 1))
    assert known.apply(empty) == ()
    with pytest.raises(SecurityError, match="revoked"):
        known.check(world.eve.certificate, NOW + 1)
    known.check(world.eve.certificate, NOW)  # it was valid then


@pytest.mark.parametrize(
    "what", ["entries left out", "an entry changed", "another signer", "entries before are missing", "a wrong count"]
)
def test_a_list_that_was_changed_is_refused(what: str) -> None:
    world = World()
    known = _known(world.authority)
    for name in ("eve", "bob"):
        world.authority.revoke(name, NOW)
    good = world.authority.revocations(NOW)
    first, second = good.entries
    miscounted = encode_canonical(msgspec.structs.replace(good.unverified_head, version=3))
    bad = {
        "a wrong count": RevocationUpdate(
            0, good.entries, SignedValue(miscounted, sign(world.authority._key, "revocation list", miscounted))
        ),
        "entries left out": RevocationUpdate(0, (second,), good.head),
        "an entry changed": RevocationUpdate(0, (first, msgspec.structs.replace(second, name="ann")), good.head),
        "another signer": RevocationUpdate(
            0, good.entries, SignedValue(good.head.body, world.eve.sign("revocation list", good.head.body))
        ),
        "entries before are missing": RevocationUpdate(1, (second,), good.head),
    }[what]
    with pytest.raises(SecurityError, match="are missing" if "missing" in what else "not"):
        known.apply(bad)
    assert known.version == 0


def test_a_list_too_long_for_anybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.ca.revocation.MAX_REVOKED", 0)
    world = World()
    world.authority.revoke("eve", NOW)
    with pytest.raises(SecurityError, match="head of the list"):
        Revocations(world.authority.anchor).apply(world.authority.revocations(NOW))


def test_without_a_list_that_is_young_enough_nothing_is_trusted() -> None:
    known = Revocations(WORLD.authority.anchor)
    with pytest.raises(SecurityError, match="no list"):
        known.check_fresh(NOW)
    known.apply(WORLD.authority.revocations(NOW))
    known.check_fresh(NOW + NEXT_UPDATE - 1)
    with pytest.raises(SecurityError, match="out of date"):
        known.check_fresh(NOW + NEXT_UPDATE)


def test_who_is_revoked_once_is_not_revoked_again() -> None:
    world = World()
    (entry,) = world.authority.revoke("eve", NOW, since=NOW - HOUR, reason="a stolen key")
    assert (entry.serial, entry.when, entry.reason) == (world.eve.certificate.serial_bytes, NOW - HOUR, "a stolen key")
    with pytest.raises(InvalidValueError, match="no certificate of eve"):
        world.authority.revoke("eve", NOW)
    assert (
        RevocationHead(1, extend_chain(hashlib.sha256(b"tidings/1/revocations").digest(), [entry]), 0, 0).version == 1
    )


# Templates

_TAGS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["*", "1", "2", "x"]), min_size=1, max_size=3)
_TEMPLATES = _TAGS.filter(lambda tags: set(tags.values()) != {"*"}).map(
    lambda tags: Template.parse(",".join(f"{name}={value}" for name, value in tags.items()))
)
_EVENTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, 2, "1", "x", True, 1.0]), max_size=3)


@examples(100, 5_000)
@given(_TEMPLATES, _EVENTS)
def test_a_template_means_what_a_filter_of_its_tags_means(template: Template, attributes: dict[str, object]) -> None:
    assert template.matches(None, attributes) == Filter.parse(str(template), format="tags").matches(attributes)


@examples(100, 5_000)
@given(_TEMPLATES, _TEMPLATES, _EVENTS)
def test_covering_and_overlap_of_templates_hold_for_every_event(
    one: Template, other: Template, attributes: dict[str, object]
) -> None:
    on_one, on_other = one.matches(None, attributes), other.matches(None, attributes)
    assert not (one.covers(other) and on_other and not on_one)
    assert not (on_one and on_other and not one.overlaps(other))
    assert not on_one or one.may_match(None, attributes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a=",
        "=1",
        "a=1,",
        "a=1,a=2",
        "a=b*",
        "a=b=c",
        "*",
        "/a/*",
        "a=*",
        "security=notice",
        "topic=00,ask=*",
        ",".join(f"a{n}=1" for n in range(17)),
    ],
)
def test_templates_that_claim_too_much_or_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="template"):
        Template.parse(text)


def test_a_template_grants_no_neighbouring_number() -> None:
    template = Template.parse("n=9007199254740993")
    assert template.matches(None, {"n": 9007199254740993})
    assert not template.matches(None, {"n": 9007199254740992})
    assert not template.matches(None, {"n": float(9007199254740993)})
    assert Template.parse("/a/b").matches("/a/b", {})
    assert not Template.parse("/a/b").matches("/a", {})
    assert not Template.parse("/a/b").may_match("/a", {})


def test_a_token_is_never_for_more_than_its_topic() -> None:
    with pytest.raises(InvalidValueError, match="more than the topic"):
        WORLD.token(template="Sports=NBA")
    signed = msgspec.msgpack.decode(WORLD.token().data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    changed = encode_canonical([body[0], "Sports=NBA", *body[2:]])
    forged = Token(encode_canonical(SignedValue(changed, WORLD.kmc.sign("token", changed))))
    with pytest.raises(SecurityError, match="more than the topic"):
        forged.check(WORLD.authority.anchor, "tidings", NOW)


def test_a_token_for_another_overlay_than_its_topic_is_refused() -> None:
    signed = msgspec.msgpack.decode(WORLD.token().data, type=SignedValue)
    body = msgspec.msgpack.decode(signed.body)
    assert body[7] == "tidings"
    changed = encode_canonical([*body[:7], "elsewhere", *body[8:]])
    forged = Token(encode_canonical(SignedValue(changed, WORLD.kmc.sign("token", changed))))
    with pytest.raises(SecurityError, match="token is for the overlay 'elsewhere'"):
        forged.check(WORLD.authority.anchor, "tidings", NOW)


@pytest.mark.parametrize(
    ("algorithm", "bits", "reason"),
    [
        ("des", None, "not offered"),
        ("aes-gcm", 64, "128, 192 or 256"),
        ("chacha20-poly1305", 128, "256 bits"),
        ("aes-128-gcm", 256, "128 bits"),
    ],
)
def test_bad_parameters_of_a_topic_are_refused_with_the_reason(algorithm: str, bits: int | None, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        Suite.of(algorithm, bits)


def test_suites_by_their_names() -> None:
    assert [Suite.of(one.text) for one in Suite] == list(Suite)
    assert [Suite.of("aes-gcm", bits) for bits in (128, 192, 256)] == list(Suite)[:3]
    assert Right.of(["publish", "govern"]).words == ["publish", "govern"]
    with pytest.raises(InvalidValueError, match="there are"):
        Right.of(["rule"])


# Batches


@examples(60, 2_000)
@given(st.integers(1, 70), st.data())
def test_only_an_event_of_the_batch_leads_to_its_root(count: int, data: st.DataObject) -> None:
    digests = [hashlib.sha256(bytes([number])).digest() for number in range(count)]
    top, paths = tree(digests)
    index = data.draw(st.integers(0, count - 1))
    assert root_of(digests[index], index, count, paths[index]) == top
    other = data.draw(st.integers(0, count - 1))
    if other != index:
        for digest, place in ((digests[index], other), (digests[other], index)):
            with contextlib.suppress(SecurityError):
                assert root_of(digest, place, count, paths[index]) != top
    for path in (paths[index][:-1], (*paths[index], bytes(32))):
        if path != paths[index]:
            with pytest.raises(SecurityError, match="too"):
                root_of(digests[index], index, count, path)


@pytest.mark.parametrize(("index", "size", "path"), [(2, 2, (bytes(32),)), (-1, 2, (bytes(32),)), (0, 2, (b"short",))])
def test_a_place_that_is_not_in_the_batch_leads_nowhere(index: int, size: int, path: tuple[bytes, ...]) -> None:
    with pytest.raises(SecurityError, match="no place"):
        root_of(bytes(32), index, size, path)


def test_a_batch_has_its_limits() -> None:
    for count in (0, MAX_SIGNED_BATCH + 1):
        with pytest.raises(SecurityError, match="MAX_SIGNED_BATCH"):
            tree([bytes(32)] * count)


# Keys


def test_a_key_of_the_wrong_size_or_epoch_opens_nothing() -> None:
    with pytest.raises(SecurityError, match="size"):
        Keyring([msgspec.structs.replace(WORLD.key, key=b"short")])
    sealed = WORLD.sealer().seal(WORLD.event(), NOW)
    small = msgspec.structs.replace(WORLD.key, suite=Suite.CHACHA20_POLY1305)
    with pytest.raises(SecurityError, match="another suite"):
        ContentKeys(Keyring([small])).cipher(Seal.of(sealed))
    false = msgspec.structs.replace(WORLD.key, key=bytes(32))
    with pytest.raises(SecurityError, match="not wrapped under epoch 1"):
        ContentKeys(Keyring([false])).cipher(Seal.of(sealed))


def test_another_content_key_than_the_one_committed_to_is_refused() -> None:
    sealed = WORLD.sealer().seal(WORLD.event(), NOW)
    seal = msgspec.structs.replace(Seal.of(sealed), wrapped=WORLD.key.wrap(bytes(32)))
    with pytest.raises(SecurityError, match="commits to"):
        ContentKeys(Keyring([WORLD.key])).cipher(seal)


def test_the_latest_key_is_the_one_to_seal_under() -> None:
    ring = Keyring([WORLD.epoch_key(2), WORLD.epoch_key(1)])
    assert ring.latest(WORLD.record.id) == WORLD.epoch_key(2)
    assert ring.get(WORLD.record.id, 1) == WORLD.epoch_key(1)
    assert ring.latest(bytes(16)) is None
    ring.forget(WORLD.record.id)
    assert list(ring) == []


def test_credentials_of_another_overlay_take_nothing_of_this_one() -> None:
    elsewhere = Credentials(WORLD.authority.anchor, "elsewhere")
    elsewhere.revoke(WORLD.authority.revocations(NOW))
    with pytest.raises(SecurityError, match="overlay"):
        elsewhere.token(WORLD.token().data, NOW)
    with pytest.raises(SecurityError, match="overlay"):
        elsewhere.learn(WORLD.record, NOW)
