"""The sealing queue: single events go at once, several go together, and no event overtakes one that waits."""

import asyncio
from typing import Any

import msgspec
import pytest
from benchmarks.workloads.secure_workload import PUBLISHER, SecureTopic, event
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.cases import run
from tests.sizes import examples
from tidings.client.in_flight import InFlight, PendingPublication
from tidings.client.secure.sealing_queue import SealingQueue
from tidings.model.errors import SecurityError, TidingsError
from tidings.model.receipt import Receipt
from tidings.protocol.publications import Safety
from tidings.security.member import Member, Opener
from tidings.security.rpc.kmc_messages import KeyResponse
from tidings.security.rpc.messages import SERVICE_TOPIC
from tidings.security.sealing.envelope import Seal

WORLD = SecureTopic()
TOGETHER = 64


class Session:
    """What was handed out, and what is not answered yet."""

    def __init__(self) -> None:
        self.sent_sequence = self._sequence = 0
        self.is_connected = True
        self.in_flight = InFlight()
        self.gone: list[int] = []

    @property
    def is_quiet(self) -> bool:
        return self.is_connected and len(self.in_flight.publications) <= 1

    def next_sequence(self, wanted: int | None = None) -> int:
        self._sequence = self._sequence + 1 if wanted is None else wanted
        return self._sequence

    def send_publication(self, number: int, publication: PendingPublication) -> None:
        self.sent_sequence = max(self.sent_sequence, publication.event.sequence)
        self.gone.append(number)

    def forget(self, number: int) -> None:
        del self.in_flight.publications[number]

    def publish(self, sealing_queue: SealingQueue, topic: str = "sealed", **more: Any) -> int:
        number = self.in_flight.next_number()
        made = msgspec.structs.replace(event(number, 8, WORLD.now, topic), sequence=self.next_sequence())
        if more:
            made = msgspec.structs.replace(made, attributes=type(made.attributes)({**made.attributes, **more}))
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.in_flight.publications[number] = publication = PendingPublication(made, Safety.ACCEPTED, answer)
        sealing_queue.put(number, publication)
        return number

    def seal(self, number: int) -> Seal:
        sealed = self.in_flight.publications[number].sealed
        assert sealed is not None
        Opener(WORLD.subscriber.credentials, WORLD.subscriber.keyring).open(sealed, WORLD.now)
        return Seal.of(sealed)


class Membership:
    """Of somebody who is given keys when it asks, if the centre gives any."""

    def __init__(self, member: Member, given: KeyResponse | None = None) -> None:
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


def outbox_of(membership: Membership, session: Session) -> SealingQueue:
    return SealingQueue(membership, session)  # type: ignore[arg-type]  # as far as it is needed


async def turn() -> None:
    await asyncio.sleep(0)


def test_what_nothing_else_is_under_way_with_goes_at_once() -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(WORLD.publisher), session)
        for _ in range(3):
            number = session.publish(sealing_queue)
            assert session.gone[-1] == number
            assert session.seal(number).size == 1
            session.in_flight.publications.clear()  # it is answered

    run(scenario())


def test_what_comes_while_others_are_under_way_goes_together_in_the_next_turn() -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(WORLD.publisher), session)
        first = session.publish(sealing_queue)
        others = [session.publish(sealing_queue) for _ in range(TOGETHER + 10)]
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
        sealing_queue = outbox_of(Membership(WORLD.publisher), session)
        session.is_connected = False
        number = session.publish(sealing_queue)
        await turn()
        assert session.gone == []
        assert number in sealing_queue
        session.is_connected = True
        sealing_queue.flush()
        assert session.gone == [number]

    run(scenario())


def newcomer() -> tuple[Member, KeyResponse]:
    """Somebody without token and keys, and what a centre would answer it."""
    member = Member(WORLD.identities[PUBLISHER], WORLD.credentials())
    return member, WORLD.key_response(member)


def test_without_keys_it_waits_until_they_were_given() -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(*newcomer()), session)
        first, second = session.publish(sealing_queue), session.publish(sealing_queue, topic="plain")
        assert session.gone == []
        for _ in range(5):
            await turn()
        assert session.gone == [first, second]
        assert session.seal(first).size == 1

    run(scenario())


def test_who_is_given_no_keys_is_told_and_nobody_else_waits() -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(newcomer()[0]), session)
        first = session.publish(sealing_queue)
        answer = session.in_flight.publications[first].answer
        second = session.publish(sealing_queue, topic="plain")
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
        sealing_queue = outbox_of(membership, session)
        renewed = []
        for _ in range(2):
            session.publish(sealing_queue)
            renewed.append(list(membership.renewed))
            await turn()
            renewed.append(list(membership.renewed))
            session.in_flight.publications.clear()
        assert renewed == [[], [], [], [WORLD.record.id]]

    run(scenario())


@given(st.lists(st.sampled_from(["sealed", "plain", "turn", "answered", "gap"]), max_size=60))
@examples(25, 250)
def test_whatever_comes_goes_once_and_in_its_order(steps: list[str]) -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(WORLD.publisher), session)
        published = []
        for step in steps:
            match step:
                case "turn":
                    await turn()
                case "answered":
                    for number in session.gone:
                        session.in_flight.publications.pop(number, None)
                case "gap":
                    session.is_connected = not session.is_connected
                    sealing_queue.flush()
                case topic:
                    published.append(session.publish(sealing_queue, topic))
        session.is_connected = True
        sealing_queue.flush()
        assert session.gone == published

    run(scenario())


def test_questions_go_ahead_of_what_waits() -> None:
    async def scenario() -> None:
        session = Session()
        sealing_queue = outbox_of(Membership(WORLD.publisher), session)
        first, second = session.publish(sealing_queue), session.publish(sealing_queue)
        question = session.publish(sealing_queue, topic="plain", **{SERVICE_TOPIC: "x" * 32})
        assert session.gone == [first, question]
        await turn()
        assert session.gone == [first, question, second]
        sequences = [session.in_flight.publications[number].event.sequence for number in session.gone]
        assert sequences == sorted(set(sequences))

    run(scenario())
