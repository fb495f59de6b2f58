"""Print a policy as canonical text, which parses back to equal rules. Qualifiers with default values are left out."""

from collections.abc import Iterable

from tidings.model.expression import Constant
from tidings.model.values import BARE_NAME
from tidings.policy.ast import (
    ALL_POINTS,
    AllOf,
    AnyOf,
    Argument,
    Attach,
    Branch,
    Condition,
    ElementCall,
    ElementComparison,
    Matching,
    Point,
    PublishTemplate,
    Rule,
    Values,
    Variable,
    format_number,
)
from tidings.policy.publish_template import format_publication

_INDENT = "  "


def format_rules(rules: Iterable[Rule]) -> str:
    """Return rules as the canonical text of a policy."""
    lines = ["PolicyStatement {"]
    for rule in rules:
        lines.extend(_INDENT + line for line in _format_rule(rule))
    return "\n".join([*lines, "}"])


def format_condition(condition: Condition) -> str:
    """Return a condition as text, without the braces of its `If`."""
    match condition:
        case ElementCall():
            return format_call(condition)
        case ElementComparison(call, operator, value):
            return f"{format_call(call)} {operator} {_format_argument(value)}"
        case AllOf(parts):
            return " && ".join(_parenthesized(part, isinstance(part, AllOf | AnyOf)) for part in parts)
        case AnyOf(parts):
            return " || ".join(_parenthesized(part, isinstance(part, AnyOf)) for part in parts)


def format_call(call: ElementCall) -> str:
    """Return a call of a condition or action as text."""
    return f"{call.name}({', '.join(_format_argument(argument) for argument in call.arguments)})"


def _format_rule(rule: Rule) -> list[str]:
    lines = [f"{rule.heading} {{"]
    if rule.matching is not Matching.AFTER:
        lines.append(f"@matching: {rule.matching}")
    if rule.points != ALL_POINTS:
        lines.append(f"@broker: {', '.join(point for point in Point if point in rule.points)}")
    if rule.attach is not Attach.NEVER:
        lines.append(f"@attach: {rule.attach}")
    if rule.yield_attach:
        lines.append("@yield_attach: True")
    lines.extend(_format_branches(rule.branches))
    if rule.on_exception:
        lines += ["OnException {", *(_INDENT + line for line in _format_branches(rule.on_exception)), "}"]
    return [lines[0], *(_INDENT + line for line in lines[1:]), "}"]


def _format_branches(branches: tuple[Branch, ...]) -> list[str]:
    lines = []
    for number, branch in enumerate(branches):
        actions = ", ".join(format_call(action) for action in branch.actions)
        lines.append(f"{'Elseif' if number else 'If'} {{{format_condition(branch.condition)}}} Then {{{actions}}}")
    return lines


def _parenthesized(part: Condition, parentheses: bool) -> str:
    text = format_condition(part)
    return f"({text})" if parentheses else text


def _format_argument(argument: Argument) -> str:
    match argument:
        case Constant(value):
            return _format_constant(value)
        case Variable(name):
            return f"${name}"
        case Values(items):
            return f"[{', '.join(_format_argument(item) for item in items)}]"
        case PublishTemplate():
            return _quoted(format_publication(argument))


def _format_constant(value: bool | int | float | str | None) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        bare = BARE_NAME.fullmatch(value) and value.lower() not in ("true", "false")
        return value if bare else _quoted(value)
    return format_number(0 if value is None else value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
