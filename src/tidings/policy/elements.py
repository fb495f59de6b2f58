"""Declarations of the rule elements: the built-in conditions and actions, and how they may be called.

`evaluation.conditions` and `evaluation.actions` implement the elements.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from tidings.model.expression import Constant
from tidings.policy.ast import Argument, Matching, MessageType, RuleOperation


class ElementRole(StrEnum):
    """Whether an element is a condition or an action."""

    CONDITION = "condition"
    ACTION = "action"


class ArgumentKind(StrEnum):
    """The kind of an argument, or of a condition's value. A variable is a string."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    NAME = "name"  # the name of an attribute
    VALUE = "value"  # a boolean, a number or a string
    LIST = "list"
    PUBLICATION = "publication"


class ActionEffect(StrEnum):
    """What an action does to a message. The actions on one copy are carried out in the order of these members."""

    BLOCKS = "blocks"
    REMOVES = "removes"
    ADDS = "adds"
    CONVERTS = "converts"
    ROUTES = "routes"
    REPORTS = "tells"  # no effect on the message; executed once per rule, message and broker


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of an element. If `many`, it takes all remaining arguments; only the last parameter may be `many`."""

    name: str
    kind: ArgumentKind
    default: Argument | None = None
    optional: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.name + ("..." if self.many else "")
        return f"[{name}]" if self.optional else name


FORWARD, INSERT = frozenset({RuleOperation.FORWARD}), frozenset({RuleOperation.INSERT})
BEFORE, AFTER = frozenset({Matching.BEFORE}), frozenset({Matching.AFTER})
_PUBLICATIONS = frozenset({MessageType.PUBLICATION})
_FILTERS = frozenset({MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION})


class Element(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a condition or an action: what is needed to check a call and its position in a rule."""

    name: str
    role: ElementRole
    summary: str
    parameters: tuple[Parameter, ...] = ()
    gives: ArgumentKind | None = None  # the kind of a condition's value
    effect: ActionEffect | None = None  # the effect of an action
    operations: frozenset[RuleOperation] = frozenset(RuleOperation)
    messages: frozenset[MessageType] = frozenset(MessageType)
    matching: frozenset[Matching] = frozenset(Matching)
    needs_receiver: bool = False
    needs_filter: bool = False  # needs the filter with which the policy is associated
    needs_subscription: bool = False  # needs that filter to be a subscription's
    function: Callable[..., Any] | None = None  # the implementation of a user-defined element

    @property
    def signature(self) -> str:
        """The element with its parameters, as error messages and documentation show it."""
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def changes_message(self) -> bool:
        """Whether the action removes, adds or converts something in the message."""
        return self.effect in (ActionEffect.REMOVES, ActionEffect.ADDS, ActionEffect.CONVERTS)


def _condition(name: str, gives: ArgumentKind, summary: str, *parameters: Parameter, **more: Any) -> Element:
    return Element(name=name, role=ElementRole.CONDITION, gives=gives, summary=summary, parameters=parameters, **more)


def _action(name: str, effect: ActionEffect, summary: str, *parameters: Parameter, **more: Any) -> Element:
    more.setdefault("operations", FORWARD)
    return Element(name=name, role=ElementRole.ACTION, effect=effect, summary=summary, parameters=parameters, **more)


_INTO = Parameter("into", ArgumentKind.STRING, Constant("payload"), optional=True, choices=("payload", "attributes"))
_GROUP = Parameter("group", ArgumentKind.STRING)
_NAMES = Parameter("names", ArgumentKind.NAME, many=True)
_REDUCIBLE = _PUBLICATIONS | _FILTERS

BUILT_IN: tuple[Element, ...] = (
    _condition(
        "AuthenticateReceiver",
        ArgumentKind.BOOLEAN,
        "the next hop belongs to the trust group; false where there is no next hop",
        _GROUP,
        operations=FORWARD,
        matching=AFTER,
        needs_receiver=True,
    ),
    _condition("AuthenticateSender", ArgumentKind.BOOLEAN, "the previous hop belongs to the trust group", _GROUP),
    _condition("MessageSizeIndex", ArgumentKind.NUMBER, "how large the message is, from 0 to 1"),
    _condition("BrokerLoadIndex", ArgumentKind.NUMBER, "how busy the broker is, from 0 to 1"),
    _condition(
        "StrictMatch",
        ArgumentKind.BOOLEAN,
        "the message has exactly the attributes of the policy's filter, or an equal filter",
        matching=AFTER,
        needs_filter=True,
    ),
    _action(
        "TrimAttributes",
        ActionEffect.REMOVES,
        "keeps the attributes that the subscription names",
        messages=_PUBLICATIONS,
        matching=AFTER,
        needs_filter=True,
        needs_subscription=True,
    ),
    _action("RemoveAttributes", ActionEffect.REMOVES, "takes these attributes away", _NAMES, messages=_REDUCIBLE),
    _action("KeepOnlyAttributes", ActionEffect.REMOVES, "takes all other attributes away", _NAMES, messages=_REDUCIBLE),
    _action("AppendPrevHop", ActionEffect.ADDS, "adds the previous hop as `PrevHop`", messages=_PUBLICATIONS),
    _action("ToXML", ActionEffect.CONVERTS, "writes the publication as XML", messages=_PUBLICATIONS),
    _action("ToJSON", ActionEffect.CONVERTS, "writes the publication as JSON", messages=_PUBLICATIONS),
    _action("AugmentBrokerHostInfo", ActionEffect.ADDS, "adds the broker and its host", _INTO, messages=_PUBLICATIONS),
    _action("AugmentBrokerLoadIndex", ActionEffect.ADDS, "adds the load of the broker", _INTO, messages=_PUBLICATIONS),
    _action(
        "AugmentProcessingTime", ActionEffect.ADDS, "adds the time spent on the message", _INTO, messages=_PUBLICATIONS
    ),
    _action("BlockMessage", ActionEffect.BLOCKS, "does not send this copy; before matching, refuses the message"),
    _action(
        "UninsertMessage",
        ActionEffect.BLOCKS,
        "keeps the message out of the routing tables",
        operations=INSERT,
        messages=_FILTERS,
    ),
    _action("FloodMessage", ActionEffect.ROUTES, "sends it to all neighbours but the previous hop"),
    _action(
        "ForwardTo",
        ActionEffect.ROUTES,
        "sends it to these neighbours, without matching",
        Parameter("brokers", ArgumentKind.STRING, many=True),
        matching=BEFORE,
    ),
    _action(
        "Publish",
        ActionEffect.REPORTS,
        "publishes an event of the broker's own",
        Parameter("event", ArgumentKind.PUBLICATION),
        operations=frozenset(RuleOperation),
    ),
    _action(
        "Log",
        ActionEffect.REPORTS,
        "writes a line to the broker's log; without values, the message",
        Parameter("values", ArgumentKind.VALUE, many=True, optional=True),
        operations=frozenset(RuleOperation),
    ),
    _action(
        "Persist",
        ActionEffect.REPORTS,
        "keeps the message in a store of the broker",
        Parameter("store", ArgumentKind.STRING, default=Constant("messages"), optional=True),
        operations=frozenset(RuleOperation),
    ),
)
