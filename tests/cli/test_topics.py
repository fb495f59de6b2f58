"""`tidings tdn` and `tidings topics` as users run them: found at nodes that are processes, until the last one."""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.running_broker import running_broker
from tests.cli import command
from tests.client.clock import tick
from tests.limits import PATIENCE
from tests.services.discovery_world import DiscoveryWorld
from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import now
from tidings.model.errors import UnreachableError
from tidings.security.tdn.discovery_records import DiscoveryRecord
from tidings.security.topic_record import TopicRecord

pytestmark = pytest.mark.process


@pytest.fixture
def broker(request: pytest.FixtureRequest, world: DiscoveryWorld) -> Iterator[str]:
    world.is_plain = request.param == "plain"
    files = {key: str(world.folder / "b1" / f"{key}.pem") for key in ("authority", "certificate", "key")}
    with running_broker(tls={} if world.is_plain else files) as at:
        yield f"tidings://{at}"


@pytest.fixture
def world(tmp_path: Path) -> DiscoveryWorld:
    return DiscoveryWorld(tmp_path)


def run(world: DiscoveryWorld, broker: str, *words: str) -> command.Done:
    whole = ["topics", *words, "--broker", broker, *world.plainly]
    return command.run(*whole, folder=world.folder, variables=command.environment())


