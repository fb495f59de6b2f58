"""Attacks: tokens and envelopes that are forged, altered, expired, replayed or out of their scope, each made from a
good one. Whoever looks at events refuses all that are for its kind of door."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from tests.security.world import HOUR, TEMPLATE, World
from tidings.filters import ContextFilter
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.values import Attributes, Context
from tidings.security import Authority, Right, Role, Token, TopicRecord
from tidings.security.encoding import SignedValue, encode_canonical, signing_input
from tidings.security.sealing.envelope import Seal

# Doors: where a client's event enters, between brokers, from a journal (as on Spark), and at a subscriber; and at
# brokers that leave signatures to subscribers, where only tokens and topics are judged.
CLIENT, BROKER, HISTORY, SUBSCRIBER, TRUSTING = "client", "broker", "history", "subscriber", "trusting"
EVERYWHERE = frozenset({CLIENT, BROKER, HISTORY, SUBSCRIBER})
AT_BROKERS = frozenset({CLIENT, BROKER, HISTORY})
BY_TOKEN = EVERYWHERE | {TRUSTING}


class Attack(NamedTuple):
    name: str
    event: Event
    doors: frozenset[str] = EVERYWHERE


def attacks(world: World) -> list[Attack]:
    """Every one on an event of its own, after the world's good events 1 to 9."""
    made = [
        *_tokens(world),
        *_envelopes(world),
        *_topics(world),
        *_signed_nonsense(world),
        *_flipped_tokens(world),
        *_flipped_seals(world),
        *_flipped_payloads(world),
    ]
    assert len({one.name for one in made}) == len(made)
    return made


def _numbers() -> Iterator[int]:
    yield from range(1_000, 100_000)


def _sealed(world: World, number: int, token: Token | None = None) -> Event:
    return world.sealer(token).seal(world.event(number), world.now + number)


# Tokens


