"""The pages as a whole: they build without a warning, nothing in them escapes the tests, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from sybil import Document

from tests.docs.blocks import fences
from tests.docs.shell import ROOT
from tests.docs.tables import parse_tables
from tidings.model import limits
from tidings.policy.elements import BUILT_IN

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pytest.mark.process
def test_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-b", "html", "-d", f"{tmp_path}/trees"]
    done = subprocess.run([*command, str(DOCS), f"{tmp_path}/html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@page_by_page
def test_all_code_stands_in_fences_that_are_found(page: Path) -> None:
    tokens = MarkdownIt().parse(page.read_text())
    kinds = [token.type for token in tokens]
    assert "code_block" not in kinds, "indented code is never run; put it into a fence"
    found = list(fences(Document.parse(str(page))))
    assert len(found) == kinds.count("fence")


@page_by_page
def test_relative_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@page_by_page
def test_names_no_place_on_this_machine(page: Path) -> None:
    assert not re.search(r"/(?:home|root|Users|work)/", page.read_text())


def told(column: str) -> list[str]:
    """What the tables of the reference say in that column."""
    pages = [Document.parse(str(page), parse_tables) for page in sorted((DOCS / "reference").glob("*.md"))]
    return [example.parsed[column] for page in pages for example in page if column in example.parsed]


def test_every_limit_is_in_a_table() -> None:
    assert sorted(told("limit")) == sorted(name for name in vars(limits) if name.isupper())


def test_every_element_of_policies_is_in_a_table() -> None:
    assert sorted(told("element")) == sorted(element.name for element in BUILT_IN)


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text()
    decisions = sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))
    assert decisions
    assert [name for name in decisions if f"({name})" not in listed] == []
    assert [int(name[:4]) for name in decisions] == list(range(1, len(decisions) + 1))
