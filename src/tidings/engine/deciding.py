"""What rules decide about a copy of a message, and what becomes of it when several of them do.

Whatever the order in which rules were set: first blocks, then removals, then additions, then conversions; within each
the rules of the message, of advertisements, of subscriptions, by their ids.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidings.engine.journey import PLAIN, Shape
from tidings.engine.ruled import Ruling
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event, checked_payload
from tidings.model.limits import MAX_COMPARED_RULES
from tidings.model.notification import Trace
from tidings.model.values import Attributes, Value
from tidings.policy.application import CompiledRule
from tidings.policy.situation import Conversion, Outcome, Shaped, Situation, Source
from tidings.policy.statement import Point


class Decision(NamedTuple):
    """What a rule, of that source, wants done."""

    rule: CompiledRule
    source: Source
    outcome: Outcome

    def __str__(self) -> str:
        return f"rule {self.rule.number} of {self.source}"


class Conflict(NamedTuple):
    """Two that cannot both have their will, and what was done about it."""

    one: str
    other: str
    reason: str


def decide(rulings: Iterable[Ruling], situation: Situation, points: frozenset[Point]) -> list[Decision]:
    """Applies the rules whose points and the copy's meet. Raises `NeedsAnswer`, and nothing else."""
    decisions = []
    for rule, source in rulings:
        if not rule.rule.points.isdisjoint(points):
            situation.source = source
            outcome = rule.apply(situation)
            if outcome is not None:
                decisions.append(Decision(rule, source, outcome))
    return decisions


def blocking(decisions: Iterable[Decision]) -> Decision | None:
    return next((one for one in decisions if one.outcome.blocks), None)


def taken_away(attributes: Attributes, decisions: list[Decision]) -> frozenset[str]:
    """Which attributes of the event itself the rules take away."""
    gone: set[str] = set()
    for _, source, outcome in decisions:
        gone |= outcome.removes
        if outcome.keeps is not None:
            gone.update(name for name in attributes if name not in outcome.keeps)
        if outcome.trims:
            gone.update(name for name in attributes if name not in source.names)
    return frozenset(gone & attributes.keys())


def shaped(
    event: Event,
    before: Shape,
    decisions: list[Decision],
    situation: Situation,
    trimmed_to: frozenset[str] = frozenset(),
) -> tuple[Shape, list[Decision]]:
    """The shape of a copy, and what the failure of a conversion led to.

    `before` is what earlier brokers decided; what the system added there is not trimmed, only removed by its name.
    """
    attributes = event.attributes
    removed = set(before.removed)
    taken: set[str] = set()
    added = dict(before.added)
    trace: dict[str, object] = {}
    for _, source, outcome in decisions:
        taken |= outcome.removes
        if outcome.keeps is not None:
            removed.update(name for name in attributes if name not in outcome.keeps)
        if outcome.trims:
            names = trimmed_to if source.kind == "subscription" else source.names
            removed.update(name for name in attributes if name not in names)
    added = {name: value for name, value in added.items() if name not in taken}
    removed |= taken & attributes.keys()
    for _, _, outcome in decisions:
        added.update(outcome.added)
        trace |= outcome.trace
    hops = before.trace
    if trace:
        hops = (*hops, Trace(situation.broker, **trace))  # type: ignore[arg-type]
    shape = Shape(False, frozenset(removed), tuple(added.items()), hops, before.payload)
    if before.payload is not None or event.signature is not None:  # what is sealed stays as it is
        return shape, []
    return _converted(event, before, shape, decisions, situation, trimmed_to)


def _converted(
    event: Event,
    before: Shape,
    shape: Shape,
    decisions: list[Decision],
    situation: Situation,
    trimmed_to: frozenset[str],
) -> tuple[Shape, list[Decision]]:
    """The first conversion counts; one that fails is an exception of its rule."""
    for decision in decisions:
        for conversion in decision.outcome.conversions:
            seen = Shaped(final_attributes(event, shape), event.payload, event.subject, event.publisher, shape.trace)
            try:
                payload = _checked_bytes(conversion, seen)
            except Exception as error:  # whatever a conversion raises
                situation.source = decision.source
                mended = decision._replace(outcome=decision.rule.failed(situation, error, decision.outcome))
                if mended.outcome.blocks:
                    return shape, [mended]
                # What OnException does counts instead of what the rule did.
                again = [mended if one is decision else one for one in decisions]
                last, failures = shaped(event, before, again, situation, trimmed_to)
                return last, [mended, *failures]
            return Shape(shape.blocked, shape.removed, shape.added, shape.trace, payload), []
    return shape, []


def _checked_bytes(conversion: Conversion, seen: Shaped) -> bytes:
    payload = checked_payload(conversion(seen))
    if payload is None:
        raise InvalidValueError("a conversion gives bytes, not None")
    return payload


def final_attributes(event: Event, shape: Shape) -> Attributes:
    """What is left of an event's attributes, with what was added."""
    if not shape.removed and not shape.added:
        return event.attributes
    kept: dict[str, Value] = {name: value for name, value in event.attributes.items() if name not in shape.removed}
    kept.update(shape.added)
    return Attributes.trusted(kept)


def joined(one: Shape, other: Shape) -> Shape:
    """Both of them, in their order."""
    if other is PLAIN:
        return one
    if one is PLAIN:
        return other
    return Shape(
        one.blocked or other.blocked,
        one.removed | other.removed,
        (*one.added, *other.added),
        (*one.trace, *other.trace),
        one.payload if one.payload is not None else other.payload,
    )


def conflicts(common: list[Decision], own: list[Decision]) -> list[Conflict]:
    """The pairs of rules that cannot both be obeyed: those for every copy with each other or, where there are any,
    those of one subscription with each other and with those for every copy."""
    common, own = common[:MAX_COMPARED_RULES], own[:MAX_COMPARED_RULES]
    if own:
        pairs = [(one, other) for one in common for other in own]
        pairs += [(one, other) for place, one in enumerate(own) for other in own[place + 1 :]]
    else:
        pairs = [(one, other) for place, one in enumerate(common) for other in common[place + 1 :]]
    found = []
    for one, other in pairs:
        reason = _clash(one.outcome, other.outcome) or _clash(other.outcome, one.outcome)
        if reason is not None:
            found.append(Conflict(str(one), str(other), reason))
    return found


def _clash(one: Outcome, other: Outcome) -> str | None:
    if one.blocks and (other.allows or other.floods):
        return "one blocks what the other lets through: it is blocked"
    both = sorted(one.removes & (other.keeps or frozenset()))
    if both:
        return f"one removes {', '.join(both)}, which the other keeps: it is removed"
    mine, others = dict(one.added), dict(other.added)
    differing = sorted(name for name in mine.keys() & others.keys() if mine[name] != others[name])
    if differing:
        return f"both add {', '.join(differing)}: the later one counts"
    if one.conversions and other.conversions:
        return "both convert: the first one counts"
    return None
