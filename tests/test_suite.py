"""The suite itself: it runs where an interrupt is ignored, none of its waits is longer than the limit, and its tests
use what is public."""

import ast
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.limits import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(Path(__file__).parent.rglob("*.py"))
_WAITS = frozenset({"wait", "join", "result", "communicate", "acquire", "wait_for", "timeout", "await_end"})
_LIMITS = frozenset({"timeout", "patience"})

# Public in spite of their names: of named tuples, and of other packages that offer no other way.
_FOREIGN = frozenset({"_replace", "_fields", "_asdict", "_make", "_exit", "_work_queue", "_jdf"})
# How many private attributes of the project a file may use. A number may become smaller, and a file may go.
_PRIVATE_USES = {
    # The lists of what is stored and sent: the structures in which files and messages are written have no other users.
    "compatibility/names/batch.py": 4,
    "compatibility/names/formats.py": 1,
    "compatibility/names/stored.py": 20,
    # Faults that are put into the code on purpose, to see that the simulator finds them.
    "simulation/mutations.py": 9,
    "simulation/settling_mutations.py": 5,
    # Forged messages: the structure of a good one, with other fields.
    "security/test_discovery.py": 2,
    "security/test_rpc.py": 2,
    # Private keys, which no method may give away.
    "security/test_canary.py": 2,
    "security/test_topic_record.py": 1,
    # States that are set or observed in the middle of one operation.
    "engine/test_attacks.py": 1,
    "engine/test_settlement.py": 1,
    "journal/test_reader.py": 1,
    "matching/history.py": 1,
    "security/test_envelope.py": 1,
    "services/test_kmc_store.py": 1,
    "simulation/test_checker.py": 3,
    "test_architecture.py": 1,
}
_ADVICE = """Tests use private attributes only where _PRIVATE_USES allows it. Assert through a public method, or give
the class a read-only property that makes sense to any reader, or take the underscore away where others may use it:"""


@pytest.mark.process
def test_processes_that_a_test_starts_can_be_interrupted() -> None:
    """A shell without job control starts `make test &` with SIGINT ignored, and every process below inherits that."""
    told = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "True\n"


@pytest.mark.process
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


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def _long_waits(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        limits = [one.value for one in node.keywords if one.arg in _LIMITS]
        limits += node.args[-1:] if name in _WAITS else []
        for limit in limits:
            if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) and limit.value > PATIENCE:
                yield f"{path.name}:{node.lineno}: waits for {limit.value} s; the limit is tests.limits.PATIENCE"
            elif isinstance(limit, ast.BinOp) and isinstance(limit.op, ast.Mult) and _has_seconds(limit):
                yield f"{path.name}:{node.lineno}: waits for a multiple of a number; the limit is tests.limits.PATIENCE"


def _has_seconds(product: ast.BinOp) -> bool:
    """Whether a product has a factor that is a number above one, so that it may be longer than the limit."""
    sides = product.left, product.right
    if any(isinstance(side, ast.List) for side in sides):
        return False  # a list that is repeated
    values = [side.value for side in sides if isinstance(side, ast.Constant)]
    if any(isinstance(value, str) for value in values):
        return False  # a text that is repeated
    return any(isinstance(value, int | float) and value > 1 for value in values)


def test_no_wait_is_longer_than_the_limit() -> None:
    assert [wait for path in FILES for wait in _long_waits(path)] == []


def test_a_long_wait_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "test_slow.py"
    path.write_text("process.wait(90)\ninbox.take(timeout=61.5)\nprocess.wait(60)\nrange(90)\nrun(timeout=60 * 6)\n")
    lines = [line.partition(": ")[0] for line in _long_waits(path)]
    assert lines == ["test_slow.py:1", "test_slow.py:2", "test_slow.py:5"]


def _private_uses(path: Path) -> list[str]:
    """Each use of an attribute with one underscore in front, except of `self`, `cls` and `super()`."""
    found = []
    for node in _nodes(path):
        if not isinstance(node, ast.Attribute) or not re.match("_[^_]", node.attr) or node.attr in _FOREIGN:
            continue
        if ast.unparse(node.value) not in ("self", "cls", "super()"):
            found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return sorted(found)


def test_tests_use_what_is_public() -> None:
    for path in FILES:
        name = path.relative_to(Path(__file__).parent).as_posix()
        uses, allowed = _private_uses(path), _PRIVATE_USES.get(name, 0)
        assert len(uses) <= allowed, "\n".join([f"{name}: {len(uses)} of {allowed}. {_ADVICE}", *uses])
        assert len(uses) == allowed, f"{name} uses {len(uses)} private attributes: lower its number in _PRIVATE_USES"


def test_the_files_with_exceptions_exist() -> None:
    assert {path.relative_to(Path(__file__).parent).as_posix() for path in FILES} >= _PRIVATE_USES.keys()


def test_a_private_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "test_nosy.py"
    path.write_text("hub._desk.close()\nself._desk\npair._replace(a=1)\nhub.__class__\nself.hub._desk\nindex.parts\n")
    assert _private_uses(path) == ["test_nosy.py:1: hub._desk", "test_nosy.py:5: self.hub._desk"]
