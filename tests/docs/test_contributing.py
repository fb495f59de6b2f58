"""The pages for contributors name files that exist, and the example of a test passes."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shell import ROOT

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "contributing").glob("*.md"))]
BASES = (ROOT, ROOT / "src" / "tidings", ROOT / "tests")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@every_page
def test_files_and_folders_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.(?:py|lark|md|toml))?)`", page.read_text())
    planned = {"adapters/"}  # the page says that there is none yet
    assert named
    assert [name for name in named if name not in planned and not any((base / name).exists() for base in BASES)] == []


@every_page
def test_relative_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_example_of_a_test_passes() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - the page's own
    tests = [names[name] for name in names if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_every_kind_of_extension_has_its_conformance_test() -> None:
    page = (ROOT / "docs" / "contributing" / "specifications.md").read_text()
    files = set(re.findall(r"`conformance/(test_[a-z_]+\.py)`", page))
    there = {path.name for path in (ROOT / "tests" / "conformance").glob("test_*.py")}
    assert files <= there
    assert there - files == {"test_hostile_filters.py"}
