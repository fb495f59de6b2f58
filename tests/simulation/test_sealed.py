"""Sealed events across overlays: whatever happens to links, brokers and clients, who may have them gets them, and
nobody else."""

from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import HOUR, NOW
from tests.security.world import World as Certified
from tests.sizes import examples
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import LearnTopic, Publish, Revoke
from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.security import Gate, Right, Role, Sealer, Token
from tidings.simulation import World
from tidings.simulation.checking.history import History
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.reduction import report
from tidings.simulation.topologies import Topology, line, ring, star

STRATEGIES = ("advertisement", "asf", "gsf", "spcf")
NETWORKS = {"line": line(4), "ring": ring(4), "star": star(4)}
SECURE = 2  # events with that value of `a` are on the secure topic
EVERY_SECOND = tuple(f"c{number}" for number in range(1, 9, 2))

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
everywhere = pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS)


class Members:
    """Those who hold a token, and brokers that know the topic, or hear of it."""

    begins = NOW

    def __init__(self, members: tuple[str, ...], *, known: bool = True) -> None:
        self.certified = Certified(template=f"a={SECURE}")
        self._known = known
        self._tokens, self._sealers = dict[str, bytes](), dict[str, Sealer]()
        for name in members:
            key = Ed25519PrivateKey.generate()
            token = Token.make(
                self.certified.kmc,
                self.certified.record,
                holder=self.certified.authority.issue(name, Role.ENTITY, NOW).certificate,
                key=key.public_key().public_bytes_raw(),
                rights=Right.PUBLISH | Right.SUBSCRIBE,
                not_before=NOW - HOUR,
                not_after=NOW + 100 * HOUR,
                grant=1,
            )
            self._tokens[name], self._sealers[name] = token.data, Sealer(self.certified.key, token, key)

    def gate(self, broker: str) -> Gate:
        credentials = self.certified.credentials()
        if self._known:
            credentials.learn(self.certified.record, NOW)
        return Gate(credentials)

    def token(self, client: str) -> bytes | None:
        return self._tokens.get(client)

    def sealed(self, event: Event) -> Event:
        sealer = self._sealers.get(event.publisher)
        if sealer is None or event.attributes.get("a") != SECURE:
            return event
        return sealer.seal(event, event.timestamp)


@cache
def every_second() -> Members:
    return Members(EVERY_SECOND)


class SealedHistory(History, frozen=True, kw_only=True):
    """The same in a world in which some events are sealed, and every second client may have these."""

    def world(self) -> World:
        return World(
            self.topology,
            seed=self.seed,
            strategy=self.strategy,
            matcher=NaiveMatcher,
            resends=self.resends,
            secrecy=every_second(),
            **self.network,  # type: ignore[arg-type]
        )


def populated(topology: Topology, strategy: str, members: Members, **more: Any) -> World:
    """`ann` publishes, `bob` may have what is sealed, `eve` may not."""
    world = World(topology, strategy=strategy, matcher=NaiveMatcher, secrecy=members, **more)
    ann, bob, eve = world.client("ann", "b1"), world.client("bob", "b3"), world.client("eve", "b4")
    ann.advertise("", id="offer")
    bob.subscribe("a >= 1", id="bob", durable="d")
    eve.subscribe("a >= 1", id="eve", durable="d")
    world.settle()
    return world


def told(world: World, client: str) -> list[Any]:
    return [note.attributes["n"] for note in world.notifications(client)]


@each_strategy
@everywhere
def test_who_may_have_it_gets_it_wherever_it_goes(topology: Topology, strategy: str) -> None:
    world = populated(topology, strategy, Members(("ann", "bob")))
    number = 0
    for there in ("b3", "b4", "b2", "b1"):
        for name in ("bob", "ann"):
            world.clients[name].move(there if name == "bob" else "b1")
            world.settle()
            for value in (SECURE, 1):
                number += 1
                world.clients["ann"].publish({"a": value, "n": number}, payload=b"secret")
            world.settle()
    assert told(world, "bob") == list(range(1, number + 1))
    assert told(world, "eve") == list(range(2, number + 1, 2))


@each_strategy
def test_a_topic_that_is_learnt_at_one_broker_is_closed_at_all(strategy: str) -> None:
    members = Members(("ann", "bob"), known=False)
    world = World(line(4), strategy=strategy, matcher=NaiveMatcher, secrecy=members)
    ann, carl = world.client("ann", "b1"), world.client("carl", "b4")
    ann.advertise("", id="offer")
    carl.advertise("", id="carls")
    world.client("eve", "b4").subscribe(f"a = {SECURE} and n > 0", id="slips")
    world.settle()
    carl.publish({"a": SECURE, "n": 1})
    world.do("b1", LearnTopic(members.certified.record.data))
    world.settle()
    with pytest.raises(RefusedError, match="publish with a token"):
        carl.publish({"a": SECURE, "n": 2})
    assert "slips" in {one.id for one in world.tables("b4").subscriptions}
    world.client("bob", "b4").subscribe("a >= 1", id="bob")
    world.settle()
    ann.publish({"a": SECURE, "n": 3})
    world.settle()
    assert (told(world, "eve"), told(world, "bob")) == ([1], [3])
    assert "slips" not in {one.id for name in world.brokers for one in world.tables(name).subscriptions}


@each_strategy
def test_what_was_accepted_once_is_refused_after_a_crash(strategy: str) -> None:
    world = populated(line(4), strategy, Members(("ann", "bob")))
    event = world.clients["ann"].publish({"a": SECURE, "n": 1}).event
    world.settle()
    world.crash("b1")
    world.restart("b1")
    world.settle()
    world.do("b1", Publish(event))
    assert "came before" in world.brokers["b1"].rejected[-1].reason
    world.settle()
    assert told(world, "bob") == [1]


@each_strategy
def test_a_revocation_is_obeyed_behind_a_link_that_was_down_meanwhile(strategy: str) -> None:
    members = Members(("ann", "bob"))
    world = populated(line(4), strategy, members)
    world.cut("b2", "b3")
    world.settle()
    members.certified.authority.revoke("bob", NOW)
    world.do("b1", Revoke(members.certified.authority.revocations(NOW).data))
    world.settle()
    world.heal("b2", "b3")
    world.settle()
    world.clients["ann"].publish({"a": SECURE, "n": 1})
    world.clients["ann"].publish({"a": 1, "n": 2})
    world.settle()
    assert told(world, "bob") == [2]


@given(st.integers(0, 1 << 32))
@examples(8, 200)
def test_whatever_happens_what_is_sealed_is_told_to_members_alone(seed: int) -> None:
    plain = draw_history(seed)
    sealed = SealedHistory(**{name: getattr(plain, name) for name in History.__struct_fields__})
    kinds = {one.kind for one in sealed.violations()}
    routing = {one.kind for one in plain.violations()} if kinds else set()  # faults of routing
    assert "undue" not in kinds, report(sealed)
    assert kinds <= routing, report(sealed)
