"""Decisions of policy rules about one copy of a message, and how several decisions are combined.

The outcome does not depend on the order in which rules were set: blocks come first, then removals, additions and
conversions; within each, the rules of the message, of advertisements and of subscriptions, by their ids.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidings.engine.headers import PLAIN, CopyChanges
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.rule_index import Conflict
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event, checked_payload
from tidings.model.limits import MAX_COMPARED_RULES
from tidings.model.notification import Trace
from tidings.model.values import Attributes, Value
from tidings.policy.ast import Point
from tidings.policy.evaluation.compiled import CompiledRule
from tidings.policy.evaluation.evaluation import Conversion, OutgoingPublication, RuleContext, RuleOutcome, RuleSource


class Decision(NamedTuple):
    """What a rule of that source wants done with a copy."""

    rule: CompiledRule
    source: RuleSource
    outcome: RuleOutcome

    def __str__(self) -> str:
        return f"rule {self.rule.number} of {self.source}"


def decide(rulings: Iterable[Ruling], rule_context: RuleContext, points: frozenset[Point]) -> list[Decision]:
    """Apply the rules whose points include one of the copy's points. Raises nothing but `TrustAnswerNeeded`."""
    decisions = []
    for rule, source in rulings:
        if not rule.rule.points.isdisjoint(points):
            rule_context.source = source
            outcome = rule.apply(rule_context)
            if outcome is not None:
                decisions.append(Decision(rule, source, outcome))
    return decisions


def blocking(decisions: Iterable[Decision]) -> Decision | None:
    """Return the first decision that blocks the copy; None if none does."""
    return next((decision for decision in decisions if decision.outcome.blocks), None)


def removed_attributes(attributes: Attributes, decisions: list[Decision]) -> frozenset[str]:
    """Return which of the event's attributes the decisions remove."""
    removed: set[str] = set()
    for _, source, outcome in decisions:
        removed |= outcome.removes
        if outcome.keeps is not None:
            removed.update(name for name in attributes if name not in outcome.keeps)
        if outcome.trims:
            removed.update(name for name in attributes if name not in source.names)
    return frozenset(removed & attributes.keys())


def apply_decisions(
    event: Event,
    before: CopyChanges,
    decisions: list[Decision],
    rule_context: RuleContext,
    trimmed_to: frozenset[str] = frozenset(),
) -> tuple[CopyChanges, list[Decision]]:
    """Add decisions to the changes of a copy; return the changes, and what the failure of a conversion led to.

    Attributes that rules of earlier brokers added are not trimmed; they are removed only by name.

    Args:
        event: The event as it was matched.
        before: The changes that earlier brokers decided.
        decisions: The decisions to apply.
        rule_context: The facts about the message and the receiver.
        trimmed_to: The attributes that a TrimAttributes of a subscription keeps.
    """
    attributes = event.attributes
    removed = set(before.removed)
    removed_by_name: set[str] = set()
    added = dict(before.added)
    trace: dict[str, object] = {}
    for _, source, outcome in decisions:
        removed_by_name |= outcome.removes
        if outcome.keeps is not None:
            removed.update(name for name in attributes if name not in outcome.keeps)
        if outcome.trims:
            names = trimmed_to if source.kind == "subscription" else source.names
            removed.update(name for name in attributes if name not in names)
    added = {name: value for name, value in added.items() if name not in removed_by_name}
    removed |= removed_by_name & attributes.keys()
    for _, _, outcome in decisions:
        added.update(outcome.added)
        trace |= outcome.trace
    hops = before.trace
    if trace:
        hops = (*hops, Trace(rule_context.broker, **trace))  # type: ignore[arg-type]
    changes = CopyChanges(False, frozenset(removed), tuple(added.items()), hops, before.payload)
    if before.payload is not None or event.signature is not None:  # a sealed payload is never converted
        return changes, []
    return _run_conversions(event, before, changes, decisions, rule_context, trimmed_to)


def _run_conversions(
    event: Event,
    before: CopyChanges,
    changes: CopyChanges,
    decisions: list[Decision],
    rule_context: RuleContext,
    trimmed_to: frozenset[str],
) -> tuple[CopyChanges, list[Decision]]:
    """Run the first conversion on the changed publication. A conversion that fails runs its rule's OnException."""
    for decision in decisions:
        for conversion in decision.outcome.conversions:
            outgoing = OutgoingPublication(
                final_attributes(event, changes), event.payload, event.subject, event.publisher, changes.trace
            )
            try:
                payload = _checked_bytes(conversion, outgoing)
            except Exception as error:  # whatever a conversion raises
                rule_context.source = decision.source
                handled = decision._replace(
                    outcome=decision.rule.handle_conversion_error(rule_context, error, decision.outcome.handled_error)
                )
                if handled.outcome.blocks:
                    return changes, [handled]
                # The actions of OnException replace those of the rule.
                again = [handled if other_decision is decision else other_decision for other_decision in decisions]
                last, failures = apply_decisions(event, before, again, rule_context, trimmed_to)
                return last, [handled, *failures]
            return CopyChanges(changes.blocked, changes.removed, changes.added, changes.trace, payload), []
    return changes, []


def _checked_bytes(conversion: Conversion, outgoing: OutgoingPublication) -> bytes:
    """Run a conversion and check its result, which becomes the payload."""
    payload = checked_payload(conversion(outgoing))
    if payload is None:
        raise InvalidValueError("a conversion gives bytes, not None")
    return payload


def final_attributes(event: Event, changes: CopyChanges) -> Attributes:
    """Return an event's attributes after removals and additions."""
    if not changes.removed and not changes.added:
        return event.attributes
    kept: dict[str, Value] = {name: value for name, value in event.attributes.items() if name not in changes.removed}
    kept.update(changes.added)
    return Attributes.trusted(kept)


def merge_changes(one: CopyChanges, other: CopyChanges) -> CopyChanges:
    """Return the changes of both, applied in this order."""
    if other is PLAIN:
        return one
    if one is PLAIN:
        return other
    return CopyChanges(
        one.blocked or other.blocked,
        one.removed | other.removed,
        (*one.added, *other.added),
        (*one.trace, *other.trace),
        one.payload if one.payload is not None else other.payload,
    )


def conflicts(common: list[Decision], own: list[Decision]) -> list[Conflict]:
    """Return the pairs of decisions that cannot both be obeyed.

    With an empty `own`, these are pairs among `common`, the decisions for every copy. Otherwise they are pairs in which
    at least one decision is of `own`, the decisions of one subscription.
    """
    common, own = common[:MAX_COMPARED_RULES], own[:MAX_COMPARED_RULES]
    if own:
        pairs = [(decision, other) for decision in common for other in own]
        pairs += [(decision, other) for place, decision in enumerate(own) for other in own[place + 1 :]]
    else:
        pairs = [(decision, other) for place, decision in enumerate(common) for other in common[place + 1 :]]
    conflicts_found = []
    for one, other in pairs:
        reason = one.outcome.conflict_with(other.outcome) or other.outcome.conflict_with(one.outcome)
        if reason is not None:
            conflicts_found.append(Conflict(str(one), str(other), reason))
    return conflicts_found
