"""Measures of the code's structure: how large modules and folders are, what imports what, what one call crosses.

    python -m tests.structure            # a table
    python -m tests.structure --calls    # only the calls that are traced through a broker
    python -m tests.structure --large    # the functions that take a large object
    python -m tests.structure --write    # writes docs/contributing/modules.md

`tests/test_architecture.py` holds limits to these measures.
"""

import argparse
import ast
import asyncio
import itertools
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

SOURCE = Path(__file__).parents[1] / "src" / "tidings"
MODULE_PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "modules.md"
FILES = sorted(SOURCE.rglob("*.py"))
_PROCESSING = 0.05  # seconds
LARGE = 12  # public members: a parameter of such a class gives a function more than it needs
PORT = 8  # public members of a protocol
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def module_of(path: Path) -> str:
    """The dotted name of a file's module."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed source of a file."""
    return ast.parse(path.read_text())


def modules_in_folder() -> Counter[str]:
    """How many modules each folder has, `__init__` apart."""
    return Counter(str(path.parent.relative_to(SOURCE)) for path in FILES if path.name != "__init__.py")


def class_names() -> Mapping[str, list[str]]:
    """The modules that define a public class of each name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module_of(path))
    return found


def function_lengths() -> Iterator[tuple[int, str]]:
    """The lines of each function, with its module and name. A docstring does not count."""
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, _FUNCTIONS):
                has_docstring = ast.get_docstring(node, clean=False) is not None
                first = node.body[0]
                docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
                yield (node.end_lineno or 0) - node.lineno + 1 - docstring, f"{module_of(path)}.{node.name}"


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """The modules of the project that each module imports, anywhere in its text and for types, too."""
    names = {module_of(path) for path in FILES}
    found: dict[str, frozenset[str]] = {}
    for path in FILES:
        wanted: set[str] = set()
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    wanted.add(below if below in names else node.module)
            elif isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names)
        found[module_of(path)] = frozenset(wanted & names - {module_of(path)})
    return found


@cache
def import_cycles() -> list[list[str]]:
    """The sets of modules that import each other, over any number of steps; the largest first."""
    graph = imports()
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            component = [stack.pop()]
            while component[-1] != module:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in numbers:
            visit(module)
    return sorted(found, key=len, reverse=True)


class PublicClass(NamedTuple):
    """A public class of the project."""

    members: int  # public methods, fields, and attributes that its methods assign, inherited ones included
    is_value: bool  # it cannot be changed: a frozen struct or dataclass, a named tuple, an enumeration


@cache
def classes() -> Mapping[str, PublicClass]:
    """Every class that a module defines, by `module.Class`."""
    nodes = {
        f"{module_of(path)}.{node.name}": node
        for path in FILES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    }

    def lineage(name: str) -> list[str]:
        """The class and those of the project and of other packages from which it inherits, the nearest first."""
        if name not in nodes:
            return [name]
        names = imported_names(name.rpartition(".")[0])
        bases = [ast.unparse(base).partition("[")[0] for base in nodes[name].bases]
        return [name, *(parent for base in bases for parent in lineage(_origin(names.get(base, base))))]

    found: dict[str, PublicClass] = {}
    for name in nodes:
        ancestors = [nodes[one] for one in lineage(name) if one in nodes]
        members = {member for node in ancestors for member in _members(node) if not member.startswith("_")}
        found[name] = PublicClass(len(members), any(map(_is_value, ancestors)))
    return found


def large_protocols() -> Mapping[str, int]:
    """The protocols with more members than `PORT`, and how many each has. Inherited members count."""
    protocols = {
        f"{module_of(path)}.{node.name}"
        for path in FILES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
    }
    sizes = {name: public_class.members for name, public_class in classes().items() if name in protocols}
    return {name: members for name, members in sizes.items() if members > PORT}


def words_of(class_name: str) -> list[str]:
    """The words that a class name is put together from, in lower case."""
    return [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", class_name)]


@cache
def imported_names(module: str) -> Mapping[str, str]:
    """What each name at the top of a module, imports for types included, stands for: `module.Class`."""
    path, found = _modules()[module], dict[str, str]()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
    return found | {node.name: f"{module}.{node.name}" for node in tree_of(path).body if isinstance(node, ast.ClassDef)}


def _members(node: ast.ClassDef) -> set[str]:
    """The methods and fields of a class, and the attributes that its methods assign."""
    names = {child.name for child in node.body if isinstance(child, _FUNCTIONS)}
    names |= {child.target.id for child in node.body if isinstance(child, ast.AnnAssign) and _is_name(child.target)}
    return names | {
        child.attr
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute)
        and isinstance(child.ctx, ast.Store)
        and isinstance(child.value, ast.Name)
        and child.value.id == "self"
    }


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


_VALUE_BASES = ("NamedTuple", "Enum", "StrEnum", "IntEnum", "Flag", "frozen=True", "TypedDict")


def _is_value(node: ast.ClassDef) -> bool:
    """Whether a class says of itself that its instances cannot be changed."""
    texts = [*map(ast.unparse, node.bases), *map(ast.unparse, node.keywords), *map(ast.unparse, node.decorator_list)]
    return any(base in text for text in texts for base in _VALUE_BASES)


def functions_with_large_parameters() -> list[tuple[str, str]]:
    """Functions that take an object with more public members than `LARGE` outside of the module that defines its
    class, each with that class. Values that cannot be changed do not count."""
    large = {name for name, one in classes().items() if one.members > LARGE and not one.is_value}
    found = []
    for path in FILES:
        module = module_of(path)
        names = imported_names(module)
        for node in ast.walk(tree_of(path)):
            if isinstance(node, _FUNCTIONS):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                words = {word for argument in arguments for word in _class_names(argument.annotation)}
                taken = {_origin(names.get(word, word)) for word in words} & large
                found += [
                    (f"{module}.{node.name}", name) for name in sorted(taken) if not name.startswith(f"{module}.")
                ]
    return found


def _class_names(annotation: ast.expr | None) -> list[str]:
    """The classes that an annotation names, without their parameters: of `Entry[T] | None` it is `Entry`, of
    `list[Entry]` it is `list`."""
    if annotation is None:
        return []
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return [*_class_names(annotation.left), *_class_names(annotation.right)]
    return [ast.unparse(annotation.value if isinstance(annotation, ast.Subscript) else annotation)]


def _origin(name: str) -> str:
    """The module and name of the definition of a class that a package may have imported from its module."""
    module, _, word = name.rpartition(".")
    if module not in _modules():
        return name
    found = imported_names(module).get(word, name)
    return found if found == name else _origin(found)


@cache
def _modules() -> Mapping[str, Path]:
    return {module_of(path): path for path in FILES}


# ------------------------------------------------------------------------------------ calls through a broker, traced


class Crossing(NamedTuple):
    """What the event loop of a broker runs for one request of a client."""

    modules: int
    switches: int  # how often the next function is of another package


class _Tracer:
    """Notes each function of the project that a thread calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            self.called.append(module_of(Path(frame.f_code.co_filename)))

    @property
    def crossing(self) -> Crossing:
        packages = [module.split(".")[1] for module in self.called]
        switches = sum(one != other for one, other in itertools.pairwise(packages))
        return Crossing(len(set(self.called)), switches)


