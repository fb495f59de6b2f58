"""Ready-made policies, the paper's and a few close to them: `tidings.policies`.

Each is equal to what its text parses to; `str` shows it. Where the paper's text leaves something open, the docstring
says what is different here.
"""

from collections.abc import Iterable
from typing import Any

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.policy.calls import CallRefused, checked_alone, checked_call, checked_comparison
from tidings.policy.elements import Role
from tidings.policy.policy import Policy
from tidings.policy.statement import (
    ALL_POINTS,
    TRUE,
    Attach,
    Branch,
    Call,
    Condition,
    MessageType,
    Operation,
    Point,
    Publication,
    Rule,
    Scalar,
    Variable,
    all_of,
    any_of,
)

_FORWARD, _INSERT = Operation.FORWARD, Operation.INSERT
_ADVERTISEMENT, _SUBSCRIPTION = MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION
_PUBLICATION = MessageType.PUBLICATION
_INGRESS, _EGRESS, _ROUTING = Point.INGRESS, Point.EGRESS, Point.ROUTING

# For subscribers: what a notification looks like


def trim(*, convert: str | None = None) -> Policy:
    """Notifications have only the attributes that the subscription names (Fig. 4); `convert` is "xml" or "json"."""
    return _notification(_action("TrimAttributes"), convert)


def remove(*names: str | Iterable[str], convert: str | None = None) -> Policy:
    """Notifications come without these attributes."""
    return _notification(_action("RemoveAttributes", *_spread(names)), convert)


def keep_only(*names: str | Iterable[str], convert: str | None = None) -> Policy:
    """Notifications come with these attributes and no others."""
    return _notification(_action("KeepOnlyAttributes", *_spread(names)), convert)


def prev_hop() -> Policy:
    """Notifications say from which broker they came, in the attribute `PrevHop`."""
    return _notification(_action("AppendPrevHop"), None)


def to_xml() -> Policy:
    """Notifications are written as XML."""
    return _notification(_action("ToXML"), None)


def to_json() -> Policy:
    """Notifications are written as JSON."""
    return _notification(_action("ToJSON"), None)


# For operators and developers: what the overlay does


def trace(
    *, host: bool = True, load: bool = True, time: bool = True, attach: str = "Never", attributes: bool = False
) -> Policy:
    """Publications tell at every broker where they were, how busy it was and how long it took (Fig. 6).

    What is told stands in `trace` of a notification or, with `attributes`, in attributes `$trace.<broker>.host`,
    `.load` and `.microseconds`.

    Attached to a publication it traces that one; associated with a subscription, what that subscriber gets. With an
    advertisement and `attach="Always"`, all matching publications carry it.
    """
    chosen = {"AugmentBrokerHostInfo": host, "AugmentBrokerLoadIndex": load, "AugmentProcessingTime": time}
    into = ("attributes",) if attributes else ()
    actions = tuple(_action(name, *into) for name, wanted in chosen.items() if wanted)
    if not actions:
        raise PolicyError("trace() has nothing to tell; leave host, load or time at True")
    try:
        return Policy((_rule(_FORWARD, _PUBLICATION, ALL_POINTS, (TRUE, actions), attach=Attach(attach)),))
    except ValueError:
        raise PolicyError(f"attach is one of {', '.join(Attach)}, not {attach!r}") from None


def shed_load(*, size: float = 0.8, load: float = 0.75) -> Policy:
    """A busy broker drops large subscriptions and says so in an event of the class `DropMessage` (Fig. 7)."""
    heavy = all_of([_compared("MessageSizeIndex", size), _compared("BrokerLoadIndex", load)])
    told = _publish(("class", "DropMessage"), ("cause", "Broker load"))
    return Policy(
        (
            _rule(_INSERT, _SUBSCRIPTION, {_INGRESS}, (heavy, (_action("UninsertMessage"), told))),
            _rule(_FORWARD, _SUBSCRIPTION, {_INGRESS}, (heavy, (_action("BlockMessage"),))),
        )
    )


def flood() -> Policy:
    """For advertisements: they stay where they are made, and subscriptions that match them go everywhere (Fig. 8)."""
    return Policy(
        (
            _rule(_FORWARD, _ADVERTISEMENT, {_INGRESS, _ROUTING}, (TRUE, (_action("BlockMessage"),))),
            _rule(_FORWARD, _SUBSCRIPTION, {_INGRESS, _ROUTING}, (TRUE, (_action("FloodMessage"),))),
        )
    )


