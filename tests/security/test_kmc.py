"""The key management centre: who may register, grant, revoke and rotate, and who gets which keys."""

from typing import Any

import msgspec
import pytest

from tests.security.kmc_world import AUTHORITY, DAY, KMC, NOW, SECOND, World, identity, record
from tidings.model.errors import RefusedError, SecurityError
from tidings.model.limits import MAX_REWRAPPED
from tidings.security import KeyManagementCentre, Right, Role, Suite
from tidings.security.kmc import grants
from tidings.security.kmc.state import EpochAdded, changes_data, read_changes
from tidings.security.rpc import kmc_messages
from tidings.security.sealing.envelope import Seal
from tidings.security.tokens.notices import SignedNotice

# Topics


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lifetime": 0}, "lifetime: 0: seconds that a key is sealed under, from 1"),
        ({"lifetime": 366 * 86_400}, "lifetime: 31,622,400: .*a year"),
        ({"messages": 0}, "messages: 0: messages that a publisher seals under a key, from 1"),
        ({"messages": 2**32 + 1}, "messages: 4,294,967,297"),
        ({"grace": -1}, "grace: -1"),
        ({"grace": 86_401}, "grace: 86,401: .*a day"),
        ({"challenge": -1}, "challenge: -1"),
    ],
)
def test_bad_parameters_are_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        World().register(**given)


def test_only_the_owner_registers_a_topic() -> None:
    world = World()
    with pytest.raises(RefusedError, match="the record is that of owner, not of mallory"):
        world.ask(identity("mallory"), kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(record().data))


def test_a_record_that_names_another_centre_is_refused() -> None:
    other = record(kmc=identity("other-kmc", Role.KMC).certificate)
    with pytest.raises(RefusedError, match="names another centre than kmc"):
        World().register(other)


def test_a_record_of_another_overlay_is_refused() -> None:
    with pytest.raises(RefusedError, match="one of the overlay 'elsewhere'"):
        World().register(record(overlay="elsewhere"))


def test_templates_of_two_owners_do_not_overlap() -> None:
    world = World()
    world.register()
    with pytest.raises(RefusedError, match="overlaps Sports=NBA of owner"):
        world.register(record("Sports=NBA,Team=Bulls", "mallory"), "mallory")


def test_the_same_topic_can_be_registered_again_with_other_parameters() -> None:
    world = World()
    topic = world.register(lifetime=1_000)
    world.register(topic, lifetime=100)
    (listed,) = msgspec.msgpack.decode(
        world.ask(identity("owner"), kmc_messages.LIST, b""), type=kmc_messages.ListResponse
    ).topics
    assert (listed.lifetime, listed.epoch) == (100, 2)  # the key that would have lived longer is replaced


def test_another_suite_takes_effect_at_once_and_everybody_needs_a_new_token() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    world.fetch("p", topic)
    later = world.register(record(version=2, suite=Suite.CHACHA20_POLY1305))
    world.hear()
    assert world.member("p").needs_renewal(topic.id, world.now)
    given = world.fetch("p", later)
    assert [(key.epoch, key.suite) for key in given.keys] == [(2, Suite.CHACHA20_POLY1305)]
    world.gate.credentials.learn(later, world.now)
    sealed = world.member("p").seal(world.event("p"), world.now)
    world.gate.admit(sealed, world.now)


# Grants, tokens and keys


def test_who_was_granted_something_gets_a_token_for_it() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p", "publish", until=world.now + 3_600 * SECOND, template="Sports=NBA,Team=*")
    world.fetch("p", topic)
    token = world.member("p").token(topic.id)
    assert token is not None
    assert (token.rights, str(token.template)) == (Right.PUBLISH, "Sports=NBA,Team=*")
    assert (token.not_before, token.not_after) == (world.now - 300 * SECOND, world.now + 3_600 * SECOND)


def test_a_token_lives_for_a_day_at_most() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    given = world.fetch("p", topic)
    token = world.member("p").token(topic.id)
    assert token is not None
    assert token.not_after == world.now + DAY
    assert world.now < given.renew_at < token.not_after


