"""`tidings ca` as a user runs it: an authority is made, issues, revokes, lists and publishes."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.broker.running_broker import running_broker
from tests.cli import command
from tidings.client import connect_sync
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.tokens.credentials import Credentials

WORDS = "correct horse battery"


def run(folder: Path, *words: str, passphrase: str | None = WORDS) -> command.Done:
    given = {} if passphrase is None else {"TIDINGS_CA_PASSPHRASE": passphrase}
    return command.run("ca", *words, folder=folder, variables=command.environment(**given))


def told(folder: Path, *words: str) -> Any:
    done = run(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    assert told(tmp_path, "init", "--name", "example")["name"] == "example"
    return tmp_path


def test_an_authority_from_its_beginning_to_a_revocation_that_brokers_are_sent(place: Path) -> None:
    issued = told(place, "issue", "b1", "--role", "broker", "--host", "127.0.0.1", "--out", "b1")
    assert (issued["name"], issued["role"]) == ("b1", "broker")
    told(place, "issue", "car-1", "--out", "car-1")
    told(place, "issue", "car-1", "--out", "car-1")
    car = Identity.load(place / "car-1")
    entries = told(place, "revoke", "car-1", "--since", "2026-01-31T12:00:00Z", "--reason", "stolen")
    assert [one["since"] for one in entries] == ["2026-01-31T12:00:00Z"] * 2
    assert [(one["name"], one["state"], one["reason"]) for one in told(place, "list")] == [
        ("b1", "valid", ""),
        ("car-1", "revoked", "stolen"),
        ("car-1", "revoked", "stolen"),
    ]
    table = run(place, "list", passphrase=None)
    assert table.returncode == 0
    assert "revoked" in table.stdout
    with running_broker() as at, connect_sync(f"tidings://{at}", "reader") as reader:
        held = reader.subscribe("security = 'revocations'")
        told(place, "publish", "--out", "list", "--broker", f"tidings://{at}")
        (note,) = held.take(timeout=60)
    assert note.event.payload == (place / "list").read_bytes() == (place / "ca" / "revocations").read_bytes()
    credentials = Credentials(car.anchor)
    assert [one.name for one in credentials.revoke(RevocationUpdate.read(note.event.payload))] == ["car-1"] * 2


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["init"], 1, "has an authority already"),
        (["issue", "x", "--out", "x", "--ca", "nowhere"], 1, "is no authority's folder"),
        (["issue", "x"], 2, "--out"),
        (["issue", "x", "--out", "x", "--role", "authority"], 2, "--role is one of entity, broker, kmc, tdn"),
        (["issue", "x" * 65, "--out", "x"], 1, "64 characters"),
        (["revoke", "nobody"], 1, "no certificate of nobody is valid"),
        (["revoke", "nobody", "--reason", "x" * 256], 1, "reason: at most 255 characters"),
        (["revoke", "nobody", "--since", "yesterday"], 2, "is not a time such as"),
        (["publish"], 2, "one of --out and --broker"),
        (["publish", "--out", "nowhere/list"], 1, "No such file"),
    ],
)
def test_what_is_wrong_is_one_line(place: Path, words: list[str], code: int, complaint: str) -> None:
    done = run(place, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert done.stderr.startswith("tidings: ")
    assert done.stderr.count("\n") == 1


def test_the_passphrase_is_asked_for_and_not_shown(place: Path) -> None:
    missing = run(place, "issue", "car-1", "--out", "car-1", passphrase=None)
    assert missing.returncode == 1
    assert "set TIDINGS_CA_PASSPHRASE" in missing.stderr
    wrong = run(place, "issue", "car-1", "--out", "car-1", passphrase="wrong battery")
    assert wrong.returncode == 1
    assert "battery" not in wrong.stderr
    unprotected = run(place, "init", "other", passphrase=None)
    assert unprotected.returncode == 1
    assert "--no-passphrase" in unprotected.stderr
    assert run(place, "init", "other", "--no-passphrase", passphrase=None).returncode == 0
    assert run(place, "issue", "a", "--out", "a", "--ca", "other", passphrase=None).returncode == 0
    assert run(place, "init", "third", passphrase="").returncode == 1


def test_a_certificate_that_could_not_be_written_is_not_issued(place: Path) -> None:
    (place / "taken").write_text("a file")
    done = run(place, "issue", "b1", "--role", "broker", "--out", "taken")
    assert (done.returncode, done.stderr) == (1, "tidings: --out: taken: File exists\n")
    assert told(place, "list") == []


def test_a_renewed_identity_is_there_whole_or_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(place, "issue", "car-1", "--out", "car-1")
    before = {path.name: path.read_bytes() for path in (place / "car-1").iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    identity = Identity.load(place / "car-1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        identity.save(place / "car-1")
    assert {path.name: path.read_bytes() for path in (place / "car-1").iterdir()} == before
    assert (place / "car-1" / "key.pem").stat().st_mode & 0o777 == 0o600
