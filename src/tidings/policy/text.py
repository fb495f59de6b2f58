"""How a policy is written: the canonical text, which parses back to equal rules. What is a default is left out."""

from collections.abc import Iterable

from tidings.model.expression import Constant
from tidings.model.values import BARE_NAME
from tidings.policy.numbers import written_number
from tidings.policy.publication import written_publication
from tidings.policy.statement import (
    ALL_POINTS,
    And,
    Argument,
    Attach,
    Branch,
    Call,
    Comparison,
    Condition,
    Matching,
    Or,
    Point,
    Publication,
    Rule,
    Values,
    Variable,
)

_INDENT = "  "


def written(rules: Iterable[Rule]) -> str:
    lines = ["PolicyStatement {"]
    for rule in rules:
        lines.extend(_INDENT + line for line in _rule(rule))
    return "\n".join([*lines, "}"])


def written_condition(condition: Condition) -> str:
    """What stands between the braces of an `If`."""
    match condition:
        case Call():
            return written_call(condition)
        case Comparison(call, operator, value):
            return f"{written_call(call)} {operator} {_argument(value)}"
        case And(parts):
            return " && ".join(_inside(part, isinstance(part, And | Or)) for part in parts)
        case Or(parts):
            return " || ".join(_inside(part, isinstance(part, Or)) for part in parts)


def written_call(call: Call) -> str:
    return f"{call.name}({', '.join(_argument(one) for one in call.arguments)})"


def _rule(rule: Rule) -> list[str]:
    lines = [f"{rule.heading} {{"]
    if rule.matching is not Matching.AFTER:
        lines.append(f"@matching: {rule.matching}")
    if rule.points != ALL_POINTS:
        lines.append(f"@broker: {', '.join(point for point in Point if point in rule.points)}")
    if rule.attach is not Attach.NEVER:
        lines.append(f"@attach: {rule.attach}")
    if rule.yield_attach:
        lines.append("@yield_attach: True")
    lines.extend(_branches(rule.branches))
    if rule.on_exception:
        lines += ["OnException {", *(_INDENT + line for line in _branches(rule.on_exception)), "}"]
    return [lines[0], *(_INDENT + line for line in lines[1:]), "}"]


def _branches(branches: tuple[Branch, ...]) -> list[str]:
    lines = []
    for number, branch in enumerate(branches):
        actions = ", ".join(written_call(action) for action in branch.actions)
        lines.append(f"{'Elseif' if number else 'If'} {{{written_condition(branch.condition)}}} Then {{{actions}}}")
    return lines


def _inside(part: Condition, parentheses: bool) -> str:
    text = written_condition(part)
    return f"({text})" if parentheses else text


def _argument(argument: Argument) -> str:
    match argument:
        case Constant(value):
            return _constant(value)
        case Variable(name):
            return f"${name}"
        case Values(items):
            return f"[{', '.join(_argument(one) for one in items)}]"
        case Publication():
            return _quoted(written_publication(argument))


def _constant(value: bool | int | float | str | None) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        bare = BARE_NAME.fullmatch(value) and value.lower() not in ("true", "false")
        return value if bare else _quoted(value)
    return written_number(0 if value is None else value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