def test_the_same_token_is_given_again_while_it_is_good_for_long() -> None:
    world = World()
    topic = world.register(lifetime=10 * 86_400)
    world.grant(topic, "p")
    first = world.fetch("p", topic).token
    world.pass_time(3_600 * SECOND)
    assert world.fetch("p", topic).token == first
    world.pass_time(12 * 3_600 * SECOND)
    assert world.fetch("p", topic).token != first


@pytest.mark.parametrize("entity", ["mallory", "owner"])
def test_who_was_granted_nothing_gets_nothing(entity: str) -> None:
    world = World()
    topic = world.register()
    with pytest.raises(RefusedError, match=f"{entity} has no rights on Sports=NBA: ask owner"):
        world.fetch(entity, topic)


def test_keys_are_given_only_to_who_has_the_signing_key() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    world.grant(topic, "q")
    wanted = world.member("q").wants(topic, KMC.certificate)
    with pytest.raises(RefusedError, match="p has not shown that it has the signing key"):
        world.ask(identity("p"), kmc_messages.KEYS, wanted)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"rights": 0}, "at least one of publish"),
        ({"rights": 8}, "at least one of publish"),
        ({"until": NOW}, "ends in the future"),
        ({"entity": ""}, "a client's name"),
        ({"template": "Sports=NFL"}, "Sports=NFL is more than the topic: it is Sports=NBA"),
        ({"template": "Sports=*"}, "at least one tag has a value"),
        ({"topic": bytes(16)}, "no topic of that id"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused_with_the_reason(given: dict[str, object], reason: str) -> None:
    world = World()
    topic = world.register()
    wanted = msgspec.structs.replace(kmc_messages.GrantRequest(topic.id, "p", 3, NOW + DAY), **given)
    with pytest.raises(RefusedError, match=reason):
        world.ask(identity("owner"), kmc_messages.GRANT, wanted)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (kmc_messages.GRANT, kmc_messages.GrantRequest(record().id, "mallory", 3, NOW + DAY)),
        (kmc_messages.REVOKE, kmc_messages.RevokeRequest("p", record().id)),
        (kmc_messages.REVOKE, kmc_messages.RevokeRequest("p")),
        (kmc_messages.ROTATE, kmc_messages.RotateRequest(record().id)),
        (kmc_messages.RELEASE, kmc_messages.ReleaseRequest("p")),
        (kmc_messages.ENROL, kmc_messages.EnrolRequest((("q", "a"),), "p")),
    ],
)
def test_who_is_not_the_owner_changes_nothing(kind: str, body: msgspec.Struct) -> None:
    world = World()
    world.grant(world.register(), "p")
    saved = len(world.saved)
    with pytest.raises(RefusedError):
        world.ask(identity("mallory"), kind, body)
    assert len(world.saved) == saved


def test_the_administrator_may_do_what_owners_may() -> None:
    world = World()
    topic = world.register()
    assert (
        world.decide(KMC, kmc_messages.GRANT, kmc_messages.GrantRequest(topic.id, "p", 3, world.now + DAY)).refused
        is None
    )
    assert world.may_fetch("p", topic)
    assert world.decide(KMC, kmc_messages.REVOKE, kmc_messages.RevokeRequest("p")).refused is None
    assert not world.may_fetch("p", topic)


def test_a_subscriber_gets_the_keys_since_its_grant_and_none_before() -> None:
    world = World()
    topic = world.register()
    world.rotate(topic, compromised=True)
    world.grant(topic, "s", "subscribe")
    world.rotate(topic, compromised=True)
    assert [key.epoch for key in world.fetch("s", topic).keys] == [2, 3]
    world.rotate(topic, compromised=True)
    assert [key.epoch for key in world.fetch("s", topic).keys] == [4]


def test_with_history_a_subscriber_gets_all_keys() -> None:
    world = World()
    topic = world.register()
    world.rotate(topic, compromised=True)
    world.grant(topic, "s", "subscribe", history=True)
    assert [key.epoch for key in world.fetch("s", topic).keys] == [1, 2]


