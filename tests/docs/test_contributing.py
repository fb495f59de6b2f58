"""The pages for contributors name files that exist, and the example of a test passes."""

import re
from collections.abc import Callable
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
    assert there - files == {"test_hostile_filters.py", "test_client_api.py"}


NAMES = ROOT / "tests" / "compatibility" / "names"
_ENDINGS = frozenset(  # units, and words that need no explanation
    {
        *("tidings", "total", "seconds", "bucket", "count", "sum", "info", "version"),
        *("configured", "dropped", "issued", "timestamp"),
    }
)


def words_of_metrics() -> set[str]:
    metrics = re.findall(r"^([a-z_]+)", (NAMES / "metrics.txt").read_text(), re.MULTILINE)
    return {word for metric in metrics for word in metric.split("_")} - _ENDINGS


def words_of_commands() -> set[str]:
    nouns = set(re.findall(r"^tidings ([a-z]+)", (NAMES / "command-line.txt").read_text(), re.MULTILINE))
    return nouns - {
        "demo",
        "warm",
        "bench",
        "tail",
        "config",
        "history",
        "simulate",
        "explain",
    }  # verbs, and words of any program


def words_of_architecture() -> set[str]:
    """The words in bold, the steps and the drivers."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    return {word.lower() for word in re.findall(r"\*\*(admit|match|govern|emit)\*\*", text)} | {
        "hub",
        "broker",
        "engine",
    }


@pytest.mark.parametrize("words", [words_of_metrics, words_of_commands, words_of_architecture])
def test_the_glossary_has_the_words_that_users_see(words: Callable[[], set[str]]) -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text().lower()
    assert sorted(word for word in words() if not re.search(rf"\b{re.escape(word.rstrip('s'))[:6]}", glossary)) == []


def test_the_glossary_is_in_alphabetical_order_and_each_word_has_one_sentence_and_a_file() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[1:]
    words = [word.lower() for word, *_ in rows]
    assert words == sorted(words)
    assert len(set(words)) == len(words)
    for word, meaning, file in rows:
        assert meaning.endswith("."), word
        assert all((ROOT / "src" / "tidings" / name.strip("` ")).exists() for name in file.split(",")), word
