"""A message: one operation as the steps of the pipeline process it, and the outbound copies that are made of it."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from tidings.engine.headers import Route
from tidings.engine.operations import Publish, Travelling
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.model.expression import Constant
from tidings.model.filter import FilterValue
from tidings.model.subscription import Subscription
from tidings.policy.ast import Matching, MessageType, Point, PublishTemplate, RuleOperation
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.evaluation.evaluation import RuleContext, RuleSource, SharedFacts
from tidings.policy.publish_template import format_publication

_INGRESS, _EGRESS, _ROUTING = frozenset({Point.INGRESS}), frozenset({Point.EGRESS}), frozenset({Point.ROUTING})
# Policy points by (the message enters here, the message came from a broker).
_ARRIVAL = {
    (True, False): _INGRESS,
    (True, True): _INGRESS | _ROUTING,
    (False, True): _ROUTING,
    (False, False): frozenset[Point](),
}
_TO_CLIENT = {True: _INGRESS | _EGRESS, False: _EGRESS}


class Arrival(NamedTuple):
    """How a message came to this broker."""

    sender: str  # the client or neighbour that it came from
    from_broker: bool  # whether the sender is a neighbour
    is_ingress: bool  # whether this broker is its ingress: its sender is a client, this broker or another sub-overlay

    @property
    def points(self) -> frozenset[Point]:
        """The policy points of a copy that stays in this sub-overlay, or of a message without a next hop.

        An insertion into the tables has the same points.
        """
        return _ARRIVAL[self.is_ingress, self.from_broker]


class Message:
    """An operation on its way through the pipeline, with the policy attached to it.

    `hops` are its outbound copies, once it has been governed.

    Args:
        type: What the operation acts on.
        id: The id of the filter.
        operation: The operation.
        arrival: How it came here.
        owner: The client that the filter belongs to.
        attached: The policy attached to the operation.
        rule_context: Makes the facts that policy rules may read, when the first rule needs them.
        filter: The filter, or the removed filter.
    """

    __slots__ = (
        *("arrival", "attached", "hops", "operation", "type"),
        *("_filter", "_id", "_make_rule_context", "_owner", "_rule_context", "_source"),
    )
    hops: list["OutboundCopy"]
    operation: Travelling

    def __init__(
        self,
        type: MessageType,  # noqa: A002 - the policy language's word
        id: str,  # noqa: A002
        operation: Travelling,
        arrival: Arrival,
        owner: str,
        *,
        attached: CompiledPolicy | None,
        rule_context: Callable[["Message"], RuleContext],
        filter: FilterValue,  # noqa: A002
    ) -> None:
        self.type, self.operation, self.arrival, self.attached = type, operation, arrival, attached
        self._id, self._owner = id, owner
        self._filter: FilterValue | None = filter
        self._make_rule_context = rule_context
        self._rule_context: RuleContext | None = None
        self._source: RuleSource | None = None

    @property
    def id(self) -> str:
        """The id of the filter or the event."""
        return self._id

    @property
    def rule_context(self) -> RuleContext:
        """The facts that policy rules may read about this message; created when the first rule needs them."""
        if self._rule_context is None:
            self._rule_context = self._make_rule_context(self)
        return self._rule_context

    def rulings(self, operation: RuleOperation, matching: Matching = Matching.AFTER) -> tuple[Ruling, ...]:
        """Return the rules of the attached policy that act on this type of message."""
        if self.attached is None:
            return ()
        if self._source is None:
            self._source = RuleSource("message", self.id, self._owner)
        return tuple((rule, self._source) for rule in self.attached.of(operation, self.type, matching))


class PublicationRouting:
    """What the broker has decided about the way of a publication."""

    __slots__ = ("is_flooded_back", "route", "skips_local_clients", "skips_neighbours")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.is_flooded_back = False  # it came along routing tables and is flooded from here on
        self.skips_local_clients = False  # local clients do not get it: they have it, or get it another time
        # Not sent to other brokers now: redelivery does that when routing tables are complete.
        self.skips_neighbours = False


class TokenRights:
    """What tokens say about a sealed event.

    Args:
        may_govern: Whether a client's token lets it govern the event.
    """

    __slots__ = ("may_govern", "subscriptions_without_token")

    def __init__(self, may_govern: Callable[[str], bool]) -> None:
        self.may_govern = may_govern
        self.subscriptions_without_token: list[FilterEntry[Subscription]] = []  # matching ones to its secure topic


class PublicationMessage(Message):
    """A publication on its way through the pipeline.

    Args:
        operation: The publication.
        arrival: How it came here.
        attached: The policy attached to the event.
        rule_context: Makes the facts that policy rules may read.
    """

    __slots__ = ("event", "routing", "shared_facts", "tokens")
    operation: Publish

    def __init__(
        self,
        operation: Publish,
        arrival: Arrival,
        *,
        attached: CompiledPolicy | None,
        rule_context: Callable[[Message], RuleContext],
    ) -> None:
        event = self.event = operation.event
        self.type, self.operation, self.arrival, self.attached = MessageType.PUBLICATION, operation, arrival, attached
        self._owner = event.publisher
        self._make_rule_context = rule_context
        self._rule_context = self._source = None
        self.routing = PublicationRouting(operation.journey.route)
        self.tokens: TokenRights | None = None  # of a sealed event
        self.shared_facts: SharedFacts | None = None  # facts that do not depend on the receiver, cached

    @property
    def id(self) -> str:
        """The id of the event."""
        return str(self.event.id)


def is_governed_by(message: PublicationMessage, source: RuleSource) -> bool:
    """Whether the owner of a rule may decide for others what becomes of a publication."""
    return source.governs or (message.tokens is not None and message.tokens.may_govern(source.owner))


def text_of(message: Message, hidden: Collection[str] = ()) -> str:
    """Return the value of `$Message` in policy rules, without the `hidden` attributes.

    It is a filter as text, or a publication in PADRES' bracket syntax, such as `[class,report],[d1,5]`.
    """
    if not isinstance(message, PublicationMessage):
        return str(message._filter)
    attributes = message.event.attributes.items()
    shown = tuple((name, Constant(value)) for name, value in attributes if name not in hidden)
    return format_publication(PublishTemplate(shown))


def size_of(message: Message) -> int:
    """Return the approximate size of a message in bytes: of a publication, that of its attributes and payload."""
    if not isinstance(message, PublicationMessage):
        return len(text_of(message))
    event = message.event
    values = sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in event.attributes.items())
    return values + len(event.payload or b"")


class OutboundCopy:
    """The copy of a message for one receiver, with the subscriptions that it is for (`subscriptions`).

    `governing_subscriptions` are subscriptions that match the event and may block it (their owners hold the right to
    govern), although the publisher did not address them.

    Args:
        message: The message.
        receiver: The client or neighbour; None stands for a message that has no next hop.
        is_client: Whether the receiver is a client.
        is_egress: Whether the receiver is in another sub-overlay.
    """

    __slots__ = ("attributes_behind", "governing_subscriptions", "is_client", "points", "receiver", "subscriptions")

    def __init__(
        self, message: Message, receiver: str | None, *, is_client: bool = False, is_egress: bool = False
    ) -> None:
        self.receiver, self.is_client = receiver, is_client
        self.attributes_behind: Callable[[], Collection[str]] = (
            tuple  # returns the attributes that filters behind the link name
        )
        self.subscriptions: list[FilterEntry[Subscription]] = []
        self.governing_subscriptions: list[FilterEntry[Subscription]] = []
        if is_client:
            self.points = _TO_CLIENT[message.arrival.is_ingress]
        else:
            points = message.arrival.points
            self.points = points | _EGRESS if is_egress else points


class Refusal(Exception):  # noqa: N818 - never leaves the engine
    """Raised by a pipeline step to refuse an operation; the engine turns it into a `Reject`."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class OutdatedNews(Exception):  # noqa: N818
    """Raised when a broker sends something that is known already or is older than what is known: it is ignored."""