def test_a_publisher_gets_only_what_it_seals_under() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p", "publish")
    for _ in range(3):
        world.rotate(topic, compromised=True)
    assert [key.epoch for key in world.fetch("p", topic).keys] == [4]


def test_who_only_governs_gets_no_key() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "g", "govern")
    assert world.fetch("g", topic).keys == ()
    assert not world.member("g").needs_renewal(topic.id, world.now)


def test_less_than_before_takes_back_the_tokens_that_gave_more() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    old = world.fetch("p", topic).token
    world.gate.credentials.learn(topic, world.now)
    world.grant(topic, "p", "subscribe")
    world.hear()
    with pytest.raises(SecurityError, match="was taken back"):
        world.gate.credentials.token(old, world.now)
    assert world.member("p").needs_renewal(topic.id, world.now)
    world.gate.subscription(world.fetch("p", topic).token, "p", world.now)


def test_more_than_before_leaves_tokens_as_they_are() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p", "subscribe")
    world.fetch("p", topic)
    world.told.clear()
    world.grant(topic, "p")
    assert not world.told


def test_a_later_record_leaves_everybody_the_part_that_was_granted() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p", template="Sports=NBA,Team=Bulls")
    with pytest.raises(RefusedError, match=r"p was granted Sports=NBA,Team=Bulls, which is not within Sports=NFL"):
        world.register(record("Sports=NFL", id=topic.id, version=2))


def test_a_topic_has_so_many_grants_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_GRANTS", 2)
    world = World()
    topic = world.register()
    for name in ("a", "b", "a"):
        world.grant(topic, name)
    with pytest.raises(RefusedError, match="at most MAX_GRANTS"):
        world.grant(topic, "c")


# Rotation


def test_a_key_that_ends_is_replaced_ahead_and_nobody_waits() -> None:
    world = World()
    topic = world.register(lifetime=100)
    for one in ("p", "s"):
        world.grant(topic, one)
        world.fetch(one, topic)
    world.pass_time(51 * SECOND)
    world.hear()
    assert all(world.member(one).needs_renewal(topic.id, world.now) for one in ("p", "s"))
    for one in ("p", "s"):
        (key,) = world.fetch(one, topic).keys
        assert (key.epoch, key.since) == (2, NOW + 100 * SECOND)
    before = world.member("p").seal(world.event("p"), world.now)
    world.pass_time(50 * SECOND)
    after = world.member("p").seal(world.event("p"), world.now)
    assert [Seal.of(one).epoch for one in (before, after)] == [1, 2]
    for sealed in (before, after):
        assert world.member("s").open(sealed, world.now).payload == b"what is secret"


def test_a_scheduled_rotation_accepts_the_key_before_for_the_grace_time() -> None:
    world = World()
    topic = world.register(lifetime=100, grace=10)
    world.grant(topic, "p")
    world.fetch("p", topic)
    world.gate.credentials.learn(topic, world.now)
    world.rotate(topic)  # begins in 50 seconds
    world.hear()
    for wait, is_good in ((0, True), (59, True), (2, False)):
        world.now += wait * SECOND
        sealed = world.member("p").seal(world.event("p"), world.now)
        if is_good:
            world.gate.admit(sealed, world.now)
        else:
            with pytest.raises(SecurityError, match="epoch 1 is over; fetch the key of epoch 2"):
                world.gate.admit(sealed, world.now)


def test_a_rotation_that_waits_to_begin_is_not_done_twice() -> None:
    world = World()
    topic = world.register()
    world.rotate(topic)
    saved = len(world.saved)
    world.rotate(topic)
    assert len(world.saved) == saved


def test_a_compromise_accepts_nothing_older() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    world.fetch("p", topic)
    world.gate.credentials.learn(topic, world.now)
    world.rotate(topic, compromised=True)
    world.hear()
    with pytest.raises(SecurityError, match="epoch 1 is over"):
        world.gate.admit(world.member("p").seal(world.event("p"), world.now), world.now)
    world.fetch("p", topic)
    world.gate.admit(world.member("p").seal(world.event("p"), world.now), world.now)