TWO_RULES = """
PolicyStatement {
  On(Forward, Publication) { If {} Then { RemoveAttributes(b) } }
  On(Forward, Subscription) { If {} Then { Log("a subscription") } }
}
"""


def traced_calls() -> Mapping[str, Crossing]:
    """What four requests cross in a broker without neighbours that has a journal. Each is traced the second time."""
    from tidings.client import connect_sync
    from tidings.testing import broker

    with tempfile.TemporaryDirectory() as folder, broker(folder) as served:

        def traced(call: Callable[[], Any]) -> Crossing:
            call()
            tracer = _Tracer()
            served.run(_set_profile(tracer))
            call()
            served.run(asyncio.sleep(_PROCESSING))  # some calls return before the broker has processed them
            served.run(_set_profile(None))
            return tracer.crossing

        with connect_sync(served.address, "subscriber") as subscriber, connect_sync(served.address, "cam-1") as client:
            subscription = subscriber.subscribe("a > 0")
            values = iter(range(100))
            found = {"publish": traced(lambda: client.publish({"a": 1, "b": 2}))}
            found["set_context"] = traced(lambda: subscriber.set_context(x=next(values)))
            advertisement = client.advertise("a > 0", policy=TWO_RULES)
            found["publish, with two policy rules"] = traced(lambda: client.publish({"a": 1, "b": 2}))
            found["set_policy"] = traced(lambda: client.set_policy(advertisement.id, TWO_RULES))
            subscription.close()
    return found


