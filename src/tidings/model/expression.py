"""The syntax tree into which every filter language is parsed.

Value expressions are `Constant`, `Attribute`, `OwnContextValue`, `Negative`, `Arithmetic` and `Call`. Conditions are
`Comparison`, `Between`, `In`, `Like`, `Rlike`, `IsNull`, `Topic`, `XPath`, `And`, `Or`, `Not`, and the constants TRUE,
FALSE and NULL. Nodes are frozen and compare by structure. `tidings.matching.reference` defines their meaning;
`tidings.model.printer` writes them as text.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

ComparisonOperator = Literal["=", "!=", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/", "%"]
FunctionName = Literal["distance", "geo_distance"]

SUBJECT, PAYLOAD, PUBLISHER = "$subject", "$payload", "$publisher"
SYSTEM_NAMES = (SUBJECT, PAYLOAD, PUBLISHER)
ARITY: dict[FunctionName, int] = {"distance": 4, "geo_distance": 4}


class _Node(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The base class of all nodes: frozen, hashable, and tagged with the class name when encoded.

    A tree of frozen nodes has no reference cycles, so the garbage collector does not track the millions of nodes.
    """


class Constant(_Node, frozen=True, eq=False):
    """A literal; NULL is `None`. 1, 1.0 and TRUE are three different constants."""

    value: bool | int | float | str | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own `!=` does not call `__eq__`

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Attribute(_Node, frozen=True):
    """An attribute of the event; in a context filter, a value of the other party's context.

    In a subscription's context filter the other party is the publisher; in a publication's it is the subscriber.
    """

    name: str


class OwnContextValue(_Node, frozen=True, tag="Own"):
    """`this.name`: a value of the current context of the client that wrote the filter."""

    name: str


class Negative(_Node, frozen=True):
    """The arithmetic negation of a value."""

    operand: "ValueExpression"


class Arithmetic(_Node, frozen=True):
    """An arithmetic operation on two numbers."""

    left: "ValueExpression"
    operator: ArithmeticOperator
    right: "ValueExpression"


class Call(_Node, frozen=True):
    """A call of a built-in function, such as `distance(x1, y1, x2, y2)`."""

    function: FunctionName
    arguments: tuple["ValueExpression", ...]


class Comparison(_Node, frozen=True):
    """A comparison of two values; it is unknown (NULL) if one is NULL or they are of kinds that do not compare."""

    left: "ValueExpression"
    operator: ComparisonOperator
    right: "ValueExpression"


class Between(_Node, frozen=True):
    """The test that `value` is at least `low` and at most `high`."""

    value: "ValueExpression"
    low: "ValueExpression"
    high: "ValueExpression"


class In(_Node, frozen=True):
    """The test that `value` equals one of the options."""

    value: "ValueExpression"
    options: tuple["ValueExpression", ...]


class Like(_Node, frozen=True):
    r"""A LIKE test: `%` is any run of characters, `_` is one character, `\` makes the next character literal."""

    value: "ValueExpression"
    pattern: str


class Rlike(_Node, frozen=True):
    """An RLIKE test: a pattern in RE2 syntax that may match anywhere in the text."""

    value: "ValueExpression"
    pattern: str


class IsNull(_Node, frozen=True):
    """The test that `value` is NULL, as a missing attribute is."""

    value: "ValueExpression"


class Topic(_Node, frozen=True):
    """A test of the event's subject by levels: `*` is one level, `#` at the end is any number of levels, also none."""

    pattern: str


class XPath(_Node, frozen=True):
    """An XPath test: true if the path finds something in the XML payload."""

    path: str


class And(_Node, frozen=True):
    """A conjunction in three-valued logic."""

    parts: tuple["Condition", ...]


class Or(_Node, frozen=True):
    """A disjunction in three-valued logic."""

    parts: tuple["Condition", ...]


class Not(_Node, frozen=True):
    """A negation in three-valued logic."""

    part: "Condition"


ValueExpression: TypeAlias = Constant | Attribute | OwnContextValue | Negative | Arithmetic | Call
Condition: TypeAlias = Constant | Comparison | Between | In | Like | Rlike | IsNull | Topic | XPath | And | Or | Not
Expression: TypeAlias = ValueExpression | Condition

TRUE, FALSE, NULL = Constant(True), Constant(False), Constant(None)


def all_of(parts: Iterable[Condition]) -> Condition:
    """Return the conjunction of `parts`, flattened: no AND directly below an AND; TRUE if there are no parts."""
    flat = tuple(subpart for part in parts for subpart in (part.parts if isinstance(part, And) else (part,)))
    return TRUE if not flat else flat[0] if len(flat) == 1 else And(flat)


def any_of(parts: Iterable[Condition]) -> Condition:
    """Return the disjunction of `parts`, flattened: no OR directly below an OR; FALSE if there are no parts."""
    flat = tuple(subpart for part in parts for subpart in (part.parts if isinstance(part, Or) else (part,)))
    return FALSE if not flat else flat[0] if len(flat) == 1 else Or(flat)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the direct child nodes of a node, from left to right."""
    match node:
        case Constant() | Attribute() | OwnContextValue() | Topic() | XPath():
            return ()
        case Negative(operand):
            return (operand,)
        case Not(part):
            return (part,)
        case Arithmetic(left, _, right) | Comparison(left, _, right):
            return (left, right)
        case Between(value, low, high):
            return (value, low, high)
        case In(value, options):
            return (value, *options)
        case Like(value, _) | Rlike(value, _) | IsNull(value):
            return (value,)
        case Call(_, arguments):
            return arguments
        case And(parts) | Or(parts):
            return parts


def walk(node: Expression) -> Iterator[Expression]:
    """Yield the node and all nodes below it, parents before children."""
    pending: list[Expression] = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))
