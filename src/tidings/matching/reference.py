"""The naive evaluator of filters: the specification of their meaning in code.

It is written to be read, not to be fast; tests compare every faster matcher with it. `truth` returns True, False or
None (unknown), as in SQL: a missing attribute is NULL, a comparison with NULL or between kinds that do not compare is
unknown, and a filter matches only where it is true. `explain_match` names the first step that rejected an event.
"""

import math
import operator as op
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

from tidings.matching.payloads import found_by_xpath, text_of
from tidings.model import patterns
from tidings.model.event import Event
from tidings.model.expression import (
    PAYLOAD,
    PUBLISHER,
    SUBJECT,
    TRUE,
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    OwnContextValue,
    Rlike,
    Topic,
    ValueExpression,
    XPath,
    walk,
)
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.limits import MAX_INTEGER, MIN_INTEGER
from tidings.model.patterns import Elements, Wildcard
from tidings.model.printer import format_expression
from tidings.model.subscription import Subscription
from tidings.model.values import Context, Value

EARTH_RADIUS_METRES = 6_371_008.8  # the mean radius of the WGS-84 ellipsoid


class Scope(NamedTuple):
    """The values that a filter is evaluated on: one event, or the contexts of two parties."""

    attributes: Mapping[str, Value] = {}  # of the event, or the other party's context
    own: Mapping[str, Value] = {}  # the values behind `this.`
    subject: str | None = None
    payload: bytes | None = None
    publisher: str | None = None


def due(subscription: Subscription, event: Event, subscriber_context: Context) -> bool:
    """Return whether a notification of the event is due to the subscription, given the subscriber's current context."""
    return (
        passes_subject(subscription, event.subject)
        and passes_structure(subscription, event.subject, event.attributes)
        and matches(subscription.content, event)
        and matches_context(subscription.publishers, event.context, subscriber_context)
        and matches_context(event.subscribers, subscriber_context, event.context)
    )


def passes_subject(subscription: Subscription, subject: str | None) -> bool:
    """Return whether the subscription asks for no subject, or for this one."""
    return subscription.subject is None or subscription.subject == subject


def passes_structure(subscription: Subscription, subject: str | None, attributes: Mapping[str, Value]) -> bool:
    """Return whether the event passes the subscription's attribute filter, if it has one.

    The filter only passes events with the subject of its schema.
    """
    structure = subscription.structure
    return structure is None or (structure.schema.subject == subject and structure.passes(attributes))


def matches(content: FilterValue, event: Event) -> bool:
    """Return whether the content filter is true on the event."""
    scope = Scope(event.attributes, {}, event.subject, event.payload, event.publisher)
    return truth(content.expression, scope) is True


def matches_context(
    context_filter: ContextFilterValue | None, other: Mapping[str, Value], own: Mapping[str, Value]
) -> bool:
    """Return whether a context filter is true on the other party's context; True if there is no filter.

    `this.` in the filter refers to `own`, the context of the party that stated the filter.
    """
    return context_filter is None or truth(context_filter.expression, Scope(other, own)) is True


def strictly_matches(content: FilterValue, scope: Scope) -> bool:
    """Return whether the filter is true and the attributes present are exactly those that it names."""
    return truth(content.expression, scope) is True and content.names == scope.attributes.keys()


