"""Histories that are written down: nothing goes wrong in them, except where a file says that a fault is not mended.

Each file in `histories/` is replayed. A file with an `expect` line is an expected failure; when the fault is mended,
that line is deleted, and the file is a regression test from then on.
"""

from pathlib import Path

import pytest

from tidings.simulation.checking.checker import Violation
from tidings.simulation.step_file import StepFile, read

FOLDER = Path(__file__).parent / "histories"
FILES = {path: read(path.read_text(), path.name) for path in sorted(FOLDER.glob("*.steps"))}
FAULTY = {path: file for path, file in FILES.items() if file.expect is not None}
_found: dict[Path, list[Violation]] = {}


def violations(path: Path) -> list[Violation]:
    """What goes wrong in the history of the file, which is run once for all tests."""
    if path not in _found:
        _found[path] = FILES[path].history.violations()
    return _found[path]


def _parameter(path: Path, file: StepFile) -> object:
    mark = pytest.mark.xfail(strict=True, reason=f"shows a violation: {file.expect}")
    return pytest.param(path, id=path.stem, marks=() if file.expect is None else mark)


@pytest.mark.parametrize("path", [_parameter(*entry) for entry in FILES.items()])
def test_nothing_goes_wrong(path: Path) -> None:
    found = violations(path)
    assert found == [], "\n".join(map(str, found))


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_fault_that_is_not_mended_shows_the_expected_kind_of_violation(path: Path) -> None:
    assert FILES[path].expect in {violation.kind for violation in violations(path)[:1]}


def test_files_are_named_by_violation_strategy_and_seed() -> None:
    for path, file in FILES.items():
        history = file.history
        assert path.stem.split("-", 1)[1] == f"{history.strategy}-{history.seed}"
        assert file.expect in (None, path.stem.split("-")[0])
    assert FILES
