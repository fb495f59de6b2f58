"""Mutants of the checks: each refusal, each use of a check, and each part of a condition that refuses, taken out in
turn. Attacks that then get through show its need.

`python -m tests.security.mutants MODULE LINE PART` runs the tests of that module with that one check taken out, in a
process of its own, and ends with 0 if they fail: the mutant is killed.
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

from tests.limits import PATIENCE, SIZE_VARIABLE

SOURCE = Path(__file__).parents[2] / "src" / "tidings"
_RUN = 10 * PATIENCE  # seconds for all tests of a module: a run, not a wait


def _security(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/security/test_{name}.py" for name in names)


_CORE = _security(
    *("attacks", "envelope", "topic_record", "rpc", "discovery", "trust_group", "enrolment", "key_possession")
)
_CENTRE = _security("kmc")
_LIVE = tuple(f"tests/broker/test_security_{name}.py" for name in ("sessions", "events", "durable", "revocations"))
_ENGINE = (
    *("tests/engine/test_gate.py", "tests/engine/test_gate_overlay.py", "tests/hub/test_security.py"),
    "tests/broker/test_security_durable.py",
)
# Where what comes from others is judged, and the tests that show it.
MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        [
            *(
                "security.ca.certificates",
                "security.tokens.credentials",
                "security.encoding",
            ),
            *(
                "security.sealing.envelope",
                "security.gate",
                "security.sealing.keys",
                "security.member",
                "security.topic_record",
            ),
            *("security.sealing.replay", "security.ca.revocation", "security.sealing.attribute_merkle"),
            *("security.template", "security.tokens.token"),
        ],
        _CORE,
    ),
    "security.sealing.signatures": (*_CORE, *_security("signatures")),
    "security.batch_verifier": _security("batch_verifier"),
    "security.rpc.messages": _security("rpc"),
    "security.tdn.discovery_records": _security("discovery"),
    "security.tdn.discovery_node": _security("discovery"),
    "security.trust_group": _security("trust_group", "enrolment"),
    "security.ca.certificates": (*_CORE, *_security("key_possession")),
    "security.tokens.credentials": (*_CORE, *_security("historical_credentials")),
    "security.vault": ("tests/services/test_kmc_store.py",),
    "security.member": (*_CORE, *_security("member")),
    "security.rpc.kmc_messages": _CENTRE,
    **{f"security.kmc.{name}": _CENTRE for name in ("centre", "challenges", "key_issuing", "grants", "state")},
    "engine.security.sealed_events": _ENGINE,
    "broker.security.topic_security": _LIVE,
    "broker.security.reauthentication": ("tests/broker/test_reauthentication.py",),
}
_REFUSALS = ("SecurityError", "Refusal")
_USES = ("check", "verify", "pass_on", "subscription")  # how the names of checks begin, where they are called


class Check(NamedTuple):
    """`part` 0: a refusal, or the use of a check. Others: that part of a condition, counted from 1."""

    module: str
    line: int
    part: int
    text: str


def checks() -> Iterator[Check]:
    """Every place where something is refused."""
    for module in MODULES:
        for node in ast.walk(ast.parse(_path(module).read_text())):
            if _is_refusal(node) or _is_use(node):
                yield Check(module, node.lineno, 0, ast.unparse(node))  # type: ignore[attr-defined]
            for part, condition in enumerate(_parts(node), 1):
                yield Check(module, node.lineno, part, ast.unparse(condition))  # type: ignore[attr-defined]


def _path(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def _is_refusal(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name(node.exc) in _REFUSALS


def _is_use(node: ast.AST) -> bool:
    """A check that is called for what it raises alone."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return is_call and _name(node.value).lstrip("_").startswith(_USES)  # type: ignore[attr-defined]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _parts(node: ast.AST) -> list[ast.expr]:
    """Of a condition each of which is enough to refuse."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.BoolOp) or not isinstance(node.test.op, ast.Or):
        return []
    return node.test.values if any(map(_is_refusal, node.body)) else []


class _Without(ast.NodeTransformer):
    def __init__(self, line: int, part: int) -> None:
        self._line, self._part = line, part

    def _taken_out(self, node: ast.stmt) -> ast.stmt:
        is_it = node.lineno == self._line and not self._part
        return ast.copy_location(ast.Pass(), node) if is_it else node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return self._taken_out(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return self._taken_out(node)

    def visit_If(self, node: ast.If) -> ast.stmt:
        if node.lineno == self._line and self._part:
            condition = _parts(node)[self._part - 1]
            condition_of = node.test.values  # type: ignore[attr-defined]
            condition_of[self._part - 1] = ast.copy_location(ast.Constant(False), condition)
        self.generic_visit(node)
        return node


class _Loader(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Loads one module without one of its checks."""

    def __init__(self, module: str, line: int, part: int) -> None:
        self._name, self._path, self._without = f"tidings.{module}", _path(module), _Without(line, part)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        tree = self._without.visit(ast.parse(self._path.read_text()))
        exec(compile(ast.fix_missing_locations(tree), str(self._path), "exec"), module.__dict__)  # noqa: S102


def is_killed(check: Check) -> bool:
    """Whether a test fails where the check is missing."""
    command = [sys.executable, "-m", "tests.security.mutants", check.module, str(check.line), str(check.part)]
    short = {name: value for name, value in os.environ.items() if name != SIZE_VARIABLE}
    try:
        return subprocess.run(command, capture_output=True, timeout=_RUN, check=False, env=short).returncode == 0
    except subprocess.TimeoutExpired:
        return True  # a test that waits for ever has noticed, too


def main(module: str, line: str, part: str) -> int:
    sys.meta_path.insert(0, _Loader(module, int(line), int(part)))
    return 0 if pytest.main(["-q", "-x", "-p", "no:cacheprovider", *MODULES[module]]) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
