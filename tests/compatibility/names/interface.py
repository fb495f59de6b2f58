"""The public names of the packages that programs import, with the parameters and the defaults of what is called.

A class is listed with its constructor, its public attributes and the special methods that a user relies on without
writing their names. Annotations are left out: they name classes that nobody has to import.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

PACKAGES = (
    "tidings",
    "tidings.client",
    "tidings.hub",
    "tidings.journal",
    "tidings.policy",
    "tidings.security",
    "tidings.simulation",
    "tidings.testing",
    "tidings.spark",
)
_SPECIAL = frozenset(
    f"__{name}__"
    for name in (
        *("aenter", "aexit", "aiter", "anext", "and", "bool", "call", "contains", "enter", "eq", "exit"),
        *("getitem", "hash", "invert", "iter", "le", "len", "lt", "next", "or", "str"),
    )
)
# What a user never constructs: a call gives it, and the parameters of its constructor are nobody's business.
_MADE_ELSEWHERE = frozenset(
    (
        *("tidings.HubClient", "tidings.HubSubscription", "tidings.client.Client", "tidings.client.ClientSubscription"),
        *("tidings.client.SyncClient", "tidings.client.SyncSubscription", "tidings.spark.RetraceResult"),
        *("tidings.spark.RouteResult", "tidings.spark.PolicyTrial"),
    )
)
_KINDS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def lines() -> Iterator[str]:
    paths: dict[int, str] = {}  # of what was described already
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(public_names(module)):
            path, value = f"{package}.{name}", getattr(module, name)
            known = paths.setdefault(id(value), path) if callable(value) or inspect.ismodule(value) else path
            yield from [f"{path} is {known}"] if known != path else _described(path, value)


def public_names(module: ModuleType) -> set[str]:
    """Those of `__all__`; without it, those that the package imports under their own names (`from m import a as a`)."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    tree = ast.parse(Path(module.__file__ or "").read_text())
    aliases = (alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    return {alias.name for alias in aliases if alias.asname == alias.name}


def _described(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(path, value)
    elif inspect.ismodule(value):
        yield f"{path} module"
        if value.__name__ not in PACKAGES:
            for name, one in vars(value).items():
                if inspect.isfunction(one) and one.__module__ == value.__name__ and not name.startswith("_"):
                    yield from _described(f"{path}.{name}", one)
    elif callable(value):
        yield f"{path}({parameters(value)})"
    elif path.endswith("__version__"):
        yield path
    else:
        yield f"{path} = {value!r}"


def _class(path: str, kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield f"{path} enumeration"
        yield from (f"{path}.{one.name} = {one.value!r}" for one in kind)
    elif issubclass(kind, BaseException):
        own = (one.__name__ for one in kind.__mro__[1:] if one not in (object, BaseException))
        yield f"{path}({constructor(kind)}) is {', '.join(own)}"
    elif path in _MADE_ELSEWHERE:
        yield f"{path} is made by others"
    else:
        yield f"{path}({constructor(kind)})"
    for name in sorted({*dir(kind), *_assigned(kind)}):
        if _is_public(kind, name):
            member = _method(kind, name)
            yield f"{path}.{name}" if member is None else f"{path}.{name}({parameters(member)})"


def constructor(kind: type) -> str:
    """What no class of the project defines depends on the version of Python."""
    own = [one for one in kind.__mro__ if one.__module__.startswith("tidings")]
    is_written = any(inspect.isfunction(made := vars(one).get("__init__")) and _is_written(made) for one in own)
    has_fields = issubclass(kind, tuple | msgspec.Struct) or is_dataclass(kind)
    return parameters(kind) if is_written or has_fields else "..."


def _method(kind: type, name: str) -> Any:
    """What is called under that name; None of a property or a field."""
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, property | cached_property):
        return None
    value = getattr(kind, name, None)
    if not callable(value):
        return None
    return member if inspect.isfunction(member) else value


def _is_public(kind: type, name: str) -> bool:
    if issubclass(kind, Enum) and (name in kind.__members__ or name.startswith("_")):
        return False
    owner = next((one for one in kind.__mro__ if name in vars(one)), kind)
    if not owner.__module__.startswith("tidings"):
        return False
    if not name.startswith("_"):
        return True
    return name in _SPECIAL and vars(owner).get(name) is not None


def _assigned(kind: type) -> set[str]:
    """The attributes that constructors give to an object."""
    found = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    for owner in kind.__mro__:
        made = vars(owner).get("__init__")
        if inspect.isfunction(made) and _is_written(made):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(made)))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                    found.add(node.attr)
    return found


def _is_written(made: FunctionType) -> bool:
    """Here, that is: not by `dataclass` or `Protocol`."""
    return made.__module__.startswith("tidings") and Path(made.__code__.co_filename).is_file()


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def parameters(called: Any) -> str:
    """Names and defaults; `*` stands in front of those that are given by name alone."""
    given = [one for one in inspect.signature(called).parameters.values() if one.name not in ("self", "cls")]
    told = []
    before: Any = None
    for one in given:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and before not in (one.kind, inspect.Parameter.VAR_POSITIONAL):
            told.append("*")
        if not one.name.startswith("_") or one.name.strip("_") == "":
            told.append(f"{_KINDS.get(one.kind, '')}{one.name}{_default(one.default)}")
        before = one.kind
    return ", ".join(told)


def _default(value: Any) -> str:
    return "" if value is inspect.Parameter.empty else f"={_text(value)}"


def _text(value: Any) -> str:
    match value:
        case Enum():
            return repr(value.value)
        case tuple() if type(value) is tuple:
            return f"({', '.join(map(_text, value))})"
        case dict():
            return repr(dict(value))
        case None | bool() | int() | float() | str() | bytes() | list():
            return repr(value)
    return "..."