def test_a_publisher_that_has_used_up_its_messages_gets_another_key() -> None:
    world = World()
    topic = world.register(messages=10)
    world.grant(topic, "p")
    assert world.fetch("p", topic).messages == 9
    for number in range(9):
        assert not world.member("p").needs_renewal(topic.id, world.now)
        world.member("p").seal(world.event("p", number), world.now)
    assert world.member("p").needs_renewal(topic.id, world.now)
    assert [key.epoch for key in world.fetch("p", topic).keys] == [2]
    assert not world.member("p").needs_renewal(topic.id, world.now)


def test_renewing_a_token_forgets_no_message() -> None:
    world = World()
    topic = world.register(messages=10)
    world.grant(topic, "p")
    world.fetch("p", topic)
    for number in range(8):
        world.member("p").seal(world.event("p", number), world.now)
    world.fetch("p", topic)
    world.member("p").seal(world.event("p", 9), world.now)
    assert world.member("p").needs_renewal(topic.id, world.now)


def test_a_topic_at_rest_makes_no_keys() -> None:
    world = World()
    topic = world.register(lifetime=1)
    world.grant(topic, "p")
    for _ in range(100):
        world.pass_time(SECOND)
    assert world.fetch("p", topic).keys[-1].epoch == 2  # the first had ended
    for _ in range(100):
        world.pass_time(SECOND)
    assert world.fetch("p", topic).keys[-1].epoch == 4  # the one after it was made, and had ended


def test_a_grant_that_has_ended_ends_with_another_key() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "s", until=world.now + 10 * SECOND)
    world.grant(topic, "p")
    world.fetch("s", topic)
    world.pass_time(10 * SECOND)
    assert not world.may_fetch("s", topic)
    world.pass_time(60 * SECOND)
    world.fetch("p", topic)
    sealed = world.member("p").seal(world.event("p"), world.now)
    with pytest.raises(SecurityError, match="the key of epoch 2 is not held here"):
        world.member("s").open(sealed, world.now)


# Revocation


def test_who_was_revoked_reads_nothing_that_is_sealed_after_it() -> None:
    world = World()
    topic = world.register()
    for one in ("p", "s", "m"):
        world.grant(topic, one)
        world.fetch(one, topic)
    world.gate.credentials.learn(topic, world.now)
    before = world.member("p").seal(world.event("p"), world.now)
    world.revoke(topic, "m")
    world.hear()
    assert not world.may_fetch("m", topic)
    with pytest.raises(SecurityError, match="was taken back"):
        world.gate.admit(world.member("m").seal(world.event("m"), world.now), world.now)
    for one in ("p", "s"):
        assert world.member(one).needs_renewal(topic.id, world.now)
        world.fetch(one, topic)
    after = world.member("p").seal(world.event("p", 2), world.now)
    world.gate.admit(after, world.now)
    assert world.member("s").open(after, world.now).payload == b"what is secret"
    assert world.member("m").open(before, world.now).payload == b"what is secret"
    with pytest.raises(SecurityError, match="the key of epoch 2 is not held here"):
        world.member("m").open(after, world.now)


def test_a_key_that_was_given_ahead_is_not_used_after_a_revocation() -> None:
    world = World()
    topic = world.register(lifetime=100)
    for one in ("p", "m"):
        world.grant(topic, one)
    world.rotate(topic)
    world.fetch("m", topic)
    world.revoke(topic, "m")
    world.fetch("p", topic)
    for wait in (0, 60):
        world.pass_time(wait * SECOND)
        assert Seal.of(world.member("p").seal(world.event("p"), world.now)).epoch >= 3


