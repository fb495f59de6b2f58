"""Tables of examples in the documentation: each row is run.

A table takes part when its header names a subject of examples and at least one thing to hold it to:

| subject | given | held to |
|---|---|---|
| a format (`sql`, `topic`, ...) | `attributes`, `subject`, `payload`, `publisher` | `outcome`, `canonical`, `error` |
| `context filter` | `context`, `this` | `outcome`, `canonical`, `error` |
| `expression` | `attributes` | `value` |
| `first` and `second` (filters) | | `relation`, `covers`, `overlaps` |
| `limit` | | `number` |
| `policy rule` (what stands between the braces) | `on` | `canonical`, `error` |
| `element` (of a policy) | | `call`, `stands in` |
| `rules on` (a type of message) | | a column for each way to give a policy |

Other columns are for the reader. Outcomes are true, false and unknown.
"""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sybil import Document, Example, Region

from tests.docs.blocks import fences
from tidings import ContextFilter, Filter, FilterError, Policy, PolicyError
from tidings.language import FORMATS
from tidings.matching.reference import Scope, truth, value
from tidings.model import limits
from tidings.model.expression import Comparison
from tidings.model.values import Attributes
from tidings.policy import registry
from tidings.policy.ast import Matching, MessageType, RuleOperation
from tidings.policy.placement import PolicyPlace, is_associated, is_attached

Row = Mapping[str, str]

_TABLE = re.compile(r"(?:^\|[^\n]*\|[ \t]*(?:\n|\Z)){2,}", re.MULTILINE)
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+\s*")
_CODE = re.compile(r"(`+)(.*)\1")
_PLACES = {
    "publish": PolicyPlace.ATTACHED_TO_PUBLICATION,
    "subscribe": PolicyPlace.ATTACHED_TO_SUBSCRIPTION,
    "advertise": PolicyPlace.ATTACHED_TO_ADVERTISEMENT,
    "unsubscribe": PolicyPlace.ATTACHED_TO_UNSUBSCRIPTION,
    "unadvertise": PolicyPlace.ATTACHED_TO_UNADVERTISEMENT,
    "set on a subscription": PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION,
    "set on an advertisement": PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT,
}
_HELD_TO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys([*FORMATS, "context filter"], ("outcome", "canonical", "error")),
    "expression": ("value",),
    "first": ("relation", "covers", "overlaps"),
    "limit": ("number",),
    "policy rule": ("canonical", "error"),
    "element": ("call", "stands in"),
    "rules on": tuple(_PLACES),
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


def _policy_answers(_: str, row: Row) -> dict[str, str]:
    try:
        policy = Policy.parse(f"PolicyStatement {{ On({row.get('on') or 'Publication'}) {{ {row['policy rule']} }} }}")
    except PolicyError as error:
        return {"error": error.message}
    lines = str(policy).splitlines()[2:-2]  # without the statement and the first rule's braces
    return {"canonical": " ".join(line.strip() for line in lines)}


def _element_answers(_: str, row: Row) -> dict[str, str]:
    element = registry.find(row["element"])
    if element is None:
        return {}
    limited = [
        " or ".join(one for one in words if one in declared)
        for words, declared in (
            (RuleOperation, element.operations),
            (MessageType, element.messages),
            (Matching, element.matching),
        )
        if len(declared) < len(words)
    ]
    return {"call": element.signature, "stands in": ", ".join(limited) or "any rule"}


def _placement_answers(_: str, row: Row) -> dict[str, str]:
    on = MessageType(row["rules on"])
    return {
        column: "attached" if is_attached(on, where) else "associated" if is_associated(on, where) else "refused"
        for column, where in _PLACES.items()
    }


def _literal(row: Row, column: str) -> dict[str, Any]:
    written = row.get(column)
    return dict(ast.literal_eval(written)) if written else {}


_OUTCOMES = {True: "true", False: "false", None: "unknown"}
_ANSWERS: dict[str, Callable[[str, Row], dict[str, str]]] = {
    "expression": _expression_answers,
    "first": _relation_answers,
    "limit": _limit_answers,
    "policy rule": _policy_answers,
    "element": _element_answers,
    "rules on": _placement_answers,
}
