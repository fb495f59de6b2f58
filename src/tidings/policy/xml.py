"""Policies as XML: the same tree in another notation.

    <PolicyStatement>
      <On operation="Forward" message="Publication" broker="Egress">
        <Branch>
          <If><Condition name="StrictMatch"/></If>
          <Then><Action name="RemoveAttributes"><String>a</String></Action></Then>
        </Branch>
      </On>
    </PolicyStatement>

Nothing is fetched, no entity is resolved, and a document that brings a DTD is refused.
"""

from collections.abc import Iterable
from typing import Any

from lxml import etree

from tidings.model.expression import Constant
from tidings.policy.document import Document
from tidings.policy.elements import Role
from tidings.policy.numbers import written_number
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


def rules_from_xml(text: str | bytes) -> tuple[Rule, ...]:
    """The rules that a document states, or a `PolicyError` that names the line."""
    return Document(text).rules()


def rules_to_xml(rules: Iterable[Rule]) -> str:
    root = etree.Element("PolicyStatement")
    for rule in rules:
        _write_rule(root, rule)
    etree.indent(root)
    _close_up(root)
    return etree.tostring(root, encoding="unicode") + "\n"


def _write_rule(root: Any, rule: Rule) -> None:
    node = etree.SubElement(root, "On", operation=rule.operation, message=rule.message)
    if rule.matching is not Matching.AFTER:
        node.set("matching", rule.matching)
    if rule.points != ALL_POINTS:
        node.set("broker", " ".join(point for point in Point if point in rule.points))
    if rule.attach is not Attach.NEVER:
        node.set("attach", rule.attach)
    if rule.yield_attach:
        node.set("yield_attach", "True")
    _write_branches(node, rule.branches)
    if rule.on_exception:
        _write_branches(etree.SubElement(node, "OnException"), rule.on_exception)


def _write_branches(parent: Any, branches: tuple[Branch, ...]) -> None:
    for branch in branches:
        node = etree.SubElement(parent, "Branch")
        condition = etree.SubElement(node, "If")
        for part in branch.condition.parts if isinstance(branch.condition, And) else (branch.condition,):
            _write_condition(condition, part)
        actions = etree.SubElement(node, "Then")
        for action in branch.actions:
            _write_call(actions, action, Role.ACTION)


def _write_condition(parent: Any, condition: Condition) -> None:
    match condition:
        case Call():
            _write_call(parent, condition, Role.CONDITION)
        case Comparison(call, operator, value):
            node = etree.SubElement(parent, "Compare", operator=operator)
            _write_call(node, call, Role.CONDITION)
            _write_argument(node, value)
        case And(parts) | Or(parts):
            node = etree.SubElement(parent, type(condition).__name__)
            for part in parts:
                _write_condition(node, part)


def _write_call(parent: Any, call: Call, role: Role) -> None:
    node = etree.SubElement(parent, role.capitalize(), name=call.name)
    for argument in call.arguments:
        _write_argument(node, argument)


def _write_argument(parent: Any, argument: Argument) -> None:
    match argument:
        case Values(items):
            node = etree.SubElement(parent, "List")
            for one in items:
                _write_argument(node, one)
        case Publication(attributes):
            node = etree.SubElement(parent, "Event")
            for name, value in attributes:
                _write_argument(etree.SubElement(node, "Attribute", name=name), value)
        case Variable(name):
            etree.SubElement(parent, "Variable").text = name
        case Constant(value):
            tag, said = _constant(value)
            etree.SubElement(parent, tag).text = said


def _constant(value: bool | int | float | str | None) -> tuple[str, str]:
    if isinstance(value, bool):
        return "Boolean", str(value)
    if isinstance(value, str):
        return "String", value
    return ("Number" if isinstance(value, float) else "Integer"), written_number(0 if value is None else value)


def _close_up(root: Any) -> None:
    """Leaves stand on the line of what they belong to: it is the structure that is indented."""
    for node in root.iter("Condition", "Action"):
        if len(node) and all(not len(child) for child in node):
            node.text = None
            for child in node:
                child.tail = None if child is node[-1] else " "
