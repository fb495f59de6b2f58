"""Fenced blocks in the documentation, each run or checked by what it is written in.

| language | what happens |
|---|---|
| `python` | a session if it starts with `>>>`, else code that must run; one namespace a page; see also `brokers.py` |
| `console` | see `console.py` |
| `json`, `toml` | it must parse; see also `shell.py` |
| `text` | shown only |
| a directive in `{braces}` | Sphinx's, if it is one of DIRECTIVES; none of them can hold code of its own |

Any other language fails, so that nothing slips in that is never run.
"""

import doctest
import json
import re
import tomllib
from collections.abc import Iterable, Iterator

from sybil import Document, Example, Region
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from tests.docs.brokers import beside_brokers
from tests.docs.console import run_console
from tests.docs.shell import Shell

DIRECTIVES = frozenset({"literalinclude", "toctree", "note", "warning", "tip", "seealso", "contents"})
SHOWN_ONLY = frozenset({"text"})

fences = RawFencedCodeBlockLexer(re.compile(r"[ \t]*(?P<info>[^\n]*)\n"))
_doctest = DocTestEvaluator(doctest.ELLIPSIS)
_doctests = DocTestStringParser(_doctest)
_session = beside_brokers(_doctest)
_python = beside_brokers(PythonEvaluator())


def parse_blocks(document: Document) -> Iterable[Region]:
    for region in fences(document):
        info, source = region.lexemes["info"].strip(), region.lexemes["source"]
        directive = re.fullmatch(r"\{([a-z-]+)\}.*", info)
        region.parsed = source
        if info in SHOWN_ONLY or (directive and directive[1] in DIRECTIVES):
            continue
        if info == "python":
            yield from _python_regions(region, document)
            continue
        region.evaluator = {"console": run_console, "json": _check_json, "toml": _check_toml}.get(info, _refuse)
        yield region


def _python_regions(block: Region, document: Document) -> Iterator[Region]:
    source = block.parsed
    if not source.startswith(">>>"):
        block.evaluator = _python
        yield block
        return
    between = [piece for piece in doctest.DocTestParser().parse(source) if isinstance(piece, str)]
    if any(piece.strip() for piece in between):
        block.evaluator = _refuse_mixed
        yield block
        return
    for region in _doctests(source, document.path):
        region.adjust(block, source)
        region.evaluator = _session
        yield region


def _check_json(example: Example) -> None:
    json.loads(example.parsed)


def _check_toml(example: Example) -> None:
    tomllib.loads(example.parsed)
    Shell.of(example.namespace).write(example.parsed)


def _refuse(example: Example) -> str:
    info = example.region.lexemes["info"].strip()
    return f"a block in {info!r} is never run; use python, console, json, toml, text or a directive without code"


def _refuse_mixed(_: Example) -> str:
    return "a session with >>> has lines that are neither code nor output of the code above them; they would not be run"
