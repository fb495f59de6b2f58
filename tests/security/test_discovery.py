"""Discovery nodes: who owns a topic can be checked, who may not find it learns nothing, and all nodes come to agree."""

import itertools
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.rpc.tdn_messages import FindRequest, ReplicatedRecord, ReplicateRequest
from tidings.security.tdn import discovery_records
from tidings.security.tdn.discovery_node import FRESHNESS, DiscoveryNode, TopicQuery
from tidings.security.tdn.discovery_records import (
    DAY,
    LONGEST,
    DiscoveryRecord,
    RecordKind,
    Visibility,
    fits,
    service_id,
)
from tidings.security.template import Template, TemplateIndex
from tidings.security.tokens.credentials import Credentials
from tidings.security.topic_record import TopicRecord

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
AUTHORITY = Authority.found("authority", NOW)
KMC = AUTHORITY.issue("kmc-1", Role.KMC, NOW, days=3_000)
OWNERS = [AUTHORITY.issue(f"owner-{number}", Role.ENTITY, NOW, days=3_000) for number in range(3)]
ANNA, BERT, CARL = OWNERS
READER = AUTHORITY.issue("reader", Role.ENTITY, NOW).certificate
TEMPLATES = ["/a", "/b", "x=1,y=*", "x=1,y=2", "x=2", "z=1,x=1"]


REVOCATIONS = AUTHORITY.revocations(NOW)


def credentials() -> Credentials:
    made = Credentials(AUTHORITY.anchor)
    made.revoke(REVOCATIONS)
    return made


def node(name: str = "one") -> DiscoveryNode:
    return DiscoveryNode(credentials(), name.encode())


@cache
def record(owner: Identity, template: str, version: int = 1) -> TopicRecord:
    id = (owner.name + template).encode().ljust(16, b".")[:16]  # noqa: A001
    return TopicRecord.make(owner, id=id, template=template, kmc=KMC.certificate, version=version)


def topic(owner: Identity, template: str, now: int = NOW, **given: object) -> DiscoveryRecord:
    return DiscoveryRecord.topic(owner, record(owner, template), now, **given)  # type: ignore[arg-type]


def centre(now: int = NOW, **given: object) -> DiscoveryRecord:
    service = ServiceRecord.make(KMC, "aa", b"k" * 32, 1)
    return DiscoveryRecord.of_service(KMC, service, now, **given)  # type: ignore[arg-type]


def templates(there: DiscoveryNode, wanted: str, asker: object = READER, now: int = NOW) -> list[str]:
    found = there.find(FindRequest(wanted), asker, now)  # type: ignore[arg-type]
    return sorted(str(one.record.template) for one in map(DiscoveryRecord, found.advertised) if one.record is not None)


def put(there: DiscoveryNode, said: DiscoveryRecord, now: int | None = None) -> ReplicatedRecord | None:
    return there.advertise(said.data, said.owner, said.created if now is None else now)


# What is found


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("*", ["/a/b", "/a/c", "x=1,y=*", "z=2"]),
        ("/a/b", ["/a/b"]),
        ("/a/*", ["/a/b", "/a/c"]),
        ("/a", []),
        ("*/b", ["/a/b"]),
        ("x=1", ["x=1,y=*"]),
        ("x=*", ["x=1,y=*"]),
        ("x=2", []),
        ("x=1,y=5", ["x=1,y=*"]),
        ("x=1,y=5,w=3", ["x=1,y=*"]),
        ("x=1,w=3", []),
        ("z=2,y=1", ["z=2"]),
    ],
)
def test_a_query_finds_topics_that_are_meant(wanted: str, found: list[str]) -> None:
    query, there, known = TopicQuery.parse(wanted), node(), ["/a/b", "/a/c", "x=1,y=*", "z=2"]
    for one in known:
        put(there, topic(ANNA, one))
    assert [one for one in known if query.matches(Template.parse(one))] == found == templates(there, wanted)


@pytest.mark.parametrize("wanted", ["", "x" * 1_025, "x=1,x=2", "x=", "x=a*"])
def test_a_query_that_cannot_be_read_is_told(wanted: str) -> None:
    with pytest.raises(InvalidValueError):
        TopicQuery.parse(wanted)