def told(world: DiscoveryWorld, broker: str, *words: str) -> Any:
    done = run(world, broker, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("broker", ["with TLS"], indirect=True)
def test_a_topic_is_advertised_found_by_who_may_and_withdrawn(world: DiscoveryWorld, broker: str) -> None:
    record = world.record("Sports=NBA,Team=*")
    (world.folder / "nba.record").write_bytes(record.data)
    with world.node("tdn-1", broker), world.node("tdn-2", broker) as second:
        said = told(world, broker, "advertise", "nba.record", "--identity", "owner", "--only", "read*")
        assert said == {"topic": "Sports=NBA,Team=*", "nodes": ["tdn-1", "tdn-2"]}
        (found,) = told(world, broker, "find", "Sports=NBA", "--identity", "reader", "--out", "found")
        assert (found["topic"], found["owner"], found["version"]) == ("Sports=NBA,Team=*", "owner", 1)
        (file,) = (world.folder / "found").iterdir()
        assert TopicRecord(file.read_bytes()).id == record.id
        assert told(world, broker, "find", "*", "--identity", "kmc-1") == []
        second.send_signal(signal.SIGTERM)
        assert second.wait(PATIENCE) == 0
        table = run(world, broker, "find", "*", "--identity", "reader")
        assert table.returncode == 0
        assert "Sports=NBA,Team=*" in table.stdout
        refused = run(world, broker, "withdraw", "Sports=NBA,Team=*", "--identity", "reader")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("tidings: reader has advertised no topic Sports=NBA,Team=*")
        assert told(world, broker, "withdraw", "Sports=NBA,Team=*", "--identity", "owner")["nodes"] == ["tdn-1"]
        assert "nothing is found" in run(world, broker, "find", "*", "--identity", "reader").stdout


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
def test_so_many_are_found_as_are_wanted_and_it_says_that_there_is_more(world: DiscoveryWorld, broker: str) -> None:
    with world.node("tdn-1", broker):
        for number in range(3):
            (world.folder / "one.record").write_bytes(world.record(f"/{number}").data)
            told(world, broker, "advertise", "one.record", "--identity", "owner")
        some = run(world, broker, "find", "*", "--identity", "reader", "--limit", "2", "--json")
        assert [one["topic"] for one in json.loads(some.stdout)] == ["/0", "/1"]
        assert some.stderr == "there is more than these 2: say --limit, or a narrower template\n"
        every = run(world, broker, "find", "*", "--identity", "reader", "--limit", "3", "--json")
        assert ([one["topic"] for one in json.loads(every.stdout)], every.stderr) == (["/0", "/1", "/2"], "")


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
def test_what_is_wrong_is_one_line(world: DiscoveryWorld, broker: str) -> None:
    (world.folder / "nba.record").write_bytes(world.record("Sports=NBA").data)
    with world.node("tdn-1", broker):
        for words, code, complaint in (
            (["find", "*", "--identity", "nobody"], 1, "identity: nobody/authority.pem"),
            (["find", "a=b=c", "--identity", "reader"], 1, "a tag is name=value"),
            (["find", "*"], 2, "--identity"),
            (["advertise", "missing", "--identity", "owner"], 1, "No such file"),
            (["advertise", "revocations", "--identity", "owner"], 1, "this is no topic record"),
            (["advertise", "nba.record", "--identity", "reader"], 1, "is not one of reader"),
            (["advertise", "nba.record", "--identity", "owner", "--role", "king"], 1, "'king' is no role"),
        ):
            done = run(world, broker, *words)
            assert (done.returncode, done.stdout) == (code, ""), words
            assert complaint in done.stderr
            assert done.stderr.count("\n") == 1
    words = ["tdn", "serve", "--identity", "reader", "--folder", "state", "--broker", broker, "--plain"]
    done = command.run(*words, folder=world.folder, variables=command.environment())
    assert done.returncode == 1
    assert done.stderr == "tidings: the identity of a discovery node has the role tdn, not entity\n"


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
def test_a_node_that_is_not_there_yet_is_waited_for(
    world: DiscoveryWorld, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertise, attempts = Discovery.advertise, []
    with ExitStack() as nodes:

        async def first_before_the_node(self: Discovery, made: DiscoveryRecord) -> list[str]:
            attempts.append(made.data)
            if len(attempts) > 1:
                return await advertise(self, made)
            try:
                return await advertise(self, made, timeout=0.1)
            finally:
                await asyncio.to_thread(nodes.enter_context, world.node("tdn-1", broker))

        monkeypatch.setattr(Discovery, "advertise", first_before_the_node)
        (world.folder / "nba.record").write_bytes(world.record("Sports=NBA").data)
        words = ("advertise", "nba.record", "--identity", "owner", "--wait", str(PATIENCE))
        assert told(world, broker, *words)["nodes"] == ["tdn-1"]
        assert len(attempts) == 2
        assert attempts[0] == attempts[1]  # so that a node that has heard both has it once


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
def test_a_topic_that_is_not_found_yet_is_waited_for(
    world: DiscoveryWorld, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, queries = Discovery.find, []

    async def first_before_the_topic(self: Discovery, query: str, **limit: Any) -> list[DiscoveryRecord]:
        queries.append(query)
        found = await find(self, query, **limit)
        if len(queries) == 1:
            identity = world.identity("owner")
            own = Discovery(self._client, identity, self._credentials)
            await own.advertise(DiscoveryRecord.topic(identity, world.record("Sports=NBA"), now()))
        return found

    monkeypatch.setattr(Discovery, "find", first_before_the_topic)
    with world.node("tdn-1", broker):
        (topic,) = told(world, broker, "find", "*", "--identity", "reader", "--wait", str(PATIENCE))
        assert (topic["topic"], queries) == ("Sports=NBA", ["*", "*"])
        refused = run(world, broker, "find", "a=b=c", "--identity", "reader", "--wait", str(PATIENCE))
        missing = run(world, broker, "withdraw", "Sports=NHL", "--identity", "owner", "--wait", str(PATIENCE))
        assert (refused.returncode, missing.returncode, queries[2:]) == (1, 1, ["a=b=c", "Sports=NHL"])
        assert "a tag is name=value" in refused.stderr
        assert "owner has advertised no topic Sports=NHL" in missing.stderr


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
@pytest.mark.parametrize("words", [("find", "*", "--identity", "reader"), ("advertise", "r", "--identity", "owner")])
def test_the_error_after_a_wait_is_the_one_without_it(
    world: DiscoveryWorld, broker: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tick(monkeypatch)
    asked = []

    async def silence(*_: object, **__: object) -> list[DiscoveryRecord]:
        asked.append(words)
        raise UnreachableError("no discovery node has answered")

    for name in ("find", "advertise"):
        monkeypatch.setattr(Discovery, name, silence)
    (world.folder / "r").write_bytes(world.record("Sports=NBA").data)
    alone = run(world, broker, *words)
    assert (alone.returncode, alone.stderr, len(asked)) == (1, "tidings: no discovery node has answered\n", 1)
    waited = run(world, broker, *words, "--wait", "3.5")
    assert (waited.returncode, waited.stderr, len(asked)) == (1, alone.stderr, 1 + 4)
