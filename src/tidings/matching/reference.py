"""What filters mean: the naive evaluator, the specification in code.

Nothing here is fast and nothing is clever; every faster matcher is held to it. `truth` gives True, False or None
(unknown), as in SQL: a missing attribute is NULL, a comparison with NULL or between kinds that do not compare is
unknown, and a filter matches only where it is true.
"""

import math
import operator as op
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

from tidings.matching.documents import found_by_xpath, text_of
from tidings.model import patterns
from tidings.model.event import Event
from tidings.model.expression import (
    PAYLOAD,
    PUBLISHER,
    SUBJECT,
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
    Own,
    Rlike,
    Topic,
    ValueExpression,
    XPath,
)
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import MAX_INTEGER, MIN_INTEGER
from tidings.model.patterns import Elements, Wild
from tidings.model.subscription import Subscription
from tidings.model.values import Context, Value

EARTH_RADIUS_METRES = 6_371_008.8  # the mean radius of the WGS-84 ellipsoid


class Scope(NamedTuple):
    """What a filter may look at."""

    attributes: Mapping[str, Value] = {}  # of the event, or the other party's context
    own: Mapping[str, Value] = {}  # `this.`
    subject: str | None = None
    payload: bytes | None = None
    publisher: str | None = None


def due(subscription: Subscription, event: Event, subscriber_context: Context) -> bool:
    """Whether the event is due to the subscription, given the subscriber's context now."""
    return (
        passes_subject(subscription, event.subject)
        and passes_structure(subscription, event.subject, event.attributes)
        and matches(subscription.content, event)
        and matches_context(subscription.publishers, event.context, subscriber_context)
        and matches_context(event.subscribers, subscriber_context, event.context)
    )


def passes_subject(subscription: Subscription, subject: str | None) -> bool:
    return subscription.subject is None or subscription.subject == subject


def passes_structure(subscription: Subscription, subject: str | None, attributes: Mapping[str, Value]) -> bool:
    structure = subscription.structure
    return structure is None or (structure.schema.subject == subject and structure.passes(attributes))


def matches(content: Filter, event: Event) -> bool:
    scope = Scope(event.attributes, {}, event.subject, event.payload, event.publisher)
    return truth(content.expression, scope) is True


def matches_context(wanted: ContextFilter | None, other: Mapping[str, Value], own: Mapping[str, Value]) -> bool:
    """A context filter on the other party's context, with one's own behind `this.`; no filter means everyone."""
    return wanted is None or truth(wanted.expression, Scope(other, own)) is True


def strictly_matches(content: Filter, scope: Scope) -> bool:
    """It is true, and the attributes are exactly those that the filter speaks of."""
    return truth(content.expression, scope) is True and content.names == scope.attributes.keys()


def truth(condition: Condition, scope: Scope) -> bool | None:
    match condition:
        case Constant(bool() | None as known):
            return known
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
        case In(one, options):
            return truth(Or(tuple(Comparison(one, "=", option) for option in options)), scope)
        case IsNull(one):
            return value(one, scope) is None
        case Like(one, pattern):
            text = value(one, scope)
            return like(text, patterns.like(pattern)) if isinstance(text, str) else None
        case Rlike(one, pattern):
            text = value(one, scope)
            return patterns.regex(pattern).search(text) is not None if isinstance(text, str) else None
        case Topic(pattern):
            subject = scope.subject
            return None if subject is None else any(like(subject, levels) for levels in patterns.topic(pattern))
        case XPath(path):
            return None if scope.payload is None else found_by_xpath(path, scope.payload)
        case _:
            raise TypeError(f"{condition!r} is a value, not a condition")


def value(expression: ValueExpression, scope: Scope) -> Value | None:
    match expression:
        case Constant(known):
            return known
        case Attribute(name):
            return system_value(name, scope) if name.startswith("$") else scope.attributes.get(name)
        case Own(name):
            return scope.own.get(name)
        case Negative(operand):
            return calculate(0, "-", value(operand, scope))
        case Arithmetic(left, operator, right):
            return calculate(value(left, scope), operator, value(right, scope))
        case Call(function, arguments):
            numbers = [value(one, scope) for one in arguments]
            return {"distance": distance, "geo_distance": geo_distance}[function](*numbers)


def system_value(name: str, scope: Scope) -> Value | None:
    return {SUBJECT: scope.subject, PUBLISHER: scope.publisher, PAYLOAD: text_of(scope.payload)}[name]


