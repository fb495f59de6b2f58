"""Associating: a policy that is set on a filter which is there already, by its owner or by the broker's operator."""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine import membership, placing, routes
from tidings.engine.admission import admit_policy, sent_by
from tidings.engine.compiling import compiled_rules
from tidings.engine.effects import Effect, Send
from tidings.engine.operations import SetPolicy
from tidings.engine.refusal import Outdated, Refused
from tidings.engine.tables import Filed
from tidings.model.advertisement import Advertisement
from tidings.model.limits import MAX_POLICY_RULES
from tidings.policy.application import CompiledPolicy
from tidings.policy.placement import Where
from tidings.policy.statement import MessageType

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def set_policy(engine: "Engine", operation: SetPolicy, sender: str) -> list[Effect]:
    """The owner's follows the path of its filter; the operator's stays here."""
    subscription, advertisement = engine.subscriptions.get(operation.id), engine.advertisements.get(operation.id)
    filed: Filed[Any] | None = subscription or advertisement
    operator = sender == engine.name and (filed is None or not filed.is_own)
    if filed is None and sender in engine.neighbours:
        raise Outdated
    if filed is None or (not operator and (filed.owner != operation.client or not sent_by(filed, sender))):
        raise Refused("admit", f"{operation.client} has no subscription or advertisement {operation.id}")
    policy = admit_policy(operation.policy, _where(filed, operator=operator))
    if not operator:
        policy = _with_attached(filed, policy)
    filed.govern(policy, operator=operator)
    engine.forget_news(str(filed.source))
    effects = routes.remarks(engine, filed)
    if not operator:
        text = None if policy is None else str(policy.policy)
        filed.value = msgspec.structs.replace(filed.value, policy=text)
        for name in sorted(filed.sent):
            effects.append(Send(name, msgspec.structs.replace(operation, way=placing.way(engine, filed, name))))
        if subscription is not None:
            effects += placing.governed_anew(engine, subscription)
    engine.note_rules(filed)
    return effects + membership.advertise_meta(engine)


def _where(filed: Filed[Any], *, operator: bool) -> Where:
    is_advertisement = isinstance(filed.value, Advertisement)
    if filed.is_own or not (operator or filed.is_client):
        return Where.BROKER_ADVERTISEMENT if is_advertisement else Where.BROKER_SUBSCRIPTION
    return Where.ASSOCIATED_WITH_ADVERTISEMENT if is_advertisement else Where.ASSOCIATED_WITH_SUBSCRIPTION


def _with_attached(filed: Filed[Any], policy: CompiledPolicy | None) -> CompiledPolicy | None:
    """What is set takes the place of what is associated. Rules on the message itself are attached: they travel with it,
    however late (to a neighbour that joins), unless others of their kind are given."""
    is_advertisement = isinstance(filed.value, Advertisement)
    kind = MessageType.ADVERTISEMENT if is_advertisement else MessageType.SUBSCRIPTION
    given = () if policy is None else policy.policy.rules
    before = () if filed.policy is None else filed.policy.policy.rules
    attached = tuple(rule for rule in before if rule.message is kind)
    if not attached or any(rule.message is kind for rule in given):
        return policy
    if len(given) + len(attached) > MAX_POLICY_RULES:
        raise Refused("admit", f"policy: more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) with those attached")
    return compiled_rules((*given, *attached))
