"""Every attack is refused, at every door; what is good is not."""

import pytest

from tests.security.attacks import BROKER, CLIENT, SUBSCRIBER, TRUSTING, Attack, attacks
from tests.security.world import HOUR, NOW, World
from tidings.model.errors import SecurityError
from tidings.security import Right, Token
from tidings.security.ca.authority import NEXT_UPDATE
from tidings.security.gate import proof_of
from tidings.security.sealing.envelope import Seal
from tidings.security.tokens.notices import Notice, SignedNotice

WORLD = World()
ATTACKS = attacks(WORLD)


def test_there_are_enough() -> None:
    assert len(ATTACKS) >= 500


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_refused(attack: Attack) -> None:
    _, event, doors = attack
    if CLIENT in doors:
        with pytest.raises(SecurityError):
            WORLD.gate().admit(event, NOW)
    if BROKER in doors:
        with pytest.raises(SecurityError):
            WORLD.gate().pass_on(event, NOW)
    if TRUSTING in doors:
        for door in (WORLD.gate(verifies=False).admit, WORLD.gate(verifies=False).pass_on):
            with pytest.raises(SecurityError):
                door(event, NOW)
    if SUBSCRIBER in doors:
        with pytest.raises(SecurityError):
            WORLD.opener().open(event, NOW)


def test_a_plain_event_on_a_secure_topic_is_told_what_it_lacks() -> None:
    for door in (WORLD.gate().admit, WORLD.gate().pass_on):
        with pytest.raises(SecurityError, match="Sports=NBA,Team=\\* is secure"):
            door(WORLD.event(), NOW)


def test_what_they_are_made_from_is_good() -> None:
    gate, opener, sealer = WORLD.gate(), WORLD.opener(), WORLD.sealer()
    for number in range(1, 10):
        event = WORLD.event(number)
        sealed = sealer.seal(event, NOW + number)
        WORLD.gate().pass_on(sealed, NOW)
        gate.admit(sealed, NOW)
        assert opener.open(sealed, NOW) == event
    assert not gate.refused


@pytest.mark.parametrize("verifies", [True, False])
def test_replays_are_refused_where_they_enter(verifies: bool) -> None:
    gate, sealer = WORLD.gate(verifies=verifies), WORLD.sealer()
    first, second = (sealer.seal(WORLD.event(number), NOW + 5) for number in (1, 2))
    older = sealer.seal(WORLD.event(3), NOW + 4)
    same = sealer.seal(WORLD.event(2), NOW + 5)
    gate.admit(first, NOW)
    gate.admit(second, NOW)  # the same time, and a later number
    for refused in (first, second, older, same):
        with pytest.raises(SecurityError, match="came before"):
            gate.admit(refused, NOW)
    assert gate.refused["replay"] == 4
    anew = WORLD.gate(verifies=verifies)
    anew.ingress.record_all(gate.ingress.state())
    with pytest.raises(SecurityError, match="came before"):
        anew.admit(second, NOW)
    recalled = WORLD.gate(verifies=verifies)
    for one in (first, second):
        recalled.recall(one)
    with pytest.raises(SecurityError, match="came before"):
        recalled.admit(first, NOW)


def test_what_is_too_old_or_from_the_future_is_refused() -> None:
    gate, sealer = WORLD.gate(freshness=1_000_000), WORLD.sealer()
    for when, reason in ((NOW - 1_000_001, "too long ago"), (NOW + 1_000_001, "from the future")):
        with pytest.raises(SecurityError, match=reason):
            gate.admit(sealer.seal(WORLD.event(), when), NOW)


def test_what_came_before_is_refused_even_where_its_publisher_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.security.sealing.replay.MAX_REPLAY_INSTANCES", 1)
    gate = WORLD.gate()
    first = WORLD.sealer().seal(WORLD.event(1), NOW)
    for event in (first, WORLD.sealer().seal(WORLD.event(2), NOW + 1)):
        gate.admit(event, NOW)
    with pytest.raises(SecurityError, match="too long ago"):
        gate.admit(first, NOW)


