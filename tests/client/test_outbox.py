"""The outbox: what goes alone goes at once, what comes together goes together, and nothing overtakes what waits."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.cases import run
from tests.sizes import examples
from tidings.cli.bench.secure_workload import PUBLISHER, SecureTopic, event
from tidings.client.outbox import Outbox
from tidings.client.underway import Publication, Underway
from tidings.model.errors import SecurityError, TidingsError
from tidings.model.receipt import Receipt
from tidings.protocol.publications import Safety
from tidings.security.centre_questions import GivesKeys
from tidings.security.envelope import Seal
from tidings.security.exchange import SERVICE_TOPIC
from tidings.security.member import Member
from tidings.security.opening import Opener

WORLD = SecureTopic()
TOGETHER = 64


class Session:
    """What was handed out, and what is not answered yet."""

    def __init__(self) -> None:
        self.sent_sequence = self._sequence = 0
        self.is_connected = True
        self.underway = Underway()
        self.gone: list[int] = []

    @property
    def is_quiet(self) -> bool:
        return self.is_connected and len(self.underway.publications) <= 1

    def next_sequence(self, wanted: int | None = None) -> int:
        self._sequence = self._sequence + 1 if wanted is None else wanted
        return self._sequence

    def hand_out(self, number: int, publication: Publication) -> None:
        self.sent_sequence = max(self.sent_sequence, publication.event.sequence)
        self.gone.append(number)

    def forget(self, number: int) -> None:
        del self.underway.publications[number]

    def publish(self, outbox: Outbox, topic: str = "sealed", **more: Any) -> int:
        number = self.underway.next_number()
        made = msgspec.structs.replace(event(number, 8, WORLD.now, topic), sequence=self.next_sequence())
        if more:
            made = msgspec.structs.replace(made, attributes=type(made.attributes)({**made.attributes, **more}))
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.underway.publications[number] = publication = Publication(made, Safety.ACCEPTED, answer)
        outbox.put(number, publication)
        return number

    def seal(self, number: int) -> Seal:
        sealed = self.underway.publications[number].sealed
        assert sealed is not None
        Opener(WORLD.subscriber.credentials, WORLD.subscriber.keyring).open(sealed, WORLD.now)
        return Seal.of(sealed)


class Membership:
    """Of somebody who is given keys when it asks, if the centre gives any."""

    def __init__(self, member: Member, given: GivesKeys | None = None) -> None:
        self.member, self._given = member, given
        self.renewed: list[bytes] = []

    async def obtain(self, record: object) -> None:
        await asyncio.sleep(0)
        if self._given is None:
            raise SecurityError("token", "nothing was granted")
        self.member.take(self._given, WORLD.now)

    def missing(self, record: object, right: object, why: TidingsError) -> TidingsError:
        return why

    def renew(self, topic: bytes) -> None:
        self.renewed.append(topic)


def outbox_of(membership: Membership, session: Session) -> Outbox:
    return Outbox(membership, session)  # type: ignore[arg-type]  # as far as it is needed


async def turn() -> None:
    await asyncio.sleep(0)


def test_what_nothing_else_is_under_way_with_goes_at_once() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(WORLD.publisher), session)
        for _ in range(3):
            number = session.publish(outbox)
            assert session.gone[-1] == number
            assert session.seal(number).size == 1
            session.underway.publications.clear()  # it is answered

    run(scenario())


def test_what_comes_while_others_are_under_way_goes_together_in_the_next_turn() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(WORLD.publisher), session)
        first = session.publish(outbox)
        others = [session.publish(outbox) for _ in range(TOGETHER + 10)]
        assert session.gone == [first]
        await turn()
        assert session.gone == [first, *others]
        seals = [session.seal(number) for number in others]
        assert [seal.size for seal in seals] == [TOGETHER] * TOGETHER + [10] * 10
        assert len({seal.signature for seal in seals}) == 2

    run(scenario())


def test_without_a_connection_it_waits_for_one() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(WORLD.publisher), session)
        session.is_connected = False
        number = session.publish(outbox)
        await turn()
        assert session.gone == []
        assert number in outbox
        session.is_connected = True
        outbox.flush()
        assert session.gone == [number]

    run(scenario())


def newcomer() -> tuple[Member, GivesKeys]:
    """Somebody without token and keys, and what a centre would answer it."""
    member = Member(WORLD.identities[PUBLISHER], WORLD.credentials())
    return member, WORLD.given(member)


def test_without_keys_it_waits_until_they_were_given() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(*newcomer()), session)
        first, second = session.publish(outbox), session.publish(outbox, topic="plain")
        assert session.gone == []
        for _ in range(5):
            await turn()
        assert session.gone == [first, second]
        assert session.seal(first).size == 1

    run(scenario())


def test_who_is_given_no_keys_is_told_and_nobody_else_waits() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(newcomer()[0]), session)
        first = session.publish(outbox)
        answer = session.underway.publications[first].answer
        second = session.publish(outbox, topic="plain")
        for _ in range(5):
            await turn()
        assert session.gone == [second]
        with pytest.raises(SecurityError, match="nothing was granted"):
            await answer

    run(scenario())


def test_keys_that_are_used_up_are_renewed_after_what_was_sealed_has_gone() -> None:
    async def scenario() -> None:
        member, given_keys = newcomer()
        member.take(msgspec.structs.replace(given_keys, messages=2), WORLD.now)
        membership, session = Membership(member), Session()
        outbox = outbox_of(membership, session)
        renewed = []
        for _ in range(2):
            session.publish(outbox)
            renewed.append(list(membership.renewed))
            await turn()
            renewed.append(list(membership.renewed))
            session.underway.publications.clear()
        assert renewed == [[], [], [], [WORLD.record.id]]

    run(scenario())


@given(st.lists(st.sampled_from(["sealed", "plain", "turn", "answered", "gap"]), max_size=60))
@examples(25, 250)
def test_whatever_comes_goes_once_and_in_its_order(steps: list[str]) -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(WORLD.publisher), session)
        published = []
        for step in steps:
            match step:
                case "turn":
                    await turn()
                case "answered":
                    for number in session.gone:
                        session.underway.publications.pop(number, None)
                case "gap":
                    session.is_connected = not session.is_connected
                    outbox.flush()
                case topic:
                    published.append(session.publish(outbox, topic))
        session.is_connected = True
        outbox.flush()
        assert session.gone == published

    run(scenario())


def test_questions_go_ahead_of_what_waits() -> None:
    async def scenario() -> None:
        session = Session()
        outbox = outbox_of(Membership(WORLD.publisher), session)
        first, second = session.publish(outbox), session.publish(outbox)
        question = session.publish(outbox, topic="plain", **{SERVICE_TOPIC: "x" * 32})
        assert session.gone == [first, question]
        await turn()
        assert session.gone == [first, question, second]
        sequences = [session.underway.publications[number].event.sequence for number in session.gone]
        assert sequences == sorted(set(sequences))

    run(scenario())