def test_whose_certificate_is_revoked_is_out_of_all_its_topics() -> None:
    world = World()
    topics = [world.register(record(f"Sports={one}")) for one in ("NBA", "NFL", "NHL")]
    gone = AUTHORITY.issue("gone", Role.ENTITY, NOW)
    for topic in topics[:2]:
        world.grant(topic, "gone")
        member = world.member("gone")
        member.identity = gone
        world.fetch("gone", topic)
    before = len(AUTHORITY.revoked)
    AUTHORITY.revoke("gone", world.now)
    try:
        world.told.clear()
        world.took(world.centre.revocations(AUTHORITY.revocations(world.now, next_update=DAY), world.now))
    finally:
        del AUTHORITY.revoked[before:]
    told = [SignedNotice(one).notice for one in world.told]
    assert {(one.topic, one.epoch, one.accepted) for one in told} == {(one.id, 2, 2) for one in topics[:2]}
    assert all(gone.certificate.fingerprint.hex() in one.grants for one in told)
    world.restart()
    with pytest.raises(SecurityError, match="has been revoked"):
        world.fetch("gone", topics[0])


def test_tokens_that_have_expired_need_not_be_named_any_more() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "m")
    world.fetch("m", topic)
    world.revoke(topic, "m")
    assert len(SignedNotice(world.told[-1]).notice.grants) == 1
    world.pass_time(DAY + 301 * SECOND)
    world.rotate(topic)
    assert SignedNotice(world.told[-1]).notice.grants == {}


def test_who_was_revoked_and_granted_anew_begins_anew() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "s")
    world.fetch("s", topic)
    world.revoke(topic, "s")
    world.rotate(topic, compromised=True)
    world.grant(topic, "s")
    world.hear()
    assert [key.epoch for key in world.fetch("s", topic).keys] == [3]


# What was missed


def test_missed_messages_are_rewrapped_for_who_may_have_them() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p")
    world.fetch("p", topic)
    early = world.member("p").seal(world.event("p"), world.now)
    world.rotate(topic, compromised=True)
    world.grant(topic, "s", "subscribe")
    world.fetch("p", topic)
    missed = world.member("p").seal(world.event("p", 2), world.now)
    world.rotate(topic, compromised=True)
    wrapped = tuple((Seal.of(one).epoch, Seal.of(one).wrapped, world.now) for one in (early, missed))
    wrapped += ((2, b"\0" * 40, world.now), (2, Seal.of(missed).wrapped, world.now - DAY), (9, b"", world.now))
    body = world.ask(identity("s"), kmc_messages.REWRAP, kmc_messages.RewrapRequest(topic.id, wrapped))
    found = read(body)
    assert (found.epoch, [bool(one) for one in found.wrapped]) == (3, [False, True, False, False, False])
    world.fetch("s", topic)
    seal = msgspec.structs.replace(Seal.of(missed), wrapped=found.wrapped[1], wrapped_in=3)
    again = msgspec.structs.replace(missed, signature=seal.data)
    world.member("s").keyring.drop(topic.id, 2)
    assert world.member("s").open(again, world.now).payload == b"what is secret"


def test_so_many_are_rewrapped_at_a_time_and_no_more() -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "s", "subscribe")
    wanted = ((1, bytes(40), world.now),) * MAX_REWRAPPED
    assert (
        len(read(world.ask(identity("s"), kmc_messages.REWRAP, kmc_messages.RewrapRequest(topic.id, wanted))).wrapped)
        == 1_024
    )
    with pytest.raises(RefusedError, match="at most MAX_REWRAPPED"):
        world.ask(identity("s"), kmc_messages.REWRAP, kmc_messages.RewrapRequest(topic.id, (*wanted, wanted[0])))


def read(body: bytes) -> kmc_messages.RewrapResponse:
    return msgspec.msgpack.decode(body, type=kmc_messages.RewrapResponse)


@pytest.mark.parametrize("rights", ["publish", "govern"])
def test_nothing_is_rewrapped_for_who_may_not_subscribe(rights: str) -> None:
    world = World()
    topic = world.register()
    world.grant(topic, "p", rights)
    with pytest.raises(RefusedError, match="no right to subscribe"):
        world.ask(identity("p"), kmc_messages.REWRAP, kmc_messages.RewrapRequest(topic.id, ()))


