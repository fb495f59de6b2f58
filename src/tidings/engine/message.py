"""A message: one operation as the steps of the pipeline process it, and the outbound copies that are made of it."""

from collections.abc import Callable, Collection
from functools import cached_property

from tidings.engine.headers import ForwardingHeader
from tidings.engine.operations import Travelling
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.model.event import Event
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


class Message:
    """An operation on its way through the pipeline, with the policy attached to it.

    `hops` are its outbound copies, once it has been governed.

    Args:
        type: What the operation acts on.
        id: The id of the filter or the event.
        operation: The operation.
        sender: The client or neighbour that the operation came from.
        owner: The client that the filter or the event belongs to.
        from_broker: Whether the sender is a neighbour.
        is_ingress: Whether this broker is its ingress: its sender is a client, this broker or another sub-overlay.
        attached: The policy attached to the operation.
        rule_context: Makes the facts that policy rules may read, when the first rule needs them.
        filter: The filter, or the removed filter; None for a publication.
    """

    hops: list["OutboundCopy"]

    def __init__(
        self,
        type: MessageType,  # noqa: A002 - the policy language's word
        id: str,  # noqa: A002
        operation: Travelling,
        sender: str,
        owner: str,
        *,
        from_broker: bool,
        is_ingress: bool,
        attached: CompiledPolicy | None,
        rule_context: Callable[["Message"], RuleContext],
        filter: FilterValue | None = None,  # noqa: A002
    ) -> None:
        self.type, self.id, self.operation, self.filter = type, id, operation, filter
        self.sender, self.owner, self.from_broker, self.is_ingress = sender, owner, from_broker, is_ingress
        self.attached = attached
        self._rule_context = rule_context

    @property
    def rule_context(self) -> RuleContext:
        """The facts that policy rules may read about this message; created when the first rule needs them."""
        made = self.__dict__.get("_made")
        if made is None:
            made = self.__dict__["_made"] = self._rule_context(self)
        return made

    @cached_property
    def source(self) -> RuleSource:
        """The origin of the rules that the message carries itself."""
        return RuleSource("message", self.id, self.owner)

    def text(self, hidden: Collection[str] = ()) -> str:
        """Return the value of `$Message` in policy rules: the filter as text. `hidden` attributes are left out."""
        return str(self.filter)

    def size(self) -> int:
        """Return the approximate size in bytes."""
        return len(self.text())

    def rulings(self, operation: RuleOperation, matching: Matching = Matching.AFTER) -> tuple[Ruling, ...]:
        """Return the rules of the attached policy that act on this type of message."""
        if self.attached is None:
            return ()
        return tuple((rule, self.source) for rule in self.attached.of(operation, self.type, matching))

    @property
    def arrival(self) -> frozenset[Point]:
        """The policy points of a copy that stays in this sub-overlay, or of a message without a next hop.

        An insertion into the tables has the same points.
        """
        return _ARRIVAL[self.is_ingress, self.from_broker]


class PublicationMessage(Message):
    """A publication on its way through the pipeline.

    Args:
        event: The event.
        journey: The header: what earlier brokers did with the event.
        operation: The operation that brought it.
        sender: The client or neighbour that it came from.
        from_broker: Whether the sender is a neighbour.
        is_ingress: Whether this broker is its ingress.
        attached: The policy attached to the event.
        rule_context: Makes the facts that policy rules may read.
    """

    def __init__(
        self,
        event: Event,
        journey: ForwardingHeader,
        operation: Travelling,
        sender: str,
        *,
        from_broker: bool,
        is_ingress: bool,
        attached: CompiledPolicy | None,
        rule_context: Callable[[Message], RuleContext],
    ) -> None:
        self.type, self.operation, self.filter = MessageType.PUBLICATION, operation, None
        self.sender, self.owner, self.from_broker, self.is_ingress = sender, event.publisher, from_broker, is_ingress
        self.attached = attached
        self._rule_context = rule_context
        self.event, self.journey = event, journey
        self.route = journey.route
        self.is_flooded_back = False  # it came along routing tables and is flooded from here on
        self.skips_local_clients = False  # local clients do not get it: they have it, or get it another time
        self.skips_neighbours = (
            False  # not sent to other brokers now: redelivery does that when routing tables are complete
        )
        self.subscriptions_without_token: list[
            FilterEntry[Subscription]
        ] = []  # subscriptions to a secure topic without a token
        # For a sealed event: whether a client's token lets it govern the event.
        self.by_token: Callable[[str], bool] | None = None
        self.shared_facts: SharedFacts | None = None  # facts that do not depend on the receiver, cached

    @cached_property
    def id(self) -> str:  # type: ignore[override]
        return str(self.event.id)

    def is_governed_by(self, source: RuleSource) -> bool:
        """Whether the owner of a rule may decide for others what becomes of this publication."""
        return source.governs or (self.by_token is not None and self.by_token(source.owner))

    def text(self, hidden: Collection[str] = ()) -> str:
        """Return the publication in PADRES' bracket syntax, such as `[class,report],[d1,5]`."""
        attributes = self.event.attributes.items()
        said = tuple((name, Constant(value)) for name, value in attributes if name not in hidden)
        return format_publication(PublishTemplate(said))

    def size(self) -> int:
        """Return the approximate size in bytes: attributes and payload."""
        attributes = self.event.attributes.items()
        values = sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in attributes)
        return values + len(self.event.payload or b"")


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
            self.points = _TO_CLIENT[message.is_ingress]
        else:
            self.points = message.arrival | _EGRESS if is_egress else message.arrival


class Refusal(Exception):  # noqa: N818 - never leaves the engine
    """Raised by a pipeline step to refuse an operation; `Engine.run` turns it into a `Reject`."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class OutdatedNews(Exception):  # noqa: N818
    """Raised when a broker sends something that is known already or is older than what is known: it is ignored."""
