"""What was accepted is judged by what was known when it was."""

import pytest

from tests.security.world import HOUR, NOW, World
from tidings.model.errors import SecurityError
from tidings.security import Gate, TopicRecord, seal
from tidings.security.tokens.credentials import HistoricalCredentials
from tidings.security.tokens.notices import Notice, SignedNotice

WORLD = World()
QUARTER = HOUR // 4
EPOCHS = {1: NOW, 2: NOW + QUARTER, 3: NOW + 2 * QUARTER}


def told(epoch: int, grants: dict[str, int] | None = None) -> SignedNotice:
    return SignedNotice.make(
        WORLD.kmc, Notice(WORLD.record.id, epoch, epoch, epoch, 0, EPOCHS[epoch], dict(grants or {}))
    )


def gate(*notices: SignedNotice) -> Gate:
    credentials = HistoricalCredentials(WORLD.authority.anchor)
    credentials.revoke(WORLD.authority.revocations(NOW))
    credentials.learn(WORLD.record, NOW)
    for one in notices:
        credentials.heed(one, one.notice.issued)
    return Gate(credentials, freshness=None)


@pytest.mark.parametrize(("accepted", "epochs"), [(1, {1, 2, 3}), (QUARTER, {2, 3}), (3 * QUARTER, {3})])
def test_an_epoch_counts_as_long_as_it_lasted(accepted: int, epochs: set[int]) -> None:
    past = gate(told(1), told(2), told(3))
    taken = set()
    for epoch in (1, 2, 3):
        sealed = seal(WORLD.event(), WORLD.sealer(key=WORLD.epoch_key(epoch)))
        try:
            past.admit(sealed, NOW + accepted)
        except SecurityError as error:
            assert error.check == "epoch"
        else:
            taken.add(epoch)
    assert taken == epochs


def test_a_grant_counts_until_it_was_taken_back() -> None:
    past = gate(told(1), told(2, {WORLD.ann.certificate.fingerprint.hex(): 2}))
    sealed = seal(WORLD.event(), WORLD.sealer(key=WORLD.epoch_key(2)))
    past.admit(sealed, EPOCHS[2] - 1)
    with pytest.raises(SecurityError, match="taken back"):
        past.admit(sealed, EPOCHS[2])


def test_what_was_accepted_once_is_not_a_replay_when_it_is_judged_again() -> None:
    past, late = gate(), WORLD.event()
    sealed = seal(late, WORLD.sealer(), timestamp=NOW - HOUR)
    past.admit(sealed, NOW)
    past.admit(sealed, NOW)
    with pytest.raises(SecurityError, match="too long ago"):
        WORLD.gate().admit(sealed, NOW)


def test_a_notice_counts_once_and_only_from_the_topics_centre() -> None:
    past = gate()
    assert past.credentials.heed(told(1), NOW)
    assert not past.credentials.heed(told(1), NOW)
    others = SignedNotice.make(WORLD.other_kmc, Notice(WORLD.record.id, 9, 9, 9, 0, NOW))
    with pytest.raises(SecurityError, match="not the centre"):
        past.credentials.heed(others, NOW)


def test_a_list_of_topics_may_be_complete() -> None:
    past = gate()
    assert isinstance(past.credentials, HistoricalCredentials)
    past.credentials.is_complete = True
    past.admit(seal(WORLD.event(), WORLD.sealer()), NOW)
    record = TopicRecord.make(WORLD.ann, id=b"o" * 16, template="Sports=NHL", kmc=WORLD.kmc.certificate)
    token = WORLD.token(record=record)
    with pytest.raises(SecurityError, match="none of those"):
        past.credentials.token(token.data, NOW)
