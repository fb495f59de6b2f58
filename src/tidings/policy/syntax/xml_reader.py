"""Parse an XML policy into rules, and check every element with its position in the document."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from lxml import etree

from tidings.model.errors import PolicyError, did_you_mean
from tidings.model.expression import Constant
from tidings.model.limits import (
    MAX_POLICY_BRANCHES,
    MAX_POLICY_CHARACTERS,
    MAX_POLICY_ELEMENTS,
    MAX_POLICY_NESTING,
    MAX_POLICY_RULES,
    MAX_POLICY_XML_BYTES,
)
from tidings.policy.ast import (
    ALL_POINTS,
    Attach,
    Branch,
    ElementCall,
    Matching,
    MessageType,
    Point,
    PublishTemplate,
    Rule,
    RuleOperation,
    Values,
    Variable,
    all_of,
    any_of,
    nesting,
    read_number,
)
from tidings.policy.call_checks import (
    CallRefusal,
    checked_boolean_call,
    checked_call,
    checked_comparison,
    placement_complaint,
)
from tidings.policy.elements import ElementRole
from tidings.policy.syntax.printer import format_rules

_TRUTH = {"True": True, "False": False}
_POSITION = re.compile(r", line \d+, column \d+$")  # `PolicyError` states the position itself
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in")


class XmlReader:
    """A reader for one XML document; `xml_format` shows the document's structure."""

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str | bytes):
            raise PolicyError(f"a policy in XML is a text, not {type(text).__name__}")
        data = _encode(text) if isinstance(text, str) else text
        if len(data) > MAX_POLICY_XML_BYTES:
            raise PolicyError(f"the XML is longer than MAX_POLICY_XML_BYTES ({MAX_POLICY_XML_BYTES:,})")
        self._text = text if isinstance(text, str) else data.decode("utf-8", "replace")
        self._starts = [0, *(place + 1 for place, sign in enumerate(self._text) if sign == "\n")]
        self._encoding = "utf-8" if isinstance(text, str) else None  # an encoding declaration counts only for bytes
        self._data = data
        self._elements = 0

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules in the document; raise a `PolicyError` that names the line if it is invalid."""
        root = self._root()
        self._check(root, "PolicyStatement")
        rules: list[Rule] = []
        for node in self._children(root, "On"):
            if len(rules) >= MAX_POLICY_RULES:
                raise self._error(node, f"more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules")
            rules.append(self._rule(node))
        if not rules:
            raise self._error(root, "a policy has at least one <On>")
        if len(format_rules(rules)) > MAX_POLICY_CHARACTERS:
            limit = f"MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})"
            raise self._error(root, f"the policy's canonical text is longer than {limit}")
        return tuple(rules)

    def _root(self) -> Any:
        parser = etree.XMLParser(
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
            encoding=self._encoding,
        )
        try:
            root = etree.fromstring(self._data, parser)
        except etree.XMLSyntaxError as error:
            line, column = error.position
            complaint = _POSITION.sub("", str(error.msg))
            raise PolicyError(
                f"not well-formed XML: {complaint}", self._text, self._text_position(line, column)
            ) from None
        except (ValueError, LookupError) as error:
            raise PolicyError(f"not well-formed XML: {error}") from None
        if root.getroottree().docinfo.internalDTD is not None or root.getroottree().docinfo.externalDTD is not None:
            raise PolicyError("a policy in XML has no DTD; take the <!DOCTYPE ...> away", self._text)
        return root

    def _rule(self, node: Any) -> Rule:
        self._check(node, "On", "operation", "message", "matching", "broker", "attach", "yield_attach")
        points = [self._enum_word(node, point, tuple(Point), "broker") for point in (node.get("broker") or "").split()]
        branches: list[Any] = []
        exceptions: list[Any] = []
        for child in self._children(node, "Branch", "OnException"):
            if child.tag == "Branch" and not exceptions:
                branches.append(child)
            elif child.tag == "OnException" and not exceptions:
                self._check(child, "OnException")
                exceptions = self._children(child, "Branch")
                if not exceptions:
                    raise self._error(child, "an <OnException> has at least one <Branch>")
            else:
                raise self._error(child, "<OnException> stands once, at the end of the rule")
        if not branches:
            raise self._error(node, "a rule has at least one <Branch>")
        kind: dict[str, Any] = {
            "operation": RuleOperation(
                self._enum_word(node, node.get("operation", "Forward"), tuple(RuleOperation), "operation")
            ),
            "message": MessageType(self._enum_word(node, node.get("message"), tuple(MessageType), "message")),
            "matching": Matching(self._enum_word(node, node.get("matching", "After"), tuple(Matching), "matching")),
        }
        self._kind = kind
        return Rule(
            **kind,
            branches=self._branches(branches, exception=False),
            on_exception=self._branches(exceptions, exception=True),
            points=frozenset(map(Point, points)) or ALL_POINTS,
            attach=Attach(self._enum_word(node, node.get("attach", "Never"), tuple(Attach), "attach")),
            yield_attach=_TRUTH[
                self._enum_word(node, node.get("yield_attach", "False"), tuple(_TRUTH), "yield_attach")
            ],
        )

    def _branches(self, nodes: list[Any], *, exception: bool) -> tuple[Branch, ...]:
        if len(nodes) > MAX_POLICY_BRANCHES:
            limit = f"MAX_POLICY_BRANCHES ({MAX_POLICY_BRANCHES})"
            raise self._error(nodes[MAX_POLICY_BRANCHES], f"more than {limit} branches")
        self._exception = exception
        return tuple(self._branch(node) for node in nodes)

    def _branch(self, node: Any) -> Branch:
        self._check(node, "Branch")
        parts = self._children(node, "If", "Then")
        if [part.tag for part in parts] not in (["If", "Then"], ["Then"]):
            raise self._error(node, "a <Branch> has an <If> and a <Then>")
        for part in parts:
            self._check(part, part.tag)
        condition = all_of([self._condition(child) for part in parts[:-1] for child in part])
        if nesting(condition) + 2 > MAX_POLICY_NESTING:
            raise self._error(node, f"nested deeper than MAX_POLICY_NESTING ({MAX_POLICY_NESTING})")
        actions = [
            self._checked_placement(child, self._call(child, ElementRole.ACTION))
            for child in self._children(parts[-1], "Action")
        ]
        return Branch(condition, tuple(actions))

    def _condition(self, node: Any, depth: int = 0) -> Any:
        if depth > 2 * MAX_POLICY_NESTING:
            raise self._error(node, f"nested deeper than MAX_POLICY_NESTING ({MAX_POLICY_NESTING})")
        if node.tag in ("And", "Or"):
            self._check(node, node.tag)
            parts = [self._condition(child, depth + 1) for child in node]
            if not parts:
                raise self._error(node, f"<{node.tag}> has at least one condition")
            return all_of(parts) if node.tag == "And" else any_of(parts)
        if node.tag == "Compare":
            return self._comparison(node)
        call = self._call(node, ElementRole.CONDITION, "And", "Or", "Compare")
        return self._checked_placement(node, self._with_position(node, partial(checked_boolean_call, call)))

    def _comparison(self, node: Any) -> Any:
        self._check(node, "Compare", "operator")
        operator: Any = self._enum_word(node, node.get("operator"), _OPERATORS, "operator")
        if len(node) != 2:
            raise self._error(node, "<Compare> has a <Condition> and what it is compared with")
        call, value = self._call(node[0], ElementRole.CONDITION), self._argument(node[1])
        return self._checked_placement(
            node, self._with_position(node[1], partial(checked_comparison, call, operator, value))
        )

    def _call(self, node: Any, role: ElementRole, *others: str) -> ElementCall:
        self._check(node, role.capitalize(), "name", others=others)
        self._elements += 1
        if self._elements > MAX_POLICY_ELEMENTS:
            limit = f"MAX_POLICY_ELEMENTS ({MAX_POLICY_ELEMENTS:,})"
            raise self._error(node, f"more than {limit} conditions and actions")
        arguments = tuple(self._argument(child) for child in node)
        try:
            return checked_call(node.get("name", ""), arguments, role)
        except CallRefusal as refused:
            at = node if refused.argument is None or refused.argument >= len(node) else node[refused.argument]
            raise self._error(at, refused.message) from None

    def _argument(self, node: Any) -> Any:
        if node.tag == "List":
            self._check(node, "List")
            return Values(tuple(self._scalar(child) for child in node))
        if node.tag == "Event":
            self._check(node, "Event")
            return PublishTemplate(tuple(self._attributes(node)))
        return self._scalar(node, "List", "Event")

    def _attributes(self, node: Any) -> Iterator[tuple[str, Constant | Variable]]:
        seen = set()
        for child in self._children(node, "Attribute"):
            self._check(child, "Attribute", "name")
            name = child.get("name", "")
            if len(child) != 1 or name in seen:
                raise self._error(child, "an <Attribute> has one value, and its name only once")
            seen.add(name)
            yield name, self._scalar(child[0])
        if not seen:
            raise self._error(node, "an <Event> has at least one <Attribute>")

    def _scalar(self, node: Any, *others: str) -> Constant | Variable:
        kinds = ("String", "Integer", "Number", "Boolean", "Variable")
        if node.tag not in kinds:
            raise self._error(node, f"{_tag_text(node)} is not expected here; there are {_tags((*kinds, *others))}")
        self._check(node, node.tag, text=True)
        text = node.text or ""
        if node.tag == "String":
            return Constant(text)
        text = text.strip()
        if node.tag == "Variable":
            return Variable(text)
        if node.tag == "Boolean":
            return Constant(_TRUTH[self._enum_word(node, text, tuple(_TRUTH), "Boolean")])
        try:
            number = read_number(text if text.isascii() and "_" not in text else "")
        except ValueError as error:
            message = str(error) if "64" in str(error) or "large" in str(error) else f"{text[:40]!r} is no number"
            raise self._error(node, message) from None
        return Constant(number if node.tag == "Integer" else float(number))

    def _checked_placement(self, node: Any, element: Any) -> Any:
        complaint = placement_complaint(element, **self._kind, exception=self._exception)
        if complaint is not None:
            raise self._error(node, complaint)
        return element

    def _with_position(self, node: Any, check: Any) -> Any:
        try:
            return check()
        except CallRefusal as refused:
            raise self._error(node, refused.message) from None

    def _check(self, node: Any, tag: str, *attributes: str, others: tuple[str, ...] = (), text: bool = False) -> None:
        """Check an XML node's name and attributes, and that it contains text only where text is allowed."""
        if node.tag != tag:
            raise self._error(node, f"{_tag_text(node)} is not expected here; there is {_tags((tag, *others))}")
        for name in node.attrib:
            if name not in attributes:
                hint = did_you_mean(str(name), attributes)
                raise self._error(node, f"<{tag}> has no attribute {str(name)[:40]}{hint}")
        if text:
            if len(node):
                raise self._error(node, f"<{tag}> holds text only")
        elif (node.text or "").strip() or any((child.tail or "").strip() for child in node):
            raise self._error(node, f"<{tag}> holds no text of its own")

    def _children(self, node: Any, *tags: str) -> list[Any]:
        for child in node:
            if child.tag not in tags:
                hint = did_you_mean(str(child.tag), tags) or f"; there is {_tags(tags)}"
                raise self._error(child, f"{_tag_text(child)} is not expected in <{node.tag}>{hint}")
        return list(node)

    def _enum_word(self, node: Any, text: str | None, words: tuple[str, ...], what: str) -> str:
        if text is None:
            raise self._error(node, f"<{node.tag}> needs the attribute {what}: {', '.join(words)}")
        match = next((word for word in words if word.lower() == text.lower()), None)
        if match is None:
            hint = did_you_mean(text, words) or f"; there are {', '.join(words)}"
            raise self._error(node, f"{text[:40]!r} is no value of {what}{hint}")
        return match

    def _text_position(self, line: int, column: int = 1) -> int:
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        return min(start + max(column, 1) - 1, len(self._text))

    def _error(self, node: Any, message: str) -> PolicyError:
        start = self._text_position(node.sourceline or 1)
        line = self._text[start:].split("\n", 1)[0]
        return PolicyError(message, self._text, start + len(line) - len(line.lstrip()))


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", "replace").decode()
        raise PolicyError("half of a surrogate pair", shown, error.start) from None


def _tag_text(node: Any) -> str:
    return f"<{str(node.tag)[:40]}>" if isinstance(node.tag, str) else "this"


def _tags(tags: tuple[str, ...]) -> str:
    return ", ".join(f"<{tag}>" for tag in tags)
