"""Why an event does, or does not, concern a subscription: the first step that stopped it, and what that step saw."""

from typing import NamedTuple

from tidings.matching.reference import Scope, passes_subject, truth, value
from tidings.model.expression import TRUE, And, Attribute, Condition, Own, walk
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.text import written
from tidings.model.values import Context

_TRUTHS = {True: "true", False: "false", None: "unknown"}


class Explanation(NamedTuple):
    matches: bool
    step: str  # subject, structure, content, publishers or subscribers; "all" where nothing stopped it
    reason: str


def explained(
    wanted: Subscription, scope: Scope, publisher: Context, subscriber: Context, subscribers: ContextFilter | None
) -> Explanation:
    if not passes_subject(wanted, scope.subject):
        return Explanation(False, "subject", f"the subject is {scope.subject!r}, not {wanted.subject!r}")
    structure = wanted.structure
    if structure is not None:
        if structure.schema.subject != scope.subject:
            return Explanation(
                False, "structure", f"the subject is {scope.subject!r}, not {structure.schema.subject!r}"
            )
        if not structure.passes(scope.attributes):
            lacking = [name for name in sorted(structure.names) if name not in scope.attributes]
            reason = f"{lacking[0]} is missing" if lacking else f"one of {', '.join(sorted(structure.absent))} is there"
            return Explanation(False, "structure", reason)
    for step, condition, seen in (
        ("content", wanted.content.expression, scope),
        ("publishers", _expression(wanted.publishers), Scope(publisher, subscriber)),
        ("subscribers", _expression(subscribers), Scope(subscriber, publisher)),
    ):
        if truth(condition, seen) is not True:
            return Explanation(False, step, _why(condition, seen))
    return Explanation(True, "all", "every step was passed")


def _expression(asked: ContextFilter | None) -> Condition:
    return TRUE if asked is None else asked.expression


def _why(condition: Condition, scope: Scope) -> str:
    """The first part that is not true, and the values that it saw."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    part = next(one for one in parts if truth(one, scope) is not True)
    names = dict.fromkeys(node for node in walk(part) if isinstance(node, Attribute | Own))
    seen = ", ".join(f"{written(node)} is {_shown(value(node, scope))}" for node in names)
    return f"{written(part)} is {_TRUTHS[truth(part, scope)]}" + (f": {seen}" if seen else "")


def _shown(found: object) -> str:
    text = "missing" if found is None else repr(found)
    return text if len(text) <= 60 else text[:57] + "..."
