"""Where a policy may be set: the paper's Table 1, and which qualifiers make sense where.

A policy that is given with an advertisement or a subscription is attached to that message and, where the message is
stored, associated with it. So such a policy may hold both: rules on the message itself, and rules on what meets it.
"""

from enum import StrEnum

from tidings.model.errors import PolicyError
from tidings.policy import registry
from tidings.policy.finding import Finding, Severity
from tidings.policy.policy import Policy
from tidings.policy.statement import Attach, Matching, MessageType, Point, Rule, calls_in


class Where(StrEnum):
    """What a policy is given with: a message when it is issued, a filter afterwards, or a broker's own filter."""

    ATTACHED_TO_PUBLICATION = "attached to a publication"
    ATTACHED_TO_SUBSCRIPTION = "attached to a subscription"
    ATTACHED_TO_ADVERTISEMENT = "attached to an advertisement"
    ATTACHED_TO_UNSUBSCRIPTION = "attached to an unsubscription"
    ATTACHED_TO_UNADVERTISEMENT = "attached to an unadvertisement"
    ASSOCIATED_WITH_SUBSCRIPTION = "associated with a subscription"
    ASSOCIATED_WITH_ADVERTISEMENT = "associated with an advertisement"
    BROKER_SUBSCRIPTION = "held with a broker's own subscription"
    BROKER_ADVERTISEMENT = "held with a broker's own advertisement"


# Table 1, from the side of the rules: the message that they travel with, and the filters that they are stored with.
_ATTACHED_TO: dict[MessageType, frozenset[Where]] = {
    MessageType.PUBLICATION: frozenset({Where.ATTACHED_TO_PUBLICATION}),
    MessageType.SUBSCRIPTION: frozenset({Where.ATTACHED_TO_SUBSCRIPTION, Where.BROKER_SUBSCRIPTION}),
    MessageType.ADVERTISEMENT: frozenset({Where.ATTACHED_TO_ADVERTISEMENT, Where.BROKER_ADVERTISEMENT}),
    MessageType.UNSUBSCRIPTION: frozenset({Where.ATTACHED_TO_UNSUBSCRIPTION}),
    MessageType.UNADVERTISEMENT: frozenset({Where.ATTACHED_TO_UNADVERTISEMENT}),
}
_SUBSCRIPTIONS = frozenset(
    {Where.ATTACHED_TO_SUBSCRIPTION, Where.ASSOCIATED_WITH_SUBSCRIPTION, Where.BROKER_SUBSCRIPTION}
)
_ADVERTISEMENTS = frozenset(
    {Where.ATTACHED_TO_ADVERTISEMENT, Where.ASSOCIATED_WITH_ADVERTISEMENT, Where.BROKER_ADVERTISEMENT}
)
_ASSOCIATED_WITH: dict[MessageType, frozenset[Where]] = {
    MessageType.PUBLICATION: _ADVERTISEMENTS | _SUBSCRIPTIONS,
    MessageType.SUBSCRIPTION: _ADVERTISEMENTS,
    MessageType.ADVERTISEMENT: frozenset(),
    MessageType.UNSUBSCRIPTION: _SUBSCRIPTIONS,
    MessageType.UNADVERTISEMENT: _ADVERTISEMENTS,
}
_BROKERS_OWN = frozenset({Where.BROKER_SUBSCRIPTION, Where.BROKER_ADVERTISEMENT})
_INHERITED = frozenset({MessageType.PUBLICATION, MessageType.SUBSCRIPTION})


def may_stand(message: MessageType, where: Where) -> bool:
    """Table 1: whether rules on such messages may be given there at all."""
    return is_attached(message, where) or is_associated(message, where)


def is_attached(message: MessageType, where: Where) -> bool:
    """Whether rules on such messages, given there, travel with the message that they govern."""
    return where in _ATTACHED_TO[message]


def is_associated(message: MessageType, where: Where) -> bool:
    """Whether rules on such messages, given there, are stored with a filter and govern what meets it."""
    return where in _ASSOCIATED_WITH[message]


def check_placement(policy: Policy, where: Where, *, hub: bool = False) -> list[Finding]:
    """Raises a `PolicyError` for the first rule that may not stand there; answers what is allowed but idle there.

    With `hub`, there is no overlay: copies have the points Ingress and Egress, and rules on Routing alone never fire.
    """
    found: list[Finding] = []
    for number, rule in enumerate(policy.rules, 1):
        complaint = _complaint(rule, where)
        if complaint is not None:
            raise PolicyError(f"rule {number}, {rule.heading}: {complaint}", rule=number)
        found.extend(Finding(Severity.WARNING, number, message) for message in _idle(rule, where, hub))
    return found


def _complaint(rule: Rule, where: Where) -> str | None:
    if not may_stand(rule.message, where):
        return f"cannot be {where}; {_instead(rule.message)}"
    attached = is_attached(rule.message, where)
    inherited = rule.message in _INHERITED and where in _ADVERTISEMENTS
    if rule.matching is Matching.BEFORE and not attached and where not in _BROKERS_OWN:
        return (
            f"@matching: Before cannot be {where}, since it is matching that finds the filter; "
            f"attach the rule to the {rule.message.lower()} itself, or say @matching: After"
        )
    if rule.attach is not Attach.NEVER and not inherited:
        return (
            f"@attach: {rule.attach} is for rules on publications and subscriptions that an advertisement hands down, "
            f"and this policy is {where}; leave @attach out"
        )
    if rule.yield_attach and not inherited and not (attached and rule.message in _INHERITED):
        return (
            f"@yield_attach is for rules that a publication or a subscription carries, and this policy is {where}; "
            "leave @yield_attach out"
        )
    return None


def _instead(message: MessageType) -> str:
    places = [one for one in Where if may_stand(message, one) and one not in _BROKERS_OWN]
    *some, last = [str(one) for one in places]
    return f"rules on {message.lower()}s are {', '.join(some)} or {last}" if some else f"they are {last}"


def _idle(rule: Rule, where: Where, hub: bool) -> list[str]:
    said = []
    if hub and rule.points == {Point.ROUTING}:
        said.append("@broker: Routing alone never fires in a hub, where nothing goes from broker to broker")
    filtered = is_associated(rule.message, where)
    for branch in (*rule.branches, *rule.on_exception):
        for call in (*calls_in(branch.condition), *branch.actions):
            element = registry.find(call.name)
            if element is None:
                continue
            if element.needs_subscription and where not in _SUBSCRIPTIONS:
                said.append(f"{call.name}() goes by a subscription, and this policy is {where}")
            elif element.needs_filter and not filtered:
                said.append(f"{call.name}() goes by the policy's filter, and a rule that is {where} has none")
    return list(dict.fromkeys(said))