def _tokens(world: World) -> Iterator[Attack]:
    number = _numbers()
    stranger = World(now=world.now)

    def attack(name: str, token: Token) -> Attack:
        return Attack(name, _sealed(world, next(number), token), BY_TOKEN)

    yield attack("a token that has expired", world.token(until=world.now - 1, since=world.now - HOUR))
    yield attack("a token that ends now", world.token(until=world.now))
    yield attack("a token that is not valid yet", world.token(since=world.now + HOUR // 2))
    yield attack("a token of another authority's world", stranger.token(key=_key(world)))
    yield attack("a token by a centre that the topic does not name", world.token(kmc=world.other_kmc))
    yield attack("a token signed by an entity", world.token(kmc=world.eve))
    yield attack("a token signed by a broker", world.token(kmc=world.broker))
    own = TopicRecord.make(world.ann, id=world.record.id, template=TEMPLATE, kmc=world.broker.certificate, version=2)
    yield attack("a token by a broker that a record names as centre", world.token(kmc=world.broker, record=own))
    yield attack("a token for another overlay", world.token(record=_record(world, overlay="elsewhere")))
    other = _record(world, id=bytes(16), template="Sports=MLB,Team=*")
    event = world.event(next(number))
    elsewhere = msgspec.structs.replace(event, attributes=Attributes({**event.attributes, "Sports": "MLB"}))
    sealer = world.sealer(world.token(record=other), msgspec.structs.replace(world.key, topic=bytes(16)))
    moved = msgspec.structs.replace(sealer.seal(elsewhere, world.now), attributes=event.attributes)
    yield Attack("a token for another topic", moved, BY_TOKEN)
    narrow = world.token(template="Sports=NBA,Team=LAL")
    lakers = msgspec.structs.replace(
        world.event(next(number)), attributes=Attributes({"Sports": "NBA", "Team": "LAL", "score": 1})
    )
    spread = msgspec.structs.replace(
        world.sealer(narrow).seal(lakers, world.now),
        attributes=Attributes({"Sports": "NBA", "Team": "NYK", "score": 1}),
    )
    yield Attack("a token for a part, on another part", spread, BY_TOKEN)
    good = _sealed(world, next(number))
    part = msgspec.structs.replace(good, token=narrow.data)
    yield Attack("on a part that the token is not for, signed by its publisher", part, BY_TOKEN)
    swapped = msgspec.structs.replace(good, token=world.token("bob").data)
    yield Attack("the token of somebody else", swapped, BY_TOKEN)
    named = world.sealer(world.token("eve"), who="eve").seal(world.event(next(number)), world.now)
    yield Attack("in another's name, with one's own token", named, BY_TOKEN)
    yield Attack("a subscriber's token", msgspec.structs.replace(good, token=world.token(rights=Right.SUBSCRIBE).data))
    yield Attack("no token", msgspec.structs.replace(good, token=None))
    yield Attack("an empty token", msgspec.structs.replace(good, token=b""))
    yield Attack("no seal", msgspec.structs.replace(good, signature=None), AT_BROKERS | {TRUSTING})
    yield Attack("an empty seal", msgspec.structs.replace(good, signature=b""))
    yield Attack("neither token nor seal", msgspec.structs.replace(good, token=None, signature=None), AT_BROKERS)
    raw = msgspec.msgpack.decode(world.token().data)
    for index, kind in enumerate(("body", "signature")):
        cut = [*raw]
        cut[index] = cut[index][:-1]
        yield Attack(f"a token with a short {kind}", msgspec.structs.replace(good, token=encode_canonical(tuple(cut))))
    body = msgspec.msgpack.decode(raw[0])
    for index, value in enumerate(body):
        changed = _changed(value)
        forged = encode_canonical(SignedValue(encode_canonical([*body[:index], changed, *body[index + 1 :]]), raw[1]))
        yield Attack(f"a token whose field {index} was changed", msgspec.structs.replace(good, token=forged))
    resigned = encode_canonical(SignedValue(raw[0], world.eve.sign("token", raw[0])))
    yield Attack("a token signed anew by somebody else", msgspec.structs.replace(good, token=resigned))
    purposes = encode_canonical(SignedValue(raw[0], world.kmc.sign("notice", raw[0])))
    yield Attack("a token signed for another purpose", msgspec.structs.replace(good, token=purposes))
    longer = b"\xdc\x00\x02" + world.token().data[1:]
    yield Attack("a token in another encoding", msgspec.structs.replace(good, token=longer))
    padded = world.token().data + b"\xc0"
    yield Attack("a token with something behind it", msgspec.structs.replace(good, token=padded))


def _key(world: World) -> bytes:
    return world.signing["ann"].public_key().public_bytes_raw()


def _record(world: World, **changed: object) -> TopicRecord:
    said: dict[str, object] = {"id": world.record.id, "template": TEMPLATE, "kmc": world.kmc.certificate, **changed}
    return TopicRecord.make(world.ann, **said)  # type: ignore[arg-type]


def _topics(world: World) -> Iterator[Attack]:
    """Of people who claim a topic that is not theirs."""
    claimed = TopicRecord.make(world.eve, id=bytes(15) + b"\x01", template="Team=NYK", kmc=world.kmc.certificate)
    event = world.event(50_000, "eve")
    key = msgspec.structs.replace(world.key, topic=claimed.id)
    token = world.token("eve", record=claimed)
    yield Attack(
        "a topic that overlaps another owner's", world.sealer(token, key, "eve").seal(event, world.now), AT_BROKERS
    )
    same = TopicRecord.make(world.eve, id=world.record.id, template=TEMPLATE, kmc=world.kmc.certificate, version=9)
    yield Attack(
        "a later record of the topic, by somebody else",
        world.sealer(world.token("eve", record=same), who="eve").seal(world.event(50_001, "eve"), world.now),
        AT_BROKERS,
    )
    false = Authority.found("authority", world.now)
    pretender = false.issue("ann", Role.ENTITY, world.now)
    forged = TopicRecord.make(pretender, id=world.record.id, template=TEMPLATE, kmc=world.kmc.certificate, version=2)
    yield Attack(
        "a record by somebody of the owner's name, of another authority",
        _sealed(world, 50_002, world.token(record=forged)),
    )


# Envelopes


def _envelopes(world: World) -> Iterator[Attack]:
    good = _sealed(world, 60_000)
    seal = Seal.of(good)
    attributes, context = good.attributes, good.context

    def event(name: str, doors: frozenset[str] = EVERYWHERE, **changed: object) -> Attack:
        return Attack(name, msgspec.structs.replace(good, **changed), doors)

    def sealed(name: str, doors: frozenset[str] = EVERYWHERE, **changed: object) -> Attack:
        return event(name, doors, signature=msgspec.structs.replace(seal, **changed).data)

    yield event("another attribute value", attributes=Attributes({**attributes, "score": 7}))
    yield event("an attribute of another type", attributes=Attributes({**attributes, "score": 60_000.0}))
    yield event(
        "an attribute that was renamed",
        attributes=Attributes({**attributes, "goals": attributes["score"]}),
        doors=AT_BROKERS,
    )
    yield event("another team", attributes=Attributes({**attributes, "Team": "LAL"}))
    yield event("another context value", context=Context({**context, "x": 2.5}))
    yield event("a context value more", context=Context({**context, "y": 2.5}))
    yield event("another publisher", publisher="eve")
    yield event("another subject", subject="/other")
    yield event("another id", id=uuid7(world.now, b"0123456789"))
    yield event("no payload", payload=None)
    yield event("an empty payload", payload=b"")
    yield event("a payload that is cut", payload=(good.payload or b"")[:-1])
    yield event("a payload with something behind it", payload=(good.payload or b"") + b"\0")
    yield event(
        "a policy more",
        doors=AT_BROKERS,
        policy="PolicyStatement { On(Forward,Publication) { If {} Then {BlockMessage()} } }",
    )
    yield event("for others", doors=AT_BROKERS, subscribers=ContextFilter.parse("rank > 1"))
    yield sealed("another version", version=2)
    yield sealed("another suite", suite=1)
    yield sealed("a suite that there is not", suite=99)
    yield sealed("another topic in the seal", topic=bytes(16))
    yield sealed("a later epoch", epoch=2)
    yield sealed("an earlier epoch", epoch=0)
    yield sealed("another instance", instance=bytes(16))
    yield sealed("a short instance", instance=b"x")
    yield sealed("a short signature", BY_TOKEN, signature=b"x")
    yield sealed("a later counter", counter=seal.counter + 1)
    yield sealed("a counter below zero", counter=-1)
    yield sealed("another timestamp", timestamp=seal.timestamp + 1)
    yield sealed("another sequence", sequence=seal.sequence + 1)
    yield sealed("another commitment", commitment=bytes(32))
    yield sealed("another wrapped key", frozenset({SUBSCRIBER}), wrapped=bytes(len(seal.wrapped)))
    yield sealed("wrapped under an epoch that is not held", frozenset({SUBSCRIBER}), wrapped_in=2)
    yield sealed("no leaves", leaves=b"")
    yield sealed("half a leaf", leaves=seal.leaves[:-1])
    yield sealed("leaves in another order", leaves=seal.leaves[32:] + seal.leaves[:32])
    yield sealed("a leaf more", leaves=seal.leaves + bytes(32))
    yield sealed("another salt", salts={**seal.salts, "ascore": bytes(16)})
    yield sealed("a short salt", salts={**seal.salts, "ascore": b""})
    yield sealed(
        "without the salt of the team", AT_BROKERS, salts={k: v for k, v in seal.salts.items() if k != "aTeam"}
    )
    yield sealed("another scope", scope=bytes(32))
    yield sealed("no signature", signature=b"")
    yield sealed("a signature of zeros", signature=bytes(64))
    yield sealed("a place in a batch that is not there", size=2, index=0, path=(bytes(32),))
    yield sealed("a place in a batch without a path", size=2, index=1)
    yield sealed("a place beyond the batch", size=2, index=2, path=(bytes(32),))
    yield sealed("a batch that is too large", size=2**40, index=0, path=(bytes(32),) * 40)
    yield sealed("a path in no batch", path=(bytes(32),))
    longer = b"\xdd\x00\x00" + (good.signature or b"")[1:]
    yield event("a seal in another encoding", signature=longer)
    yield event("a seal with something behind it", signature=(good.signature or b"") + b"\0")
    other = world.sealer(who="eve", token=world.token("eve"))
    yield Attack(
        "signed by somebody else",
        msgspec.structs.replace(
            other.seal(world.event(60_001, "eve"), world.now), publisher="ann", token=world.token().data
        ),
    )
    first, second = world.sealer().seal_all([world.event(60_002), world.event(60_003)], world.now)
    mixed = msgspec.structs.replace(Seal.of(first), path=Seal.of(second).path, index=1)
    yield Attack("an event of a batch in another's place", msgspec.structs.replace(first, signature=mixed.data))
    yield Attack("the payload of another event", msgspec.structs.replace(first, payload=second.payload))
    yield Attack("the seal of another event", msgspec.structs.replace(first, signature=second.signature))


def _signed_nonsense(world: World) -> Iterator[Attack]:
    """By a publisher that has a token, and signs what nobody should take."""
    good = _sealed(world, 65_000)
    seal = Seal.of(good)

    def signed(
        name: str, doors: frozenset[str] = EVERYWHERE, payload: bytes | None = good.payload, **said: object
    ) -> Attack:
        changed = msgspec.structs.replace(good, payload=payload)
        made = msgspec.structs.replace(seal, **said)
        signature = world.signing["ann"].sign(signing_input("event", made.digest(changed)))
        return Attack(
            f"{name}, signed by its publisher",
            msgspec.structs.replace(changed, signature=msgspec.structs.replace(made, signature=signature).data),
            doors,
        )

    at_end = frozenset({SUBSCRIBER})
    yield signed("another version", version=2)
    yield signed("another suite", BY_TOKEN, suite=1)
    yield signed("a suite that there is not", suite=99)
    yield signed("another topic", BY_TOKEN, topic=bytes(16))
    yield signed("a short instance", instance=b"x")
    yield signed("a counter below zero", counter=-1)
    yield signed("half a leaf", leaves=seal.leaves[:-1])
    yield signed("no leaves", leaves=b"")
    yield signed("no payload", at_end, payload=None)
    yield signed("a payload shorter than a tag", at_end, payload=b"x" * 15)
    yield signed("a payload that is none", at_end, payload=b"x" * 100)
    yield signed("another nonce", at_end, counter=seal.counter + 1)
    yield signed("another commitment", at_end, commitment=bytes(32))


def _flipped_tokens(world: World, count: int = 190) -> Iterator[Attack]:
    good = _sealed(world, 70_000)
    for place, (_, data) in enumerate(_flipped(good.token or b"", count)):
        yield Attack(f"a token flipped at place {place}", msgspec.structs.replace(good, token=data))


def _flipped_seals(world: World, count: int = 190) -> Iterator[Attack]:
    """But for what only subscribers need: the wrapped key, which the centre may wrap anew; and the names of salts,
    which only brokers mind, since an attribute without a salt is to subscribers one that a policy has taken away."""
    good = _sealed(world, 70_001)
    data, seal = good.signature or b"", Seal.of(good)
    wrapped = data.index(seal.wrapped)
    beyond = wrapped + len(seal.wrapped) + 1
    named = [(data.index(name.encode()) - 1, data.index(salt)) for name, salt in seal.salts.items()]
    for place, (index, changed) in enumerate(_flipped(data, count)):
        doors = EVERYWHERE
        if wrapped - 2 <= index // 8 < beyond:
            doors = frozenset({SUBSCRIBER})
        elif any(start <= index // 8 < end for start, end in named):
            doors = AT_BROKERS
        yield Attack(f"a seal flipped at place {place}", msgspec.structs.replace(good, signature=changed), doors)


def _flipped_payloads(world: World, count: int = 60) -> Iterator[Attack]:
    good = _sealed(world, 70_002)
    for place, (_, changed) in enumerate(_flipped(good.payload or b"", count)):
        yield Attack(f"a payload flipped at place {place}", msgspec.structs.replace(good, payload=changed))


def _flipped(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """Spread over all of it."""
    for place in range(count):
        index = place * len(data) * 8 // count + place % 8
        index = min(index, len(data) * 8 - 1)
        changed = bytearray(data)
        changed[index // 8] ^= 1 << (index % 8)
        yield index, bytes(changed)


def _changed(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"
    raise AssertionError(f"no idea how to change {value!r}")


Door = Callable[[Event], None]  # raises where it refuses
