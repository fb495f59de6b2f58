"""Ready-made policies, most of them from the paper: `tidings.policies`.

Each policy equals the result of parsing its text; `str(policy)` shows the text. Where a policy differs from the paper's
figure, the docstring says how.
"""

from collections.abc import Iterable
from typing import Any

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.policy.ast import (
    ALL_POINTS,
    TRUE,
    Attach,
    Branch,
    Condition,
    ElementCall,
    MessageType,
    Point,
    PublishTemplate,
    Rule,
    RuleOperation,
    Scalar,
    Variable,
    all_of,
    any_of,
)
from tidings.policy.call_checks import CallRefusal, checked_boolean_call, checked_call, checked_comparison
from tidings.policy.elements import ElementRole
from tidings.policy.policy import Policy

_FORWARD, _INSERT = RuleOperation.FORWARD, RuleOperation.INSERT
_ADVERTISEMENT, _SUBSCRIPTION = MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION
_PUBLICATION = MessageType.PUBLICATION
_INGRESS, _EGRESS, _ROUTING = Point.INGRESS, Point.EGRESS, Point.ROUTING

# For subscribers: the content of notifications


def trim(*, convert: str | None = None) -> Policy:
    """Keep only the attributes that the subscription names in its notifications (Fig. 4).

    `convert` is "xml", "json" or None.
    """
    return _notification(_action("TrimAttributes"), convert)


def remove(*names: str | Iterable[str], convert: str | None = None) -> Policy:
    """Remove these attributes from notifications. `convert` is "xml", "json" or None."""
    return _notification(_action("RemoveAttributes", *_flat_names(names)), convert)


def keep_only(*names: str | Iterable[str], convert: str | None = None) -> Policy:
    """Remove all other attributes from notifications. `convert` is "xml", "json" or None."""
    return _notification(_action("KeepOnlyAttributes", *_flat_names(names)), convert)


def prev_hop() -> Policy:
    """Add the attribute `PrevHop` to notifications: the broker from which the last broker received the event."""
    return _notification(_action("AppendPrevHop"), None)


def to_xml() -> Policy:
    """Write notifications as XML documents in the payload."""
    return _notification(_action("ToXML"), None)


def to_json() -> Policy:
    """Write notifications as JSON documents in the payload."""
    return _notification(_action("ToJSON"), None)


# For operators and developers: the behaviour of the overlay


def trace(
    *, host: bool = True, load: bool = True, time: bool = True, attach: str = "Never", attributes: bool = False
) -> Policy:
    """Record each broker on the path of a publication: its host, its load and its processing time (Fig. 6).

    Attached to a publication, the policy traces that publication; associated with a subscription, the subscriber's
    notifications. With an advertisement and `attach="Always"`, all matching publications carry it.

    Args:
        host: Record the broker's name and host.
        load: Record the broker's load.
        time: Record the processing time.
        attach: The `@attach` qualifier of the rule.
        attributes: Record into attributes `$trace.<broker>.host`, `.load` and `.microseconds` instead of the field
            `trace` of the notification.

    Raises:
        PolicyError: Nothing is to be recorded, or `attach` is not a valid value.
    """
    is_recorded = {"AugmentBrokerHostInfo": host, "AugmentBrokerLoadIndex": load, "AugmentProcessingTime": time}
    into = ("attributes",) if attributes else ()
    actions = tuple(_action(name, *into) for name, recorded in is_recorded.items() if recorded)
    if not actions:
        raise PolicyError("trace() has nothing to tell; leave host, load or time at True")
    try:
        return Policy((_rule(_FORWARD, _PUBLICATION, ALL_POINTS, (TRUE, actions), attach=Attach(attach)),))
    except ValueError:
        raise PolicyError(f"attach is one of {', '.join(Attach)}, not {attach!r}") from None


def shed_load(*, size: float = 0.8, load: float = 0.75) -> Policy:
    """Drop large subscriptions at a busy broker, and publish an event of the class `DropMessage` for each (Fig. 7).

    A subscription is dropped if its size index is above `size` and the broker's load index is above `load`.
    """
    heavy = all_of([_above("MessageSizeIndex", size), _above("BrokerLoadIndex", load)])
    report = _publish(("class", "DropMessage"), ("cause", "Broker load"))
    return Policy(
        (
            _rule(_INSERT, _SUBSCRIPTION, {_INGRESS}, (heavy, (_action("UninsertMessage"), report))),
            _rule(_FORWARD, _SUBSCRIPTION, {_INGRESS}, (heavy, (_action("BlockMessage"),))),
        )
    )


def flood() -> Policy:
    """For advertisements: do not forward them; flood the subscriptions that match them instead (Fig. 8)."""
    return Policy(
        (
            _rule(_FORWARD, _ADVERTISEMENT, {_INGRESS, _ROUTING}, (TRUE, (_action("BlockMessage"),))),
            _rule(_FORWARD, _SUBSCRIPTION, {_INGRESS, _ROUTING}, (TRUE, (_action("FloodMessage"),))),
        )
    )


# Security


def authenticated(*groups: str | Iterable[str], every: bool = False) -> Policy:
    """For advertisements: forward them only to receivers in one of the trust groups, or in all with `every` (Fig. 13).

    The paper writes one branch for each group; here one condition contains all groups, with the same meaning.
    """
    members = [_condition("AuthenticateReceiver", group) for group in _flat_names(groups)]
    if not members:
        raise PolicyError("authenticated() needs a trust group")
    allowed = all_of(members) if every else any_of(members)
    blocked = (TRUE, (_action("BlockMessage"),))
    return Policy((_rule(_FORWARD, _ADVERTISEMENT, {_INGRESS, _ROUTING}, (allowed, ()), blocked),))


