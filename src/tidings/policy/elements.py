"""Rule elements: which conditions and actions there are, and how each is called. What they do stands elsewhere."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from tidings.model.expression import Constant
from tidings.policy.statement import Argument, Matching, MessageType, Operation


class Role(StrEnum):
    CONDITION = "condition"
    ACTION = "action"


class Kind(StrEnum):
    """What may stand as an argument, or come out of a condition. A variable is a string."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    NAME = "name"  # of an attribute
    VALUE = "value"  # a boolean, a number or a string
    LIST = "list"
    PUBLICATION = "publication"


class Effect(StrEnum):
    """What an action does to the message; rules that meet are carried out in this order."""

    BLOCKS = "blocks"
    REMOVES = "removes"
    ADDS = "adds"
    CONVERTS = "converts"
    ROUTES = "routes"
    TELLS = "tells"  # it leaves the message alone: once per rule, message and broker


class Parameter(msgspec.Struct, frozen=True):
    """One place in a call. `many` takes all arguments that are left, and only the last one may."""

    name: str
    kind: Kind
    default: Argument | None = None
    optional: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.name + ("..." if self.many else "")
        return f"[{name}]" if self.optional else name


FORWARD, INSERT = frozenset({Operation.FORWARD}), frozenset({Operation.INSERT})
BEFORE, AFTER = frozenset({Matching.BEFORE}), frozenset({Matching.AFTER})
_PUBLICATIONS = frozenset({MessageType.PUBLICATION})
_FILTERS = frozenset({MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION})


class Element(msgspec.Struct, frozen=True, kw_only=True):
    """A condition or an action as it is declared: enough to check a call, a rule and a place."""

    name: str
    role: Role
    summary: str
    parameters: tuple[Parameter, ...] = ()
    gives: Kind | None = None  # the value of a condition
    effect: Effect | None = None  # of an action
    operations: frozenset[Operation] = frozenset(Operation)
    messages: frozenset[MessageType] = frozenset(MessageType)
    matching: frozenset[Matching] = frozenset(Matching)
    needs_receiver: bool = False
    needs_filter: bool = False  # the filter that the policy is associated with
    needs_subscription: bool = False  # and that filter is a subscription
    function: Callable[..., Any] | None = None  # of one's own elements

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def changes_message(self) -> bool:
        return self.effect in (Effect.REMOVES, Effect.ADDS, Effect.CONVERTS)


def _condition(name: str, gives: Kind, summary: str, *parameters: Parameter, **more: Any) -> Element:
    return Element(name=name, role=Role.CONDITION, gives=gives, summary=summary, parameters=parameters, **more)


def _action(name: str, effect: Effect, summary: str, *parameters: Parameter, **more: Any) -> Element:
    more.setdefault("operations", FORWARD)
    return Element(name=name, role=Role.ACTION, effect=effect, summary=summary, parameters=parameters, **more)


_INTO = Parameter("into", Kind.STRING, Constant("payload"), optional=True, choices=("payload", "attributes"))
_GROUP = Parameter("group", Kind.STRING)
_NAMES = Parameter("names", Kind.NAME, many=True)
_REDUCIBLE = _PUBLICATIONS | _FILTERS

BUILT_IN: tuple[Element, ...] = (
    _condition(
        "AuthenticateReceiver",
        Kind.BOOLEAN,
        "the next hop belongs to the trust group; false where there is no next hop",
        _GROUP,
        operations=FORWARD,
        matching=AFTER,
        needs_receiver=True,
    ),
    _condition("AuthenticateSender", Kind.BOOLEAN, "the previous hop belongs to the trust group", _GROUP),
    _condition("MessageSizeIndex", Kind.NUMBER, "how large the message is, from 0 to 1"),
    _condition("BrokerLoadIndex", Kind.NUMBER, "how busy the broker is, from 0 to 1"),
    _condition(
        "StrictMatch",
        Kind.BOOLEAN,
        "the message has exactly the attributes of the policy's filter, or an equal filter",
        matching=AFTER,
        needs_filter=True,
    ),
    _action(
        "TrimAttributes",
        Effect.REMOVES,
        "keeps the attributes that the subscription names",
        messages=_PUBLICATIONS,
        matching=AFTER,
        needs_filter=True,
        needs_subscription=True,
    ),
    _action("RemoveAttributes", Effect.REMOVES, "takes these attributes away", _NAMES, messages=_REDUCIBLE),
    _action("KeepOnlyAttributes", Effect.REMOVES, "takes all other attributes away", _NAMES, messages=_REDUCIBLE),
    _action("AppendPrevHop", Effect.ADDS, "adds the previous hop as `PrevHop`", messages=_PUBLICATIONS),
    _action("ToXML", Effect.CONVERTS, "writes the publication as XML", messages=_PUBLICATIONS),
    _action("ToJSON", Effect.CONVERTS, "writes the publication as JSON", messages=_PUBLICATIONS),
    _action("AugmentBrokerHostInfo", Effect.ADDS, "adds the broker and its host", _INTO, messages=_PUBLICATIONS),
    _action("AugmentBrokerLoadIndex", Effect.ADDS, "adds the load of the broker", _INTO, messages=_PUBLICATIONS),
    _action("AugmentProcessingTime", Effect.ADDS, "adds the time spent on the message", _INTO, messages=_PUBLICATIONS),
    _action("BlockMessage", Effect.BLOCKS, "does not send this copy; before matching, refuses the message"),
    _action(
        "UninsertMessage",
        Effect.BLOCKS,
        "keeps the message out of the routing tables",
        operations=INSERT,
        messages=_FILTERS,
    ),
    _action("FloodMessage", Effect.ROUTES, "sends it to all neighbours but the previous hop"),
    _action(
        "ForwardTo",
        Effect.ROUTES,
        "sends it to these neighbours, without matching",
        Parameter("brokers", Kind.STRING, many=True),
        matching=BEFORE,
    ),
    _action(
        "Publish",
        Effect.TELLS,
        "publishes an event of the broker's own",
        Parameter("event", Kind.PUBLICATION),
        operations=frozenset(Operation),
    ),
    _action(
        "Log",
        Effect.TELLS,
        "writes a line to the broker's log; without values, the message",
        Parameter("values", Kind.VALUE, many=True, optional=True),
        operations=frozenset(Operation),
    ),
    _action(
        "Persist",
        Effect.TELLS,
        "keeps the message in a store of the broker",
        Parameter("store", Kind.STRING, default=Constant("messages"), optional=True),
        operations=frozenset(Operation),
    ),
)
