"""Explain why an event does, or does not, match a subscription: the first step that rejected it, with the values."""

from typing import NamedTuple

from tidings.matching.reference import Scope, passes_subject, truth, value
from tidings.model.expression import TRUE, And, Attribute, Condition, OwnContextValue, walk
from tidings.model.filter import ContextFilterValue
from tidings.model.printer import format_expression
from tidings.model.subscription import Subscription
from tidings.model.values import Context

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