def security_zones(
    *, restricted: str, controlled: str, hidden: Iterable[str], subscribers: str, event: str = "UnauthorizedSubscribe"
) -> Policy:
    """For advertisements: limit who sees which attributes by trust groups of brokers and subscribers (Fig. 16).

    Receivers in the group `restricted` get everything, receivers in `controlled` everything but the hidden attributes,
    and all others nothing. The paper's policy reports an unauthorised subscription but forwards it. This policy reports
    it and neither forwards nor stores it.

    Args:
        restricted: The trust group that gets all attributes.
        controlled: The trust group that does not get the hidden attributes.
        hidden: The names of the hidden attributes.
        subscribers: The trust group of clients that may subscribe.
        event: The class of the event that reports an unauthorised subscription.
    """
    reduced = _action("RemoveAttributes", *_flat_names((hidden,)))
    zones: list[tuple[Condition, tuple[ElementCall, ...]]] = [
        (_condition("AuthenticateReceiver", restricted), ()),
        (_condition("AuthenticateReceiver", controlled), (reduced,)),
        (TRUE, (_action("BlockMessage"),)),
    ]
    authorised: tuple[Condition, tuple[ElementCall, ...]] = (_condition("AuthenticateSender", subscribers), ())
    refused = (_publish(("class", event)), _action("BlockMessage"))
    return Policy(
        (
            _rule(_FORWARD, _ADVERTISEMENT, {_INGRESS, _ROUTING}, *zones),
            _rule(_INSERT, _SUBSCRIPTION, {_INGRESS}, authorised, (TRUE, (_action("UninsertMessage"),))),
            _rule(_FORWARD, _SUBSCRIPTION, {_INGRESS}, authorised, (TRUE, refused)),
            _rule(_FORWARD, _PUBLICATION, {_ROUTING}, *zones, attach=Attach.ALWAYS),
            _rule(_FORWARD, _PUBLICATION, {_INGRESS}, *zones),
        )
    )


def firewall(*, strict: bool = True, subscriptions: bool = False) -> Policy:
    """Block matching publications; with `subscriptions`, set with an advertisement, matching subscriptions (Fig. 22).

    With `strict`, only messages with exactly the filter's attributes are blocked. The paper's rule has the point
    Routing alone, so it does not block publications of the firewall broker's own clients; this rule also has the point
    Ingress.
    """
    message = _SUBSCRIPTION if subscriptions else _PUBLICATION
    condition = _condition("StrictMatch") if strict else TRUE
    return Policy((_rule(_FORWARD, message, {_INGRESS, _ROUTING}, (condition, (_action("BlockMessage"),))),))


def _notification(action: ElementCall, convert: str | None) -> Policy:
    conversions = {None: (), "xml": (_action("ToXML"),), "json": (_action("ToJSON"),)}
    if convert not in conversions:
        raise PolicyError(f"convert is 'xml' or 'json', not {convert!r}")
    return Policy((_rule(_FORWARD, _PUBLICATION, {_EGRESS}, (TRUE, (action, *conversions[convert]))),))


def _rule(
    operation: RuleOperation,
    message: MessageType,
    points: Iterable[Point],
    *branches: tuple[Condition, tuple[ElementCall, ...]],
    attach: Attach = Attach.NEVER,
) -> Rule:
    return Rule(
        operation=operation,
        message=message,
        points=frozenset(points),
        branches=tuple(Branch(condition, actions) for condition, actions in branches),
        attach=attach,
    )


def _action(name: str, *arguments: str) -> ElementCall:
    return _checked_or_policy_error(checked_call, name, tuple(map(Constant, arguments)), ElementRole.ACTION)  # type: ignore[no-any-return]


def _condition(name: str, *arguments: str) -> ElementCall:
    call = _checked_or_policy_error(checked_call, name, tuple(map(Constant, arguments)), ElementRole.CONDITION)
    return _checked_or_policy_error(checked_boolean_call, call)  # type: ignore[no-any-return]


def _above(name: str, least: float) -> Condition:
    call = _checked_or_policy_error(checked_call, name, (), ElementRole.CONDITION)
    return _checked_or_policy_error(checked_comparison, call, ">", Constant(least))  # type: ignore[no-any-return]


def _publish(*attributes: tuple[str, str]) -> ElementCall:
    values: list[tuple[str, Scalar]] = [(name, Constant(value)) for name, value in attributes]
    event = PublishTemplate((*values, ("message", Variable("Message"))))
    return _checked_or_policy_error(checked_call, "Publish", (event,), ElementRole.ACTION)  # type: ignore[no-any-return]


def _checked_or_policy_error(check: Any, *arguments: Any) -> Any:
    try:
        return check(*arguments)
    except CallRefusal as refused:
        raise PolicyError(refused.message) from None


def _flat_names(names: Iterable[Any]) -> list[str]:
    """Return the names as a flat list: `remove("a", "b")` and `remove(["a", "b"])` are the same."""
    return [
        name
        for entry in names
        for name in (entry if isinstance(entry, Iterable) and not isinstance(entry, str) else [entry])
    ]
