"""`tidings kmc` as a user runs it: a centre in its folder, and the same centre as a process, asked over a broker."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.broker.running_broker import running_broker
from tests.cli import command
from tests.limits import PATIENCE
from tidings.cli import kmc_access
from tidings.cli.kmc_access import discover_centre
from tidings.client.client import Client
from tidings.client.secure.service_rpc import Retry, ask
from tidings.model.errors import InvalidValueError, UnreachableError
from tidings.security import Authority, Identity, Role, TopicRecord
from tidings.security.rpc.kmc_messages import LIST, ROTATE
from tidings.security.rpc.messages import ServiceRecord

pytestmark = pytest.mark.process

TOPIC = "Sports=NBA,Team=*"


def run(folder: Path, *words: str, stdin: str = "", **variables: str) -> command.Done:
    return command.run("kmc", *words, folder=folder, variables=command.environment(**variables), stdin=stdin)


def told(folder: Path, *words: str, **given: str) -> Any:
    done = run(folder, *words, "--json", **given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, now = tmp_path_factory.mktemp("kmc"), time.time_ns() // 1000
    authority = Authority.found("authority", now)
    roles = {"kmc-1": Role.KMC, "league": Role.ENTITY, "car-1": Role.ENTITY}
    for name, role in roles.items():
        authority.issue(name, role, now).save(folder / name)
    (folder / "revocations").write_bytes(authority.revocations(now).data)
    made = told(folder, "init", "kmc", "--identity", "kmc-1", "--key-file", "key")
    assert made == {"folder": "kmc", "name": "kmc-1", "service": "kmc/service.bin"}
    return folder


AT_REST = ("--folder", "kmc", "--key-file", "key")


@contextmanager
def running(place: Path, address: str) -> Iterator[None]:
    words = ("serve", "kmc", "--broker", address, "--plain", "--key-file", "key", "--revocations", "revocations")
    with command.start(
        "kmc", *words, "--json", cwd=place, env=command.environment(), stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["centre"] == "kmc-1"
            yield
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0


def test_a_centre_from_its_beginning_over_the_overlay_and_back(place: Path) -> None:
    made = told(
        *(place, "topic", TOPIC, "--bits", "192", "--lifetime", "3600", "--out", "topic", "--identity", "league"),
        *AT_REST,
    )
    record = TopicRecord((place / "topic").read_bytes())
    assert (made["id"], made["suite"], made["epoch"]) == (record.id.hex(), "aes-192-gcm", 1)
    assert record.owner == Identity.load(place / "league").certificate
    told(place, "grant", TOPIC, "car-1", "publish", "--days", "30", *AT_REST)
    with running_broker() as at:
        over = ("--service", "kmc/service.bin", "--broker", f"tidings://{at}", "--plain")
        owner = ("--identity", "league", *over)
        with running(place, f"tidings://{at}"):
            busy = run(place, "list", *AT_REST)
            assert busy.returncode == 1
            assert "one writer" in busy.stderr
            (topic,) = told(place, "list", *owner)["topics"]
            assert [(one["entity"], one["rights"]) for one in topic["grants"]] == [("car-1", ["publish"])]
            told(place, "grant", record.id.hex(), "car-1", "publish", "subscribe", *owner)
            told(place, "enrol", "-", "--identity", "car-1", *over, stdin='{"the first pet?": "Rex"}')
            wrong = run(place, "answer", "the first pet?", "--identity", "car-1", *over, stdin="Rex\n")
            assert "car-1 was not asked this" in wrong.stderr
            again = told(place, "topic", TOPIC, "--bits", "192", "--challenge", "60", *owner)
            assert (again["id"], again["version"]) == (record.id.hex(), 1)
            assert told(place, "revoke", "car-1", "--topic", TOPIC, *owner)["epochs"] == {record.id.hex(): 2}
            refused = run(place, "grant", TOPIC, "car-1", "publish", "--identity", "car-1", *over)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "belongs to somebody else" in refused.stderr
    assert told(place, "rotate", TOPIC, "--compromised", *AT_REST)["epochs"] == {record.id.hex(): 3}
    table = run(place, "list", *AT_REST)
    assert table.returncode == 0
    assert "aes-192-gcm" in table.stdout
    assert ServiceRecord((place / "kmc" / "service.bin").read_bytes()).certificate.name == "kmc-1"


def test_what_is_not_said_of_a_topic_stays_as_it_is(place: Path) -> None:
    at = ("--identity", "league", *AT_REST)

    def listed() -> dict[str, Any]:
        return next(one for one in told(place, "list", *AT_REST)["topics"] if one["topic"] == "Floor=3")

    said = ("--bits", "128", "--lifetime", "600", "--messages", "1000", "--grace", "7")
    assert told(place, "topic", "Floor=3", *said, *at)["version"] == 1
    changed = told(place, "topic", "Floor=3", "--challenge", "60", *at)
    assert (changed["version"], changed["suite"]) == (1, "aes-128-gcm")
    found = listed()
    assert [found[name] for name in ("lifetime", "messages", "grace", "challenge")] == [600, 1_000, 7, 60]
    changed = told(place, "topic", "Floor=3", "--algorithm", "chacha20-poly1305", "--challenge", "0", *at)
    assert (changed["version"], changed["suite"]) == (2, "chacha20-poly1305")
    assert (listed()["lifetime"], listed()["challenge"]) == (600, 0)
    assert told(place, "topic", "Floor=3", *at)["version"] == 2


def test_topics_go_over_to_a_renewed_certificate_of_their_centre(tmp_path: Path) -> None:
    """Records name the centre's certificate: they are signed anew, and what was granted stays."""
    at, now = ("--identity", "league", *AT_REST), time.time_ns() // 1000
    authority = Authority.found("authority", now)
    for name, role in {"kmc-1": Role.KMC, "league": Role.ENTITY}.items():
        authority.issue(name, role, now).save(tmp_path / name)
    told(tmp_path, "init", "kmc", "--identity", "kmc-1", "--key-file", "key")
    first = told(tmp_path, "topic", TOPIC, "--lifetime", "600", *at)
    told(tmp_path, "grant", TOPIC, "car-1", "publish", *AT_REST)
    renewed = authority.issue("kmc-1", Role.KMC, now)
    renewed.save(tmp_path / "kmc" / "identity")
    second = told(tmp_path, "topic", TOPIC, "--out", "record", *at)
    assert (second["id"], second["version"]) == (first["id"], 2)
    assert TopicRecord((tmp_path / "record").read_bytes()).kmc == renewed.certificate.fingerprint
    (topic,) = told(tmp_path, "list", *AT_REST)["topics"]
    assert (topic["lifetime"], [one["entity"] for one in topic["grants"]]) == (600, ["car-1"])


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["init", "kmc", "--identity", "kmc-1", "--key-file", "key"], 1, "has the state of a key management centre"),
        (["init", "new", "--identity", "league", "--key-file", "key"], 1, "league is no kmc"),
        (["init", "new", "--identity", "kmc-1"], 1, "set TIDINGS_KMC_PASSPHRASE"),
        (["list"], 2, "--identity, to ask a centre over the overlay; or --folder"),
        (["list", "--folder", "nowhere", "--key-file", "key"], 1, "is no key management centre"),
        (["list", "--folder", "kmc", "--key-file", "nowhere"], 1, "No such file"),
        (["topic", "x=y", *AT_REST], 2, "--identity is that of the topic's owner"),
        (["topic", "x=y", "--bits", "100", "--identity", "league", *AT_REST], 1, "keys of 128, 192 or 256 bits"),
        (["topic", "x=y", "--algorithm", "des", "--identity", "league", *AT_REST], 1, "'des' is not offered"),
        (["topic", "x=y", "--lifetime", "0", "--identity", "league", *AT_REST], 1, "lifetime: 0: seconds"),
        (["topic", "x=*", "--identity", "league", *AT_REST], 1, "at least one tag has a value"),
        (["grant", "no=topic", "car-1", "publish", *AT_REST], 1, "there is no topic no=topic here"),
        (["grant", "no=topic", "car-1", "read", *AT_REST], 1, "there are publish, subscribe and govern"),
        (["revoke", "nobody", *AT_REST], 1, "nobody was granted nothing here"),
        (["release", "nobody", *AT_REST], 1, "nobody has no query set here"),
    ],
)
def test_what_is_wrong_is_one_line(place: Path, words: list[str], code: int, complaint: str) -> None:
    done = run(place, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert done.stderr.startswith("tidings: ")
    assert done.stderr.count("\n") == 1


def test_a_state_under_a_passphrase_opens_with_no_other_one(place: Path) -> None:
    told(place, "init", "sealed", "--identity", "kmc-1", TIDINGS_KMC_PASSPHRASE="correct horse")
    assert told(place, "list", "--folder", "sealed", TIDINGS_KMC_PASSPHRASE="correct horse")["topics"] == []
    wrong = run(place, "list", "--folder", "sealed", TIDINGS_KMC_PASSPHRASE="wrong battery")
    assert wrong.returncode == 1
    assert "is not the one that sealed this" in wrong.stderr
    assert "battery" not in wrong.stderr


class _Nodes:
    """Discovery nodes of which none answers at first, and which know of no centre then."""

    def __init__(self, *answers: "list[Any] | UnreachableError") -> None:
        self._answers = list(answers)

    async def find(self, query: str) -> list[Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, UnreachableError):
            raise answer
        return answer


def test_a_centre_that_is_not_known_yet_is_waited_for() -> None:
    def found(*answers: Any, wait: float) -> Any:
        return asyncio.run(discover_centre(cast("Any", _Nodes(*answers)), Retry(wait)))

    silence, centre = UnreachableError("no discovery node answers"), SimpleNamespace(service="the centre")
    assert found(silence, [], [centre], wait=60) == "the centre"
    with pytest.raises(UnreachableError, match="no discovery node answers"):
        found(silence, [centre], wait=0)
    with pytest.raises(InvalidValueError, match="discovery nodes know none"):
        found([], [centre], wait=0)


class _Questions:
    """What a command asks a centre. Its first question finds no centre, and then `start` starts one."""

    def __init__(self, start: Callable[[], None]) -> None:
        self._start = start
        self.kinds: list[str] = []

    async def ask(self, client: Client, identity: Identity, service: ServiceRecord, kind: str, body: bytes) -> bytes:
        self.kinds.append(kind)
        if len(self.kinds) > 1:
            return await ask(client, identity, service, kind, body)
        try:
            return await ask(client, identity, service, kind, body, timeout=0.1)
        finally:
            await asyncio.to_thread(self._start)


def test_a_change_is_asked_for_once_when_the_centre_has_answered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(place, "topic", "Floor=4", "--identity", "league", *AT_REST)
    with running_broker() as at, ExitStack() as centres:
        over = ("--service", "kmc/service.bin", "--broker", f"tidings://{at}", "--plain", "--identity", "league")
        asked = _Questions(lambda: centres.enter_context(running(place, f"tidings://{at}")))
        monkeypatch.setattr(kmc_access, "ask", asked.ask)
        told(place, "rotate", "Floor=4", *over, "--wait", str(PATIENCE))
        assert asked.kinds == [LIST, LIST, LIST, ROTATE]  # silence, an answer, the topic's id, the change
        asked.kinds[:] = ["another"]
        refused = run(place, "rotate", "Floor=5", *over, "--wait", str(PATIENCE))
        assert (refused.returncode, asked.kinds[1:]) == (1, [LIST, LIST])
        assert "there is no topic Floor=5 here" in refused.stderr