def test_a_topic_is_found_with_the_centre_that_counts_for_it() -> None:
    there = node()
    assert put(there, topic(ANNA, "/a")) is not None
    assert put(there, centre()) is not None
    found = [DiscoveryRecord(one) for one in there.find(FindRequest("/a"), READER, NOW).advertised]
    assert [one.kind for one in found] == [RecordKind.TOPIC, RecordKind.SERVICE]
    assert found[1].service is not None
    assert found[1].service.topic == "aa"
    (only,) = there.find(FindRequest(centre=KMC.certificate.fingerprint), READER, NOW).advertised
    assert DiscoveryRecord(only).kind is RecordKind.SERVICE
    assert there.find(FindRequest(centre=b"other"), READER, NOW).advertised == ()
    assert there.find(FindRequest(), READER, NOW).advertised == ()


def test_who_asks_for_everything_finds_a_centre_that_has_no_topic_yet() -> None:
    there = node()
    assert put(there, centre()) is not None
    (only,) = there.find(FindRequest("*"), READER, NOW).advertised
    assert DiscoveryRecord(only).kind is RecordKind.SERVICE
    assert there.find(FindRequest("/a"), READER, NOW).advertised == ()


def test_an_answer_brings_what_the_asker_lacks_of_the_revocations() -> None:
    found = node().find(FindRequest("*"), READER, NOW)
    assert found.revocations is not None


# Who may find it


@pytest.mark.parametrize(
    ("restriction", "name", "role", "may"),
    [
        (Visibility(), "car-1", Role.ENTITY, True),
        (Visibility(("car-1",)), "car-1", Role.ENTITY, True),
        (Visibility(("car-1",)), "car-12", Role.ENTITY, False),
        (Visibility(("bus-*", "car-*")), "car-12", Role.ENTITY, True),
        (Visibility(("bus-*",)), "car-12", Role.ENTITY, False),
        (Visibility((), ("broker", "kmc")), "car-1", Role.ENTITY, False),
        (Visibility((), ("broker", "kmc")), "b1", Role.BROKER, True),
        (Visibility(("car-*",), ("broker",)), "car-1", Role.ENTITY, False),
        (Visibility(("nobody",)), "owner-0", Role.ENTITY, True),
    ],
)
def test_who_may_not_find_a_topic_learns_nothing(restriction: Visibility, name: str, role: Role, may: bool) -> None:
    asker = AUTHORITY.issue(name, role, NOW).certificate
    there, bare = node(), node()
    put(there, topic(ANNA, "/a", restriction=restriction))
    put(there, centre(restriction=restriction))
    kmc = FindRequest(centre=KMC.certificate.fingerprint)
    assert len(there.find(FindRequest("/a"), asker, NOW).advertised) == (1 + (name != "owner-0") if may else 0)
    if not may:
        assert there.find(FindRequest("*"), asker, NOW) == bare.find(FindRequest("*"), asker, NOW)
        assert there.find(kmc, asker, NOW) == bare.find(kmc, asker, NOW)


def test_a_refusal_names_no_topic_that_the_asker_may_not_find() -> None:
    there = node()
    put(there, topic(ANNA, "x=1,y=2", restriction=Visibility(("owner-1",))))
    with pytest.raises(SecurityError, match=r"overlaps x=1,y=2 of owner-0"):
        put(there, topic(BERT, "x=1,y=*"))
    with pytest.raises(SecurityError) as refused:
        put(there, topic(CARL, "x=1,y=*"))
    assert "owner-0" not in str(refused.value)
    assert "y=2" not in str(refused.value)


