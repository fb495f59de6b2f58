"""What is suspicious about a policy where it was set: it is in force, but probably not what was meant."""

from typing import Any

from tidings.engine.tables import Filed
from tidings.model.expression import Constant
from tidings.model.subscription import Subscription
from tidings.policy.conflicts import findings
from tidings.policy.finding import Finding, Severity
from tidings.policy.placement import Where, check_placement
from tidings.policy.policy import Policy
from tidings.policy.statement import MessageType, Point, Rule


def suspicious(filed: Filed[Any], *, lone: bool = True) -> list[str]:
    """The findings about the owner's policy and the operator's, with what the filter itself makes of them."""
    return [
        str(one)
        for compiled in (filed.policy, filed.operator_policy)
        if compiled is not None
        for one in (
            *findings(compiled.policy),
            *check_placement(compiled.policy, _where(filed), hub=lone),
            *_required(compiled.policy, filed),
        )
    ]


def _where(filed: Filed[Any]) -> Where:
    own = filed.is_own or not filed.is_client  # what another broker lets its own filters say was checked there
    if isinstance(filed.value, Subscription):
        return Where.BROKER_SUBSCRIPTION if own else Where.ATTACHED_TO_SUBSCRIPTION
    return Where.BROKER_ADVERTISEMENT if own else Where.ATTACHED_TO_ADVERTISEMENT


def _required(policy: Policy, filed: Filed[Any]) -> list[Finding]:
    """Attributes that the rules remove between brokers, and that the filter itself needs."""
    found = []
    for number, rule in enumerate(policy.rules, 1):
        if rule.message is not MessageType.PUBLICATION or rule.points == {Point.EGRESS}:
            continue
        needed = ", ".join(sorted(_removed(rule) & filed.names))
        if needed and isinstance(filed.value, Subscription):
            later = f"removes {needed}, which its own filter needs: between brokers it waits until the end"
            found.append(Finding(Severity.NOTE, number, later))
        elif needed:
            lost = f"removes {needed}, which its own filter requires: behind the link, who asks for it gets nothing"
            found.append(Finding(Severity.WARNING, number, lost))
    return found


def _removed(rule: Rule) -> set[str]:
    return {
        str(one.value)
        for branch in (*rule.branches, *rule.on_exception)
        for call in branch.actions
        if call.name == "RemoveAttributes"
        for one in call.arguments
        if isinstance(one, Constant)
    }