def truth(condition: Condition, scope: Scope) -> bool | None:
    """Return the truth of a condition: True, False, or None for unknown.

    Raises `TypeError` for an expression that is a value, not a condition.
    """
    match condition:
        case Constant(bool() | None as constant):
            return constant
        case And(parts):
            truths = [truth(part, scope) for part in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [truth(part, scope) for part in parts]
            return True if True in truths else None if None in truths else False
        case Not(part):
            inner = truth(part, scope)
            return None if inner is None else not inner
        case Comparison(left, operator, right):
            return compare(value(left, scope), operator, value(right, scope))
        case Between(middle, low, high):
            return truth(And((Comparison(middle, ">=", low), Comparison(middle, "<=", high))), scope)
        case In(operand, options):
            return truth(Or(tuple(Comparison(operand, "=", option) for option in options)), scope)
        case IsNull(operand):
            return value(operand, scope) is None
        case Like(operand, pattern):
            text = value(operand, scope)
            return like(text, patterns.parse_like(pattern)) if isinstance(text, str) else None
        case Rlike(operand, pattern):
            text = value(operand, scope)
            return patterns.compile_regex(pattern).search(text) is not None if isinstance(text, str) else None
        case Topic(pattern):
            subject = scope.subject
            return None if subject is None else any(like(subject, levels) for levels in patterns.parse_topic(pattern))
        case XPath(path):
            return None if scope.payload is None else found_by_xpath(path, scope.payload)
        case _:
            raise TypeError(f"{condition!r} is a value, not a condition")


def value(expression: ValueExpression, scope: Scope) -> Value | None:
    """Return the value of an expression, or None for NULL."""
    match expression:
        case Constant(constant):
            return constant
        case Attribute(name):
            return system_value(name, scope) if name.startswith("$") else scope.attributes.get(name)
        case OwnContextValue(name):
            return scope.own.get(name)
        case Negative(operand):
            return calculate(0, "-", value(operand, scope))
        case Arithmetic(left, operator, right):
            return calculate(value(left, scope), operator, value(right, scope))
        case Call(function, arguments):
            numbers = [value(argument, scope) for argument in arguments]
            return {"distance": distance, "geo_distance": geo_distance}[function](*numbers)


def system_value(name: str, scope: Scope) -> Value | None:
    """Return the value of `$subject`, `$publisher` or `$payload`; a payload that is not text is None."""
    return {SUBJECT: scope.subject, PUBLISHER: scope.publisher, PAYLOAD: text_of(scope.payload)}[name]


def compare(left: Value | None, operator: str, right: Value | None) -> bool | None:
    """Compare two values by a SQL operator; None if either is NULL or their kinds do not compare by it.

    Numbers compare exactly across int and float, as in Python; strings by code point; booleans only by `=` and `!=`.
    """
    comparable = (
        (is_number(left) and is_number(right))
        or (isinstance(left, str) and isinstance(right, str))
        or (isinstance(left, bool) and isinstance(right, bool) and operator in ("=", "!="))
    )
    return bool(COMPARISONS[operator](left, right)) if comparable else None


def calculate(left: Value | None, operator: str, right: Value | None) -> int | float | None:
    """Apply an arithmetic operator to two values.

    Two ints give an int, except by `/`; any other pair of numbers is calculated in IEEE doubles. The result is None
    (NULL) for an operand that is not a number, a division by zero, an int beyond 64 bits or a float that is not finite.
    """
    if not (is_number(left) and is_number(right)):
        return None
    if operator in ("/", "%") and right == 0:
        return None
    if operator == "/" or isinstance(left, float) or isinstance(right, float):
        return _fitting(FLOAT_ARITHMETIC[operator](float(left), float(right)))
    return _fitting(INT_ARITHMETIC[operator](left, right))


def remainder(left: int, right: int) -> int:
    """Return the integer remainder with the sign of the dividend."""
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}
INT_ARITHMETIC = {"+": op.add, "-": op.sub, "*": op.mul, "%": remainder}
FLOAT_ARITHMETIC = {"+": op.add, "-": op.sub, "*": op.mul, "/": op.truediv, "%": math.fmod}


def distance(x1: Value | None, y1: Value | None, x2: Value | None, y2: Value | None) -> float | None:
    """Return the distance of two points in the plane; None if a coordinate is not a number or the result is not finite.

    The result is calculated with plain operations, not `hypot`, so that every engine gives the same last bit.

    Args:
        x1: The first point's x.
        y1: The first point's y.
        x2: The second point's x.
        y2: The second point's y.
    """
    if not (is_number(x1) and is_number(y1) and is_number(x2) and is_number(y2)):
        return None
    dx, dy = float(x2) - float(x1), float(y2) - float(y1)
    length = math.sqrt(dx * dx + dy * dy)
    return length if math.isfinite(length) else None


def geo_distance(lat1: Value | None, lon1: Value | None, lat2: Value | None, lon2: Value | None) -> float | None:
    """Return the distance of two points along the sphere in metres (haversine).

    The result is None if a coordinate is not a number, a latitude lies beyond a pole, or the longitudes differ by more
    than a float can hold.

    Args:
        lat1: The first point's latitude in degrees.
        lon1: The first point's longitude in degrees.
        lat2: The second point's latitude in degrees.
        lon2: The second point's longitude in degrees.
    """
    if not (is_number(lat1) and is_number(lon1) and is_number(lat2) and is_number(lon2)):
        return None
    half_turn = math.radians(float(lon2) - float(lon1)) / 2
    if abs(lat1) > 90 or abs(lat2) > 90 or not math.isfinite(half_turn):
        return None
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    h = math.sin((phi2 - phi1) / 2) ** 2 + math.cos(phi1) * math.cos(phi2) * math.sin(half_turn) ** 2
    return 2 * EARTH_RADIUS_METRES * math.asin(min(1.0, math.sqrt(h)))