def by_hand(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(by_hand(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] == text[0] and by_hand(pattern[1:], text[1:])


@examples(300, 5_000)
@given(st.text("ab*", max_size=6), st.text("ab", max_size=6))
def test_a_pattern_fits_what_it_says(pattern: str, text: str) -> None:
    assert fits(pattern, text) == by_hand(pattern, text)


drawn_templates = st.one_of(
    st.sampled_from(["/a", "/b"]),
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12*"), min_size=1).map(
        lambda tags: ",".join(f"{name}={value}" for name, value in {**tags, "w": "1"}.items())
    ),
    st.sampled_from(["x=1", "x=2", "y=1,x=*"]),
).map(Template.parse)


@examples(200, 5_000)
@given(st.lists(st.tuples(st.integers(0, 8), st.none() | drawn_templates), max_size=20), drawn_templates)
def test_overlapping_templates_are_found_without_a_look_at_each(
    todo: list[tuple[int, Template | None]], wanted: Template
) -> None:
    overlaps: TemplateIndex[int] = TemplateIndex()
    held: dict[int, Template] = {}
    for key, template in todo:
        if template is None:
            overlaps.remove(key)
            held.pop(key, None)
        else:
            overlaps.put(key, template)
            held[key] = template
    assert sorted(overlaps.overlapping(wanted)) == sorted(key for key, one in held.items() if one.overlaps(wanted))


# What is refused


def test_only_its_owner_advertises_a_topic() -> None:
    there, said = node(), topic(ANNA, "/a")
    with pytest.raises(SecurityError, match="owner-0 advertises what is its own"):
        there.advertise(said.data, BERT.certificate, NOW)
    with pytest.raises(SecurityError, match="is not one of owner-1"):
        DiscoveryRecord.topic(BERT, record(ANNA, "/a"), NOW)
    with pytest.raises(SecurityError, match="the service is not owner-1"):
        DiscoveryRecord.of_service(BERT, ServiceRecord.make(KMC, "aa", b"k" * 32, 1), NOW)
    with pytest.raises(SecurityError, match="is no kmc"):
        put(there, DiscoveryRecord.of_service(BERT, ServiceRecord.make(BERT, "aa", b"k" * 32, 1), NOW))


GOOD = topic(ANNA, "/a").data


@examples(100, 2_000)
@given(st.integers(0, 1_000_000), st.integers(0, 7))
def test_an_advertisement_that_was_altered_is_refused(drawn: int, bit: int) -> None:
    place = drawn % len(GOOD)
    altered = GOOD[:place] + bytes([GOOD[place] ^ 1 << bit]) + GOOD[place + 1 :]
    there = node()
    with pytest.raises(SecurityError):
        there.advertise(altered, ANNA.certificate, NOW)
    with pytest.raises(SecurityError):
        there.join(ReplicatedRecord(altered, 0, NOW), NOW)
    assert there.kept() == []


def forged(good: DiscoveryRecord, signer: Identity, changed: dict[str, object]) -> bytes:
    """The same with other fields, signed again by somebody."""
    body = decode_canonical(decode_canonical(good.data, SignedValue, "").body, discovery_records._Body, "")
    fields = {name: getattr(body, name) for name in body.__struct_fields__} | changed
    data = encode_canonical(discovery_records._Body(**fields))
    return encode_canonical(SignedValue(data, signer.sign(discovery_records.PURPOSE, data)))


STRANGER = Authority.found("authority", NOW).issue("owner-0", Role.ENTITY, NOW)


@pytest.mark.parametrize(
    ("signer", "changed", "check"),
    [
        (BERT, {}, "signature"),
        (BERT, {"owner": BERT.certificate.der}, "owner"),
        (STRANGER, {"owner": STRANGER.certificate.der}, "certificate"),
        (ANNA, {"overlay": "other"}, "audience"),
        (ANNA, {"id": b"another id......"}, "owner"),
        (ANNA, {"expires": NOW + LONGEST + 1}, "form"),
        (ANNA, {"expires": NOW - 1}, "form"),
        (ANNA, {"kind": RecordKind.WITHDRAWN}, "form"),
        (ANNA, {"restriction": Visibility(("",))}, "form"),
        (ANNA, {"restriction": Visibility(("a",) * 257)}, "form"),
        (ANNA, {"restriction": Visibility((), ("king",))}, "form"),
        (ANNA, {"said": b"nonsense"}, "form"),
        (ANNA, {"created": NOW + FRESHNESS + 1}, "expired"),
    ],
)
def test_forged_advertisements_are_refused(signer: Identity, changed: dict[str, object], check: str) -> None:
    data = forged(topic(ANNA, "/a"), signer, changed)
    with pytest.raises(SecurityError) as refused:
        node().advertise(data, ANNA.certificate, NOW)
    assert refused.value.check == check
    with pytest.raises(SecurityError) as refused:
        node().join(ReplicatedRecord(data, 0, NOW), NOW)
    assert refused.value.check == check


def test_a_record_of_another_overlay_is_not_advertised_here() -> None:
    good = topic(ANNA, "/a")
    assert good.record is not None
    other = TopicRecord.make(ANNA, id=good.record.id, template="/a", kmc=KMC.certificate, overlay="other")
    with pytest.raises(SecurityError, match="is one of the overlay 'other'"):
        node().advertise(forged(good, ANNA, {"said": other.data}), ANNA.certificate, NOW)


def test_what_has_ended_is_not_advertised() -> None:
    ended = forged(topic(ANNA, "/a"), ANNA, {"created": NOW - 2, "expires": NOW})
    with pytest.raises(SecurityError, match="not valid at this time"):
        node().advertise(ended, ANNA.certificate, NOW)


@pytest.mark.parametrize("changed", [{"version": NOW, "created": NOW + 1}, {"version": NOW + 1, "created": NOW - 1}])
def test_a_later_one_is_later_by_its_version_and_by_its_time(changed: dict[str, object]) -> None:
    there, first = node(), topic(ANNA, "/a")
    put(there, first)
    with pytest.raises(SecurityError, match="is known, and later"):
        there.advertise(forged(first, ANNA, changed), ANNA.certificate, NOW + 1)


def test_what_another_node_keeps_is_as_bounded_as_what_owners_say(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ReplicatedRecord(topic(ANNA, "/a").data, 0, NOW)
    with pytest.raises(SecurityError, match="to be forgotten"):
        node().join(kept, NOW + LONGEST)
    monkeypatch.setattr("tidings.security.tdn.discovery_node.MAX_ADVERTISED", 0)
    with pytest.raises(SecurityError, match="topics and services"):
        node().join(kept, NOW)


def test_who_says_again_what_was_kept_and_never_shown_is_told_why() -> None:
    there, later = node(), topic(BERT, "/a")
    put(there, topic(ANNA, "/a"))
    there.join(ReplicatedRecord(later.data, 0, NOW + 1), NOW + 1)
    with pytest.raises(SecurityError, match="overlaps"):
        put(there, later, NOW + 1)


def test_what_is_too_large_is_not_read() -> None:
    with pytest.raises(SecurityError, match="MAX_ADVERTISED_BYTES"):
        node().advertise(b"x" * 65_537, ANNA.certificate, NOW)


def test_nothing_is_advertised_for_longer_than_its_owner_has_a_certificate() -> None:
    brief = AUTHORITY.issue("owner-0", Role.ENTITY, NOW, days=1)
    good = DiscoveryRecord.topic(brief, record(ANNA, "/a"), NOW)
    assert good.expires == brief.certificate.not_after
    put(node(), good)
    data = forged(good, brief, {"expires": NOW + 2 * DAY})
    with pytest.raises(SecurityError, match="ends no later than the certificate of owner-0"):
        node().advertise(data, brief.certificate, NOW)


def test_what_came_before_is_refused() -> None:
    there = node()
    first, second = topic(ANNA, "/a"), topic(ANNA, "/a", NOW + SECOND, restriction=Visibility(("owner-1",)))
    put(there, first)
    put(there, second)
    with pytest.raises(SecurityError, match="is known, and later"):
        put(there, first, NOW + 2 * SECOND)
    with pytest.raises(SecurityError, match="made too long ago"):
        put(node("other"), first, NOW + FRESHNESS + 1)
    assert put(there, second, NOW + DAY) is None  # it is here: to say it again changes nothing
    put(there, DiscoveryRecord.topic(ANNA, record(ANNA, "/a", 2), NOW + 3 * SECOND))
    with pytest.raises(SecurityError, match="of the topic's record is known"):
        put(there, topic(ANNA, "/a", NOW + 4 * SECOND))


def test_who_was_revoked_advertises_nothing_and_is_found_no_more() -> None:
    authority = Authority.found("authority", NOW)
    owner, other = (authority.issue(name, Role.ENTITY, NOW) for name in ("owner", "other"))
    known = Credentials(authority.anchor)
    known.revoke(authority.revocations(NOW))
    there = DiscoveryNode(known, b"one")
    said = {
        one.name: TopicRecord.make(one, id=one.name.encode().ljust(16), template="/a", kmc=KMC.certificate)
        for one in (owner, other)
    }
    put(there, DiscoveryRecord.topic(owner, said["owner"], NOW))
    there.join(ReplicatedRecord(DiscoveryRecord.topic(other, said["other"], NOW).data, 0, NOW + 1), NOW + 1)
    assert [one.owner.name for one in there.shown()] == ["owner"]
    authority.revoke("owner", NOW + SECOND)
    assert there.revoke(authority.revocations(NOW + SECOND), NOW + SECOND) == 1
    assert [one.owner.name for one in there.shown()] == ["other"]
    with pytest.raises(SecurityError, match="revoked"):
        put(there, DiscoveryRecord.topic(owner, said["owner"], NOW + 2 * SECOND))


def test_it_ends_when_its_owner_said_or_withdrew_it() -> None:
    there = node()
    put(there, topic(ANNA, "/a", lifetime=DAY))
    put(there, topic(ANNA, "/b"))
    assert templates(there, "*") == ["/a", "/b"]
    assert templates(there, "*", now=NOW + DAY) == ["/b"]
    put(there, DiscoveryRecord.withdrawal(ANNA, record(ANNA, "/b").id, NOW + DAY))
    assert templates(there, "*", now=NOW + DAY) == []
    put(there, topic(BERT, "/b", NOW + DAY))
    with pytest.raises(SecurityError, match="overlaps /b of owner-1"):
        put(there, topic(ANNA, "/b", NOW + DAY + 1))
    assert len(there.kept()) == 3
    templates(there, "*", now=NOW + DAY + LONGEST)
    assert there.kept() == []


def test_there_is_room_for_so_many_of_one_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.tdn.discovery_node.MAX_ADVERTISED_BY_ONE", 2)
    there = node()
    put(there, topic(ANNA, "/a"))
    put(there, topic(ANNA, "/b"))
    with pytest.raises(SecurityError, match="of one owner"):
        put(there, topic(ANNA, "/c"))
    put(there, topic(ANNA, "/a", NOW + 1))
    put(there, topic(BERT, "/c"))
    monkeypatch.setattr("tidings.security.tdn.discovery_node.MAX_ADVERTISED", 3)
    with pytest.raises(SecurityError, match="topics and services"):
        put(there, topic(CARL, "/d"))


def test_an_answer_has_room_for_so_much_and_says_that_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    there, other = node("one"), node("other")
    for template in ("/a", "/b", "/c"):
        put(there, topic(ANNA, template))
    monkeypatch.setattr("tidings.security.tdn.discovery_node.MAX_FOUND_BYTES", 2 * len(topic(ANNA, "/a").data) + 200)
    found = there.find(FindRequest("*"), READER, NOW)
    assert (len(found.advertised), found.more) == (2, True)
    assert not there.find(FindRequest("/a"), READER, NOW).more
    copy(there, other, NOW)
    assert other.shown() != []
    assert templates(other, "/c") == ["/c"]


@examples(40, 1_000)
@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=4), max_size=8), st.integers(1, 3))
def test_what_is_there_during_a_walk_is_found_once_whatever_comes_and_goes(
    changes: list[list[tuple[bool, int]]], room: int
) -> None:
    """Between two pages topics are advertised and withdrawn; and the next page comes from another node."""
    nodes, now = [node("one"), node("other")], NOW
    secret = Visibility(("owner-1",))
    said = {n: topic(OWNERS[n % 3], f"/{n}", restriction=secret if n == 7 else None) for n in range(12)}
    there = set(range(0, 12, 2)) | {7}
    for n in there:
        for one in nodes:
            put(one, said[n])
    stayed, ever, found = set(there), set(there), list[bytes]()
    wanted = FindRequest("*")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidings.security.tdn.discovery_node.MAX_FOUND_BYTES", room * (len(said[0].data) + 100))
        for turn in itertools.count():
            page = nodes[turn % 2].find(wanted, READER, now)
            assert page.advertised or not page.more
            found += [DiscoveryRecord(data).id for data in page.advertised]
            if not page.more:
                break
            wanted = FindRequest("*", after=DiscoveryRecord(page.advertised[-1]).key)
            for comes, n in changes[turn] if turn < len(changes) else ():
                now += 1
                owner = OWNERS[n % 3]
                made = topic(owner, f"/{n}", now) if comes else DiscoveryRecord.withdrawal(owner, said[n].id, now)
                for one in nodes:
                    put(one, made, now)
                stayed -= set() if comes else {n}
                ever |= {n} if comes else set()
    assert len(found) == len(set(found))
    assert {said[n].id for n in stayed - {7}} <= set(found) <= {said[n].id for n in ever}
    if not any(comes and n == 7 for some in changes for comes, n in some):
        assert said[7].id not in found


