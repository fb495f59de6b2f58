"""Laws say how many examples they are tried on, and are never judged by the time that takes on a busy machine."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sizes import PAGE, page, stated

TESTS = Path(__file__).parent


def names(function: ast.FunctionDef) -> set[str]:
    """What it is decorated with."""
    called = (one.func for one in function.decorator_list if isinstance(one, ast.Call))
    return {one.id for one in called if isinstance(one, ast.Name)}


def laws() -> Iterator[tuple[str, set[str]]]:
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and "given" in names(node):
                yield f"{path.relative_to(TESTS)}::{node.name}", names(node)


def test_every_law_says_how_many_examples() -> None:
    """Else Hypothesis draws others in every run, and fails where one of them takes more than 200 ms."""
    found = dict(laws())
    assert len(found) > 80
    assert [name for name, decorators in found.items() if "examples" not in decorators] == []


def test_the_page_for_contributors_has_the_sizes() -> None:
    """`python -m tests.sizes --write` writes them."""
    text = PAGE.read_text()
    assert text == page(text)
    assert len(list(stated())) > 150
