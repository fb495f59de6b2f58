"""The suite itself: it runs where an interrupt is ignored, and none of its waits is longer than the limit."""

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(Path(__file__).parent.rglob("*.py"))
_WAITS = frozenset({"wait", "join", "result", "communicate", "acquire", "wait_for", "timeout", "await_end"})
_LIMITS = frozenset({"timeout", "patience"})


def test_processes_that_a_test_starts_can_be_interrupted() -> None:
    """A shell without job control starts `make test &` with SIGINT ignored, and every process below inherits that."""
    told = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "True\n"


def test_that_holds_where_the_suite_was_started_with_the_interrupt_ignored() -> None:
    inner = f"{Path(__file__).relative_to(ROOT)}::{test_processes_that_a_test_starts_can_be_interrupted.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 0, done.stdout


def _long_waits(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        limits = [one.value for one in node.keywords if one.arg in _LIMITS]
        limits += node.args[-1:] if name in _WAITS else []
        for limit in limits:
            if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) and limit.value > PATIENCE:
                yield f"{path.name}:{node.lineno}: waits for {limit.value} s; the limit is tests.limits.PATIENCE"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_wait_is_longer_than_the_limit(path: Path) -> None:
    assert list(_long_waits(path)) == []


def test_a_long_wait_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "test_slow.py"
    path.write_text("process.wait(90)\ninbox.take(timeout=61.5)\nprocess.wait(60)\nrange(90)\n")
    assert [line.partition(": ")[0] for line in _long_waits(path)] == ["test_slow.py:1", "test_slow.py:2"]
