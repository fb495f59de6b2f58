"""Conversion of sealed events in the client: a broker cannot write XML or JSON from attributes that it cannot read."""

from functools import lru_cache

import msgspec

from tidings.model.notification import Notification
from tidings.policy.ast import MessageType, Point, RuleOperation
from tidings.policy.evaluation.compiled import CompiledRule, compile_policy
from tidings.policy.evaluation.evaluation import MessageFacts, OutgoingPublication, RuleContext, TrustAnswerNeeded
from tidings.policy.policy import Policy

_CONVERSIONS = {"ToXML", "ToJSON"}


def convert_for_client(note: Notification, policy: str) -> Notification:
    """Return the notification, converted by the first rule of the subscription's policy that applies and converts.

    The client evaluates the conditions as the last broker would, as far as it can: it takes load and message size as 0,
    and no party as a member of a trust group.
    """
    for rule in _rules(policy):
        rule_context = _rule_context(note)
        try:
            outcome = rule.apply(rule_context)
        except TrustAnswerNeeded:
            continue
        for conversion in () if outcome is None else outcome.conversions:
            event = note.event
            payload = conversion(
                OutgoingPublication(note.attributes, note.payload, event.subject, event.publisher, note.trace)
            )
            return msgspec.structs.replace(note, payload=payload, event=msgspec.structs.replace(event, payload=payload))
    return note


@lru_cache(256)
def _rules(policy: str) -> tuple[CompiledRule, ...]:
    """Return the rules of a policy that convert publications at an egress."""
    rules = compile_policy(Policy.parse(policy)).of(RuleOperation.FORWARD, MessageType.PUBLICATION)
    return tuple(
        rule
        for rule in rules
        if Point.EGRESS in rule.rule.points
        and any(call.name in _CONVERSIONS for branch in rule.rule.branches for call in branch.actions)
    )


def _rule_context(note: Notification) -> RuleContext:
    event = note.event
    facts = MessageFacts(
        MessageType.PUBLICATION, "", "", 0.0, event.publisher, lambda: "", lambda: 0.0, lambda _, __: False
    )
    facts.attributes, facts.payload = note.attributes, note.payload
    facts.subject, facts.publisher = event.subject, event.publisher
    return RuleContext(facts, note.subscriber)
