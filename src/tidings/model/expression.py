"""The tree that every filter language becomes.

Values: `Constant`, `Attribute`, `Own`, `Negative`, `Arithmetic`, `Call`. Conditions: `Comparison`, `Between`, `In`,
`Like`, `Rlike`, `IsNull`, `Topic`, `XPath`, `And`, `Or`, `Not`, and the constants TRUE, FALSE and NULL. Nodes are
frozen and compare by structure; what they mean is said in `tidings.matching.reference`, how they are written in
`tidings.model.text`.
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
    """What all nodes share: frozen, hashable, tagged with their class when encoded.

    A tree of frozen nodes has no cycles, so the garbage collector need not look at the millions of them.
    """


class Constant(_Node, frozen=True, eq=False):
    """A literal; NULL is `None`. 1, 1.0 and TRUE are three different constants."""

    value: bool | int | float | str | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own `!=` does not ask `__eq__`

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Attribute(_Node, frozen=True):
    """What the other side says: an attribute of the event, or, in a context filter, the other party's context."""

    name: str


class Own(_Node, frozen=True):
    """`this.name`: the current context of whoever wrote the filter."""

    name: str


class Negative(_Node, frozen=True):
    operand: "ValueExpression"


class Arithmetic(_Node, frozen=True):
    left: "ValueExpression"
    operator: ArithmeticOperator
    right: "ValueExpression"


class Call(_Node, frozen=True):
    function: FunctionName
    arguments: tuple["ValueExpression", ...]


class Comparison(_Node, frozen=True):
    left: "ValueExpression"
    operator: ComparisonOperator
    right: "ValueExpression"


class Between(_Node, frozen=True):
    value: "ValueExpression"
    low: "ValueExpression"
    high: "ValueExpression"


class In(_Node, frozen=True):
    value: "ValueExpression"
    options: tuple["ValueExpression", ...]


class Like(_Node, frozen=True):
    """`%` any run of characters, `_` one character, `\\` takes the next one literally."""

    value: "ValueExpression"
    pattern: str


class Rlike(_Node, frozen=True):
    """A pattern in RE2 syntax, found anywhere."""

    value: "ValueExpression"
    pattern: str


class IsNull(_Node, frozen=True):
    value: "ValueExpression"


class Topic(_Node, frozen=True):
    """The subject, level by level: `*` is one level, `#` at the end is the rest, which may be nothing."""

    pattern: str


class XPath(_Node, frozen=True):
    """An XPath that finds something in the XML payload."""

    path: str


class And(_Node, frozen=True):
    parts: tuple["Condition", ...]


class Or(_Node, frozen=True):
    parts: tuple["Condition", ...]


class Not(_Node, frozen=True):
    part: "Condition"


ValueExpression: TypeAlias = Constant | Attribute | Own | Negative | Arithmetic | Call
Condition: TypeAlias = Constant | Comparison | Between | In | Like | Rlike | IsNull | Topic | XPath | And | Or | Not
Expression: TypeAlias = ValueExpression | Condition

TRUE, FALSE, NULL = Constant(True), Constant(False), Constant(None)


def all_of(parts: Iterable[Condition]) -> Condition:
    """The conjunction, without needless layers: no AND directly below an AND."""
    flat = tuple(one for part in parts for one in (part.parts if isinstance(part, And) else (part,)))
    return TRUE if not flat else flat[0] if len(flat) == 1 else And(flat)


def any_of(parts: Iterable[Condition]) -> Condition:
    """The disjunction, without needless layers: no OR directly below an OR."""
    flat = tuple(one for part in parts for one in (part.parts if isinstance(part, Or) else (part,)))
    return FALSE if not flat else flat[0] if len(flat) == 1 else Or(flat)


def children(node: Expression) -> tuple[Expression, ...]:
    match node:
        case Constant() | Attribute() | Own() | Topic() | XPath():
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
    """The node and everything below it, parents first."""
    pending: list[Expression] = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))
