"""Challenges at intervals: who is connected with a certificate shows again and again that it holds the key."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cases import connect, run, running, until
from tests.broker.certified import Certified
from tests.broker.test_trust import STAFF_PUBLISHES, Secrets, numbers, proofs, ruled
from tidings.broker.broker import Broker
from tidings.client import TlsIdentity
from tidings.client.identity import ChallengeResponder
from tidings.model.errors import ClosedError, RefusedError
from tidings.protocol.handshake import Challenge, Proof

OFTEN = {"challenge_interval_ms": 30, "answer_ms": 60_000}
HEART = {"interval_ms": 10, "patience": 1_000}


def test_who_holds_its_key_stays_connected(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = Certified(tmp_path)
        async with (
            running("b1", tls=given.tls("b1"), security=OFTEN, heartbeat=HEART) as broker,
            connect(broker, "car", identity=given.client("car")) as car,
        ):
            await until(lambda: broker.metrics.security.challenges >= 3)
            assert broker.metrics.security.challenges_failed == 0
            assert await car.ask("status")
            assert car.session.connections == 1

    run(scenario())


def test_without_a_certificate_or_an_interval_nobody_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = Certified(tmp_path)
        async with running("b1", security=OFTEN, heartbeat=HEART) as broker, connect(broker, "car") as car:
            await asyncio.sleep(0.15)
            assert broker.metrics.security.challenges == 0
            assert car.session.connections == 1
        async with (
            running("b2", tls=given.tls("b2"), heartbeat=HEART) as broker,
            connect(broker, "car", identity=given.client("car")),
        ):
            await asyncio.sleep(0.15)
            assert broker.metrics.security.challenges == 0

    run(scenario())


@pytest.mark.parametrize("answered", ["nothing", "no proof", "another's", "another challenge's"])
def test_who_does_not_prove_it_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: str) -> None:
    given = Certified(tmp_path)
    honest = ChallengeResponder.answer
    thief = ChallengeResponder("car", given.client("thief"))

    def answer(self: ChallengeResponder, challenge: Challenge, broker: str, certificate: bytes | None) -> Proof:
        if answered == "no proof":
            return Proof(challenge.number)
        if answered == "another's":
            return honest(thief, challenge, broker, certificate)
        if answered == "another challenge's":
            older = Challenge(challenge.number, bytes(32))
            return honest(self, older, broker, certificate)
        return Proof(challenge.number - 1, b"", b"x")

    monkeypatch.setattr(ChallengeResponder, "answer", answer)

    async def scenario() -> None:
        security = {"challenge_interval_ms": 30, "answer_ms": 50}
        async with (
            running("b1", tls=given.tls("b1"), security=security, heartbeat=HEART) as broker,
            connect(broker, "car", identity=given.client("car")) as car,
        ):
            await until(lambda: car.session.connections > 1)
            assert broker.metrics.security.challenges_failed >= 1
            assert bool(broker.metrics.security.bogus) == (answered != "nothing")

    run(scenario())


# Trust groups over TLS


def test_proofs_of_groups_are_bound_to_the_certificates_of_the_connection(tmp_path: Path) -> None:
    given, secrets = Certified(tmp_path), Secrets(tmp_path)
    staff = {"Staff": secrets.file("Staff")}

    async def scenario() -> None:
        async with (
            running("b1", tls=given.tls("b1"), trust=secrets.tables("Staff"), **ruled(STAFF_PUBLISHES)) as broker,
            connect(broker, "one", identity=given.client("one"), groups=staff) as one,
            connect(broker, "two", identity=given.client("two"), groups=staff) as two,
        ):
            mine = await one.subscribe("a > 0")
            await one.publish({"a": 1})
            two.session.challenge_responder.fingerprint = b"x" * 32  # as if it were on another connection
            with pytest.raises(RefusedError):
                await two.publish({"a": 2})
            assert await numbers(mine, 5) == [1]
            assert proofs(broker) == (2, 1)

    run(scenario())


def test_brokers_prove_themselves_over_tls(tmp_path: Path) -> None:
    given, secrets = Certified(tmp_path), Secrets(tmp_path)

    def tables(name: str, **more: Any) -> dict[str, Any]:
        return {"tls": given.tls(name), "trust": secrets.tables("Staff"), "broker": {"settling_ms": 20}, **more}

    async def scenario() -> None:
        async with running("b1", **tables("b1", links=[{"broker": "b2"}])) as b1:
            link = {"broker": "b2", "address": str(b1.address)}
            async with running("b2", **tables("b2", links=[{**link, "broker": "b1"}])) as b2:
                await until(lambda: "b1" in b2.links and "b2" in b1.links)
                await _ask_of_each_other(b1, b2)

    run(scenario())


async def _ask_of_each_other(*brokers: Broker) -> None:
    for one, other in (brokers, brokers[::-1]):
        assert one.parts.trust_challenges.trust_answer(other.name, "Staff") is None
        await until(partial(getattr, one.parts.trust_challenges, "is_settled"))
        known = one.node.engine.state.trust[other.name, "Staff"]
        assert known[0] is True
        assert proofs(one) == (1, 0)


def test_without_a_certificate_nobody_has_the_name_of_an_operator_or_of_who_has_one(tmp_path: Path) -> None:
    given = Certified(tmp_path)

    async def scenario() -> None:
        tls = {**given.tls("b1"), "require_client_certificate": False}
        async with running(tls=tls, broker={"govern": ["mayor"]}) as broker:
            known = given.client("car")
            anonymous = TlsIdentity(known.authority)
            async with connect(broker, "car", identity=known) as car:
                for name in ("operator", "mayor", "car"):
                    with pytest.raises(ClosedError, match=f"this broker requires a certificate for the name {name}"):
                        await connect(broker, name, identity=anonymous).__aenter__()
                assert car.is_connected
                async with connect(broker, "guest", identity=anonymous) as guest:
                    await guest.publish({"n": 1})
            async with connect(broker, "operator", identity=given.client("operator")) as operator:
                assert (await operator.ask("tables"))["broker"] == "b1"

    run(scenario())