def test_a_publisher_that_has_very_many_instances_has_nobody_elses_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one token would be enough to have all others refused for a while."""
    monkeypatch.setattr("tidings.security.sealing.replay.MAX_REPLAY_INSTANCES_OF_ONE", 2)
    monkeypatch.setattr("tidings.security.sealing.replay.MAX_REPLAY_INSTANCES", 4)
    gate, eves = WORLD.gate(), WORLD.token("eve")
    gate.admit(WORLD.sealer().seal(WORLD.event(1), NOW), NOW)
    many = [WORLD.sealer(eves, who="eve").seal(WORLD.event(2, "eve"), NOW + 100 + step) for step in range(9)]
    for event in many:
        gate.admit(event, NOW)
    anew = WORLD.gate()
    anew.ingress.restore(gate.ingress.state(), gate.ingress.floor, gate.ingress.floors)
    for one in (gate, anew):
        assert len(one.ingress.state()) == 3
        one.admit(WORLD.sealer().seal(WORLD.event(3), NOW + 1), NOW)  # another process of ann's, with a slower clock
        for event in many:
            with pytest.raises(SecurityError, match=r"too long ago|came before"):
                one.admit(event, NOW)


def test_a_counter_that_goes_back_is_refused() -> None:
    gate, sealer = WORLD.gate(), WORLD.sealer()
    first = sealer.seal(WORLD.event(1), NOW + 2)
    gate.admit(sealer.seal(WORLD.event(2), NOW), NOW)
    with pytest.raises(SecurityError, match="nonce"):
        gate.admit(first, NOW)


def test_an_epoch_that_is_over_is_refused_after_its_grace() -> None:
    gate, sealer = WORLD.gate(), WORLD.sealer()
    gate.credentials.heed(WORLD.notice(2, accepted=1, until=NOW + 10), NOW)
    gate.admit(sealer.seal(WORLD.event(1), NOW), NOW + 9)
    with pytest.raises(SecurityError, match="epoch 1 is over"):
        gate.admit(sealer.seal(WORLD.event(2), NOW + 1), NOW + 10)
    gate.admit(WORLD.sealer(key=WORLD.epoch_key(2)).seal(WORLD.event(3), NOW + 2), NOW + 10)


def test_after_a_compromise_no_older_epoch_is_accepted() -> None:
    gate = WORLD.gate()
    gate.credentials.heed(WORLD.notice(2, until=NOW + HOUR), NOW)
    with pytest.raises(SecurityError, match="epoch 1 is over"):
        gate.admit(WORLD.sealer().seal(WORLD.event(1), NOW), NOW)


def test_notices_of_others_and_older_ones_change_nothing() -> None:
    credentials = WORLD.gate().credentials
    assert credentials.heed(WORLD.notice(3, version=2), NOW)
    assert not credentials.heed(WORLD.notice(2, version=1), NOW)
    notice = WORLD.notice(9, version=9).notice
    with pytest.raises(SecurityError, match="not the centre"):
        credentials.heed(SignedNotice.make(WORLD.other_kmc, notice), NOW)
    assert credentials.notice(WORLD.record.id) == WORLD.notice(3, version=2).notice


@pytest.mark.parametrize("who", ["ann", "kmc"])
def test_tokens_die_with_the_certificates_in_them(who: str) -> None:
    world = World()
    gate, opener = world.gate(), world.opener()
    sealer = world.sealer()
    gate.admit(sealer.seal(world.event(1), NOW), NOW)
    opener.open(sealer.seal(world.event(2), NOW + 1), NOW)
    world.authority.revoke(who, NOW + 5)
    for credentials in (gate.credentials, opener.credentials):
        assert [one.name for one in credentials.revoke(world.authority.revocations(NOW + 5))] == [who]
    late = sealer.seal(world.event(3), NOW + 6)
    for door in (gate.admit, gate.pass_on, opener.open):
        with pytest.raises(SecurityError, match=f"{who} has been revoked"):
            door(late, NOW + 6)
    before = sealer.seal(world.event(4), NOW + 7)
    gate.check_stored(before, NOW + 4)  # it was accepted while that was valid
    with pytest.raises(SecurityError, match=f"{who} has been revoked"):
        gate.check_stored(before, NOW + 5)


def test_a_list_of_revocations_that_is_too_old_trusts_nobody() -> None:
    gate, late = WORLD.gate(), NOW - HOUR + NEXT_UPDATE
    token = WORLD.token(until=late + HOUR)
    with pytest.raises(SecurityError, match="out of date"):
        gate.admit(WORLD.sealer(token).seal(WORLD.event(), late), late)
    with pytest.raises(SecurityError, match="out of date"):
        gate.subscription(WORLD.token("bob", until=late + HOUR).data, "bob", late)
    with pytest.raises(SecurityError, match="out of date"):
        WORLD.opener().open(WORLD.sealer(token).seal(WORLD.event(), late), late)


def test_what_was_granted_and_taken_back_counts_no_more() -> None:
    gate = WORLD.gate()
    floor = {WORLD.ann.certificate.fingerprint.hex(): 2}
    said = Notice(WORLD.record.id, 2, 2, 1, NOW + HOUR, NOW, floor)
    gate.credentials.heed(SignedNotice.make(WORLD.kmc, said), NOW)
    with pytest.raises(SecurityError, match="taken back"):
        gate.admit(WORLD.sealer(WORLD.token(grant=1)).seal(WORLD.event(1), NOW), NOW)
    gate.admit(WORLD.sealer(WORLD.token(grant=2)).seal(WORLD.event(2), NOW), NOW)


def test_what_was_accepted_before_a_grant_was_taken_back_is_handed_out_still() -> None:
    gate = WORLD.gate()
    stored = WORLD.sealer(WORLD.token(grant=1)).seal(WORLD.event(1), NOW - 5)
    gate.admit(stored, NOW - 5)
    floor = {WORLD.ann.certificate.fingerprint.hex(): 2}
    said = Notice(WORLD.record.id, 2, 2, 1, NOW + HOUR, NOW, floor)
    gate.credentials.heed(SignedNotice.make(WORLD.kmc, said), NOW)
    gate.check_stored(stored, NOW - 1)
    with pytest.raises(SecurityError, match="taken back"):
        gate.check_stored(stored, NOW)


# Subscriptions


@pytest.mark.parametrize(
    ("token", "subscriber", "reason"),
    [
        (WORLD.token("bob", Right.PUBLISH), "bob", "no right to subscribe"),
        (WORLD.token("bob"), "eve", "not of eve"),
        (WORLD.token("bob", until=NOW), "bob", "expired"),
        (WORLD.token("bob", since=NOW + 1), "bob", "not valid yet"),
        (WORLD.token("bob", kmc=WORLD.other_kmc), "bob", "not the centre"),
    ],
)
def test_subscriptions_with_such_tokens_are_refused(token: Token, subscriber: str, reason: str) -> None:
    gate = WORLD.gate()
    with pytest.raises(SecurityError, match=reason):
        gate.subscription(token.data, subscriber, NOW)
    sealed = WORLD.sealer().seal(WORLD.event(), NOW)
    assert not gate.may_get(token.data, subscriber, sealed, Seal.of(sealed).topic, NOW)


def test_only_who_has_a_token_for_it_gets_an_event() -> None:
    gate, sealed = WORLD.gate(), WORLD.sealer().seal(WORLD.event(), NOW)
    topic = Seal.of(sealed).topic
    assert gate.may_get(WORLD.token("bob").data, "bob", sealed, topic, NOW)
    assert gate.may_get(WORLD.token("bob", template="Sports=NBA,Team=NYK").data, "bob", sealed, topic, NOW)
    assert not gate.may_get(WORLD.token("bob", template="Sports=NBA,Team=LAL").data, "bob", sealed, topic, NOW)
    assert not gate.may_get(None, "bob", sealed, topic, NOW)
    assert not gate.may_get(WORLD.token("bob").data, "bob", sealed, bytes(16), NOW)
    with pytest.raises(SecurityError, match="has no token"):
        gate.check_get(None, "bob", sealed, topic, NOW)
    assert not gate.may_get(WORLD.token("bob").data, "bob", sealed, topic, NOW + HOUR)


def test_a_subscriber_that_was_revoked_gets_nothing() -> None:
    world = World()
    gate, sealed, token = world.gate(), world.sealer().seal(world.event(), NOW), world.token("bob").data
    assert gate.may_get(token, "bob", sealed, world.record.id, NOW)
    world.authority.revoke("bob", NOW)
    gate.credentials.revoke(world.authority.revocations(NOW))
    assert not gate.may_get(token, "bob", sealed, world.record.id, NOW)
    with pytest.raises(SecurityError, match="bob has been revoked"):
        gate.subscription(token, "bob", NOW)


def test_who_governs_does_so_by_a_token_of_its_own_for_that_topic() -> None:
    gate, sealed = WORLD.gate(), WORLD.sealer().seal(WORLD.event(), NOW)
    topic, governing = Seal.of(sealed).topic, WORLD.token("bob", Right.GOVERN).data
    assert gate.may_govern(governing, "bob", sealed, topic, NOW)
    assert not gate.may_govern(governing, "eve", sealed, topic, NOW)
    assert not gate.may_govern(governing, "bob", sealed, bytes(16), NOW)
    assert not gate.may_govern(WORLD.token("bob").data, "bob", sealed, topic, NOW)
    part = WORLD.token("bob", Right.GOVERN, template="Sports=NBA,Team=LAL").data
    assert not gate.may_govern(part, "bob", sealed, topic, NOW)


def test_a_token_alone_does_not_make_its_holder() -> None:
    gate, token = WORLD.gate(), WORLD.token("bob")
    said, nonce = b"subscribe to all", b"n" * 32
    good = WORLD.signing["bob"].sign(proof_of(said, nonce))
    gate.check_proof(token.data, said, nonce, good, NOW)
    for claim, session, signature in ((b"other", nonce, good), (said, b"m" * 32, good), (said, nonce, bytes(64))):
        with pytest.raises(SecurityError, match="not signed by the token's holder"):
            gate.check_proof(token.data, claim, session, signature, NOW)
