"""What conditions mean: each becomes a function of the situation that is true or false."""

import math
import operator as op
from collections.abc import Callable
from typing import Any, TypeAlias

from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.arguments import resolved, values_of
from tidings.policy.elements import Element, Kind
from tidings.policy.situation import Situation
from tidings.policy.statement import And, Call, Comparison, Condition, MessageType, Or, Values

Truth: TypeAlias = Callable[[Situation], bool]
Measure: TypeAlias = Callable[[Situation], Any]
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}


def evaluated(condition: Condition) -> Truth | None:
    """The condition as a function; None where it is always true."""
    match condition:
        case And(()):
            return None
        case And(parts):
            return _all([_truth(part) for part in parts])
        case Or(parts):
            return _any([_truth(part) for part in parts])
        case Comparison(call, operator, value):
            return _compared(_measured(call), operator, value)
        case Call():
            return _measured(condition)


def _truth(condition: Condition) -> Truth:
    return evaluated(condition) or (lambda _: True)


def _all(parts: list[Truth]) -> Truth:
    def holds(situation: Situation) -> bool:
        for part in parts:  # noqa: SIM110 - a generator would cost more than most conditions
            if not part(situation):
                return False
        return True

    return holds


def _any(parts: list[Truth]) -> Truth:
    def holds(situation: Situation) -> bool:
        for part in parts:  # noqa: SIM110
            if part(situation):
                return True
        return False

    return holds


def _compared(measure: Measure, operator: str, value: Any) -> Truth:
    if isinstance(value, Values):
        return lambda situation: any(_same(measure(situation), one) for one in values_of(value, situation))
    compare = _COMPARISONS[operator]
    if isinstance(value, Constant):
        constant = value.value
        return lambda situation: compare(measure(situation), constant)
    return lambda situation: compare(measure(situation), resolved(value, situation))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _measured(call: Call) -> Measure:
    element = registry.find(call.name)
    if element is None:
        return _missing(call.name)
    if element.function is not None:
        return _own(element, element.function, call)
    match call.name:
        case "AuthenticateReceiver":
            group = call.arguments[0]
            return lambda situation: (
                situation.receiver is not None
                and situation.is_member(situation.receiver, str(resolved(group, situation)))
            )
        case "AuthenticateSender":
            group = call.arguments[0]
            return lambda situation: situation.is_member(situation.sender, str(resolved(group, situation)))
        case "MessageSizeIndex":
            return op.attrgetter("size")
        case "BrokerLoadIndex":
            return op.attrgetter("load")
        case "StrictMatch":
            return _strictly_matches
    return _missing(call.name)


def _strictly_matches(situation: Situation) -> bool:
    """Exactly the attributes of the filter, which matches already; of filters: the same filter."""
    wanted = situation.filter
    if wanted is None:
        return False
    if situation.message_type is MessageType.PUBLICATION:
        return wanted.names == {name for name in situation.attributes if not name.startswith("$")}
    return situation.message == str(wanted)


def _missing(name: str) -> Measure:
    def refuse(_: Situation) -> bool:
        raise LookupError(f"this process knows no condition {name}; register it before the policy is used")

    return refuse


def _own(element: Element, function: Callable[..., Any], call: Call) -> Measure:
    """A condition of one's own: asked once per message and receiver, and held to the kind that it declared."""

    def measure(situation: Situation) -> Any:
        # Its filter may be another one for another rule.
        key = call, situation.filter if element.needs_filter else None
        if key not in situation.values:
            found = function(situation, *(resolved(one, situation) for one in call.arguments))
            situation.values[key] = _checked(found, element.gives, element.name)
        return situation.values[key]

    return measure


def _checked(found: Any, gives: Kind | None, name: str) -> Any:
    fits = {
        Kind.BOOLEAN: isinstance(found, bool),
        Kind.NUMBER: isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found),
        Kind.STRING: isinstance(found, str),
        Kind.VALUE: isinstance(found, bool | int | float | str),
    }
    if not fits.get(gives or Kind.VALUE, False):
        raise TypeError(f"{name}() gave {found!r:.40}, which is no {gives}")
    return found