# Among nodes


def copy(there: DiscoveryNode, to: DiscoveryNode, now: int) -> int:
    """All that the one lacks of the other."""
    after, new = ReplicateRequest(), 0
    while True:
        changes = there.changes(after, now)
        new += sum(to.join(one, now) is not None for one in changes.kept)
        after = ReplicateRequest(changes.instance, changes.number)
        if not changes.more:
            return new


def test_only_what_is_new_is_copied_and_an_instance_that_is_gone_does_not_count() -> None:
    there = node("one")
    put(there, topic(ANNA, "/a"))
    first = there.changes(ReplicateRequest(), NOW)
    put(there, topic(ANNA, "/b"))
    second = there.changes(ReplicateRequest(first.instance, first.number), NOW)
    assert [len(one.kept) for one in (first, second)] == [1, 1]
    assert there.changes(ReplicateRequest(second.instance, second.number), NOW).kept == ()
    assert len(there.changes(ReplicateRequest(b"before", second.number), NOW).kept) == 2


def test_of_two_owners_who_claim_the_same_at_once_the_first_keeps_it_at_every_node() -> None:
    one, two = node("one"), node("two")
    put(two, topic(BERT, "x=1,y=*", NOW))
    put(one, topic(ANNA, "x=1,y=2", NOW + 1))
    for there, to in ((one, two), (two, one)):
        copy(there, to, NOW + 2)
    assert templates(one, "*") == templates(two, "*") == ["x=1,y=*"]
    put(two, DiscoveryRecord.withdrawal(BERT, record(BERT, "x=1,y=*").id, NOW + 3))
    copy(two, one, NOW + 4)
    assert templates(one, "*", now=NOW + 4) == templates(two, "*", now=NOW + 4) == ["x=1,y=2"]
    with pytest.raises(SecurityError, match="overlaps"):
        put(one, topic(BERT, "x=1,y=*", NOW + 5))  # who has left comes last


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 2), st.integers(0, 2), st.sampled_from(TEMPLATES)),
        st.tuples(st.just("withdraw"), st.integers(0, 2), st.integers(0, 2), st.sampled_from(TEMPLATES)),
        st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 2), st.just("")),
        st.tuples(st.just("restart"), st.integers(0, 2), st.just(0), st.just("")),
        st.tuples(st.just("wait"), st.just(0), st.just(0), st.just("")),
    ),
    max_size=14,
)


