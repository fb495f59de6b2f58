"""`tidings config` as a user runs it: what is in force and from where, and what the file may say."""

from pathlib import Path

import pytest

from tests.cli.command import as_json, run


def test_what_is_in_force_says_where_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.toml"
    path.write_text('[broker]\nname = "b7"\n')
    monkeypatch.setenv("TIDINGS_LOGS_LEVEL", "debug")
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.split() for line in run("config", "show", "--config", str(path)).stdout.splitlines()]
    assert ["broker.name", '"b7"', f"{path}:2"] in lines
    assert ["logs.level", '"debug"', "TIDINGS_LOGS_LEVEL"] in lines
    assert ["broker.observers", "unset", "default"] in lines
    shown = as_json("config", "show")
    assert {"key": "broker.name", "value": "b1", "from": "default"} in shown
    assert {"key": "logs.level", "value": "debug", "from": "TIDINGS_LOGS_LEVEL"} in shown


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("[broker]\nnmae = 'b7'\n")
    done = run("config", "show", "--config", str(path))
    assert (done.returncode, done.stderr) == (1, f"tidings: {path}:2: broker.nmae: there is no such key\n")
    assert run("config", "show", "--config", str(tmp_path / "none")).returncode == 1


def test_the_reference_is_a_page_and_for_machines_a_schema() -> None:
    assert run("config", "reference").stdout.startswith("# The broker's file\n")
    tables = as_json("config", "reference")["$defs"]
    assert tables["LimitsTable"]["properties"]["connections"]["minimum"] == 1
    assert "Connections" in tables["LimitsTable"]["properties"]["connections"]["description"]
