"""Writes the methods of the synchronous client from those of the asynchronous one.

    python -m tests.sync_client            # checks that they are current; `make check` runs it
    python -m tests.sync_client --write    # writes them into src/tidings/client/sync.py

A method of `SyncClient` or `SyncSubscription` has the signature, the types and the docstring of the method of `Client`
or `ClientSubscription`, and runs that in the loop of the client's thread. What is more than that stands in
`sync.py` outside of the marked sections, written by hand.
"""

import argparse
import ast
import copy
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "src" / "tidings" / "client"
TARGET = FOLDER / "sync.py"
END = "    # End of the generated methods"
_TYPES = {"ClientSubscription": "SyncSubscription", "AsyncIterator": "Iterator"}


class Section(NamedTuple):
    """The generated methods of one class."""

    module: str
    asynchronous: str  # the class that they are generated from
    target: str  # the attribute of the synchronous class that holds an object of it
    members: Sequence[str]
    # Parts of docstrings that are true of the asynchronous client alone, and what is said in their place.
    docstrings: Mapping[str, str] = {}

    @property
    def begin(self) -> str:
        return f"    # Generated from `{self.asynchronous}` by `python -m tests.sync_client --write`"


SECTIONS = (
    Section(
        "client.py",
        "Client",
        "_client",
        (
            *("name", "state", "broker", "is_connected", "until_closed", "move"),
            *("context", "set_context", "let_set_context"),
            *("advertise", "unadvertise", "publish", "publish_many", "subscribe", "unsubscribe"),
            *("set_policy", "schema", "topics", "explain", "replay", "ask"),
        ),
        {
            "Create a subscription, which begins when it is entered by `async with` or awaited.": (
                "Subscribe, and return the subscription once it has begun."
            ),
            "callback: Called with each notification; returning acknowledges it.": (
                "callback: Called with each notification, in the client's own thread; returning acknowledges it."
            ),
            "use `publish_many` or `publish_soon`: events published together\ntravel together. A task for each event"
            " does the same, at a higher cost.": "use `publish_many`: events published together travel\ntogether.",
            " Otherwise use `publish_soon`.": "",
        },
    ),
    Section(
        "subscription.py",
        "ClientSubscription",
        "_subscription",
        (
            *("id", "durable", "findings", "waiting", "closed", "failure"),
            *("acknowledge", "acknowledge_all", "replay", "unsubscribe"),
        ),
    ),
)


class _SyncTypes(ast.NodeTransformer):
    """Replaces the types of the asynchronous client by those of the synchronous one."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(_TYPES.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str) or not (node.value.isidentifier() or "|" in node.value):
            return node
        return ast.Constant(ast.unparse(self.visit(ast.parse(node.value, mode="eval").body)))


def generated(section: Section) -> str:
    """The methods of a section."""
    tree = ast.parse((FOLDER / section.module).read_text())
    (node,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == section.asynchronous]
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    unused = set(section.docstrings)
    texts = [_method(methods[name], section, unused) for name in section.members]
    if unused:
        raise SystemExit(f"tests.sync_client: no docstring of {section.asynchronous} says {sorted(unused)}")
    return "\n".join(texts)


def _method(method: ast.FunctionDef | ast.AsyncFunctionDef, section: Section, unused: set[str]) -> str:
    """One synchronous method, in the words of the asynchronous one."""
    docstring = ast.get_docstring(method)
    for asynchronous, synchronous in section.docstrings.items():
        if docstring is not None and asynchronous in docstring:
            docstring = docstring.replace(asynchronous, synchronous)
            unused.discard(asynchronous)
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list)
    returned = "" if method.returns is None else ast.unparse(method.returns)
    target = f"self.{section.target}.{method.name}"
    call = target if is_property else f"{target}({', '.join(_passed(method.args))})"
    match method:
        case ast.AsyncFunctionDef():
            body = f"{'' if returned == 'None' else 'return '}self._loop.run({call})"
        case ast.FunctionDef() if is_property:
            body = f"return {call}"
        case ast.FunctionDef() if returned.startswith("AsyncIterator"):
            body = f"return _iterate(self._loop, {call})"
        case _:
            body = f"return SyncSubscription(self._loop, lambda: {call})"
    lines = ["@property"] if is_property else []
    arguments = ast.unparse(_replaced(method.args))
    returns = ast.unparse(_replaced(method.returns))
    if returns in _TYPES.values():
        returns = f'"{returns}"'  # the class is defined further below
    lines.append(f"def {method.name}({arguments}) -> {returns}:")
    if docstring is not None:
        end = "\n" if "\n" in docstring else ""
        lines.append(textwrap.indent(f'"""{docstring}{end}"""', "    "))
    lines.append(f"    {body}")
    return textwrap.indent("\n".join(lines), "    ") + "\n"


def _replaced(node: ast.AST | None) -> ast.AST:
    """The types of a signature, or the type that a method returns, for the synchronous client."""
    if node is None:
        raise SystemExit("tests.sync_client: every method states the type that it returns")
    replaced: ast.AST = _SyncTypes().visit(copy.deepcopy(node))
    return replaced


def _passed(arguments: ast.arguments) -> Iterable[str]:
    """The arguments of a method, as it passes them on."""
    yield from (one.arg for one in [*arguments.posonlyargs, *arguments.args][1:])
    if arguments.vararg is not None:
        yield f"*{arguments.vararg.arg}"
    yield from (f"{one.arg}={one.arg}" for one in arguments.kwonlyargs)
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"


def synchronous(text: str) -> str:
    """The text of `sync.py` with the sections as they should be."""
    for section in SECTIONS:
        before, _, rest = text.partition(section.begin)
        _, _, after = rest.partition(END)
        if not after:
            raise SystemExit(f"tests.sync_client: {TARGET.name} has no section for {section.asynchronous}")
        text = f"{before}{section.begin}\n\n{generated(section)}\n{END}{after}"
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write the methods into {TARGET.name}")
    options = parser.parse_args()
    current = TARGET.read_text()
    wanted = synchronous(current)
    if options.write:
        TARGET.write_text(wanted)
    elif wanted != current:
        raise SystemExit(f"{TARGET} is not what its source says: run `python -m tests.sync_client --write`")


if __name__ == "__main__":
    main()