async def _set_profile(tracer: _Tracer | None) -> None:
    sys.setprofile(tracer)


def table() -> Iterator[str]:
    """The measures, a line each."""
    folders, cycles = modules_in_folder(), import_cycles()
    (folder, size), *_ = folders.most_common(1)
    longest, name = max(function_lengths())
    yield f"modules in src/tidings                       {len(FILES)}"
    yield f"modules in the largest folder                {size} ({folder})"
    yield f"modules in the largest import cycle          {len(cycles[0]) if cycles else 0}"
    yield f"lines of the longest function                {longest} ({name})"
    yield f"functions that take a large object           {len(functions_with_large_parameters())}"
    yield f"protocols with more than {PORT} members              {len(large_protocols())}"
    yield f"public class names that are used twice       {sum(len(homes) > 1 for homes in class_names().values())}"


def calls() -> Iterator[str]:
    """The traced calls, a line each."""
    for call, crossing in traced_calls().items():
        yield f"{call + ':':<44} {crossing.modules} modules, {crossing.switches} switches between packages"


_PAGE_HEAD = """# Modules

Every module of `src/tidings/`, with the first line of its docstring. How they work together:
[Architecture](../explanation/architecture.md).
`python -m tests.structure --write` writes this page.
"""


def module_page() -> str:
    """The page that lists the modules, a table for each folder."""
    sections = [_PAGE_HEAD]
    for folder, paths in itertools.groupby(sorted(FILES, key=_folder_first), lambda path: path.parent):
        name = folder.relative_to(SOURCE).as_posix()
        package, *modules = paths
        sections.append(f"## `{'tidings' if name == '.' else name}`\n\n{_summary(package)}\n")
        if modules:
            rows = [f"| `{path.name}` | {_summary(path)} |" for path in modules]
            sections.append("\n".join(["| module | contains |", "|---|---|", *rows]) + "\n")
    return "\n".join(sections)


def _folder_first(path: Path) -> tuple[str, bool, str]:
    """Order modules by their folder, and put the folder's `__init__.py` first."""
    return path.parent.as_posix(), path.name != "__init__.py", path.name


def _summary(path: Path) -> str:
    """The first line of a module's docstring, fit for a table."""
    docstring = ast.get_docstring(tree_of(path)) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="only the calls that are traced through a broker")
    parser.add_argument("--write", action="store_true", help=f"write {MODULE_PAGE.name}, which lists the modules")
    parser.add_argument("--large", action="store_true", help="the functions that take a large object")
    options = parser.parse_args()
    if options.large:
        sys.stdout.writelines(f"{name} takes {taken}\n" for name, taken in functions_with_large_parameters())
        return
    if options.write:
        MODULE_PAGE.write_text(module_page())
        return
    if not options.calls:
        sys.stdout.write("\n".join(table()) + "\n")
    sys.stdout.write("\n".join(calls()) + "\n")


if __name__ == "__main__":
    main()