def compare(left: Value | None, operator: str, right: Value | None) -> bool | None:
    """Exact across int and float (Python's own comparison is); strings by code point; booleans only equal or not."""
    comparable = (
        (is_number(left) and is_number(right))
        or (isinstance(left, str) and isinstance(right, str))
        or (isinstance(left, bool) and isinstance(right, bool) and operator in ("=", "!="))
    )
    return bool(COMPARISONS[operator](left, right)) if comparable else None


def calculate(left: Value | None, operator: str, right: Value | None) -> int | float | None:
    """Two ints give an int, except by `/`; anything else is IEEE double arithmetic. What does not fit is NULL."""
    if not (is_number(left) and is_number(right)):
        return None
    if operator in ("/", "%") and right == 0:
        return None
    if operator == "/" or isinstance(left, float) or isinstance(right, float):
        return _fitting(FLOAT_ARITHMETIC[operator](float(left), float(right)))
    return _fitting(INT_ARITHMETIC[operator](left, right))


def remainder(left: int, right: int) -> int:
    """With the sign of the dividend."""
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
    """In the plane. Plain operations, not `hypot`, so that every engine gives the same last bit."""
    if not (is_number(x1) and is_number(y1) and is_number(x2) and is_number(y2)):
        return None
    dx, dy = float(x2) - float(x1), float(y2) - float(y1)
    length = math.sqrt(dx * dx + dy * dy)
    return length if math.isfinite(length) else None


def geo_distance(lat1: Value | None, lon1: Value | None, lat2: Value | None, lon2: Value | None) -> float | None:
    """Metres along the sphere (haversine). A latitude beyond the poles is NULL."""
    if not (is_number(lat1) and is_number(lon1) and is_number(lat2) and is_number(lon2)):
        return None
    half_turn = math.radians(float(lon2) - float(lon1)) / 2
    if abs(lat1) > 90 or abs(lat2) > 90 or not math.isfinite(half_turn):
        return None
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    h = math.sin((phi2 - phi1) / 2) ** 2 + math.cos(phi1) * math.cos(phi2) * math.sin(half_turn) ** 2
    return 2 * EARTH_RADIUS_METRES * math.asin(min(1.0, math.sqrt(h)))


def like(text: str, elements: Elements) -> bool:
    """Whether the whole text is what the elements describe."""
    if Wild.LEVEL in elements:
        return _like_levels(text, elements)
    first, *others = _pieces(elements)
    if not others:
        return len(text) == len(first) and _fits(text, first, 0)
    *inner, last = others
    at, end = len(first), len(text) - len(last)
    if at > end or not _fits(text, first, 0) or not _fits(text, last, end):
        return False
    for piece in inner:  # each as early as it can be: what comes later then has the most room
        at = _found(text, piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _pieces(elements: Elements) -> list[Elements]:
    """What stands between runs."""
    ends = [place for place, element in enumerate(elements) if element is Wild.RUN]
    return [elements[begin + 1 : end] for begin, end in zip([-1, *ends], [*ends, len(elements)], strict=True)]


def _fits(text: str, piece: Elements, at: int) -> bool:
    return all(element is Wild.ANY or element == text[at + i] for i, element in enumerate(piece))


def _found(text: str, piece: Elements, start: int, end: int) -> int:
    if Wild.ANY not in piece:
        return text.find("".join(str(element) for element in piece), start, end)
    found = patterns.piece(piece).search(text, start, end)
    return -1 if found is None else int(found.start())


def _like_levels(text: str, elements: Elements) -> bool:
    """The same for topics: every way is tried, remembering how much of the text may be used up."""
    ends = {0}
    for element in elements:
        if element is Wild.RUN:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        elif element is Wild.LEVEL:
            ends = {later for end in ends for later in range(end, _end_of_level(text, end) + 1)}
        else:
            ends = {end + 1 for end in ends if end < len(text) and element in (Wild.ANY, text[end])}
    return len(text) in ends


def _end_of_level(text: str, start: int) -> int:
    slash = text.find("/", start)
    return len(text) if slash < 0 else slash


def is_number(one: object) -> TypeGuard[int | float]:
    return isinstance(one, int | float) and not isinstance(one, bool)


def _fitting(result: int | float) -> int | float | None:
    if isinstance(result, int):
        return result if MIN_INTEGER <= result <= MAX_INTEGER else None
    return result if math.isfinite(result) else None
