"""A member takes from its centre what is its own, and seals nothing without."""

from collections.abc import Callable

import msgspec
import pytest

from tests.security.world import HOUR, NOW, World
from tidings.model.errors import SecurityError
from tidings.security import Right, Token
from tidings.security.member import Member, decode_key_response
from tidings.security.rpc.kmc_messages import KeyResponse

WORLD = World()


def member(world: World = WORLD) -> Member:
    made = Member(world.bob, world.credentials())
    made.credentials.learn(world.record, NOW)
    return made


def token(who: Member, world: World = WORLD, **said: object) -> Token:
    return world.token("bob", **{"key": who.verification_key, **said})  # type: ignore[arg-type]


def given(one: Token, world: World = WORLD, **changed: object) -> KeyResponse:
    made = KeyResponse(one.data, (world.key,), world.notice(1).data, 100, NOW + HOUR)
    return msgspec.structs.replace(made, **changed)


def test_what_is_given_is_sealed_with() -> None:
    bob = member()
    bob.take(given(token(bob)), NOW)
    sealed = bob.seal(WORLD.event(1, "bob"), NOW)
    assert WORLD.opener().open(sealed, NOW).payload == WORLD.event().payload


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda bob: given(WORLD.token("eve", key=token(bob).key)), "not for this member"),
        (lambda bob: given(WORLD.token("bob")), "not for this member"),  # of another process of the same name
        (
            lambda bob: given(token(bob), keys=(msgspec.structs.replace(WORLD.key, topic=bytes(16)),)),
            "the key of another topic",
        ),
        (lambda bob: given(token(bob, kmc=WORLD.other_kmc)), "not the centre"),
    ],
)
def test_what_is_somebody_elses_is_not_taken(answer: Callable[[Member], KeyResponse], reason: str) -> None:
    bob = member()
    with pytest.raises(SecurityError, match=reason):
        bob.take(answer(bob), NOW)
    assert bob.topics() == []


def test_nothing_is_taken_for_who_was_revoked() -> None:
    world = World()
    bob = member(world)
    world.authority.revoke("bob", NOW)
    bob.credentials.revoke(world.authority.revocations(NOW))
    with pytest.raises(SecurityError, match="bob has been revoked"):
        bob.take(given(token(bob, world), world), NOW)


@pytest.mark.parametrize(
    ("answer", "when", "reason"),
    [
        (None, NOW, "has no token for it"),
        (lambda bob: given(token(bob), keys=()), NOW, "has no token for it"),
        (lambda bob: given(token(bob, rights=Right.SUBSCRIBE)), NOW, "no right to publish"),
        (lambda bob: given(token(bob, until=NOW + 1)), NOW + 1, "has expired; request another one"),
        (
            lambda bob: given(token(bob), keys=(msgspec.structs.replace(WORLD.key, until=NOW + 1),)),
            NOW + 1,
            "has expired; fetch another one",
        ),
    ],
)
def test_without_a_right_a_token_and_a_key_nothing_is_sealed(
    answer: Callable[[Member], KeyResponse] | None, when: int, reason: str
) -> None:
    bob = member()
    if answer is not None:
        bob.take(answer(bob), NOW)
    with pytest.raises(SecurityError, match=reason):
        bob.seal(WORLD.event(1, "bob"), when)


def test_who_has_left_seals_nothing_though_it_has_a_key() -> None:
    bob = member()
    bob.take(given(token(bob)), NOW)
    bob.leave(WORLD.record.id)
    with pytest.raises(SecurityError, match="has no token for it"):
        bob.seal(WORLD.event(1, "bob"), NOW)


def test_an_answer_that_is_none_is_not_read() -> None:
    with pytest.raises(SecurityError, match="cannot be read"):
        decode_key_response(b"nonsense")
