"""A client on the command line, and an overlay of two brokers, all of them real processes."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.certified import Certified
from tests.broker.running_broker import running_broker
from tests.cli import command
from tests.limits import PATIENCE
from tidings.cli.overlay import LocalOverlay
from tidings.model.receipt import NO_JOURNAL_AT_BROKER
from tidings.simulation.topologies import line

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def overlay() -> Iterator[LocalOverlay]:
    with LocalOverlay(line(2)) as started, ExitStack() as stack:
        for broker, address in started.addresses.items():  # so that subscriptions are known everywhere
            stack.enter_context(td.connect_sync(address, name=f"any-{broker}")).advertise(publisher_context=["x"])
        yield started


def variables(overlay: LocalOverlay, broker: str) -> dict[str, str]:
    return {**os.environ, "TIDINGS_CONNECT": overlay.addresses[broker], "COLUMNS": "200"}


def start(overlay: LocalOverlay, broker: str, *words: str) -> "subprocess.Popen[str]":
    return command.start(*words, env=variables(overlay, broker))


def run(overlay: LocalOverlay, broker: str, *words: str, stdin: str = "") -> tuple[int, str, str]:
    done = command.run(*words, variables=variables(overlay, broker), stdin=stdin)
    return done.returncode, done.stdout, done.stderr


def told(overlay: LocalOverlay, broker: str, *words: str) -> Any:
    code, out, err = run(overlay, broker, *words, "--json")
    assert code == 0, err
    return json.loads(out)


@contextmanager
def ending(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Whatever happens, it does not outlive the test."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def subscribed(overlay: LocalOverlay, broker: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """`tidings subscribe`, from when all brokers know of it."""
    with ending(start(overlay, broker, "subscribe", *words)) as process:
        assert process.stderr is not None
        subscription, waits = process.stderr.readline().removeprefix("tidings: ").split(" ", 1)
        assert waits == "waits for events\n"
        for one in overlay.brokers:
            until_known(overlay, one, subscription)
        yield process


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def until_known(overlay: LocalOverlay, broker: str, subscription: str) -> None:
    with td.connect_sync(overlay.addresses[broker], name="operator") as operator:
        eventually(lambda: subscription in str(operator.ask("tables")["subscriptions"]))


def lines(process: "subprocess.Popen[str]", count: int) -> list[Any]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def test_events_go_from_standard_input_to_a_subscriber_at_another_broker(overlay: LocalOverlay) -> None:
    with subscribed(overlay, "b2", "kind = 'lines'", "--count", "4") as process:
        whole = {"attributes": {"kind": "lines", "n": 3}, "subject": "S", "payload": {"base64": "/w=="}}
        code, out, err = run(
            overlay,
            "b1",
            *("publish", "--json", "--name", "cam", "--context", '{"x": 1.5}', "--payload", "hällo"),
            stdin='{"kind": "lines", "n": 1}\n\n{"kind": \n{"kind": "lines", "n": 2}\n{"n": 9}',
        )
        assert (code, json.loads(out)) == (1, {"published": 3, "refused": 1, "safe": {"journaled": 3}})
        assert err.splitlines()[0].startswith("tidings: line 3: the event is not JSON")
        code, out, _ = run(overlay, "b1", "publish", "--events", stdin=json.dumps(whole))
        assert (code, out) == (0, "published 1, refused 0, journaled 1\n")
        one = told(overlay, "b1", "publish", '{"kind": "lines", "n": 4}', "--subject", "T", "--safe", "accepted")
        first, second, third, fourth = lines(process, 4)
        assert [note["attributes"]["n"] for note in (first, second, third, fourth)] == [1, 2, 3, 4]
        assert (first["publisher"], first["payload"], first["sequence"]) == ("cam", "hällo", 1)
        assert second["subject"] is None
        assert (third["subject"], third["payload"]) == ("S", {"base64": "/w=="})
        assert (fourth["id"], fourth["subject"], fourth["payload"]) == (one["id"], "T", None)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("has_journal", "asked", "safe", "reason"),
    [
        (False, "journaled", "accepted", ": the broker has no journal"),
        (False, "settled", "accepted", ": the broker has no journal"),
        (False, "accepted", "accepted", ""),
        (True, "journaled", "journaled", ""),
        (True, "accepted", "accepted", ""),
    ],
)
def test_publish_says_how_safe_events_are(
    tmp_path: Path, has_journal: bool, asked: str, safe: str, reason: str
) -> None:
    with running_broker(tmp_path if has_journal else "") as where:
        words = ("publish", "--connect", f"tidings://{where}", "--safe", asked)
        one = command.run(*words, "{}")
        assert re.fullmatch(rf"published \S+, {safe}{reason}\n", one.stdout), one
        assert json.loads(command.run(*words, "--json", "{}").stdout)["safe"] == safe
        many = command.run(*words, stdin="{}\n{}\n")
        assert many.stdout == f"published 2, refused 0, {safe} 2{reason}\n"
        many = command.run(*words, "--json", stdin="{}\n{}\n")
        assert json.loads(many.stdout) == {"published": 2, "refused": 0, "safe": {safe: 2}}


def test_subscribe_says_that_the_broker_has_no_journal() -> None:
    with running_broker() as where:
        words = ("subscribe", "--connect", f"tidings://{where}", "--name", "car-1", "--seconds", "0")
        durable, other = command.run(*words, "--durable", "box"), command.run(*words)
    assert durable.stderr == f"{NO_JOURNAL_AT_BROKER}\ntidings: car-1.durable.box waits for events\n"
    assert "journal" not in other.stderr


def test_what_is_durable_waits_for_its_client_and_comes_once(overlay: LocalOverlay) -> None:
    words = ("kind = 'kept'", "--name", "car-7", "--durable", "box")
    assert run(overlay, "b1", "subscribe", *words, "--seconds", "0")[0] == 0
    with td.connect_sync(overlay.addresses["b1"], name="cam-7") as cam:
        cam.advertise("kind = 'kept'")
        cam.publish_many([{"kind": "kept", "n": number} for number in range(3)])
    with subscribed(overlay, "b1", *words, "--count", "2") as process:
        assert [note["attributes"]["n"] for note in lines(process, 2)] == [0, 1]
        assert process.wait(PATIENCE) == 0
    with subscribed(overlay, "b1", *words, "--count", "1") as process:
        assert [note["attributes"]["n"] for note in lines(process, 1)] == [2]
    code, _, err = run(overlay, "b1", "subscribe", "--durable", "box")
    assert code == 2
    assert "--durable needs --name" in err


def test_ends_when_nobody_reads_any_more_and_at_ctrl_c(overlay: LocalOverlay) -> None:
    with (
        td.connect_sync(overlay.addresses["b1"], name="cam-8") as cam,
        subscribed(overlay, "b1", "kind = 'pipe'") as piped,
        subscribed(overlay, "b1", "kind like 'pi%'") as stopped,  # another one: what others cover need not be told
    ):
        cam.advertise("kind = 'pipe'")
        cam.publish({"kind": "pipe"})
        head = subprocess.run(["head", "-1"], stdin=piped.stdout, capture_output=True, text=True, timeout=PATIENCE)
        assert json.loads(head.stdout)["attributes"] == {"kind": "pipe"}
        assert piped.stdout is not None
        assert piped.stderr is not None
        piped.stdout.close()
        assert piped.wait(PATIENCE) == 141  # though nothing more was written
        assert piped.stderr.read() == ""
        assert lines(stopped, 1)
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(PATIENCE) == 0


def test_a_context_is_set_by_whom_the_client_lets(overlay: LocalOverlay) -> None:
    with (
        td.connect_sync(overlay.addresses["b1"], name="cam-9") as cam,
        subscribed(
            overlay,
            "b2",
            *("kind = 'near'", "--name", "car-9", "--context", '{"x": 50.0}', "--let-set-context", "gps"),
            *("--publishers", "x between this.x - 5 and this.x + 5", "--count", "1"),
        ) as process,
    ):
        cam.set_context(x=1.0)
        cam.advertise("kind = 'near'", publisher_context=["x"])
        assert run(overlay, "b2", "context", "set", "--name", "thief", "--of", "car-9", "x=1")[0] == 1
        assert told(overlay, "b2", "context", "show", "car-9") == {"car-9": {"x": 50.0}}
        code, out, _ = run(overlay, "b2", "context", "set", "--name", "gps", "--of", "car-9", "x=2.5")
        assert (code, out) == (0, "set the context of car-9, at b2: x=2.5\n")
        assert told(overlay, "b2", "context", "show", "car-9") == {"car-9": {"x": 2.5}}
        eventually(lambda: bool(cam.publish({"kind": "near"})) and process.poll() is not None)
        assert lines(process, 1)[0]["context"] == {"x": 1.0}
    assert run(overlay, "b2", "context", "set", "--of", "car-9", "x")[0] == 2


def test_schemas_are_defined_extended_and_shown_everywhere(overlay: LocalOverlay) -> None:
    assert told(overlay, "b1", "schema", "define", "Loop", "li=int", "ts=int")["version"] == 1
    code, out, _ = run(overlay, "b1", "schema", "extend", "Loop", "vc=str")
    assert (code, out.splitlines()[0]) == (0, "extended the schema of Loop: version 2")
    with td.connect_sync(overlay.addresses["b2"]) as client:
        eventually(lambda: "vc" in str(client.topics()["subjects"]))
    shown = told(overlay, "b2", "schema", "show", "Loop")
    assert shown == {"subject": "Loop", "version": 2, "versions": [{"li": "int", "ts": "int"}, {"vc": "str"}]}
    code, _, err = run(overlay, "b1", "publish", '{"li": "text"}', "--subject", "Loop")
    assert code == 1
    assert err.startswith("tidings: Loop: li is int, not str")
    code, _, err = run(overlay, "b1", "schema", "define", "Loop", "ts=str")
    assert code == 1
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("options", "shown"), [((), "all"), (("--no-publisher-context",), "")])
def test_an_advertisement_offers_all_context_unless_it_says_otherwise(
    overlay: LocalOverlay, options: tuple[str, ...], shown: str
) -> None:
    with ending(start(overlay, "b1", "advertise", "kind = 'open'", *options, "--json")) as advertising:
        made = lines(advertising, 1)[0]["id"]
        offered = [one for one in told(overlay, "b1", "topics")["advertisements"] if one["id"] == made]
        assert [one["publisher_context_all"] for one in offered] == [shown == "all"]
        [row] = [line for line in run(overlay, "b1", "topics")[1].splitlines() if made in line]
        assert ("all" in row.split()) == (shown == "all")


def test_an_advertisement_does_not_offer_a_name_and_none(overlay: LocalOverlay) -> None:
    code, _, err = run(overlay, "b1", "advertise", "--publisher-context", "x", "--no-publisher-context")
    assert code == 2
    assert "--no-publisher-context" in err


def test_what_is_advertised_is_a_topic_and_past_events_can_be_watched(overlay: LocalOverlay) -> None:
    words = ("advertise", "kind = 'watched'", "--name", "cam-2", "--publisher-context", "x", "--json")
    with ending(start(overlay, "b1", *words)) as advertising:
        made = lines(advertising, 1)[0]
        assert (made["publisher"], made["broker"]) == ("cam-2", "b1")
        with td.connect_sync(overlay.addresses["b2"]) as client:
            eventually(lambda: made["id"] in str(client.topics()))
        offered = [one for one in told(overlay, "b2", "topics")["advertisements"] if one["id"] == made["id"]]
        assert offered[0]["content"] == "kind = 'watched'"
        assert offered[0]["publisher_context"] == ["x"]
        advertising.send_signal(signal.SIGTERM)
        assert advertising.wait(PATIENCE) == 0
    with td.connect_sync(overlay.addresses["b1"], name="cam-3") as cam:
        cam.advertise("kind = 'watched'")
        cam.publish({"kind": "watched", "n": 1}, subject="Road", payload=b"\xff\xfe")
        code, out, err = run(overlay, "b1", "tail", "kind = 'watched'", "--since", "2026-01-01", "--count", "1")
        assert code == 0, err
        columns = out.split()
        assert re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", columns[0])
        assert columns[1:] == ["cam-3", "Road", 'kind="watched"', "n=1", "2", "bytes"]
        assert run(overlay, "b1", "tail", "--since", "yesterday")[0] == 2


def test_a_policy_is_applied_and_why_an_event_comes_is_explained(overlay: LocalOverlay, tmp_path: Path) -> None:
    file = tmp_path / "trim.policy"
    file.write_text(str(td.policies.remove("secret")))
    with (
        td.connect_sync(overlay.addresses["b1"], name="car-5") as car,
        td.connect_sync(overlay.addresses["b1"], name="cam-5") as cam,
    ):
        cam.advertise("kind = 'ruled'")
        sub = car.subscribe("kind = 'ruled'")
        assert told(overlay, "b1", "policy", "apply", str(file), "--to", sub.id)["id"] == sub.id
        receipt = cam.publish({"kind": "ruled", "secret": 1})
        assert sub.take(timeout=60)[0].attributes == {"kind": "ruled"}
        found = told(overlay, "b1", "explain", str(receipt.event.id), "--client", "car-5")
        assert (found["delivered"], found["attributes"]) == (True, {"kind": "ruled"})
        unlike = ("explain", '{"kind": "x"}', "--publisher", "cam-5", "--subscription", sub.id)
        code, out, _ = run(overlay, "b1", *unlike)
        assert code == 0
        assert out.startswith(f"{sub.id}: is not delivered: admit")
        code, out, _ = run(overlay, "b1", "policy", "remove", sub.id)
        assert (code, out) == (0, f"removed the policy from {sub.id}, at b1\n")
        cam.publish({"kind": "ruled", "secret": 2})
        assert sub.take(timeout=60)[0].attributes == {"kind": "ruled", "secret": 2}
        code, out, _ = run(overlay, "b1", "policy", "apply", str(file), "--to", sub.id)
        assert (code, out) == (0, f"applied the policy to {sub.id}, at b1\n")


def test_every_broker_of_a_folder_is_asked(overlay: LocalOverlay) -> None:
    folder = ("--folder", str(overlay.folder))
    one, other = told(overlay, "b1", "overlay", "status", *folder)
    assert (one["broker"], other["broker"]) == ("b1", "b2")
    assert (list(one["links"]), list(other["links"])) == (["b2"], ["b1"])
    code, out, _ = run(overlay, "b1", "overlay", "stats")
    assert code == 0
    assert out.splitlines()[1].split()[0] == "b1"
    code, out, _ = run(overlay, "b2", "overlay", "tables")
    assert code == 0
    assert out.startswith("b2: advertisements ")
    code, _, err = run(overlay, "b1", "overlay", "tables", "--name", "nobody")
    assert (code, "is no operator" in err) == (1, True)


def test_nobody_there_is_one_line_and_a_failure(overlay: LocalOverlay) -> None:
    code, _, err = run(overlay, "b1", "topics", "--connect", "tidings://127.0.0.1:1")
    assert code == 1
    assert err == (
        "tidings: no broker could be reached: tidings://127.0.0.1:1: the connection was refused, so no broker listens "
        "there; start one with `tidings broker`, or connect to another address\n"
    )


def test_a_broker_is_killed_paused_and_started_again(overlay: LocalOverlay) -> None:
    before = overlay.addresses
    with (
        td.connect_sync(overlay.addresses["b1"], name="car-6") as car,
        td.connect_sync(overlay.addresses["b2"], name="cam-6") as cam,
    ):
        sub = car.subscribe("kind = 'again'", durable="box")
        overlay.kill("b2")
        overlay.settle()
        assert list(overlay.statuses()) == ["b1"]
        overlay.restart("b2")
        overlay.pause("b1")
        assert list(overlay.statuses()) == ["b2"]
        overlay.resume("b1")
        overlay.settle()
        cam.advertise("kind = 'again'")
        until_known(overlay, "b2", sub.id)
        cam.publish({"kind": "again"})
        assert sub.take(timeout=60)
    assert overlay.addresses == before


def test_an_overlay_runs_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "links.toml").write_text("links = [['west', 'east', 3]]\n")
    folder = tmp_path / "run"
    words = ["--topology", str(tmp_path / "links.toml"), "--port", "0", "--folder", str(folder), "--no-journal"]
    words = ["overlay", "run", *words, "--json"]
    with ending(command.start(*words)) as process:
        found = lines(process, 1)[0]["brokers"]
        assert [(one["broker"], one["links"]) for one in found] == [("west", ["east"]), ("east", ["west"])]
        again = command.run(*words)
        assert (again.returncode, f"(process {process.pid})" in again.stderr) == (1, True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "tidings: the brokers are being stopped\n")
    kept = {path.name for path in folder.iterdir()}
    assert kept == {"lock", "east.log", "east.toml", "west.log", "west.toml"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--topology", "nowhere.toml"), "there is no file nowhere.toml"),
        (("--strategy", "fastest"), "--strategy is one of"),
        (("--brokers", "0"), "--brokers"),
    ],
)
def test_bad_usage_of_an_overlay_is_told(words: tuple[str, str], told: str) -> None:
    done = command.run("overlay", "run", *words)
    assert done.returncode in (1, 2)
    assert told in done.stderr


@pytest.mark.parametrize("name", ["../west", "a/b"])
def test_the_files_of_brokers_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "links.toml").write_text(f"links = [['{name}', 'east']]\n")
    done = command.run("overlay", "run", "--topology", str(tmp_path / "links.toml"), "--folder", str(tmp_path / "run"))
    assert (done.returncode, f"tidings: {name}: a broker" in done.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["links.toml"]


def test_who_has_the_folder_of_an_identity_has_its_name(tmp_path: Path) -> None:
    certified = Certified(tmp_path)
    certified.client("ann")
    with running_broker(tls=certified.tls("b1")) as address:
        words = ("--connect", f"tidings://{address}", "--identity", str(tmp_path / "ann"))
        assert command.as_json("overlay", "status", *words)[0]["broker"] == "b1"
        named = command.run("overlay", "status", *words, "--name", "bob")
        assert (named.returncode, "the certificate names ann, not bob" in named.stderr) == (1, True)
