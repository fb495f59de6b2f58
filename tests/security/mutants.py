"""Mutants of the checks: each `raise` of a check taken out in turn. Attacks that then get through show its need.

`python -m tests.security.mutants MODULE LINE` runs the tests of attacks with that one check taken out, in a process of
its own, and ends with 0 if they fail: the mutant is killed.
"""

import ast
import importlib.abc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tidings" / "security"
_TESTED = ("attacks", "envelope", "records", "exchange", "discovery", "trust", "joining", "challenge")
TESTS = [f"tests/security/test_{name}.py" for name in _TESTED]
MODULES = (  # where what comes from others is judged
    *("batches", "certificates", "credentials", "encoding", "envelope", "exchange", "gate", "opening", "records"),
    *("replay", "revocation", "root", "signatures", "template", "token", "advertised", "discovery", "trust", "joining"),
    *("challenge", *(f"centre.{name}" for name in ("centre", "challenges", "giving", "granting", "state"))),
)
CENTRE_TESTS = ["tests/security/test_centre.py"]


class Check(NamedTuple):
    module: str
    line: int
    text: str


def checks() -> Iterator[Check]:
    """Every place where something is refused."""
    for name in MODULES:
        source = _path(name).read_text()
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if _is_refusal(node):
                yield Check(name, node.lineno, lines[node.lineno - 1].strip())  # type: ignore[attr-defined]


def _path(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def _is_refusal(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and "SecurityError" in ast.dump(node.exc.func)


class _Without(ast.NodeTransformer):
    def __init__(self, line: int) -> None:
        self._line = line

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node.lineno == self._line else node


class _Loader(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Loads one module without one of its checks."""

    def __init__(self, module: str, line: int) -> None:
        self._name, self._path, self._line = f"tidings.security.{module}", _path(module), line

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        tree = _Without(self._line).visit(ast.parse(self._path.read_text()))
        exec(compile(ast.fix_missing_locations(tree), str(self._path), "exec"), module.__dict__)  # noqa: S102


def is_killed(check: Check) -> bool:
    """Whether a test fails where the check is missing."""
    command = [sys.executable, "-m", "tests.security.mutants", check.module, str(check.line)]
    short = {name: value for name, value in os.environ.items() if name != "TIDINGS_LONG"}
    return subprocess.run(command, capture_output=True, timeout=300, check=False, env=short).returncode == 0


def main(module: str, line: str) -> int:
    sys.meta_path.insert(0, _Loader(module, int(line)))
    tests = CENTRE_TESTS if module.startswith("centre.") else TESTS
    return 0 if pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
