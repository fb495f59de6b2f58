"""Conversions of sealed events: brokers cannot write as XML or JSON what they cannot read, so the subscriber does."""

from functools import lru_cache

import msgspec

from tidings.model.notification import Notification
from tidings.policy.application import CompiledRule, compiled
from tidings.policy.policy import Policy
from tidings.policy.situation import Facts, NeedsAnswer, Shaped, Situation
from tidings.policy.statement import MessageType, Operation, Point

_CONVERSIONS = {"ToXML", "ToJSON"}


def converted(note: Notification, policy: str) -> Notification:
    """The notification as the policy of its subscription wants it written. Its conditions are those of the last broker,
    as far as a client can tell: to it no broker is busy, no event large, and nobody belongs to a group."""
    for rule in _rules(policy):
        situation = _situation(note)
        try:
            outcome = rule.apply(situation)
        except NeedsAnswer:
            continue
        for conversion in () if outcome is None else outcome.conversions:
            event = note.event
            payload = conversion(Shaped(note.attributes, note.payload, event.subject, event.publisher, note.trace))
            return msgspec.structs.replace(note, payload=payload, event=msgspec.structs.replace(event, payload=payload))
    return note


@lru_cache(256)
def _rules(policy: str) -> tuple[CompiledRule, ...]:
    """Those that convert notifications."""
    rules = compiled(Policy.parse(policy)).of(Operation.FORWARD, MessageType.PUBLICATION)
    return tuple(
        one
        for one in rules
        if Point.EGRESS in one.rule.points
        and any(call.name in _CONVERSIONS for branch in one.rule.branches for call in branch.actions)
    )


def _situation(note: Notification) -> Situation:
    event = note.event
    facts = Facts(MessageType.PUBLICATION, "", "", 0.0, event.publisher, lambda: "", lambda: 0.0, lambda _, __: False)
    facts.attributes, facts.payload = note.attributes, note.payload
    facts.subject, facts.publisher = event.subject, event.publisher
    return Situation(facts, note.subscriber)