@examples(60, 1_500)
@given(steps)
def test_nodes_that_know_the_same_show_the_same_and_no_two_owners_overlap(
    todo: list[tuple[str, int, int, str]],
) -> None:
    nodes, now = [node(str(number)) for number in range(3)], NOW
    for what, here, other, template in todo:
        now += SECOND
        there, owner = nodes[here], OWNERS[other]
        if what == "copy":
            copy(there, nodes[other], now)
        elif what == "wait":
            now += 100 * DAY
        elif what == "restart":
            again = node(f"{here} at {now}")
            again.restore(there.kept(), now)
            assert {one.data for one in again.shown()} == {one.data for one in shown(there, now)}
            nodes[here] = again
        else:
            said = topic(owner, template, now, lifetime=150 * DAY)
            if what == "withdraw":
                said = DiscoveryRecord.withdrawal(owner, record(owner, template).id, now)
            try:
                put(there, said)
            except SecurityError as error:
                assert error.check == "topic"
                assert any(one.owner.name != owner.name for one in shown(there, now))
            else:
                assert (said.data in {one.data for one in shown(there, now)}) == (what == "say")
    for there, to in itertools.permutations(nodes, 2):
        copy(there, to, now)
    for there, to in itertools.permutations(nodes, 2):
        copy(there, to, now)
    assert all(copy(there, to, now) == 0 for there, to in itertools.permutations(nodes, 2))
    agreed = [{one.data for one in shown(there, now)} for there in nodes]
    assert agreed[0] == agreed[1] == agreed[2] == {one.data for one in chosen(nodes[0], now)}
    for one, two in itertools.combinations(shown(nodes[0], now), 2):
        assert one.record is not None
        assert two.record is not None
        assert one.owner.name == two.owner.name or not one.record.template.overlaps(two.record.template)


def shown(there: DiscoveryNode, now: int) -> list[DiscoveryRecord]:
    there.find(FindRequest(), READER, now)  # time passes
    return there.shown()


def chosen(there: DiscoveryNode, now: int) -> list[DiscoveryRecord]:
    """What is to be shown, from all that is kept: in the order of who was first, all that exclude none before."""
    found: list[DiscoveryRecord] = []
    for since, _, said in sorted(
        (one.since, DiscoveryRecord(one.data).id, DiscoveryRecord(one.data)) for one in there.kept()
    ):
        assert since <= now
        if said.record is None or said.expires <= now:
            continue
        overlapping = (one for one in found if one.record and one.record.template.overlaps(said.record.template))
        if all(one.owner.name == said.owner.name for one in overlapping):
            found.append(said)
    return found


def test_a_service_is_known_by_its_name() -> None:
    assert service_id("kmc-1") != service_id("kmc-2")
    there = node()
    put(there, centre())
    put(there, centre(NOW + 1))
    assert len(there.kept()) == 1
