"""Compile actions: each becomes a function that records in a rule's outcome what is to be done.

`without_attributes` is what `RemoveAttributes` does to a subscription or an advertisement. A predicate on a removed
attribute is replaced so that the filter matches more events, never fewer: a policy that hides an attribute in a zone
must not hide the events from subscribers that may see the rest.
"""

from collections.abc import Callable, Collection, Hashable
from typing import Any, TypeAlias

from tidings.model.expression import FALSE, TRUE, And, Attribute, Condition, Constant, Not, Or, all_of, any_of, walk
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Attributes
from tidings.policy import registry
from tidings.policy.ast import ElementCall
from tidings.policy.elements import ActionEffect
from tidings.policy.evaluation import rendering
from tidings.policy.evaluation.evaluation import ElementContext, RuleContext, argument_value

Action: TypeAlias = Callable[[RuleContext], None]
TRACE_ATTRIBUTE = "$trace.{broker}.{what}"
_AUGMENTS: dict[str, tuple[str, Callable[[RuleContext], Any]]] = {
    "AugmentBrokerHostInfo": ("host", lambda rule_context: rule_context.facts.host),
    "AugmentBrokerLoadIndex": ("load", lambda rule_context: rule_context.facts.load),
    "AugmentProcessingTime": ("microseconds", lambda _: 0),  # a placeholder: the driver fills in the time
}


def compile_action(call: ElementCall, place: Hashable) -> Action:
    """Compile an action into a function of the rule context.

    `place` identifies the action in its policy, so that an action with the effect `tells` runs once per message.
    """
    element = registry.find(call.name)
    if element is None:
        return _compile_unknown(call.name)
    action = _compile_built_in(call) if element.function is None else _compile_user_defined(element.function, call)
    return _once_per_message(action, place) if element.effect is ActionEffect.REPORTS else action


def _once_per_message(action: Action, place: Hashable) -> Action:
    """Wrap an action so that it runs once per rule, message and broker, not once per copy."""

    def act_once(rule_context: RuleContext) -> None:
        key = place, rule_context.source.key
        if key not in rule_context.facts.once:
            action(rule_context)
            rule_context.outcome.once.append(key)

    return act_once


def _compile_built_in(call: ElementCall) -> Action:
    match call.name:
        case "TrimAttributes":
            return _trim
        case "RemoveAttributes":
            names = [str(argument.value) for argument in call.arguments if isinstance(argument, Constant)]
            return lambda rule_context: rule_context.outcome.removes.update(names)
        case "KeepOnlyAttributes":
            names = [str(argument.value) for argument in call.arguments if isinstance(argument, Constant)]
            return lambda rule_context: rule_context.outcome.keep_only(names)
        case "AppendPrevHop":
            return lambda rule_context: rule_context.outcome.added.append(("PrevHop", rule_context.facts.sender))
        case "ToXML":
            return lambda rule_context: rule_context.outcome.conversions.append(rendering.xml)
        case "ToJSON":
            return lambda rule_context: rule_context.outcome.conversions.append(rendering.json)
        case "BlockMessage":
            return _block
        case "UninsertMessage":
            return _uninsert
        case "FloodMessage":
            return _flood
        case "ForwardTo":
            return lambda rule_context: rule_context.outcome.forwards_to.extend(
                str(argument_value(argument, rule_context)) for argument in call.arguments
            )
        case "Publish":
            return lambda rule_context: rule_context.outcome.publishes.append(_event_attributes(call, rule_context))
        case "Log":
            return lambda rule_context: rule_context.outcome.logs.append(_log_line(call, rule_context))
        case "Persist":
            stores = call.arguments or (Constant("messages"),)
            return lambda rule_context: rule_context.outcome.persist(str(argument_value(stores[0], rule_context)))
    return _compile_augment(call) if call.name in _AUGMENTS else _compile_unknown(call.name)


def _trim(rule_context: RuleContext) -> None:
    """Trim to the attributes in the filter of the rule's source.

    A rule that is attached to the message has no filter; it trims nothing instead of everything.
    """
    if rule_context.source.kind != "message":
        rule_context.outcome.trims = True


def _block(rule_context: RuleContext) -> None:
    rule_context.outcome.blocks = True


def _flood(rule_context: RuleContext) -> None:
    rule_context.outcome.floods = True


def _uninsert(rule_context: RuleContext) -> None:
    rule_context.outcome.uninserts = True


def _compile_augment(call: ElementCall) -> Action:
    field, measure = _AUGMENTS[call.name]
    as_attributes = call.arguments == (Constant("attributes"),)

    def add(rule_context: RuleContext) -> None:
        if as_attributes:
            name = TRACE_ATTRIBUTE.format(broker=rule_context.broker, what=field)
            rule_context.outcome.added.append((name, measure(rule_context)))
        else:
            rule_context.outcome.trace[field] = measure(rule_context)

    return add


def _event_attributes(call: ElementCall, rule_context: RuleContext) -> Attributes:
    attributes = argument_value(call.arguments[0], rule_context)
    return Attributes(
        {name: _shorten(value) if isinstance(value, str) else value for name, value in attributes.items()}
    )


def _log_line(call: ElementCall, rule_context: RuleContext) -> str:
    values = [str(argument_value(argument, rule_context)) for argument in call.arguments]
    return " ".join(values) if values else rule_context.message


def _shorten(text: str) -> str:
    """Return the text, shortened to the size limit of an attribute value."""
    return text if len(text) <= MAX_STRING_CHARACTERS else text[: MAX_STRING_CHARACTERS - 3] + "..."


def _compile_unknown(name: str) -> Action:
    def refuse(_: RuleContext) -> None:
        raise LookupError(f"this process knows no action {name}; register it before the policy is used")

    return refuse


def _compile_user_defined(function: Callable[..., Any], call: ElementCall) -> Action:
    return lambda rule_context: function(
        ElementContext(rule_context), *(argument_value(argument, rule_context) for argument in call.arguments)
    )


def without_attributes(content: FilterValue, removed: Collection[str]) -> FilterValue:
    """Return the filter without the predicates on these attributes; the same object if it has no such predicates."""
    if not content.names.intersection(removed):
        return content
    return type(content)(_widened(content.expression, removed, positive=True))


def _widened(condition: Condition, removed: Collection[str], *, positive: bool) -> Condition:
    """Return a condition that is true wherever `condition` is; with `positive=False` (below a NOT), nowhere else."""
    everything, nothing = (TRUE, FALSE) if positive else (FALSE, TRUE)
    match condition:
        case And(parts) | Or(parts):
            wider = [_widened(part, removed, positive=positive) for part in parts]
            is_and = isinstance(condition, And)
            absorbing, idle = (FALSE, TRUE) if is_and else (TRUE, FALSE)
            if absorbing in wider:
                return absorbing
            kept = [part for part in wider if part != idle]
            return all_of(kept) if is_and else any_of(kept)
        case Not(part):
            inner = _widened(part, removed, positive=not positive)
            return nothing if inner == everything else everything if inner == nothing else Not(inner)
        case _:
            speaks = any(isinstance(node, Attribute) and node.name in removed for node in walk(condition))
            return everything if speaks else condition
