"""Check where a policy may be set: the paper's Table 1, and which qualifiers are allowed where.

A policy that is sent with an advertisement or a subscription is attached to that message and, where a broker stores the
message, associated with it. So such a policy may contain both kinds of rules: rules for the message itself, and rules
for messages that match the stored filter.
"""

from enum import StrEnum

import msgspec

from tidings.model.errors import PolicyError
from tidings.policy import registry
from tidings.policy.ast import Attach, Matching, MessageType, Point, Rule, calls_in
from tidings.policy.policy import Policy


class Severity(StrEnum):
    """How serious a finding is."""

    WARNING = "warning"  # something never takes effect
    NOTE = "note"  # takes effect, but perhaps not as the author expects


class Finding(msgspec.Struct, frozen=True):
    """A warning or note about one rule of a policy.

    `rule` and `branch` count from 1; branches of OnException are numbered after the others.
    """

    severity: Severity
    rule: int
    message: str
    branch: int | None = None

    def __str__(self) -> str:
        place = f"rule {self.rule}" + (f", branch {self.branch}" if self.branch else "")
        return f"{self.severity}: {place}: {self.message}"


class PolicyPlace(StrEnum):
    """Where a policy is set: attached to a message, associated with a stored filter, or with a broker's own filter."""

    ATTACHED_TO_PUBLICATION = "attached to a publication"
    ATTACHED_TO_SUBSCRIPTION = "attached to a subscription"
    ATTACHED_TO_ADVERTISEMENT = "attached to an advertisement"
    ATTACHED_TO_UNSUBSCRIPTION = "attached to an unsubscription"
    ATTACHED_TO_UNADVERTISEMENT = "attached to an unadvertisement"
    ASSOCIATED_WITH_SUBSCRIPTION = "associated with a subscription"
    ASSOCIATED_WITH_ADVERTISEMENT = "associated with an advertisement"
    BROKER_SUBSCRIPTION = "held with a broker's own subscription"
    BROKER_ADVERTISEMENT = "held with a broker's own advertisement"


# Table 1 by the message type of a rule: the messages with which it travels, and the filters with which it is stored.
_ATTACHED_TO: dict[MessageType, frozenset[PolicyPlace]] = {
    MessageType.PUBLICATION: frozenset({PolicyPlace.ATTACHED_TO_PUBLICATION}),
    MessageType.SUBSCRIPTION: frozenset({PolicyPlace.ATTACHED_TO_SUBSCRIPTION, PolicyPlace.BROKER_SUBSCRIPTION}),
    MessageType.ADVERTISEMENT: frozenset({PolicyPlace.ATTACHED_TO_ADVERTISEMENT, PolicyPlace.BROKER_ADVERTISEMENT}),
    MessageType.UNSUBSCRIPTION: frozenset({PolicyPlace.ATTACHED_TO_UNSUBSCRIPTION}),
    MessageType.UNADVERTISEMENT: frozenset({PolicyPlace.ATTACHED_TO_UNADVERTISEMENT}),
}
_SUBSCRIPTIONS = frozenset(
    {PolicyPlace.ATTACHED_TO_SUBSCRIPTION, PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION, PolicyPlace.BROKER_SUBSCRIPTION}
)
_ADVERTISEMENTS = frozenset(
    {PolicyPlace.ATTACHED_TO_ADVERTISEMENT, PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT, PolicyPlace.BROKER_ADVERTISEMENT}
)
_ASSOCIATED_WITH: dict[MessageType, frozenset[PolicyPlace]] = {
    MessageType.PUBLICATION: _ADVERTISEMENTS | _SUBSCRIPTIONS,
    MessageType.SUBSCRIPTION: _ADVERTISEMENTS,
    MessageType.ADVERTISEMENT: frozenset(),
    MessageType.UNSUBSCRIPTION: _SUBSCRIPTIONS,
    MessageType.UNADVERTISEMENT: _ADVERTISEMENTS,
}
_BROKER_PLACES = frozenset({PolicyPlace.BROKER_SUBSCRIPTION, PolicyPlace.BROKER_ADVERTISEMENT})
_INHERITED = frozenset({MessageType.PUBLICATION, MessageType.SUBSCRIPTION})


def may_be_placed(message: MessageType, where: PolicyPlace) -> bool:
    """Return whether Table 1 allows rules for such messages in a policy that is set at `where`."""
    return is_attached(message, where) or is_associated(message, where)


def is_attached(message: MessageType, where: PolicyPlace) -> bool:
    """Return whether rules for such messages, set at `where`, travel with the message to which they apply."""
    return where in _ATTACHED_TO[message]


def is_associated(message: MessageType, where: PolicyPlace) -> bool:
    """Return whether rules for such messages, set at `where`, are stored with a filter that the messages match."""
    return where in _ASSOCIATED_WITH[message]


def check_placement(policy: Policy, where: PolicyPlace, *, hub: bool = False) -> list[Finding]:
    """Raise a `PolicyError` for the first rule that is not allowed at `where`; return warnings about idle rules.

    With `hub`, there are no links between brokers: copies have the points Ingress and Egress, and rules with Routing
    alone never fire.
    """
    findings: list[Finding] = []
    for number, rule in enumerate(policy.rules, 1):
        complaint = _complaint(rule, where)
        if complaint is not None:
            raise PolicyError(f"rule {number}, {rule.heading}: {complaint}", rule=number)
        findings.extend(Finding(Severity.WARNING, number, message) for message in _idle_parts(rule, where, hub))
    return findings


def _complaint(rule: Rule, where: PolicyPlace) -> str | None:
    """Return why a rule is not allowed at `where`, or None."""
    if not may_be_placed(rule.message, where):
        return f"cannot be {where}; {_allowed_places(rule.message)}"
    attached = is_attached(rule.message, where)
    inherited = rule.message in _INHERITED and where in _ADVERTISEMENTS
    if rule.matching is Matching.BEFORE and not attached and where not in _BROKER_PLACES:
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


def _allowed_places(message: MessageType) -> str:
    places = [place for place in PolicyPlace if may_be_placed(message, place) and place not in _BROKER_PLACES]
    *some, last = [str(place) for place in places]
    return f"rules on {message.lower()}s are {', '.join(some)} or {last}" if some else f"they are {last}"


def _idle_parts(rule: Rule, where: PolicyPlace, hub: bool) -> list[str]:
    """Return the warnings about parts of a rule that never take effect at `where`."""
    warnings = []
    if hub and rule.points == {Point.ROUTING}:
        warnings.append("@broker: Routing alone never fires in a hub, where nothing goes from broker to broker")
    filtered = is_associated(rule.message, where)
    for branch in (*rule.branches, *rule.on_exception):
        for call in (*calls_in(branch.condition), *branch.actions):
            element = registry.find(call.name)
            if element is None:
                continue
            if element.needs_subscription and where not in _SUBSCRIPTIONS:
                warnings.append(f"{call.name}() goes by a subscription, and this policy is {where}")
            elif element.needs_filter and not filtered:
                warnings.append(f"{call.name}() goes by the policy's filter, and a rule that is {where} has none")
    return list(dict.fromkeys(warnings))
