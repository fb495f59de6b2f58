"""Print policies as XML and parse them; the XML has the same structure as the syntax tree.

    <PolicyStatement>
      <On operation="Forward" message="Publication" broker="Egress">
        <Branch>
          <If><Condition name="StrictMatch"/></If>
          <Then><Action name="RemoveAttributes"><String>a</String></Action></Then>
        </Branch>
      </On>
    </PolicyStatement>

The parser fetches nothing, resolves no entity, and refuses a document with a DTD.
"""

from collections.abc import Iterable
from typing import Any

from lxml import etree

from tidings.model.expression import Constant
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
from tidings.policy.elements import ElementRole
from tidings.policy.syntax.xml_reader import XmlReader


def rules_from_xml(text: str | bytes) -> tuple[Rule, ...]:
    """Parse an XML policy into rules; raise a `PolicyError` that names the line if it is invalid."""
    return XmlReader(text).rules()


def rules_to_xml(rules: Iterable[Rule]) -> str:
    """Return rules as an XML document."""
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
        for part in branch.condition.parts if isinstance(branch.condition, AllOf) else (branch.condition,):
            _write_condition(condition, part)
        actions = etree.SubElement(node, "Then")
        for action in branch.actions:
            _write_call(actions, action, ElementRole.ACTION)


def _write_condition(parent: Any, condition: Condition) -> None:
    match condition:
        case ElementCall():
            _write_call(parent, condition, ElementRole.CONDITION)
        case ElementComparison(call, operator, value):
            node = etree.SubElement(parent, "Compare", operator=operator)
            _write_call(node, call, ElementRole.CONDITION)
            _write_argument(node, value)
        case AllOf(parts) | AnyOf(parts):
            node = etree.SubElement(parent, str(condition.__struct_config__.tag))
            for part in parts:
                _write_condition(node, part)


def _write_call(parent: Any, call: ElementCall, role: ElementRole) -> None:
    node = etree.SubElement(parent, role.capitalize(), name=call.name)
    for argument in call.arguments:
        _write_argument(node, argument)


def _write_argument(parent: Any, argument: Argument) -> None:
    match argument:
        case Values(items):
            node = etree.SubElement(parent, "List")
            for item in items:
                _write_argument(node, item)
        case PublishTemplate(attributes):
            node = etree.SubElement(parent, "Event")
            for name, value in attributes:
                _write_argument(etree.SubElement(node, "Attribute", name=name), value)
        case Variable(name):
            etree.SubElement(parent, "Variable").text = name
        case Constant(value):
            tag, text = _constant(value)
            etree.SubElement(parent, tag).text = text


def _constant(value: bool | int | float | str | None) -> tuple[str, str]:
    if isinstance(value, bool):
        return "Boolean", str(value)
    if isinstance(value, str):
        return "String", value
    return ("Number" if isinstance(value, float) else "Integer"), format_number(0 if value is None else value)


def _close_up(root: Any) -> None:
    """Put arguments on the same line as their call; only the structure above calls is indented."""
    for node in root.iter("Condition", "Action"):
        if len(node) and all(not len(child) for child in node):
            node.text = None
            for child in node:
                child.tail = None if child is node[-1] else " "
