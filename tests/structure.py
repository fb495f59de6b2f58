"""Measures of the code's structure: how large modules and folders are, what imports what, what one call crosses.

    python -m tests.structure            # a table
    python -m tests.structure --calls    # only the calls that are traced through a broker
    python -m tests.structure --write    # writes docs/contributing/modules.md

`tests/test_architecture.py` holds limits to these measures.
"""

import argparse
import ast
import asyncio
import itertools
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "tidings"
MODULE_PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "modules.md"
FILES = sorted(SOURCE.rglob("*.py"))
_PROCESSING = 0.05  # seconds
LARGE = 12  # public members: a parameter of such a class gives a function more than it needs
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


def public_members() -> Mapping[str, int]:
    """The number of public members of each class: methods, fields, and attributes that its methods assign."""
    members: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                names = {child.name for child in node.body if isinstance(child, _FUNCTIONS)}
                names |= {
                    target.id
                    for child in node.body
                    if isinstance(child, ast.AnnAssign)
                    for target in [child.target]
                    if isinstance(target, ast.Name)
                }
                names |= {
                    child.attr
                    for child in ast.walk(node)
                    if isinstance(child, ast.Attribute)
                    and isinstance(child.ctx, ast.Store)
                    and isinstance(child.value, ast.Name)
                    and child.value.id == "self"
                }
                members[node.name] = {name for name in names if not name.startswith("_")}
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def all_of(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        if name in seen or name not in members:
            return set()
        return members[name].union(*(all_of(base, seen | {name}) for base in bases[name]))

    return {name: len(all_of(name)) for name in members}


def functions_with_large_parameters() -> list[str]:
    """Functions that take an object with more public members than `LARGE`, outside of the module that defines its
    class. Values without behaviour (msgspec structs) do not count."""
    sizes, homes = public_members(), class_names()
    values = {
        node.name
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases)
    }
    large = {name for name, size in sizes.items() if size > LARGE and name not in values}
    found = []
    for path in FILES:
        module = module_of(path)
        for node in ast.walk(tree_of(path)):
            if isinstance(node, _FUNCTIONS):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                taken = {_class_of(argument.annotation) for argument in arguments} & large
                if any(module not in homes.get(name, []) for name in taken):
                    found.append(f"{module}.{node.name}")
    return found


def _class_of(annotation: ast.expr | None) -> str:
    text = "" if annotation is None else ast.unparse(annotation).strip("'\"")
    return text.removesuffix(" | None").rpartition(".")[2]


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
    options = parser.parse_args()
    if options.write:
        MODULE_PAGE.write_text(module_page())
        return
    if not options.calls:
        sys.stdout.write("\n".join(table()) + "\n")
    sys.stdout.write("\n".join(calls()) + "\n")


if __name__ == "__main__":
    main()
