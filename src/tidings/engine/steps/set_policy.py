"""Associate a policy with a stored filter, as its owner or as the broker's operator."""

from typing import Any

import msgspec

from tidings.engine.effects import Effect, Send
from tidings.engine.message import OutdatedNews, Refusal
from tidings.engine.operations import SetPolicy
from tidings.engine.state.filter_rules import compiled_rules
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import emit, propagation
from tidings.engine.steps.admit import admit_policy, was_sent_by
from tidings.engine.turn import Turn
from tidings.model.advertisement import Advertisement
from tidings.model.limits import MAX_POLICY_RULES
from tidings.policy.ast import MessageType
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.placement import PolicyPlace


def set_policy(turn: Turn, operation: SetPolicy, sender: str) -> list[Effect]:
    """Set or remove the policy of a filter, as its owner or as this broker's operator.

    The owner's policy follows the filter to other brokers, the operator's stays. Raises `Refusal` if the sender does
    not own the filter or the policy may not stand there.
    """
    state = turn.state
    subscription, advertisement = (
        state.filters.subscriptions.get(operation.id),
        state.filters.advertisements.get(operation.id),
    )
    entry: FilterEntry[Any] | None = subscription or advertisement
    operator = sender == state.name and (entry is None or not entry.is_own)
    if entry is None and sender in state.links.neighbours:
        raise OutdatedNews
    if entry is None or (not operator and (entry.owner != operation.client or not was_sent_by(entry, sender))):
        raise Refusal("admit", f"{operation.client} has no subscription or advertisement {operation.id}")
    policy = admit_policy(operation.policy, _where(entry, operator=operator))
    if not operator:
        policy = _with_attached(entry, policy)
    entry.govern(policy, operator=operator)
    state.rules.conflicts.forget(str(entry.source))
    effects = emit.policy_warnings(state, entry)
    if not operator:
        text = None if policy is None else str(policy.policy)
        entry.value = msgspec.structs.replace(entry.value, policy=text)
        for name in sorted(entry.sent_to):
            effects.append(
                Send(name, msgspec.structs.replace(operation, way=propagation.provenance_for(state, entry, name)))
            )
        if subscription is not None:
            effects += propagation.repropagate_for_policy(turn, subscription)
    state.rules.update(entry)
    return effects + propagation.advertise_meta(turn)


def _where(entry: FilterEntry[Any], *, operator: bool) -> PolicyPlace:
    is_advertisement = isinstance(entry.value, Advertisement)
    if entry.is_own or not (operator or entry.is_client):
        return PolicyPlace.BROKER_ADVERTISEMENT if is_advertisement else PolicyPlace.BROKER_SUBSCRIPTION
    return PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT if is_advertisement else PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION


def _with_attached(entry: FilterEntry[Any], policy: CompiledPolicy | None) -> CompiledPolicy | None:
    """Return the new policy, with the rules on the filter's own message that the former policy attached to it.

    Such rules travel with the filter, even to neighbours that join later, unless the new policy has rules of that kind.
    """
    is_advertisement = isinstance(entry.value, Advertisement)
    kind = MessageType.ADVERTISEMENT if is_advertisement else MessageType.SUBSCRIPTION
    rules = () if policy is None else policy.policy.rules
    before = () if entry.policy is None else entry.policy.policy.rules
    attached = tuple(rule for rule in before if rule.message is kind)
    if not attached or any(rule.message is kind for rule in rules):
        return policy
    if len(rules) + len(attached) > MAX_POLICY_RULES:
        raise Refusal("admit", f"policy: more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) with those attached")
    return compiled_rules((*rules, *attached))
