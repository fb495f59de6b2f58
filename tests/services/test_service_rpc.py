"""Questions to a service over a live broker: answered, refused, asked anew, and never answered by somebody else."""

import asyncio
import time

import pytest

from tests.broker.cases import connect, run, running
from tidings.client.secure.service_rpc import ask
from tidings.model.errors import InvalidValueError, RefusedError, UnreachableError
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.rpc.messages import SERVICE_TOPIC, RpcRequest, RpcServer, answer
from tidings.security.tokens.credentials import Credentials
from tidings.services.service import RateLimit, RpcService

NOW = time.time_ns() // 1000
AUTHORITY = Authority.found("authority", NOW)
KMC, CAR = AUTHORITY.issue("kmc-1", Role.KMC, NOW), AUTHORITY.issue("car-1", Role.ENTITY, NOW)


def credentials() -> Credentials:
    made = Credentials(AUTHORITY.anchor)
    made.revoke(AUTHORITY.revocations(NOW))
    return made


async def echo(question: RpcRequest) -> bytes:
    if question.kind == "refuse":
        raise RefusedError("authorize", f"{question.certificate.name} may not")
    if question.kind == "wrong":
        raise InvalidValueError("that is no value")
    return question.kind.encode() + b" " + question.body


def test_a_question_is_answered_to_who_has_asked_and_a_refusal_says_why() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "kmc-1") as kmc, connect(broker, "car-1") as car:
            respondent = RpcServer(KMC, credentials())
            answering = RpcService(kmc, respondent, echo)
            await answering.begin("aa")
            service = respondent.service("aa", 1)
            assert await ask(car, CAR, service, "echo", b"hello") == b"echo hello"
            assert await asyncio.gather(*(ask(car, CAR, service, "echo", b"%d" % n) for n in range(20))) == [
                b"echo %d" % n for n in range(20)
            ]
            with pytest.raises(RefusedError, match="car-1 may not"):
                await ask(car, CAR, service, "refuse")
            with pytest.raises(RefusedError, match="that is no value"):
                await ask(car, CAR, service, "wrong")
            assert answering.answered == 23
            assert len(car.subscriptions()) == 1

    run(scenario())


def test_a_service_that_comes_late_is_asked_anew() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "kmc-1") as kmc, connect(broker, "car-1") as car:
            respondent = RpcServer(KMC, credentials())
            asking = asyncio.create_task(ask(car, CAR, respondent.service("aa", 1), "echo", b"late"))
            await asyncio.sleep(0.1)
            assert not asking.done()
            await RpcService(kmc, respondent, echo).begin("aa")
            assert await asking == b"echo late"

    run(scenario())


def test_who_does_not_answer_is_named() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            service = RpcServer(KMC, credentials()).service("aa", 1)
            with pytest.raises(
                UnreachableError, match=r"kmc-1 \(kmc\) has not answered within 0.1 s: .* clock is right"
            ):
                await ask(car, CAR, service, "echo", timeout=0.1)

    run(scenario())


def test_what_somebody_else_sends_to_the_reply_topic_does_not_end_the_question() -> None:
    """Neither nonsense, nor the answer of another service that has a good certificate."""

    async def scenario() -> None:
        async with (
            running() as broker,
            connect(broker, "kmc-1") as kmc,
            connect(broker, "car-1") as car,
            connect(broker, "spy") as spy,
        ):
            other = AUTHORITY.issue("kmc-2", Role.KMC, NOW)

            async def slow(question: RpcRequest) -> bytes:
                for payload in (b"nonsense", answer(other, question, b"wrong")):
                    await spy.publish({SERVICE_TOPIC: question.reply_to}, payload=payload, safe="settled")
                return b"right"

            respondent = RpcServer(KMC, credentials())
            await RpcService(kmc, respondent, slow).begin("aa")
            assert await ask(car, CAR, respondent.service("aa", 1), "echo") == b"right"

    run(scenario())


def test_what_is_no_question_gets_no_answer_and_is_counted() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "kmc-1") as kmc, connect(broker, "car-1") as car:
            answering = RpcService(kmc, RpcServer(KMC, credentials()), echo, questions=3)
            await answering.begin("aa")
            await car.publish({SERVICE_TOPIC: "aa"})
            for _ in range(5):
                await car.publish({SERVICE_TOPIC: "aa"}, payload=b"nonsense", safe="settled")
            while sum(answering.refused.values()) < 5:
                await asyncio.sleep(0.01)
            assert answering.refused["seal"] >= 3
            assert answering.answered == 0

    run(scenario())


def test_a_quota_is_each_publishers_own_and_begins_anew_every_second() -> None:
    quota = RateLimit(2)
    assert [quota.take("a", 0), quota.take("a", 1), quota.take("a", 2), quota.take("b", 3)] == [True, True, False, True]
    assert quota.take("a", 1_000_000)
    assert quota.exceeded == 1
