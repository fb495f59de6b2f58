"""Laws of a key management centre, whatever owners do in whatever order, and whenever it is restarted."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.security.kmc_world import KMC, SECOND, World, identity
from tests.sizes import examples
from tidings.model.errors import RefusedError, SecurityError
from tidings.model.event import Event
from tidings.security import KeyManagementCentre
from tidings.security.kmc.state import EpochAdded, changes_data
from tidings.security.rpc import kmc_messages
from tidings.security.sealing.envelope import Seal

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("grant"), names, st.sampled_from([("publish",), ("subscribe",), ("publish", "subscribe")])),
    st.tuples(st.just("revoke"), names),
    st.tuples(st.just("rotate"), st.booleans()),
    st.tuples(st.just("fetch"), names),
    st.tuples(st.just("publish")),
    st.tuples(st.just("time"), st.sampled_from([1, 20, 31, 45, 60, 200])),
    st.tuples(st.just("restart")),
)


class Model:
    """Beside a world: since when each one may read, as its owner would say it, and what was sealed at which moment."""

    def __init__(self) -> None:
        self.world = World()
        self.topic = self.world.register(lifetime=60)
        self.world.grant(self.topic, "publisher", "publish")
        self.readers: dict[str, int] = {}  # -> the number of the first event that it must be able to read
        self.given: set[str] = set()  # who has rights of any kind
        self.sealed: list[Event] = []
        self.lost: dict[str, int] = {}  # -> the number of the first event that it must not be able to read

    def play(self, step: tuple[Any, ...]) -> None:
        getattr(self, "do_" + step[0])(*step[1:])
        self.world.hear()

    def do_grant(self, name: str, rights: tuple[str, ...]) -> None:
        self.world.grant(self.topic, name, *rights)
        self.given.add(name)
        self.lost.pop(name, None)
        if "subscribe" in rights:
            self.readers.setdefault(name, len(self.sealed))
        else:
            self.readers.pop(name, None)

    def do_revoke(self, name: str) -> None:
        if name in self.given:
            self.world.revoke(self.topic, name)
            self.given.discard(name)
            self.readers.pop(name, None)
            self.lost[name] = len(self.sealed)

    def do_rotate(self, compromised: bool) -> None:
        self.world.rotate(self.topic, compromised=compromised)

    def do_fetch(self, name: str) -> None:
        assert self.world.may_fetch(name, self.topic) == (name in self.given)

    def do_publish(self) -> None:
        publisher = self.world.member("publisher")
        if publisher.needs_renewal(self.topic.id, self.world.now):
            self.world.fetch("publisher", self.topic)
        event = self.world.event("publisher", len(self.sealed) + 1)
        sealed = publisher.seal(event, self.world.now)
        self.world.gate.admit(sealed, self.world.now)
        self.sealed.append(sealed)

    def do_time(self, seconds: int) -> None:
        self.world.pass_time(seconds * SECOND)

    def do_restart(self) -> None:
        self.world.restart()

    def can_open(self, name: str, sealed: Event) -> bool:
        try:
            opened = self.world.member(name).open(sealed, self.world.now, again=True)
        except SecurityError as error:
            assert error.check == "key"
            return False
        assert opened.payload == b"what is secret"
        return True


@given(st.lists(steps, max_size=40))
@examples(30, 2_000)
def test_who_may_read_can_and_who_was_revoked_cannot(script: list[tuple[Any, ...]]) -> None:
    model = Model()
    for step in script:
        model.play(step)
    for name, first in model.readers.items():
        model.world.fetch(name, model.topic)
        assert all(model.can_open(name, one) for one in model.sealed[first:]), name
    for name, first in model.lost.items():
        assert not any(model.can_open(name, one) for one in model.sealed[first:]), name
        assert not model.world.may_fetch(name, model.topic)


@given(st.lists(steps, max_size=40))
@examples(30, 2_000)
def test_no_epoch_comes_twice_and_no_key_belongs_to_two(script: list[tuple[Any, ...]]) -> None:
    model = Model()
    for step in script:
        model.play(step)
    made = [change.key for change in model.world.saved if isinstance(change, EpochAdded)]
    assert [key.epoch for key in made] == list(range(1, len(made) + 1))
    assert len({key.key for key in made}) == len(made)
    assert {Seal.of(one).epoch for one in model.sealed} <= {key.epoch for key in made}


@given(st.lists(steps, max_size=30))
@examples(15, 1_000)
def test_a_centre_that_was_restarted_is_the_same(script: list[tuple[Any, ...]]) -> None:
    model = Model()
    for step in script:
        model.play(step)
    again = KeyManagementCentre(KMC, bytes, model.world.saved)
    assert changes_data(again.snapshot()) == changes_data(model.world.centre.snapshot())


@given(
    st.lists(steps, max_size=20),
    st.sampled_from(
        [kmc_messages.GRANT, kmc_messages.REVOKE, kmc_messages.ROTATE, kmc_messages.TOPIC, kmc_messages.KEYS]
    ),
)
@examples(15, 1_000)
def test_a_stranger_changes_nothing(script: list[tuple[Any, ...]], kind: str) -> None:
    model = Model()
    for step in script:
        model.play(step)
    world, topic = model.world, model.topic
    body: dict[str, msgspec.Struct] = {
        kmc_messages.GRANT: kmc_messages.GrantRequest(topic.id, "mallory", 3, world.now + 1),
        kmc_messages.REVOKE: kmc_messages.RevokeRequest("publisher", topic.id),
        kmc_messages.ROTATE: kmc_messages.RotateRequest(topic.id, True),
        kmc_messages.TOPIC: kmc_messages.RegisterTopicRequest(topic.data),
        kmc_messages.KEYS: world.member("mallory").wants(topic, KMC.certificate),
    }
    saved = len(world.saved)
    try:
        world.ask(identity("mallory"), kind, body[kind])
    except RefusedError:
        assert len(world.saved) == saved
    else:
        raise AssertionError(kind)
