"""Sealed events: opened by who has the key, checked by everybody, and still good when policies have cut them."""

import hashlib
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import HOUR, NOW, World
from tests.sizes import examples
from tidings.filters import ContextFilter
from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.limits import MAX_INSTANCE_BYTES, MAX_INSTANCE_MESSAGES
from tidings.model.values import Attributes, Context
from tidings.security import Opener, Suite, open_sealed, seal
from tidings.security.encoding import encode_canonical
from tidings.security.sealing.attribute_merkle import SALT, check
from tidings.security.sealing.envelope import ContentKeys, Seal, rewrap, trim
from tidings.security.sealing.keys import Keyring, commitment

WORLD = World()
NAMES = st.text("abcdé", min_size=1, max_size=4)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), FLOATS, st.text(max_size=5), st.booleans())
VALUED = st.dictionaries(NAMES, VALUES, max_size=5)


def with_only(event: Event, attributes: set[str], context: set[str]) -> Event:
    """As a policy leaves it."""
    return msgspec.structs.replace(
        event,
        attributes=Attributes({name: value for name, value in event.attributes.items() if name in attributes}),
        context=Context({name: value for name, value in event.context.items() if name in context}),
    )


@pytest.mark.parametrize("suite", list(Suite))
@pytest.mark.parametrize("size", [0, 1, 17, 70_000])
def test_what_is_sealed_is_opened(suite: Suite, size: int) -> None:
    world = World(suite)
    event = world.event(payload=os.urandom(size) or None)
    sealed = seal(event, world.sealer())
    assert sealed.payload != event.payload
    assert len(sealed.payload or b"") == size + 16
    assert open_sealed(sealed, world.opener()) == event


@examples(40, 1_000)
@given(VALUED, VALUED, st.sets(NAMES), st.sets(NAMES), st.binary(max_size=40))
def test_what_policies_leave_of_an_event_can_be_checked_and_opened(
    attributes: dict[str, object], context: dict[str, object], kept: set[str], kept_context: set[str], payload: bytes
) -> None:
    attributes = {"Sports": "NBA", "Team": "NYK", **attributes}
    event = WORLD.event(attributes=attributes, context=context, payload=payload or None)
    sealed = seal(event, WORLD.sealer())
    cut = trim(with_only(sealed, kept | {"Sports"}, kept_context))
    said = Seal.of(cut)
    assert {name[1:] for name in said.salts} == {*cut.attributes, *cut.context}
    opened = WORLD.opener().open(cut, NOW)
    assert opened == with_only(event, kept | {"Sports"}, kept_context)


def test_what_was_taken_away_cannot_be_guessed_from_what_is_left() -> None:
    sealed = seal(WORLD.event(), WORLD.sealer())
    salt = Seal.of(sealed).salts["ascore"]
    cut = trim(with_only(sealed, {"Sports", "Team"}, set()))
    assert len(salt) == SALT
    assert salt in (sealed.signature or b"")
    assert salt not in (cut.signature or b"")
    assert Seal.of(cut).leaves == Seal.of(sealed).leaves


def test_who_is_told_an_event_cannot_guess_whom_it_was_for() -> None:
    event = WORLD.event(subscribers=ContextFilter.parse("rank > 3"), policy=None)
    sealed = seal(event, WORLD.sealer())
    shown = trim(msgspec.structs.replace(sealed, subscribers=None), for_subscriber=True)
    assert Seal.of(sealed).scope_salt
    assert not Seal.of(shown).scope_salt
    assert WORLD.opener().open(shown, NOW).payload == event.payload


def test_a_broker_sees_when_the_policy_or_the_scope_of_an_event_was_changed() -> None:
    event = WORLD.event(subscribers=ContextFilter.parse("rank > 3"))
    for changed in (None, ContextFilter.parse("rank > 2")):
        sealed = msgspec.structs.replace(seal(event, WORLD.sealer()), subscribers=changed)
        with pytest.raises(SecurityError, match="for whom"):
            WORLD.gate().admit(sealed, NOW)
    plain = msgspec.structs.replace(seal(WORLD.event(), WORLD.sealer()), subscribers=ContextFilter.parse("rank > 2"))
    with pytest.raises(SecurityError, match="for whom"):
        WORLD.gate().admit(plain, NOW)


def test_additions_count_when_a_broker_has_signed_them() -> None:
    gate, sealed = WORLD.gate(), seal(WORLD.event(), WORLD.sealer())
    added = {"hop": "b0"}
    more = msgspec.structs.replace(sealed, attributes=Attributes({**sealed.attributes, **added}))
    assert WORLD.opener().open(gate.shown(more, added), NOW).attributes["hop"] == "b0"
    assert "hop" not in WORLD.opener().open(more, NOW).attributes  # nobody has signed it
    other = msgspec.structs.replace(gate.shown(more, added), attributes=Attributes({**more.attributes, "hop": "b9"}))
    with pytest.raises(SecurityError, match="hop"):
        WORLD.opener().open(other, NOW)


