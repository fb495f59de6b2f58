"""How much a test does, by the run that it is part of.

`make test-quick` runs the suite at the size `quick`, `make test` at `usual`, and `make test-all` and `make soak` at
`long`. A property states its numbers of examples for the last two with `examples(usual, long)`; a loop states its
numbers of rounds with `sized(usual, long)`. A test that is costly and has many parameters states with
`variants(usual, values)` how many of them `make test` runs. `python -m tests.sizes` lists all of these numbers, as
CONTRIBUTING.md does.
"""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from hypothesis import HealthCheck, settings

from tests.limits import SIZE_VARIABLE

SIZES = ("quick", "usual", "long")
SIZE = os.environ.get(SIZE_VARIABLE, "usual")
if SIZE not in SIZES:
    raise SystemExit(f"{SIZE_VARIABLE}={SIZE}: must be one of {', '.join(SIZES)}")
LONG = SIZE == "long"
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
_BEGIN, _END = "<!-- sizes -->", "<!-- end of sizes -->"
_T = TypeVar("_T")
_FEWEST = 3  # examples of a property in a quick run


def sized(usual: int, long: int) -> int:
    """The number of rounds of this run; a quick run does a tenth of the usual ones."""
    return {"quick": max(1, usual // 10), "usual": usual, "long": long}[SIZE]


def variants(usual: int, values: Sequence[_T]) -> Sequence[_T]:
    """The parameters that a test runs with: all `values` in a long run, else the first `usual` of them."""
    return values if LONG else values[:usual]


def examples(usual: int, long: int) -> settings:
    """Settings for a property with so many examples. A long run draws other examples each time."""
    return settings(
        max_examples=max(_FEWEST, sized(usual, long)),
        deadline=None,
        derandomize=not LONG,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Size(NamedTuple):
    """The numbers that one property or loop states."""

    file: str
    name: str
    usual: int
    long: int | None  # all variants


def stated(folder: Path = Path(__file__).parent) -> Iterator[Size]:
    """The sizes that the tests of a folder state, read from their source."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for name, call in _calls(node):
                usual, long = (ast.literal_eval(one) if isinstance(one, ast.Constant) else None for one in call.args)
                yield Size(str(path.relative_to(folder)), name, usual or 0, long)


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Each call of `examples`, `sized` or `variants` with a number, and the name of the test or the constant that it
    sizes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = node.name
        within: list[ast.AST] = [*node.decorator_list]
        if not isinstance(node, ast.ClassDef):
            within += node.body
    elif isinstance(node, ast.Assign):
        name, within = ast.unparse(node.targets[0]), [node.value]
    else:
        return
    for each in within:
        for call in ast.walk(each):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in ("examples", "sized", "variants"):
                continue
            if len(call.args) == 2 and isinstance(call.args[0], ast.Constant):
                yield name, call


def table() -> str:
    """The sizes as a table in Markdown."""
    rows = [f"| `{one.file}` | `{one.name}` | {one.usual:,} | {_written(one.long)} |" for one in stated()]
    return "\n".join(["| file | property or number | `make test` | `make test-all` |", "|---|---|---:|---:|", *rows])


def _written(number: int | None) -> str:
    return "all" if number is None else f"{number:,}"


def page(text: str) -> str:
    """The text of the page with the table as it is now."""
    before, rest = text.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.split(_END)[1]}"


def main() -> None:
    """Prints the table; with `--write`, puts it into CONTRIBUTING.md."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(PAGE.read_text()))
    else:
        sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()
