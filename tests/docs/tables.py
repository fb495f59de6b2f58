"""Tables of examples in the documentation: each row is run.

A table takes part when its header names a subject of examples and at least one thing to hold it to:

| subject | given | held to |
|---|---|---|
| a format (`sql`, `topic`, ...) | `attributes`, `subject`, `payload`, `publisher` | `outcome`, `canonical`, `error` |
| `context filter` | `context`, `this` | `outcome`, `canonical`, `error` |
| `expression` | `attributes` | `value` |
| `first` and `second` (filters) | | `relation`, `covers`, `overlaps` |
| `limit` | | `number` |

Other columns are for the reader. Outcomes are true, false and unknown.
"""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sybil import Document, Example, Region

from tests.docs.blocks import fences
from tidings import ContextFilter, Filter, FilterError
from tidings.language import FORMATS
from tidings.matching.reference import Scope, truth, value
from tidings.model import limits
from tidings.model.expression import Comparison
from tidings.model.values import Attributes

Row = Mapping[str, str]

_TABLE = re.compile(r"(?:^\|[^\n]*\|[ \t]*(?:\n|\Z)){2,}", re.MULTILINE)
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+\s*")
_CODE = re.compile(r"(`+)(.*)\1")
_HELD_TO = {
    **dict.fromkeys([*FORMATS, "context filter"], ("outcome", "canonical", "error")),
    "expression": ("value",),
    "first": ("relation", "covers", "overlaps"),
    "limit": ("number",),
}


def parse_tables(document: Document) -> Iterable[Region]:
    fenced = [(region.start, region.end) for region in fences(document)]
    for table in _TABLE.finditer(document.text):
        if any(start <= table.start() < end for start, end in fenced):
            continue
        lines = table[0].splitlines(keepends=True)
        header = [cell.lower() for cell in cells_of(lines[0])]
        subject = next((name for name in _HELD_TO if name in header), None)
        if subject is None or not _RULE.fullmatch(lines[1]):
            continue
        position = table.start() + len(lines[0]) + len(lines[1])
        for line in lines[2:]:
            row = dict(zip(header, cells_of(line), strict=True))
            yield Region(position, position + len(line.rstrip("\n")), row, _evaluator(subject))
            position += len(line)


def cells_of(line: str) -> list[str]:
    """The cells of a table's line, without the marks of code."""
    cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
    return [_plain(cell.replace("\\|", "|").strip()) for cell in cells]


def check_row(subject: str, row: Row) -> str | None:
    """What is wrong with a row, or nothing."""
    held = [column for column in _HELD_TO[subject] if row.get(column)]
    if not held:
        return f"the row is held to nothing; it needs one of the columns {', '.join(_HELD_TO[subject])}"
    got = _ANSWERS.get(subject, _filter_answers)(subject, row)
    wrong = [column for column in held if row[column] != got.get(column)]
    said = [f"{column}: expected {row[column]!r}, got {got.get(column, 'nothing')!r}" for column in wrong]
    return "\n".join([str(dict(row)), *said]) if wrong else None


def _evaluator(subject: str) -> Callable[[Example], str | None]:
    return lambda example: check_row(subject, example.parsed)


def _plain(cell: str) -> str:
    code = _CODE.fullmatch(cell)
    if code is None:
        return cell
    inner = code[2]
    padded = inner.startswith(" ") and inner.endswith(" ") and inner.strip()
    return inner[1:-1] if padded else inner


def _filter_answers(subject: str, row: Row) -> dict[str, str]:
    try:
        found = (
            ContextFilter.parse(row[subject]) if subject == "context filter" else Filter.parse(row[subject], subject)
        )
    except FilterError as error:
        return {"error": error.message}
    payload = row.get("payload")
    scope = Scope(
        Attributes.of(_literal(row, "context" if subject == "context filter" else "attributes")),
        Attributes.of(_literal(row, "this")),
        row.get("subject") or None,
        payload.encode() if payload else None,
        row.get("publisher") or None,
    )
    return {"outcome": _OUTCOMES[truth(found.expression, scope)], "canonical": str(found)}


def _read(subject: str, text: str) -> Filter | ContextFilter:
    return ContextFilter.parse(text) if subject == "context filter" else Filter.parse(text, subject)


def _expression_answers(_: str, row: Row) -> dict[str, str]:
    comparison = Filter.parse(f"({row['expression']}) = 0").expression
    if not isinstance(comparison, Comparison):
        raise TypeError(f"{row['expression']} is no value")
    answer = value(comparison.left, Scope(Attributes.of(_literal(row, "attributes"))))
    return {"value": "NULL" if answer is None else repr(answer)}


def _relation_answers(_: str, row: Row) -> dict[str, str]:
    first, second = Filter.parse(row["first"]), Filter.parse(row["second"])
    return {
        "relation": first.relation(second).value,
        "covers": "yes" if first.covers(second) else "no",
        "overlaps": "yes" if first.overlaps(second) else "no",
    }


def _limit_answers(_: str, row: Row) -> dict[str, str]:
    return {"number": f"{getattr(limits, row['limit']):,}"}


def _literal(row: Row, column: str) -> dict[str, Any]:
    written = row.get(column)
    return dict(ast.literal_eval(written)) if written else {}


_OUTCOMES = {True: "true", False: "false", None: "unknown"}
_ANSWERS: dict[str, Callable[[str, Row], dict[str, str]]] = {
    "expression": _expression_answers,
    "first": _relation_answers,
    "limit": _limit_answers,
}
