"""`tidings simulate` as a user runs it: the summary, JSON, pictures, and what it says when something is wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lxml import etree

from tests.cli.command import Done, run, run_alone
from tests.docs.shell import ROOT
from tidings.cli.actions.simulate import simulate
from tidings.cli.topology_picture import check_picture_path, draw, lay_out
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.routing import STRATEGIES
from tidings.simulation.checking.checker import Violation
from tidings.simulation.scenario import Run, read

EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
SMALL = """\
[overlay]
topology = "star"
brokers = 3
[[clients]]
name = "pub"
brokers = ["b2"]
advertisements = [{}]
[[clients]]
name = "sub"
brokers = ["b1"]
subscriptions = [{content = "n > 2"}]
[workload]
seconds = 2.0
[[workload.publications]]
by = "pub"
per_second = 5.0
attributes = {n = [0, 5]}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def tidings(*arguments: Any) -> Done:
    return run("simulate", *map(str, arguments))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_run_and_nothing_goes_wrong(path: Path) -> None:
    outcome = Run(read(path)).finish()
    assert outcome.is_checked
    assert outcome.violations == []
    assert outcome.faults > 0
    assert outcome.delivered > outcome.published > 0
    assert outcome.closing > 0


def test_the_examples_are_there() -> None:
    assert [path.stem for path in EXAMPLES] == ["cars", "offices"]


def test_the_summary(small: Path) -> None:
    done = tidings(small)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for line in (
        "overlay      3 brokers, 2 links, 2 clients, advertisement",
        "published    10 events, 0 refused",
        "checked      nothing lost, undue, twice or out of order; 1 events at the end reached all they had to",
        "busiest links  messages  bytes  events",
    ):
        assert line in done.stdout
    assert "b1-b2" in done.stdout


@pytest.mark.process
def test_json_says_the_same_in_every_process(small: Path) -> None:
    first, again = (run_alone("simulate", str(small), "--json", "--seed", "5") for _ in range(2))
    assert first.stdout == again.stdout
    said = json.loads(first.stdout)
    outcome = Run(read(small, seed=5)).finish()
    assert (said["seed"], said["trace"]) == (5, outcome.trace)
    assert said["tables"]["b1"]["subscriptions"] == 1
    assert said["violations"] == []


def test_options_take_the_place_of_what_the_file_says(small: Path) -> None:
    said = json.loads(tidings(small, "--json", "--strategy", "gsf", "--seconds", 4).stdout)
    assert (said["strategy"], said["published"]) == ("gsf", 20)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--strategy", "best"], 2, f"--strategy is one of {', '.join(STRATEGIES)}, not best"),
        (["--seconds", "0"], 2, "--seconds must be more than 0"),
        (["--picture", "overlay.gif"], 1, "overlay.gif: a picture is written as .svg or .png"),
        (["--picture", "no/such/overlay.svg"], 1, "there is no folder no/such"),
    ],
)
def test_bad_calls(small: Path, arguments: list[str], status: int, told: str) -> None:
    done = tidings(small, *arguments)
    assert done.returncode == status
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_mistake_is_named_by_line(small: Path) -> None:
    small.write_text(SMALL.replace("n > 2", "n >> 2"))
    done = tidings(small)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tidings: {small}:11: clients[1].subscriptions[0].content: ")


def test_what_goes_wrong_is_said_and_how_to_do_it_again(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = read(small, seed=11)
    wrong = msgspec.structs.replace(Run(scenario).finish(), violations=[Violation("lost", "sub-1 was not told")])
    monkeypatch.setattr("tidings.cli.actions.simulate._run", lambda _: wrong)
    with pytest.raises(TidingsError, match="violations: 1; --seed 11 does the same again"):
        simulate(scenario, picture=None, as_json=False)
    said = capsys.readouterr()
    assert "checked      violations: 1\n" in said.out
    assert "lost: sub-1 was not told" in said.err


def test_a_picture_as_svg(small: Path, tmp_path: Path) -> None:
    done = tidings(small, "--picture", tmp_path / "overlay.svg")
    assert done.returncode == 0, done.stderr
    assert f"picture      {tmp_path}/overlay.svg" in done.stdout
    root = etree.parse(tmp_path / "overlay.svg").getroot()
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"b1", "b2", "b3"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}line"))) == 2