# Security


def authenticated(*groups: str | Iterable[str], every: bool = False) -> Policy:
    """For advertisements: they are sent only to receivers of one of the trust groups, or of every one (Fig. 13).

    The paper writes one branch a group; here the groups stand in one condition, which says the same.
    """
    members = [_condition("AuthenticateReceiver", group) for group in _spread(groups)]
    if not members:
        raise PolicyError("authenticated() needs a trust group")
    let_through = all_of(members) if every else any_of(members)
    blocked = (TRUE, (_action("BlockMessage"),))
    return Policy((_rule(_FORWARD, _ADVERTISEMENT, {_INGRESS, _ROUTING}, (let_through, ()), blocked),))


def security_zones(
    *, restricted: str, controlled: str, hidden: Iterable[str], subscribers: str, event: str = "UnauthorizedSubscribe"
) -> Policy:
    """For advertisements: all is seen in the restricted zone, not the hidden attributes in the controlled one, and
    nothing elsewhere; only members of `subscribers` may subscribe (Fig. 16).

    The paper's text reports an unauthorised subscription and forwards it all the same. Here it is reported, not sent
    on, and not stored either.
    """
    reduced = _action("RemoveAttributes", *_spread((hidden,)))
    zones: list[tuple[Condition, tuple[Call, ...]]] = [
        (_condition("AuthenticateReceiver", restricted), ()),
        (_condition("AuthenticateReceiver", controlled), (reduced,)),
        (TRUE, (_action("BlockMessage"),)),
    ]
    authorised: tuple[Condition, tuple[Call, ...]] = (_condition("AuthenticateSender", subscribers), ())
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
    """Blocks what matches: publications, with a subscription; or with an advertisement, `subscriptions` (Fig. 22).

    With `strict`, only what has exactly the filter's attributes. The paper's rule is for Routing alone and lets pass
    what clients of the firewall broker itself publish; this one also applies where messages enter.
    """
    message = _SUBSCRIPTION if subscriptions else _PUBLICATION
    condition = _condition("StrictMatch") if strict else TRUE
    return Policy((_rule(_FORWARD, message, {_INGRESS, _ROUTING}, (condition, (_action("BlockMessage"),))),))


def _notification(action: Call, convert: str | None) -> Policy:
    conversions = {None: (), "xml": (_action("ToXML"),), "json": (_action("ToJSON"),)}
    if convert not in conversions:
        raise PolicyError(f"convert is 'xml' or 'json', not {convert!r}")
    return Policy((_rule(_FORWARD, _PUBLICATION, {_EGRESS}, (TRUE, (action, *conversions[convert]))),))


def _rule(
    operation: Operation,
    message: MessageType,
    points: Iterable[Point],
    *branches: tuple[Condition, tuple[Call, ...]],
    attach: Attach = Attach.NEVER,
) -> Rule:
    return Rule(
        operation=operation,
        message=message,
        points=frozenset(points),
        branches=tuple(Branch(condition, actions) for condition, actions in branches),
        attach=attach,
    )


def _action(name: str, *arguments: str) -> Call:
    return _checked(checked_call, name, tuple(map(Constant, arguments)), Role.ACTION)  # type: ignore[no-any-return]


def _condition(name: str, *arguments: str) -> Call:
    call = _checked(checked_call, name, tuple(map(Constant, arguments)), Role.CONDITION)
    return _checked(checked_alone, call)  # type: ignore[no-any-return]


def _compared(name: str, least: float) -> Condition:
    call = _checked(checked_call, name, (), Role.CONDITION)
    return _checked(checked_comparison, call, ">", Constant(least))  # type: ignore[no-any-return]


def _publish(*attributes: tuple[str, str]) -> Call:
    said: list[tuple[str, Scalar]] = [(name, Constant(value)) for name, value in attributes]
    event = Publication((*said, ("message", Variable("Message"))))
    return _checked(checked_call, "Publish", (event,), Role.ACTION)  # type: ignore[no-any-return]


def _checked(check: Any, *arguments: Any) -> Any:
    try:
        return check(*arguments)
    except CallRefused as refused:
        raise PolicyError(refused.message) from None


def _spread(given: Iterable[Any]) -> list[str]:
    """`remove("a", "b")` and `remove(["a", "b"])` are the same."""
    return [
        name for one in given for name in (one if isinstance(one, Iterable) and not isinstance(one, str) else [one])
    ]