@pytest.mark.parametrize(("who", "reason"), [("eve", "no broker"), ("b1", "b1 has been revoked")])
def test_additions_count_only_of_brokers_that_are_trusted(who: str, reason: str) -> None:
    world = World()
    gate, opener, added = world.gate(), world.opener(), {"hop": "b0"}
    gate.identity = {"eve": world.eve, "b1": world.broker}[who]
    sealed = seal(world.event(), world.sealer())
    more = msgspec.structs.replace(sealed, attributes=Attributes({**sealed.attributes, **added}))
    if who == "b1":
        world.authority.revoke("b1", NOW)
        opener.credentials.revoke(world.authority.revocations(NOW))
    with pytest.raises(SecurityError, match=reason):
        opener.open(gate.shown(more, added), NOW)


def test_a_token_of_one_topic_does_not_publish_on_another_of_which_its_holder_has_the_key() -> None:
    """As who only subscribes there has it."""
    elsewhere, sealer = msgspec.structs.replace(WORLD.key, topic=bytes(16)), WORLD.sealer()
    sealer.key = elsewhere
    with pytest.raises(SecurityError, match="which its publisher has a token for"):
        WORLD.opener(WORLD.key, elsewhere).open(sealer.seal(WORLD.event(), NOW), NOW)


def test_a_content_key_of_another_size_is_refused_also_if_the_seal_commits_to_it() -> None:
    content, instance = bytes(16), bytes(16)
    good = Seal.of(seal(WORLD.event(), WORLD.sealer()))
    committed = commitment(WORLD.record.suite, content, instance)
    bad = msgspec.structs.replace(good, instance=instance, commitment=committed, wrapped=WORLD.key.wrap(content))
    with pytest.raises(SecurityError, match="commits to"):
        ContentKeys(Keyring([WORLD.key])).cipher(bad)


def test_no_addition_stands_for_what_the_publisher_has_signed() -> None:
    """Else a broker could change an attribute, and nobody would see it."""
    gate, sealed = WORLD.gate(), WORLD.sealer().seal(WORLD.event(), NOW)
    changed = msgspec.structs.replace(sealed, attributes=Attributes({**sealed.attributes, "score": 7}))
    made = Seal.of(gate.shown(changed, {"score": 7})).additions
    forged = msgspec.structs.replace(changed, signature=msgspec.structs.replace(Seal.of(sealed), additions=made).data)
    with pytest.raises(SecurityError, match="score is not as its publisher signed it"):
        WORLD.opener().open(forged, NOW)


@pytest.mark.parametrize("signs", [True, False])
def test_what_a_policy_puts_in_the_place_of_an_attribute_is_known_to_be_the_brokers(signs: bool) -> None:
    gate, opener = WORLD.gate(), WORLD.opener()
    gate.identity = WORLD.broker if signs else None
    sealed = WORLD.sealer().seal(WORLD.event(), NOW)
    changed = msgspec.structs.replace(sealed, attributes=Attributes({**sealed.attributes, "score": 7}))
    opened, added = opener.opened(gate.shown(changed, {"score": 7}), NOW)
    assert opened.attributes == ({**sealed.attributes, "score": 7} if signs else {"Sports": "NBA", "Team": "NYK"})
    assert added == ((("score", WORLD.broker.name),) if signs else ())
    assert opener.opened(WORLD.sealer().seal(WORLD.event(), NOW), NOW).added == ()


def test_an_addition_cannot_be_moved_to_another_event() -> None:
    gate, sealer = WORLD.gate(), WORLD.sealer()
    first, second = seal(WORLD.event(1), sealer), seal(WORLD.event(2), sealer)
    more = msgspec.structs.replace(first, attributes=Attributes({**first.attributes, "hop": "b0"}))
    taken = Seal.of(gate.shown(more, {"hop": "b0"})).additions
    moved = msgspec.structs.replace(
        second,
        attributes=Attributes({**second.attributes, "hop": "b0"}),
        signature=msgspec.structs.replace(Seal.of(second), additions=taken).data,
    )
    with pytest.raises(SecurityError, match="addition"):
        WORLD.opener().open(moved, NOW)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_every_event_of_a_batch_can_be_checked_alone(count: int) -> None:
    events = [WORLD.event(number) for number in range(1, count + 1)]
    sealed = WORLD.sealer().seal_all(events, NOW)
    assert len({Seal.of(one).signature for one in sealed}) == 1
    opener, gate = WORLD.opener(), WORLD.gate()
    for one, event in zip(sealed, events, strict=True):
        gate.admit(one, NOW)
        assert opener.open(one, NOW) == event


def test_no_nonce_is_used_twice_under_one_key() -> None:
    sealer = WORLD.sealer()
    seals = [Seal.of(sealer.seal(WORLD.event(number), NOW + number)) for number in range(1, 50)]
    assert len({(one.instance, one.counter) for one in seals}) == len(seals)
    assert {one.counter for one in seals} == set(range(49))
    assert Seal.of(WORLD.sealer().seal(WORLD.event(1), NOW)).instance != seals[0].instance


