"""Names that stand in the source as texts: read from the syntax tree, so that no list of them has to be kept."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tidings

FOLDER = Path(tidings.__file__).parent
_RESERVED = re.compile(r"\$[a-z][a-z_.{}]*")
_VARIABLE = re.compile(r"TIDINGS_[A-Z_]*[A-Z]")


class Found(NamedTuple):
    """Every string of the source, also the pieces of formatted ones; and the calls whose first argument is one."""

    texts: frozenset[str]
    calls: frozenset[tuple[str, str]]


@cache
def found() -> Found:
    texts, calls = set(), set()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(text)):
                    texts.add(text)
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(first)), *_]):
                    calls.add((name, first))
    return Found(frozenset(texts), frozenset(calls))


def reserved_names() -> set[str]:
    """The strings that are a name with `$` in front, or the beginning of one."""
    return {text for text in found().texts if _RESERVED.fullmatch(text)}


def variables() -> set[str]:
    """The environment variables that are named anywhere."""
    return {name for text in found().texts for name in _VARIABLE.findall(text)}


def first_arguments(names: set[str]) -> set[str]:
    """The first argument of every call of these classes or functions, where it is a text."""
    return {first for name, first in found().calls if name in names}
