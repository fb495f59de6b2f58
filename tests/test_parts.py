"""Every test belongs to one part of `make test-all`; the outcome of a part counts for the tree that it was run on."""

from pathlib import Path

import pytest

from tests.parts import PARTS, Outcome, kept, part_of, summary
from tests.sharing import ROOT

FILES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py"))]


def test_every_part_has_files() -> None:
    assert {part_of(file) for file in FILES} == PARTS.keys()


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("tests/simulation/test_seeds.py", "seeds"),
        ("tests/simulation/test_mutations.py", "mutants"),
        ("tests/process/test_kills.py", "kills"),
        ("tests/spark/test_route.py", "spark"),
        ("docs/how-to/spark-route.md", "spark"),
        ("docs/contexts.md", "laws"),
        ("tests/model/test_values.py", "laws"),
    ],
)
def test_the_part_of_a_file(file: str, part: str) -> None:
    assert part_of(file) == part


def test_a_summary_says_what_passed_what_did_not_and_what_is_old() -> None:
    outcomes = [
        ("seeds", Outcome("seeds", "now", 5, 0, 1, 90.0, cut=3)),
        ("kills", Outcome("kills", "before", 7, 2, 0, 30.0)),
        ("spark", None),
    ]
    lines = summary(outcomes, "now").splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["seeds", "5", "0", "1", "1.5"],
        ["kills", "7", "2", "0", "0.5", "on", "another", "tree"],
        ["spark", "was", "not", "run"],
        ["all", "2.0"],
        ["3", "properties", "drew", "for", "40", "s,", "and", "not", "all", "of", "their", "examples"],
    ]


def test_a_part_without_tests_is_no_success() -> None:
    assert not Outcome("seeds", "now", 0, 0, 0, 1.0).is_good
    assert not Outcome("seeds", "now", 3, 1, 0, 1.0).is_good
    assert Outcome("seeds", "now", 3, 0, 0, 1.0).is_good


def test_what_was_never_run_has_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.parts.KEPT", tmp_path)
    assert kept("seeds") is None