# Challenges


def challenged(world: World) -> str:
    """What a member that asks for keys is asked."""
    topic = record()
    with pytest.raises(RefusedError) as refused:
        world.fetch("s", topic)
    assert refused.value.reason.startswith(kmc_messages.CHALLENGED)
    return refused.value.reason.removeprefix(kmc_messages.CHALLENGED)


ANSWERS = {"the first pet?": "Rex", "the street?": "Long  Lane", "the number?": "7"}


def enrolled() -> World:
    world = World()
    world.grant(world.register(challenge=3_600), "s")
    world.ask(identity("s"), kmc_messages.ENROL, kmc_messages.EnrolRequest(tuple(ANSWERS.items())))
    assert world.may_fetch("s", record())
    world.pass_time(3_600 * SECOND)
    return world


def test_after_the_interval_a_query_has_to_be_answered_before_keys_are_given() -> None:
    world = enrolled()
    query = challenged(world)
    assert challenged(world) == query  # and no other, until it is answered
    world.ask(
        identity("s"), kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest(query, f" {ANSWERS[query].upper()} ")
    )
    assert world.may_fetch("s", record())


def test_what_was_not_asked_cannot_be_answered_nor_be_wrong() -> None:
    world = enrolled()
    query = challenged(world)
    others = [one for one in ANSWERS if one != query]
    for _ in range(2):
        for other in (*others, "?"):
            with pytest.raises(RefusedError, match="s was not asked this"):
                world.ask(
                    identity("s"),
                    kmc_messages.CHALLENGE,
                    kmc_messages.AnswerChallengeRequest(other, ANSWERS.get(other, "")),
                )
    assert challenged(world) == query


def test_who_was_granted_nothing_cannot_enrol() -> None:
    world = World()
    world.register()
    with pytest.raises(RefusedError, match="mallory was granted nothing here"):
        world.ask(identity("mallory"), kmc_messages.ENROL, kmc_messages.EnrolRequest((("q", "a"),)))


def test_a_topic_with_challenges_gives_no_key_to_who_has_no_query_set() -> None:
    world = World()
    topic = world.register(challenge=60)
    world.grant(topic, "s")
    with pytest.raises(RefusedError, match="s has no query set, which this topic asks for: enrol first"):
        world.fetch("s", topic)


def test_three_wrong_answers_suspend_until_the_owner_releases() -> None:
    world = enrolled()
    query = challenged(world)
    for reason in ("the answer is wrong", "the answer is wrong", "suspended after 3 wrong answers"):
        with pytest.raises(RefusedError, match=reason):
            world.ask(identity("s"), kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest(query, "?"))
    world.restart()  # which does not help
    for answer in ("?", ANSWERS[query]):
        with pytest.raises(RefusedError, match=r"not asked this|suspended"):
            world.ask(identity("s"), kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest(query, answer))
        with pytest.raises(RefusedError, match="suspended"):
            world.fetch("s", record())
    listed = msgspec.msgpack.decode(
        world.ask(identity("owner"), kmc_messages.LIST, b""), type=kmc_messages.ListResponse
    )
    assert listed.suspended == ("s",)
    world.ask(identity("owner"), kmc_messages.RELEASE, kmc_messages.ReleaseRequest("s"))
    query = challenged(world)
    world.ask(identity("s"), kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest(query, ANSWERS[query]))
    assert world.may_fetch("s", record())


def test_nobody_is_released_by_himself_or_a_stranger() -> None:
    world = enrolled()
    for who in ("s", "stranger"):
        with pytest.raises(RefusedError, match=f"{who} has granted s nothing"):
            world.ask(identity(who), kmc_messages.RELEASE, kmc_messages.ReleaseRequest("s"))


def test_nothing_is_rewrapped_for_who_has_not_answered() -> None:
    world = enrolled()
    challenged(world)
    with pytest.raises(RefusedError, match=kmc_messages.CHALLENGED):
        world.ask(identity("s"), kmc_messages.REWRAP, kmc_messages.RewrapRequest(record().id, ()))


