"""The authority in a folder: what it has said is there again, and nobody else speaks for it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import address, run, running
from tests.journal.cases import Crash, CrashingDisk
from tidings.client import TlsIdentity
from tidings.model.errors import InvalidValueError, JournalDamagedError, JournalLockedError, SecurityError
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.tokens.credentials import Credentials
from tidings.services.authority_store import PUBLISHED, AuthorityStore, read_listing

NOW = 1_790_000_000_000_000
DAY = 86_400_000_000
WORDS = b"correct horse"


def words() -> bytes | None:
    return WORDS


def nobody_is_asked() -> bytes | None:
    raise AssertionError


def test_what_was_issued_and_revoked_is_there_again(tmp_path: Path) -> None:
    with AuthorityStore.create(tmp_path, "example", NOW, WORDS) as folder:
        car = folder.issue("car-1", Role.ENTITY, NOW)
        folder.issue("b1", Role.BROKER, NOW, hosts=["127.0.0.1", "b1.example.org"])
    with AuthorityStore.open(tmp_path, words) as folder:
        folder.authority.anchor.check(car.certificate, NOW, Role.ENTITY)
        renewed = folder.issue("car-1", Role.ENTITY, NOW + DAY)
        assert [one.name for one in folder.authority.issued] == ["car-1", "b1", "car-1"]
        entries = folder.revoke("car-1", NOW + 2 * DAY, since=NOW + DAY, reason="stolen")
        assert [one.when for one in entries] == [NOW + DAY] * 2
    with AuthorityStore.open(tmp_path, words) as folder:
        credentials = Credentials(folder.authority.anchor)
        credentials.revoke(folder.publish(NOW + 2 * DAY))
        for certificate in (car.certificate, renewed.certificate):
            with pytest.raises(SecurityError, match="revoked"):
                credentials.revocations.check(certificate, NOW + 2 * DAY)
        with pytest.raises(InvalidValueError, match="no certificate of car-1 is valid"):
            folder.revoke("car-1", NOW + 3 * DAY)
    listed = read_listing(tmp_path)
    assert [(one.name, one.role, one.revoked is None) for one in listed] == [
        ("car-1", Role.ENTITY, False),
        ("b1", Role.BROKER, True),
        ("car-1", Role.ENTITY, False),
    ]


def test_every_list_is_later_than_the_one_before_whatever_the_clock_says(tmp_path: Path) -> None:
    credentials = None
    for turn, now in enumerate((NOW, NOW - DAY, NOW - 2 * DAY)):
        opened = AuthorityStore.create(tmp_path, "a", now, None) if not turn else AuthorityStore.open(tmp_path, words)
        with opened as folder:
            credentials = credentials or Credentials(folder.authority.anchor)
            before = credentials.revocations.head
            credentials.revoke(folder.publish(now))
            assert credentials.revocations.head is not None
            assert before is None or credentials.revocations.head.issued > before.issued


def test_a_ledger_that_has_lost_what_was_published_is_not_believed(tmp_path: Path) -> None:
    with AuthorityStore.create(tmp_path, "a", NOW, None) as folder:
        folder.issue("car-1", Role.ENTITY, NOW)
        before = (tmp_path / "ledger").read_bytes()
        folder.revoke("car-1", NOW)
        folder.publish(NOW)
    (tmp_path / "ledger").write_bytes(before)
    with pytest.raises(JournalDamagedError, match="knows of 0 revocations, and 1 were published"):
        AuthorityStore.open(tmp_path, nobody_is_asked)


def test_the_key_is_worth_nothing_without_its_passphrase(tmp_path: Path) -> None:
    with AuthorityStore.create(tmp_path, "example", NOW, WORDS):
        pass
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert b"ENCRYPTED" in (tmp_path / "key.pem").read_bytes()
    with pytest.raises(InvalidValueError, match="passphrase") as refused:
        AuthorityStore.open(tmp_path, lambda: b"wrong horse")
    assert "horse" not in str(refused.value)
    with AuthorityStore.open(tmp_path, words):  # a refusal lets go of the folder
        pass


def test_one_writer_one_authority_one_role_a_name(tmp_path: Path) -> None:
    with AuthorityStore.create(tmp_path, "example", NOW, None) as folder:
        with pytest.raises(JournalLockedError, match=r"^the authority in "):
            AuthorityStore.open(tmp_path, nobody_is_asked)
        folder.issue("kmc-1", Role.ENTITY, NOW, days=1)
        with pytest.raises(InvalidValueError, match="kmc-1 has a certificate as entity"):
            folder.issue("kmc-1", Role.KMC, NOW)
        folder.issue("kmc-1", Role.KMC, NOW + 2 * DAY)
    with pytest.raises(InvalidValueError, match="has an authority already"):
        AuthorityStore.create(tmp_path, "example", NOW, None)
    with pytest.raises(InvalidValueError, match="is no authority's folder"):
        AuthorityStore.open(tmp_path / "nowhere", words)
    with pytest.raises(InvalidValueError, match="is no authority's folder"):
        read_listing(tmp_path / "nowhere")


def test_a_crash_at_any_step_loses_nothing_that_was_said(tmp_path: Path) -> None:
    at, crashed = 0, True
    while crashed:
        path, disk, folder = tmp_path / str(at), CrashingDisk(at), None
        issued: list[bytes] = []
        revoked = published = 0
        crashed = False
        try:
            folder = AuthorityStore.create(path, "example", NOW, None, disk=disk)
            for turn in range(3):
                folder.issue(f"car-{turn}", Role.ENTITY, NOW)
                issued.append(folder.authority.issued[-1].serial)
            folder.revoke("car-0", NOW)
            revoked = 1
            folder.publish(NOW)
            published = 1
        except Crash:
            crashed = True
        if folder is not None:
            folder.close()
            with AuthorityStore.open(path, nobody_is_asked) as again:
                known = [one.serial for one in again.authority.issued]
                assert known[: len(issued)] == issued
                assert len(again.authority.revoked) >= revoked
                assert (path / PUBLISHED).exists() or not published
                again.issue("car-9", Role.ENTITY, NOW)
                assert again.authority.issued[-1].serial not in known
        elif (path / "certificate.pem").exists():
            AuthorityStore.open(path, nobody_is_asked).close()
        else:
            AuthorityStore.create(path, "example", NOW, None).close()
        at += 1
    assert at > 12


def test_identities_serve_for_tls(tmp_path: Path) -> None:
    now = time.time_ns() // 1000
    with AuthorityStore.create(tmp_path / "ca", "example", now, None) as folder:
        folder.issue("b1", Role.BROKER, now, hosts=["127.0.0.1"]).save(tmp_path / "b1")
        folder.issue("car-1", Role.ENTITY, now).save(tmp_path / "car-1")
    with AuthorityStore.create(tmp_path / "other", "example", now, None) as folder:
        folder.issue("car-1", Role.ENTITY, now).save(tmp_path / "stranger")

    def files(name: str) -> dict[str, Any]:
        return {key: str(tmp_path / name / f"{key}.pem") for key in ("authority", "certificate", "key")}

    async def scenario() -> None:
        async with running(tls=files("b1")) as broker:
            car = td.connect(address(broker), "car-1", TlsIdentity(**files("car-1")))
            async with car, car.subscribe("n = 1") as ones:
                await car.publish({"n": 1})
                assert len(await ones.take(timeout=60)) == 1
            mixed = {**files("stranger"), "authority": files("b1")["authority"]}
            with pytest.raises(td.UnreachableError):
                async with asyncio.timeout(5), td.connect(address(broker), "car-1", TlsIdentity(**mixed), patience=0.3):
                    pass

    run(scenario())
    assert Identity.load(tmp_path / "car-1").name == "car-1"
