"""Tests that several processes share: what builds on each other or starts Spark stays together."""

from pathlib import Path

import pytest

from tests.sharing import ROOT, unit_of


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/model/test_values.py::test_a[b::c]", "tests/model/test_values.py::test_a[b::c]"),
        ("tests/cli/test_live.py::test_a[b]", "tests/cli/test_live.py"),
        ("docs/contexts.md::line:35,column:1", "docs/contexts.md"),
        ("docs/how-to/spark-route.md::line:12,column:1", "commands on spark"),
        ("tests/spark/test_route.py::TestClass::test_a", "spark"),
        ("tests/spark/test_session.py::test_version[told-1]", "spark"),
        ("tests/spark/test_killed.py::test_the_driver", "java"),
    ],
)
def test_what_a_test_stays_together_with(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_whoever_takes_the_session_is_marked() -> None:
    """The mark is what is looked for, so a file that uses the fixture `spark` without it would start a second Java."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    signs = ('spark: "SparkSession"', 'usefixtures("spark")')
    takers = [path.relative_to(ROOT).as_posix() for path in files if any(sign in path.read_text() for sign in signs)]
    assert len(takers) > 3
    assert {unit_of(file) for file in takers} == {"spark", "commands on spark"}