@pytest.mark.parametrize(
    ("spent", "limit"), [("messages", MAX_INSTANCE_MESSAGES), ("bytes", MAX_INSTANCE_BYTES), ("fork_count", -1)]
)
def test_a_content_key_that_is_used_up_gives_way_to_another(spent: str, limit: int) -> None:
    sealer = WORLD.sealer()
    first = Seal.of(sealer.seal(WORLD.event(1), NOW))
    setattr(sealer._instance, spent, limit)
    second = Seal.of(sealer.seal(WORLD.event(2), NOW + 1))
    assert first.instance != second.instance
    assert second.counter == 0


@pytest.mark.process
def test_a_forked_process_counts_under_a_key_of_its_own() -> None:
    sealer = WORLD.sealer()
    sealer.seal(WORLD.event(1), NOW)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, Seal.of(sealer.seal(WORLD.event(2), NOW + 1)).instance)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as read:
        assert read.read() != Seal.of(sealer.seal(WORLD.event(2), NOW + 1)).instance


def test_a_content_key_is_wrapped_anew_without_touching_what_is_signed() -> None:
    event, after = WORLD.event(), WORLD.epoch_key(2)
    sealed = seal(event, WORLD.sealer())
    again = rewrap(sealed, WORLD.key, after)
    assert again.payload == sealed.payload
    assert Seal.of(again).signature == Seal.of(sealed).signature
    assert WORLD.opener(after).open(again, NOW) == event
    with pytest.raises(SecurityError, match="epoch 1"):
        WORLD.opener(after).open(sealed, NOW)


def test_only_what_is_wrapped_under_the_one_key_is_wrapped_under_the_other() -> None:
    sealed, elsewhere = (
        seal(WORLD.event(), WORLD.sealer()),
        msgspec.structs.replace(WORLD.epoch_key(2), topic=bytes(16)),
    )
    beside = msgspec.structs.replace(WORLD.key, topic=bytes(16))
    second, third = WORLD.epoch_key(2), WORLD.epoch_key(3)
    for before, after in ((second, third), (WORLD.key, elsewhere), (beside, second), (beside, elsewhere)):
        with pytest.raises(SecurityError, match="another epoch, or on another topic"):
            rewrap(sealed, before, after)


def test_a_salt_has_its_size() -> None:
    """Else some of it could be taken for the name of an attribute."""
    short, leaf = b"short", hashlib.sha256(b"\x00short" + encode_canonical(("a", "n", "int", 1))).digest()
    with pytest.raises(SecurityError, match="n is not as its publisher signed it"):
        check({"n": 1}, {}, {"an": short}, leaf, {})


def test_leaves_are_whole() -> None:
    with pytest.raises(SecurityError, match="32 bytes each"):
        check({}, {}, {}, b"half", {})


def test_what_is_no_seal_is_not_read_as_one() -> None:
    with pytest.raises(SecurityError, match="no seal"):
        Seal.of(WORLD.event())
    with pytest.raises(SecurityError, match="this is no seal"):
        Seal.of(msgspec.structs.replace(WORLD.event(), signature=b"nonsense"))


def test_an_opener_takes_each_event_once() -> None:
    opener, sealed = WORLD.opener(), seal(WORLD.event(), WORLD.sealer())
    opener.open(sealed, NOW)
    with pytest.raises(SecurityError, match="came before"):
        opener.open(sealed, NOW)
    assert opener.open(sealed, NOW, again=True).payload == WORLD.event().payload


def test_events_may_come_to_an_opener_in_another_order() -> None:
    opener, sealer = WORLD.opener(), WORLD.sealer()
    sealed = [sealer.seal(WORLD.event(number), NOW + number) for number in range(1, 2_000)]
    late = sealed[1_500]
    for one in (*sealed[1_990:], *sealed[1_400:1_500]):
        opener.open(one, NOW)
    opener.open(late, NOW)
    for refused in (late, sealed[100]):  # again, and too far behind
        with pytest.raises(SecurityError, match="came before"):
            opener.open(refused, NOW)


def test_a_member_without_the_key_opens_nothing() -> None:
    sealed = seal(WORLD.event(), WORLD.sealer())
    with pytest.raises(SecurityError, match="not held"):
        Opener(WORLD.credentials(), WORLD.opener(WORLD.epoch_key(2)).keyring).open(sealed, NOW)


def test_secrets_are_not_shown() -> None:
    shown = [repr(WORLD.key), str(WORLD.key), f"{WORLD.key}", repr(WORLD.opener().keyring), repr(WORLD.ann)]
    for text in shown:
        assert WORLD.key.key.hex() not in text
        assert repr(WORLD.key.key) not in text
    assert "PRIVATE" not in repr(vars(WORLD.ann.certificate))


def test_a_token_out_of_its_time_seals_nothing_that_is_taken() -> None:
    token = WORLD.token(until=NOW + HOUR)
    sealed = WORLD.sealer(token).seal(WORLD.event(), NOW)
    with pytest.raises(SecurityError, match="expired"):
        WORLD.gate().admit(sealed, NOW + HOUR)