def test_a_query_set_is_replaced_by_the_administrator_only() -> None:
    world = enrolled()
    with pytest.raises(RefusedError, match="has a query set already"):
        world.ask(identity("s"), kmc_messages.ENROL, kmc_messages.EnrolRequest((("q", "a"),)))
    with pytest.raises(RefusedError, match="asks for too much"):
        world.ask(identity("owner"), kmc_messages.RELEASE, kmc_messages.ReleaseRequest("s", anew=True))
    assert world.decide(KMC, kmc_messages.RELEASE, kmc_messages.ReleaseRequest("s", anew=True)).refused is None
    world.ask(identity("s"), kmc_messages.ENROL, kmc_messages.EnrolRequest((("q", "a"),)))
    assert world.may_fetch("s", record())


@pytest.mark.parametrize(
    "queries", [(), (("q", ""),), (("", "a"),), (("q", "a"), ("q", "b")), (("q" * 257, "a"),), (("q", "  "),)]
)
def test_a_query_set_that_asks_nothing_is_refused(queries: tuple[tuple[str, str], ...]) -> None:
    world = World()
    world.grant(world.register(), "s")
    with pytest.raises(RefusedError, match="a query"):
        world.ask(identity("s"), kmc_messages.ENROL, kmc_messages.EnrolRequest(queries))


# The centre itself


def test_a_centre_that_moves_is_asked_elsewhere_with_the_same_key() -> None:
    world = World()
    before = world.centre.service
    world.took(world.centre.move())
    after = world.centre.service
    assert (before.version, after.version) == (1, 2)
    assert before.topic != after.topic
    assert len(bytes.fromhex(after.topic)) == 16
    world.restart()
    assert world.centre.service.topic == after.topic


def test_only_a_certificate_of_a_centre_makes_one() -> None:
    with pytest.raises(ValueError, match="owner is no kmc"):
        KeyManagementCentre(identity("owner"), bytes)


@pytest.mark.parametrize("body", [b"", b"\x90", b"\xc1", b"\x91" * 2_000])
@pytest.mark.parametrize(
    "kind",
    [
        kmc_messages.KEYS,
        kmc_messages.TOPIC,
        kmc_messages.GRANT,
        kmc_messages.REVOKE,
        kmc_messages.ENROL,
        kmc_messages.REWRAP,
        "?",
    ],
)
def test_what_is_no_question_is_refused(kind: str, body: bytes) -> None:
    reply = World().centre.decide(KMC.certificate, kind, body, NOW)
    assert reply.refused
    assert not reply.changes


def test_no_secret_shows_itself() -> None:
    world = enrolled()
    world.rotate(record())
    shown = repr(world.saved) + repr(world.centre) + repr(world.centre.snapshot())
    for change in world.saved:
        for secret in (getattr(change, "kem", None), getattr(getattr(change, "key", None), "key", None)):
            if secret is not None:
                assert repr(secret)[2:-1] not in shown
                assert secret.hex() not in shown
    assert "Rex" not in shown
    assert "Long" not in shown


def test_an_epoch_that_was_there_cannot_come_again() -> None:
    world = World()
    topic = world.register()
    world.rotate(topic, compromised=True)
    made = [one for one in world.saved if isinstance(one, EpochAdded)]
    for again in (made[0], msgspec.structs.replace(made[1], key=msgspec.structs.replace(made[1].key, key=bytes(32)))):
        with pytest.raises(SecurityError, match="was there before"):
            KeyManagementCentre(KMC, bytes, [*world.saved, again])


def test_a_snapshot_and_all_changes_are_the_same_centre() -> None:
    world = enrolled()
    world.rotate(record())
    data = changes_data(world.centre.snapshot())
    every = KeyManagementCentre(KMC, bytes, world.saved)
    short = KeyManagementCentre(KMC, bytes, read_changes(data))
    assert changes_data(every.snapshot()) == data == changes_data(short.snapshot())
