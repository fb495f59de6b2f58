"""The syntax tree of a policy: rules, their branches, and the conditions, actions and arguments in the branches.

Nodes are frozen and compare by structure. They contain what the policy says, not what it does: `elements` declares the
conditions and actions, `syntax.printer` and `syntax.xml_format` write a tree, `evaluation` applies it.
"""

import math
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from tidings.model.expression import Constant
from tidings.model.limits import MAX_INTEGER, MIN_INTEGER


class RuleOperation(StrEnum):
    """The operation to which a rule applies: forwarding a message, or inserting it into the routing tables."""

    FORWARD = "Forward"
    INSERT = "Insert"


class MessageType(StrEnum):
    """The type of message to which a rule applies."""

    ADVERTISEMENT = "Advertisement"
    SUBSCRIPTION = "Subscription"
    PUBLICATION = "Publication"
    UNSUBSCRIPTION = "Unsubscription"
    UNADVERTISEMENT = "Unadvertisement"


class Matching(StrEnum):
    """Whether a rule is applied before or after content-based matching (`@matching`)."""

    BEFORE = "Before"
    AFTER = "After"


class Point(StrEnum):
    """Where in the overlay a rule is applied (`@broker`): where messages enter, leave, or pass between brokers."""

    INGRESS = "Ingress"
    EGRESS = "Egress"
    ROUTING = "Routing"


class Attach(StrEnum):
    """Whether a message inherits a rule from the advertisement that it matches (`@attach`)."""

    NEVER = "Never"
    ALWAYS = "Always"
    KEEP_EXISTING = "KeepExisting"
    IF_YIELD = "IfYield"


ALL_POINTS = frozenset(Point)
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in"]


class _Node(msgspec.Struct, frozen=True, tag=True):
    """The base class of all nodes: frozen, hashable, and tagged with the class name when encoded."""


class Variable(_Node, frozen=True):
    """A variable such as `$Message`, whose value is known only when the rule is applied. `name` is without the `$`."""

    name: str


class Values(_Node, frozen=True):
    """A list of scalars, written `[a, b, 3]`."""

    items: tuple["Scalar", ...]


class PublishTemplate(_Node, frozen=True, tag="Publication"):
    """The event that a `Publish` action publishes, such as `[class,DropMessage],[message,$Message]`."""

    attributes: tuple[tuple[str, "Scalar"], ...]


Scalar: TypeAlias = Constant | Variable
Argument: TypeAlias = Constant | Variable | Values | PublishTemplate


class ElementCall(_Node, frozen=True, tag="Call"):
    """A call of a condition or an action, with its arguments in order."""

    name: str
    arguments: tuple[Argument, ...] = ()


class ElementComparison(_Node, frozen=True, tag="Comparison"):
    """A comparison of a condition's value with a constant, a variable or, with `in`, a list."""

    call: ElementCall
    operator: Operator
    value: Constant | Variable | Values


class AllOf(_Node, frozen=True, tag="And"):
    """A conjunction. Without parts it is true: that is how `If {}` is parsed."""

    parts: tuple["Condition", ...] = ()


class AnyOf(_Node, frozen=True, tag="Or"):
    """A disjunction."""

    parts: tuple["Condition", ...]


Condition: TypeAlias = ElementCall | ElementComparison | AllOf | AnyOf
TRUE = AllOf()


class Branch(_Node, frozen=True):
    """An `If` or `Elseif`: the actions are executed, in order, if the condition holds and no earlier condition did."""

    condition: Condition = TRUE
    actions: tuple[ElementCall, ...] = ()


class Rule(_Node, frozen=True, kw_only=True):
    """One `On(...) {...}` with its qualifiers."""

    operation: RuleOperation
    message: MessageType
    branches: tuple[Branch, ...]
    on_exception: tuple[Branch, ...] = ()
    matching: Matching = Matching.AFTER
    points: frozenset[Point] = ALL_POINTS
    attach: Attach = Attach.NEVER
    yield_attach: bool = False

    @property
    def heading(self) -> str:
        """The rule's first line as text, such as `On(Forward, Publication)`."""
        return f"On({self.operation}, {self.message})"


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Return the conjunction, flattened: no And directly inside an And. A single condition is returned unchanged."""
    parts = _flat(conditions, AllOf)
    return parts[0] if len(parts) == 1 else AllOf(parts)


def any_of(conditions: Iterable[Condition]) -> Condition:
    """Return the disjunction, flattened: no Or directly inside an Or. A single condition is returned unchanged."""
    parts = _flat(conditions, AnyOf)
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def calls_in(condition: Condition) -> Iterator[ElementCall]:
    """Yield every element call in a condition, from left to right."""
    match condition:
        case ElementCall():
            yield condition
        case ElementComparison(call):
            yield call
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from calls_in(part)


def nesting(condition: Condition) -> int:
    """Return how deeply parentheses nest when the condition is printed."""
    match condition:
        case AllOf(parts):
            return max((nesting(part) + isinstance(part, AnyOf) for part in parts), default=0)
        case AnyOf(parts):
            return max(nesting(part) for part in parts)
        case _:
            return 0


def elements_in(rule: "Rule") -> int:
    """Return the number of conditions and actions in a rule."""
    return sum(
        len(branch.actions) + sum(1 for _ in calls_in(branch.condition))
        for branch in (*rule.branches, *rule.on_exception)
    )


def _flat(conditions: Iterable[Condition], kind: type[AllOf] | type[AnyOf]) -> tuple[Condition, ...]:
    parts: list[Condition] = []
    for condition in conditions:
        parts.extend(condition.parts if isinstance(condition, kind) else [condition])
    return tuple(parts)


def read_number(written: str) -> int | float:
    """Parse a 64-bit integer or a finite float; raise a `ValueError` that says why the text is none."""
    digits = written.lstrip("+-")
    if digits.isdigit():
        number = int(written) if len(digits) < 25 else MAX_INTEGER + 1
        if not MIN_INTEGER <= number <= MAX_INTEGER:
            raise ValueError("the integer does not fit into 64 bits; with a decimal point it is a float")
        return number
    value = float(written)
    if not math.isfinite(value):
        raise ValueError("the number is too large for a float")
    return value + 0.0  # turns -0.0 into 0.0, so that equal numbers have the same text


def format_number(value: int | float) -> str:
    """Return a number as text that `read_number` parses to an equal number."""
    return repr(value + 0.0) if isinstance(value, float) else str(value)
