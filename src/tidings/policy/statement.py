"""The tree of a policy: rules, their branches, and the conditions, actions and arguments in them.

Nodes are frozen and compare by structure. They hold what was written and know nothing of what it does; `elements`
says which conditions and actions there are, `text` and `xml` how a tree is written.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from tidings.model.expression import Constant


class Operation(StrEnum):
    """What happens to the message: it is sent on, or put into the routing tables."""

    FORWARD = "Forward"
    INSERT = "Insert"


class MessageType(StrEnum):
    ADVERTISEMENT = "Advertisement"
    SUBSCRIPTION = "Subscription"
    PUBLICATION = "Publication"
    UNSUBSCRIPTION = "Unsubscription"
    UNADVERTISEMENT = "Unadvertisement"


class Matching(StrEnum):
    """When a rule is applied, seen from content-based matching."""

    BEFORE = "Before"
    AFTER = "After"


class Point(StrEnum):
    """Where in the overlay a rule is applied: where messages enter it, leave it, or pass from broker to broker."""

    INGRESS = "Ingress"
    EGRESS = "Egress"
    ROUTING = "Routing"


class Attach(StrEnum):
    """Whether a message inherits the rule from the advertisement that it matches."""

    NEVER = "Never"
    ALWAYS = "Always"
    KEEP_EXISTING = "KeepExisting"
    IF_YIELD = "IfYield"


ALL_POINTS = frozenset(Point)
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in"]


class _Node(msgspec.Struct, frozen=True, tag=True):
    """What all nodes share: frozen, hashable, tagged with their class when encoded."""


class Variable(_Node, frozen=True):
    """`$Message` and its like: a string that is known only when the rule is applied. The name is without the `$`."""

    name: str


class Values(_Node, frozen=True):
    """A list, written `[a, b, 3]`."""

    items: tuple["Scalar", ...]


class Publication(_Node, frozen=True):
    """The event that a `Publish` makes: `[class,DropMessage],[message,$Message]`."""

    attributes: tuple[tuple[str, "Scalar"], ...]


Scalar: TypeAlias = Constant | Variable
Argument: TypeAlias = Constant | Variable | Values | Publication


class Call(_Node, frozen=True):
    """One rule element, a condition or an action, with its arguments in order."""

    name: str
    arguments: tuple[Argument, ...] = ()


class Comparison(_Node, frozen=True):
    """The value of a condition held against a constant, a variable or, with `in`, a list."""

    call: Call
    operator: Operator
    value: Constant | Variable | Values


class And(_Node, frozen=True):
    """All parts hold; of no parts it is true, which is how `If {}` reads."""

    parts: tuple["Condition", ...] = ()


class Or(_Node, frozen=True):
    parts: tuple["Condition", ...]


Condition: TypeAlias = Call | Comparison | And | Or
TRUE = And()


class Branch(_Node, frozen=True):
    """`If` or `Elseif`: the actions are executed, in order, if the condition holds and no earlier one did."""

    condition: Condition = TRUE
    actions: tuple[Call, ...] = ()


class Rule(_Node, frozen=True, kw_only=True):
    """One `On(...) {...}` with its qualifiers."""

    operation: Operation
    message: MessageType
    branches: tuple[Branch, ...]
    on_exception: tuple[Branch, ...] = ()
    matching: Matching = Matching.AFTER
    points: frozenset[Point] = ALL_POINTS
    attach: Attach = Attach.NEVER
    yield_attach: bool = False

    @property
    def heading(self) -> str:
        return f"On({self.operation}, {self.message})"


def all_of(conditions: Iterable[Condition]) -> Condition:
    """The conjunction, without an And directly inside of an And; of a single condition it is that condition."""
    parts = _flat(conditions, And)
    return parts[0] if len(parts) == 1 else And(parts)


def any_of(conditions: Iterable[Condition]) -> Condition:
    """The disjunction, without an Or directly inside of an Or; of a single condition it is that condition."""
    parts = _flat(conditions, Or)
    return parts[0] if len(parts) == 1 else Or(parts)


def calls_in(condition: Condition) -> Iterator[Call]:
    """Every element of a condition, from left to right."""
    match condition:
        case Call():
            yield condition
        case Comparison(call):
            yield call
        case And(parts) | Or(parts):
            for part in parts:
                yield from calls_in(part)


def nesting(condition: Condition) -> int:
    """How many parentheses stand inside each other when the condition is written."""
    match condition:
        case And(parts):
            return max((nesting(part) + isinstance(part, Or) for part in parts), default=0)
        case Or(parts):
            return max(nesting(part) for part in parts)
        case _:
            return 0


def elements_in(rule: "Rule") -> int:
    """How many conditions and actions a rule has."""
    return sum(
        len(branch.actions) + sum(1 for _ in calls_in(branch.condition))
        for branch in (*rule.branches, *rule.on_exception)
    )


def _flat(conditions: Iterable[Condition], kind: type[And] | type[Or]) -> tuple[Condition, ...]:
    parts: list[Condition] = []
    for one in conditions:
        parts.extend(one.parts if isinstance(one, kind) else [one])
    return tuple(parts)
