"""Compile conditions: each becomes a function of the rule context that returns true or false."""

import math
import operator as op
from collections.abc import Callable
from typing import Any, TypeAlias

from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.ast import AllOf, AnyOf, Condition, ElementCall, ElementComparison, MessageType, Values
from tidings.policy.elements import ArgumentKind, Element
from tidings.policy.evaluation.evaluation import ElementContext, RuleContext, argument_value, argument_values

Truth: TypeAlias = Callable[[RuleContext], bool]
Measure: TypeAlias = Callable[[RuleContext], Any]
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}


def compile_condition(condition: Condition) -> Truth | None:
    """Compile a condition into a function; return None for a condition that is always true."""
    match condition:
        case AllOf(()):
            return None
        case AllOf(parts):
            return _all_hold([_compile_part(part) for part in parts])
        case AnyOf(parts):
            return _any_holds([_compile_part(part) for part in parts])
        case ElementComparison(call, operator, value):
            return _compile_comparison(_compile_measure(call), operator, value)
        case ElementCall():
            return _compile_measure(condition)


def _compile_part(condition: Condition) -> Truth:
    return compile_condition(condition) or (lambda _: True)


def _all_hold(parts: list[Truth]) -> Truth:
    def holds(rule_context: RuleContext) -> bool:
        for part in parts:  # noqa: SIM110 - a generator would cost more than most conditions
            if not part(rule_context):
                return False
        return True

    return holds


def _any_holds(parts: list[Truth]) -> Truth:
    def holds(rule_context: RuleContext) -> bool:
        for part in parts:  # noqa: SIM110
            if part(rule_context):
                return True
        return False

    return holds


def _compile_comparison(measure: Measure, operator: str, value: Any) -> Truth:
    if isinstance(value, Values):
        return lambda rule_context: any(
            _are_equal(measure(rule_context), item) for item in argument_values(value, rule_context)
        )
    compare = _COMPARISONS[operator]
    if isinstance(value, Constant):
        constant = value.value
        return lambda rule_context: compare(measure(rule_context), constant)
    return lambda rule_context: compare(measure(rule_context), argument_value(value, rule_context))


def _are_equal(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _compile_measure(call: ElementCall) -> Measure:
    element = registry.find(call.name)
    if element is None:
        return _compile_unknown(call.name)
    if element.function is not None:
        return _compile_user_defined(element, element.function, call)
    match call.name:
        case "AuthenticateReceiver":
            group = call.arguments[0]
            return lambda rule_context: (
                rule_context.receiver is not None
                and rule_context.is_member(rule_context.receiver, str(argument_value(group, rule_context)))
            )
        case "AuthenticateSender":
            group = call.arguments[0]
            return lambda rule_context: rule_context.is_member(
                rule_context.facts.sender, str(argument_value(group, rule_context))
            )
        case "MessageSizeIndex":
            return _measure_size
        case "BrokerLoadIndex":
            return op.attrgetter("facts.load")
        case "StrictMatch":
            return _strictly_matches
    return _compile_unknown(call.name)


def _measure_size(rule_context: RuleContext) -> float:
    """Return the size of the message on a scale from 0 to 1."""
    return rule_context.facts.measure()


def _strictly_matches(rule_context: RuleContext) -> bool:
    """Return whether a publication has exactly the filter's attributes, or a filter message has an equal filter.

    Attributes of the system (`$...`) do not count.
    """
    rule_filter, facts = rule_context.source.filter, rule_context.facts
    if rule_filter is None:
        return False
    if facts.message_type is MessageType.PUBLICATION:
        return rule_filter.names == {name for name in facts.attributes if not name.startswith("$")}
    return rule_context.message == str(rule_filter)


def _compile_unknown(name: str) -> Measure:
    def refuse(_: RuleContext) -> bool:
        raise LookupError(f"this process knows no condition {name}; register it before the policy is used")

    return refuse


def _compile_user_defined(element: Element, function: Callable[..., Any], call: ElementCall) -> Measure:
    """Compile a user-defined condition: called once per message and receiver, and its value checked."""

    def measure(rule_context: RuleContext) -> Any:
        # Rules have different filters, so the filter is a part of the key.
        key = call, rule_context.source.filter if element.needs_filter else None
        if key not in rule_context.values:
            arguments = (argument_value(argument, rule_context) for argument in call.arguments)
            value = function(ElementContext(rule_context), *arguments)
            rule_context.values[key] = _checked_value(value, element.gives, element.name)
        return rule_context.values[key]

    return measure


def _checked_value(value: Any, gives: ArgumentKind | None, name: str) -> Any:
    fits = {
        ArgumentKind.BOOLEAN: isinstance(value, bool),
        ArgumentKind.NUMBER: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
        ArgumentKind.STRING: isinstance(value, str),
        ArgumentKind.VALUE: isinstance(value, bool | int | float | str),
    }
    if not fits.get(gives or ArgumentKind.VALUE, False):
        raise TypeError(f"{name}() gave {value!r:.40}, which is no {gives}")
    return value