def like(text: str, elements: Elements) -> bool:
    """Return whether the elements of a pattern describe the whole text."""
    if Wildcard.LEVEL in elements:
        return _like_levels(text, elements)
    first, *others = _pieces(elements)
    if not others:
        return len(text) == len(first) and _fits(text, first, 0)
    *inner, last = others
    at, end = len(first), len(text) - len(last)
    if at > end or not _fits(text, first, 0) or not _fits(text, last, end):
        return False
    for piece in inner:  # the earliest match of each leaves the most text for the later ones
        at = _find_piece(text, piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _pieces(elements: Elements) -> list[Elements]:
    """Return the parts of a LIKE pattern between its `%` wildcards."""
    ends = [place for place, element in enumerate(elements) if element is Wildcard.RUN]
    return [elements[begin + 1 : end] for begin, end in zip([-1, *ends], [*ends, len(elements)], strict=True)]


def _fits(text: str, piece: Elements, at: int) -> bool:
    return all(element is Wildcard.ANY or element == text[at + i] for i, element in enumerate(piece))


def _find_piece(text: str, piece: Elements, start: int, end: int) -> int:
    if Wildcard.ANY not in piece:
        return text.find("".join(str(element) for element in piece), start, end)
    match = patterns.compile_piece(piece).search(text, start, end)
    return -1 if match is None else int(match.start())


def _like_levels(text: str, elements: Elements) -> bool:
    """Match a pattern with single-level wildcards, which end at a slash.

    It follows every way to match at once: `ends` are the places in the text that the elements so far may reach.
    """
    ends = {0}
    for element in elements:
        if element is Wildcard.RUN:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        elif element is Wildcard.LEVEL:
            ends = {later for end in ends for later in range(end, _end_of_level(text, end) + 1)}
        else:
            ends = {end + 1 for end in ends if end < len(text) and element in (Wildcard.ANY, text[end])}
    return len(text) in ends


def _end_of_level(text: str, start: int) -> int:
    slash = text.find("/", start)
    return len(text) if slash < 0 else slash


def is_number(number: object) -> TypeGuard[int | float]:
    """Return whether a value is an int or a float, and not a bool."""
    return isinstance(number, int | float) and not isinstance(number, bool)


def _fitting(result: int | float) -> int | float | None:
    if isinstance(result, int):
        return result if MIN_INTEGER <= result <= MAX_INTEGER else None
    return result if math.isfinite(result) else None


_TRUTHS = {True: "true", False: "false", None: "unknown"}


class MatchExplanation(NamedTuple):
    """Whether an event matches a subscription, and the step that decided it."""

    matches: bool
    step: str  # subject, structure, content, publishers or subscribers; "all" if every step passed
    reason: str


def explain_match(
    subscription: Subscription,
    scope: Scope,
    publisher: Context,
    subscriber: Context,
    subscribers: ContextFilterValue | None,
) -> MatchExplanation:
    """Evaluate a subscription on an event step by step and explain the first step that does not pass.

    Args:
        subscription: The subscription.
        scope: The event's attributes, subject, payload and publisher.
        publisher: The publisher's context.
        subscriber: The subscriber's context.
        subscribers: The event's own filter over the subscriber's context, if it has one.
    """
    if not passes_subject(subscription, scope.subject):
        return MatchExplanation(False, "subject", f"the subject is {scope.subject!r}, not {subscription.subject!r}")
    structure = subscription.structure
    if structure is not None:
        if structure.schema.subject != scope.subject:
            return MatchExplanation(
                False, "structure", f"the subject is {scope.subject!r}, not {structure.schema.subject!r}"
            )
        if not structure.passes(scope.attributes):
            lacking = [name for name in sorted(structure.names) if name not in scope.attributes]
            reason = f"{lacking[0]} is missing" if lacking else f"one of {', '.join(sorted(structure.absent))} is there"
            return MatchExplanation(False, "structure", reason)
    for step, condition, step_scope in (
        ("content", subscription.content.expression, scope),
        ("publishers", _expression(subscription.publishers), Scope(publisher, subscriber)),
        ("subscribers", _expression(subscribers), Scope(subscriber, publisher)),
    ):
        if truth(condition, step_scope) is not True:
            return MatchExplanation(False, step, _why(condition, step_scope))
    return MatchExplanation(True, "all", "every step was passed")


def _expression(context_filter: ContextFilterValue | None) -> Condition:
    return TRUE if context_filter is None else context_filter.expression


def _why(condition: Condition, scope: Scope) -> str:
    """Describe the first part of the condition that is not true, with the values that it was evaluated on."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    part = next(part for part in parts if truth(part, scope) is not True)
    names = dict.fromkeys(node for node in walk(part) if isinstance(node, Attribute | OwnContextValue))
    values = ", ".join(f"{format_expression(node)} is {_shown(value(node, scope))}" for node in names)
    return f"{format_expression(part)} is {_TRUTHS[truth(part, scope)]}" + (f": {values}" if values else "")


def _shown(shown_value: object) -> str:
    text = "missing" if shown_value is None else repr(shown_value)
    return text if len(text) <= 60 else text[:57] + "..."
