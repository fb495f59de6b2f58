"""The command, run as a user runs it: verbs, help, JSON, exit codes, and errors of one line."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from tests.cli.command import as_json, run, run_alone
from tests.docs.shell import ROOT
from tests.limits import PATIENCE
from tidings._version import __version__
from tidings.cli import demo, main
from tidings.cli.app import app
from tidings.policy import Policy


def all_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands and groups of commands, by their words."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, (*path, name))


ALL = [path for path in all_commands(typer.main.get_command(app)) if path]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_verb_has_help_with_an_example(words: tuple[str, ...]) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0
    assert re.search(rf"Example: .*\btidings {words[0]}\b", " ".join(done.stdout.split()))


@pytest.mark.parametrize("noun", sorted({words[0] for words in ALL}))
def test_every_noun_is_on_the_page_of_commands(noun: str) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert f"tidings {noun}" in page


def groups(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that have commands, by their words."""
    if hasattr(command, "commands"):
        yield path
        for name, below in command.commands.items():
            yield from groups(below, (*path, name))


@pytest.mark.parametrize("words", [*groups(typer.main.get_command(app))], ids=" ".join)
def test_a_list_of_commands_is_cut_nowhere_at_80_columns(words: tuple[str, ...]) -> None:
    """A command whose first sentence is longer needs a `short_help`."""
    done = run(*words, "-h", variables={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0
    listed = done.stdout.partition("Commands:")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that do something, by their words."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))
    else:
        yield path


@pytest.mark.parametrize("words", [*commands(typer.main.get_command(app))], ids=" ".join)
def test_the_help_of_a_command_fits_into_80_columns_and_names_its_values_by_words(words: tuple[str, ...]) -> None:
    """An option or argument needs a `metavar`, such as FILE; without one, the help shows its type in Python."""
    done = run(*words, "-h", variables={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert re.findall(r"<(?:str|int|float|path|list|bool)[^=>]*>|\{\w+\}", done.stdout) == []
    usage = done.stdout.partition("\n\n")[0]
    assert usage.startswith(f"Usage: tidings {' '.join(words)} [OPTIONS]")
    assert re.fullmatch(r"( ?\[?[A-Z=]+(\.\.\.)?\]?)*", usage.partition("[OPTIONS]")[2].replace("\n", " ").strip())


def test_help_names_the_verbs_and_version_is_told() -> None:
    assert {"demo", "filter", "warm", "policy", "bench"} <= set(run("--help").stdout.split())
    assert run("--version").stdout == f"tidings {__version__}\n"


@pytest.mark.process
def test_a_process_of_its_own_says_and_ends_as_the_call_in_this_one() -> None:
    """What most tests of the command rely on."""
    for words in (["--version"], ["filter"], ["filter", "a = 1"], ["filter", "a ="], ["policy"], ["config", "show"]):
        alone, here = run_alone(*words), run(*words)
        told = alone.stderr.replace("python -m tidings", "tidings")
        assert (alone.returncode, alone.stdout, told) == (here.returncode, here.stdout, here.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nothing"], 2, "No such command"),
        (["filter"], 2, "Missing argument"),
        (["filter", "a = 1", "--colour"], 2, "No such option"),
        (["bench", "language", "--count", "0"], 2, "Invalid value for '--count'"),
        (["filter", "a = 1", "--event", "{"], 1, "--event is not JSON"),
        (["filter", "a = 1", "--event", "[1]"], 1, "--event must be a JSON object"),
        (["filter", "a = 1", "--event", '{"a": [1]}'], 1, "not list"),
        (["filter", "a = 1", "--event", "[" * 100_000], 1, "--event is not JSON"),
        (["filter", "a = 1", "--event", '{"a": ' + "9" * 5_000 + "}"], 1, "--event is not JSON"),
        (["filter", "a = 1", "--format", "sequel"], 1, "there is no format 'sequel'"),
        (["policy", "check", "no/such.policy"], 1, "No such file"),
        (["policy", "check", "no/such.policy", "--with", "love"], 1, "--with is one of publication, subscription"),
    ],
)
def test_errors_are_one_line_with_the_right_code(arguments: list[str], code: int, complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("tidings: ")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bad_filter_is_shown_with_its_caret() -> None:
    done = run("filter", "price betwen 1 and 2")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "tidings: betwen is not expected here; did you mean BETWEEN?",
        "  price betwen 1 and 2",
        "        ^",
    ]


def test_a_filter_from_all_sides() -> None:
    found = as_json("filter", "class = 'a' and n > 3", "--event", '{"class": "a", "n": 4}', "--against", "n > 5")
    assert found == {
        "filter": "class = 'a' AND n > 3",
        "attributes": ["class", "n"],
        "truth": "true",
        "matches": True,
        "relation": "overlaps",
    }
    assert as_json("filter", "n > 3", "--event", "{}")["truth"] == "unknown"
    assert as_json("filter", "/a/#", "--format", "topic", "--subject", "/a/b")["matches"] is True
    assert as_json("filter", "go+l", "--format", "regex", "--payload", "a goool")["matches"] is True
    plain = run("filter", "n > 3", "--event", '{"n": 4}')
    assert plain.stdout.splitlines() == ["filter      n > 3", "attributes  n", "truth       true", "matches     yes"]


@pytest.mark.process
def test_a_poor_terminal_still_gets_its_line() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "tidings", "filter", "x = 'é€'"], capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"filter      x = '\\xe9\\u20ac'")


@pytest.mark.process
def test_warming_tells_what_was_there_and_where_it_is() -> None:
    assert run_alone("warm").returncode == 0
    told = json.loads(run_alone("warm", "--json").stdout)
    assert told["kernels"] > 10
    assert told["compiled"] == 0
    assert Path(told["cache"]).is_dir()
    shown = run_alone("warm")
    assert (shown.returncode, shown.stderr) == (0, "")
    first, second = shown.stdout.splitlines()
    assert re.match(r"all \d+ kernels were compiled already; loaded in ", first)
    assert second == f"kept in {told['cache']}"


@pytest.mark.process
def test_the_demo_without_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every scene but those that `test_on_spark.py` plays."""
    every, some = (demo.scenes(tmp_path, spark=spark) for spark in (True, False))
    assert [one.__name__ for one in some] == [one.__name__ for one in every if "spark" not in one.__name__]
    demo.show([one for one in some if not demo.needs_spark(one)], as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["merged"] == [100, 1]
    assert facts["loops"]["second loop"] == ["velocity monitor"]
    assert 0 < facts["notifications"] < 25


def test_a_scene_is_shown_with_its_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.show(demo.scenes(tmp_path, spark=False)[:1], as_json=False)
    shown = capsys.readouterr()
    assert "Six notations become one filter" in shown.out
    assert shown.err == ""


TRIM = "PolicyStatement { On(Publication) { If {} Then {TrimAttributes()} } }"


def test_a_policy_is_checked_and_written(tmp_path: Path) -> None:
    file = tmp_path / "trim.policy"
    file.write_text(TRIM)
    done = run("policy", "check", str(file))
    assert done.returncode == 0
    assert "On(Forward, Publication)" in done.stdout
    assert "may be given with: publication, subscription, advertisement" in done.stdout
    written = as_json("policy", "check", str(file), "--xml")
    file.write_text(written["policy"])
    assert as_json("policy", "check", str(file))["policy"] == str(Policy.parse(TRIM))
    refused = run("policy", "check", str(file), "--with", "unsubscription")
    assert (refused.returncode, "cannot be attached to an unsubscription" in refused.stderr) == (1, True)
    file.write_text("PolicyStatement { On(Publication) { If {} Then {TrimAtributes()} } }")
    assert "did you mean TrimAttributes?" in run("policy", "check", str(file)).stderr
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in run("policy", "check", str(file)).stderr


@pytest.mark.process
@pytest.mark.parametrize("words", [("config", "reference"), ("filter", "a = 1", "--json")])
def test_no_room_for_the_output_is_told_in_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "tidings", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (1, "tidings: No space left on device\n")


def test_an_interrupt_while_the_command_is_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tidings.cli.app", Interrupted("tidings.cli.app"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