def test_a_picture_as_png(small: Path, tmp_path: Path) -> None:
    draw(Run(read(small)).finish(), tmp_path / "overlay.png")
    assert (tmp_path / "overlay.png").read_bytes().startswith(b"\x89PNG")


def test_the_busiest_link_is_the_widest_and_all_is_on_the_sheet(small: Path) -> None:
    outcome = Run(read(small)).finish()
    picture = lay_out(outcome)
    widths = {frozenset((line.one.name, line.other.name)): line.width for line in picture.edges}
    busiest, *others = outcome.links
    assert all(widths[frozenset((busiest.one, busiest.other))] >= width for width in widths.values())
    assert outcome.links[0].messages > others[0].messages
    assert all(0 < dot.x < 800 and 0 < dot.y < 800 for dot in picture.nodes)


def test_a_lone_broker_can_be_drawn(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace("brokers = 3", "brokers = 1").replace('["b2"]', '["b1"]'))
    outcome = Run(read(small)).finish()
    assert [tuple(dot[:3]) for dot in lay_out(outcome).nodes] == [("b1", 400, 400)]
    draw(outcome, tmp_path / "lone.svg")
    assert "b1" in (tmp_path / "lone.svg").read_text()


def test_what_png_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert check_picture_path(Path("overlay.svg")) == Path("overlay.svg")
    with pytest.raises(TidingsError, match="PNG needs matplotlib"):
        check_picture_path(Path("overlay.png"))
    with pytest.raises(InvalidValueError):
        check_picture_path(Path("overlay"))


STEPS = """\
strategy gsf
brokers b1 b2
link b1 b2
client ann b1
client bob b2

bob subscribe news "n > 1"
settle
ann publish n=2
"""


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "small.steps"
    path.write_text(STEPS)
    return path


def test_a_step_file_is_replayed(steps: Path) -> None:
    done = tidings(steps, "--seed", 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{steps}: nothing goes wrong (strategy gsf, seed 3)\n"
    said = json.loads(tidings(steps, "--json", "--strategy", "asf").stdout)
    assert said == {"strategy": "asf", "seed": 0, "violations": []}


def test_the_violations_of_a_step_file_are_said(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.simulation.checking.checker.due", lambda subscription, event, context: True)
    steps.write_text(STEPS.replace("n=2", "n=0"))
    done = tidings(steps)
    assert (done.returncode, done.stdout) == (1, "")
    violation, summary = done.stderr.splitlines()
    assert violation.startswith("lost: bob was not told of ann's event 1 {'n': 0}, subscription news")
    assert summary == f"tidings: {steps}: violations: 1 (strategy gsf, seed 0)"
    done = tidings(steps, "--json")
    assert done.returncode == 1
    assert [one["kind"] for one in json.loads(done.stdout)["violations"]] == ["lost"]


def test_bad_calls_with_step_files(steps: Path) -> None:
    for option in (["--seconds", "4"], ["--picture", "overlay.svg"]):
        done = tidings(steps, *option)
        assert done.returncode == 2
        assert "--seconds and --picture are for scenarios, not for step files" in done.stderr
    steps.write_text(STEPS + "ann fly\n")
    assert tidings(steps).stderr.startswith(f"tidings: {steps}:10: 'fly' is not a step of a client: ")
    steps.write_bytes(b"# \xff")
    done = tidings(steps)
    assert (done.returncode, done.stderr) == (1, f"tidings: {steps}: is not UTF-8 text\n")
    steps.unlink()
    done = tidings(steps)
    assert (done.returncode, done.stderr) == (1, f"tidings: {steps}: No such file or directory\n")
