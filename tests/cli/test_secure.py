"""Secure topics from the command line: sealed by who may publish, opened by who may read, and never shown else."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import command
from tests.cli.test_live import ending
from tests.client.clock import tick
from tests.client.kmc import OWNER, Files, Serving, Topic, entity, now
from tests.limits import PATIENCE
from tidings.cli import connection
from tidings.client.connector import connect, connect_sync
from tidings.client.secure import kmc_client
from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import ask
from tidings.model.errors import UnreachableError
from tidings.security.tdn.discovery_records import DiscoveryRecord

pytestmark = pytest.mark.process

GAME = json.dumps({"Sports": "NBA", "Team": "NYK"})


class Shell:
    def __init__(self, folder: Path, where: str) -> None:
        self._folder = folder
        self._variables = command.environment(TIDINGS_CONNECT=where, COLUMNS="200")

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return command.start(*words, cwd=self._folder, env=self._variables)

    def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        done = command.run(*words, folder=self._folder, variables=self._variables, stdin=stdin)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def topic() -> Topic:
    made = Topic("Sports=NBA,Team=*")
    made.grant("ann", "publish")
    made.grant("bob", "subscribe")
    return made


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, topic: Topic) -> Iterator[Shell]:
    """At a broker that checks everything, without TLS; identities are folders beside it."""
    tmp_path = tmp_path_factory.mktemp("shell")
    for name in ("ann", "bob", "eve"):
        entity(name).save(tmp_path / name)
    with Serving(Files(tmp_path, topic).security("b1"), topic) as (where, service):
        (tmp_path / "kmc.service").write_bytes(service.data)
        (tmp_path / "nba.topic").write_bytes(topic.record.data)
        yield Shell(tmp_path, where)


def secured(name: str, *more: str) -> list[str]:
    return ["--identity", name, "--service", "kmc.service", "--plain", *more]


def ready(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    assert "waits for events" in process.stderr.readline()


def test_what_is_published_from_the_shell_is_sealed_and_read_by_who_may(shell: Shell) -> None:
    words = ["subscribe", "Sports = 'NBA'", "--count", "1", *secured("bob", "--topic", "nba.topic")]
    with ending(shell.start(*words)) as reading:
        ready(reading)
        code, out, err = shell.run("publish", GAME, "--payload", "99:98", *secured("ann", "--topic", "nba.topic"))
        assert (code, err) == (0, ""), err
        assert re.fullmatch(r"published \S+, sealed, epoch 1, accepted: the broker has no journal\n", out)
        told, _ = reading.communicate(timeout=PATIENCE)
    note = json.loads(told)
    assert (note["payload"], note["publisher"], note["attributes"]) == ("99:98", "ann", json.loads(GAME))
    assert "sealed" not in note


def test_what_the_machine_reads_says_the_epoch(shell: Shell) -> None:
    to = secured("ann", "--topic", "nba.topic", "--json")
    code, out, err = shell.run("publish", GAME, *to)
    assert (code, json.loads(out)["sealed"]) == (0, 1), err
    code, out, err = shell.run("publish", *to, stdin=f"{GAME}\n{GAME}\n")
    assert (code, json.loads(out)) == (0, {"published": 2, "refused": 0, "sealed": 2, "safe": {"accepted": 2}}), err


@pytest.mark.parametrize(
    "event", ['{"Sport": "NBA", "Team": "NYK"}', '{"Sports": "NBA"}', '{"Sports": "nba", "Team": "N"}']
)
def test_an_event_that_would_go_in_the_clear_is_refused(shell: Shell, event: str) -> None:
    to = secured("ann", "--topic", "nba.topic")
    code, out, err = shell.run("publish", event, *to)
    assert (code, out) == (1, "")
    assert "the event would go in the clear: it is on no secure topic that ann knows (Sports=NBA,Team=*)" in err
    for words in ((), ("--events",)):
        lines = "".join(f"{json.dumps({'attributes': json.loads(one)}) if words else one}\n" for one in (event, GAME))
        code, out, err = shell.run("publish", *words, *to, stdin=lines)
        assert code == 1
        assert out == "published 1, refused 1, sealed 1 in epoch 1, accepted 1: the broker has no journal\n"
        assert "line 1: the event would go in the clear" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["publish", GAME, *secured("eve", "--topic", "nba.topic")], "eve cannot publish on the secure topic"),
        (["publish", GAME, *secured("bob")], "the right to publish"),
        (["publish", GAME, "--name", "eve"], "is secure: publish with a token for it"),
        (["subscribe", "Sports = 'NBA' AND Team = 'NYK'", *secured("eve")], "league, can grant the right to subscribe"),
        (["publish", GAME, "--service", "kmc.service"], "need --identity with a folder"),
        (["publish", GAME, *secured("ann"), "--name", "other"], "has that of its certificate, ann"),
    ],
    ids=["no right", "another right", "no identity", "no right to read", "no folder", "another name"],
)
def test_who_may_not_is_told_in_one_line(shell: Shell, words: list[str], said: str) -> None:
    code, out, err = shell.run(*words)
    assert (code, out) == (1, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_outsider_sees_that_something_is_sealed_and_no_more(tmp_path: Path, topic: Topic) -> None:
    """At a broker that checks nothing, and so hands everything to anybody."""
    entity("ann").save(tmp_path / "ann")
    with Serving({}, topic) as (where, service):
        (tmp_path / "kmc.service").write_bytes(service.data)
        (tmp_path / "nba.topic").write_bytes(topic.record.data)
        shell = Shell(tmp_path, where)
        tails = [shell.start("tail", "Sports = 'NBA'", "--count", "1", *more) for more in ([], ["--json"])]
        told = []
        while any(one.poll() is None for one in tails):
            code, _, err = shell.run(
                "publish", GAME, "--payload", "the secret", *secured("ann", "--topic", "nba.topic")
            )
            assert code == 0, err
        for one in tails:
            out, _ = one.communicate(timeout=PATIENCE)
            told.append(out)
        assert "sealed, 26 bytes, epoch 1" in told[0]
        seen: dict[str, Any] = json.loads(told[1])
        assert (seen["sealed"], seen["payload"]) == ({"bytes": 26, "epoch": 1}, None)


class _Beginning:
    """Services that have just been started: no discovery node answers, then one that knows no topic, then one that
    does; the centre does not answer the first question."""

    def __init__(self, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
        self._topic = topic
        self.finds = self.keys = 0
        monkeypatch.setattr(Discovery, "find", self._found)
        monkeypatch.setattr(kmc_client, "ask", self._asked)

    async def _found(self, *_: object, **__: object) -> list[DiscoveryRecord]:
        self.finds += 1
        if self.finds == 1:
            raise UnreachableError("no discovery node has answered")
        return [] if self.finds == 2 else [DiscoveryRecord.topic(OWNER, self._topic.record, now())]

    async def _asked(self, *given: Any, **more: Any) -> bytes:
        self.keys += 1
        if self.keys == 1:
            raise UnreachableError("kmc-1 (kmc) has not answered")
        return await ask(*given, **more)


VERBS = {
    "publish": ("publish", GAME),
    "subscribe": ("subscribe", "Sports = 'NBA' AND Team = 'NYK'", "--seconds", "0"),
    "tail": ("tail", "Sports = 'NBA' AND Team = 'NYK'", "--seconds", "0"),
}


@pytest.mark.parametrize(("verb", "who"), [("publish", "ann"), ("subscribe", "bob"), ("tail", "bob")])
def test_services_that_are_not_there_yet_are_waited_for(
    shell: Shell, topic: Topic, monkeypatch: pytest.MonkeyPatch, verb: str, who: str
) -> None:
    services = _Beginning(topic, monkeypatch)
    code, _, err = shell.run(*VERBS[verb], *secured(who, "--find", "Sports=NBA"))
    assert (code, err) == (1, "tidings: no discovery node has answered\n")
    services.finds = 0
    code, _, err = shell.run(*VERBS[verb], *secured(who, "--find", "Sports=NBA", "--wait", str(PATIENCE)))
    assert (code, services.keys) == (0, 2), err
    services.keys = 0
    code, _, err = shell.run(*VERBS[verb], *secured(who, "--topic", "nba.topic", "--wait", str(PATIENCE)))
    assert (code, services.keys) == (0, 2), err


@pytest.mark.parametrize("verb", VERBS)
def test_a_right_that_is_missing_is_not_waited_for(
    shell: Shell, topic: Topic, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    services = _Beginning(topic, monkeypatch)
    code, out, err = shell.run(*VERBS[verb], *secured("eve", "--find", "Sports=NBA", "--wait", str(PATIENCE)))
    assert (code, out, services.keys) == (1, "", 2), err  # silence, and the refusal
    assert "eve cannot" in err
    assert len(err.splitlines()) == 1


def test_a_centre_that_nobody_knows_yet_is_waited_for(
    shell: Shell, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --service, discovery nodes have to know the centre of a topic, which may come after the topic."""
    tick(monkeypatch)
    services = _Beginning(topic, monkeypatch)
    words = (*VERBS["publish"], "--identity", "ann", "--plain", "--topic", "nba.topic")
    code, _, err = shell.run(*words)
    assert (code, services.finds) == (1, 1)
    assert "the key management centre of Sports=NBA,Team=* cannot be found" in err
    waited = shell.run(*words, "--wait", "3.5")
    assert (waited, services.finds) == ((code, "", err), 1 + 4)


@pytest.mark.parametrize(
    "words", [("topics",), ("subscribe", "--seconds", "0", "--name", "bob"), ("publish", "{}", "--name", "ann")]
)
def test_the_broker_is_waited_for_too(shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {}
    for function in (connect, connect_sync):

        def spied(*given: Any, function: Any = function, **more: Any) -> Any:
            settings.update(more)
            return function(*given, **more)

        monkeypatch.setattr(connection, function.__name__, spied)
    code, _, err = shell.run(*words)
    assert code == 0, err
    timeout = settings["timeout"]
    code, _, err = shell.run(*words, "--wait", "50")
    assert (code, settings["patience"], settings["timeout"]) == (0, 50, timeout + 50), err
