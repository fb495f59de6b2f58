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


DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))


def test_every_decision_is_listed_with_its_status_and_a_consequence() -> None:
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (\w+) \| (.+) \|$", _list_of_decisions(), re.MULTILINE)
    assert [int(number) for number, *_ in listed] == list(range(1, len(DECISIONS) + 1))
    for (number, title, name, status, consequence), page in zip(listed, DECISIONS, strict=True):
        assert name == page.name
        text = page.read_text()
        assert text.startswith(f"# {number}. {title}\n")
        assert f"## Status\n\n{status.capitalize()}" in text
        assert consequence.endswith(".")


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_sections_in_order_and_names_files_that_exist(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Status", "Context", "Decision", "Consequences"]
    source = ROOT / "src" / "tidings"
    status = text.partition("## Status")[2].partition("## Context")[0]
    named = re.findall(r"`([a-z_]+/[a-z_/.]*)`", status)
    assert [name for name in named if not (source / name).exists()] == []


def _list_of_decisions() -> str:
    return (DOCS / "decisions" / "README.md").read_text()
