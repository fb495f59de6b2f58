"""Secrets show themselves nowhere: not in logs, metrics, answers, explanations, tracebacks, journals or folders."""

import base64
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from tests.broker.cases import connect, run, running
from tests.client.kmc import AUTHORITY, KMC, OWNER, now
from tests.services.kmc_cases import KEY, Centre, centre
from tidings.broker.ops.prometheus import PrometheusPage
from tidings.model.errors import TidingsError
from tidings.security.ca.certificates import Role, written_key
from tidings.security.sealing import sealer
from tidings.security.sealing.keys import commitment
from tidings.security.suites import Suite

CANARY = b"the canary sings at noon"


def forms(secret: bytes) -> set[bytes]:
    """As it may be written, by accident or by mistake."""
    hexed, coded = secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")
    return {
        secret,
        hexed,
        hexed.upper(),
        coded,
        base64.urlsafe_b64encode(secret).rstrip(b"="),
        repr(secret)[2:-1].encode(),
    }


def secrets_of(kmc: Centre, contents: list[bytes]) -> dict[str, bytes]:
    """All that must not be seen, by what it is."""
    found = {"the payload": CANARY, "the key of the centre's folder": KEY}
    for number, one in enumerate(contents):
        found[f"content key {number}"] = one
    for name, member in kmc.members.items():
        found[f"the signing key of {name}"] = member._signing_key.private_bytes_raw()
        for key in member.keyring:
            found[f"epoch {key.epoch} of {name}"] = key.key
    for identity in (KMC, OWNER):
        numbers = serialization.load_pem_private_key(written_key(identity._key), None).private_numbers()  # type: ignore[union-attr]
        found[f"the certificate's key of {identity.name}"] = numbers.private_value.to_bytes(32, "big")  # type: ignore[union-attr]
    return found


def test_nobody_sees_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    contents: list[bytes] = []

    def noted(suite: Suite, content: bytes, instance: bytes) -> bytes:
        contents.append(content)
        return commitment(suite, content, instance)

    monkeypatch.setattr(sealer, "commitment", noted)
    shown: dict[str, bytes] = {}
    found: dict[str, bytes] = {}
    broker_folder = tmp_path / "broker"
    AUTHORITY.issue("b1", Role.BROKER, now()).save(tmp_path / "b1")
    (tmp_path / "revocations").write_bytes(AUTHORITY.revocations(now()).data)
    tables: dict[str, Any] = {
        "journal": {"folder": str(broker_folder)},
        "security": {"identity": str(tmp_path / "b1"), "revocations": str(tmp_path / "revocations")},
        "tls": {"plain": True},
    }

    async def scenario() -> None:
        async with (
            running("b1", **tables) as broker,
            connect(broker, "operator") as operator,
            centre(broker, tmp_path) as kmc,
        ):
            topic = await kmc.topic()
            await kmc.grant(topic, "pub", "publish")
            await kmc.grant(topic, "fan", "subscribe")
            async with kmc.member("pub", topic) as pub, kmc.member("fan", topic) as fan:
                held = await fan.subscribe("Sports = 'NBA'", durable="mine")
                await pub.publish({"Sports": "NBA"}, payload=CANARY)
                (note,) = await held.take(timeout=10)
                assert note.payload == CANARY
                await kmc.revoke(topic, "fan")
                for asking in (fan.publish({"Sports": "NBA"}, payload=CANARY), fan.explain(note.event.id, held.id)):
                    try:
                        shown[f"answer {len(shown)}"] = repr(await asking).encode()
                    except TidingsError:
                        shown[f"traceback {len(shown)}"] = traceback.format_exc().encode()
                for question in ("status", "stats", "tables"):
                    shown[question] = repr(await operator.ask(question)).encode()
                shown["reprs"] = repr([*kmc.members.values(), kmc.server, kmc.server.centre, pub, fan, broker]).encode()
                shown["values"] = repr([vars(one) for one in kmc.members.values()]).encode()
                found.update(secrets_of(kmc, contents))
            shown["metrics"] = PrometheusPage(broker.name, broker.metrics, lambda: broker.parts.health.gauges()).page()[
                0
            ]

    run(scenario())
    shown["logs"] = "\n".join(record.getMessage() + str(record.exc_text) for record in caplog.records).encode()
    for path in [*broker_folder.rglob("*"), *(tmp_path / "kmc" / "state").rglob("*")]:
        if path.is_file():
            shown[str(path.relative_to(tmp_path))] = path.read_bytes()
    assert len(found) > 8
    assert len(shown["metrics"]) > 1_000
    assert any(b"Sports" in data for name, data in shown.items() if name.startswith("broker"))
    seen = {
        (what, where)
        for what, secret in found.items()
        for where, data in shown.items()
        if any(form in data for form in forms(secret))
    }
    assert seen == set()
