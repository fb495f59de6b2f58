"""A message under way: one operation as the steps of the pipeline see it, and the copies that are made of it."""

from collections.abc import Callable, Collection
from functools import cached_property

from tidings.engine.journey import Journey
from tidings.engine.operations import Travelling
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.event import Event
from tidings.model.expression import Constant
from tidings.model.filter import Filter
from tidings.model.subscription import Subscription
from tidings.policy.application import CompiledPolicy
from tidings.policy.publication import written_publication
from tidings.policy.situation import Glance, Situation, Source
from tidings.policy.statement import Matching, MessageType, Operation, Point, Publication

_INGRESS, _EGRESS, _ROUTING = frozenset({Point.INGRESS}), frozenset({Point.EGRESS}), frozenset({Point.ROUTING})
# By whether a message enters here, and whether it came from a broker.
_ARRIVAL = {
    (True, False): _INGRESS,
    (True, True): _INGRESS | _ROUTING,
    (False, True): _ROUTING,
    (False, False): frozenset[Point](),
}
_TO_CLIENT = {True: _INGRESS | _EGRESS, False: _EGRESS}


class Message:
    """`enters`: it came from a client, from this broker itself or from another sub-overlay. `hops` are its copies."""

    hops: list["Hop"]

    def __init__(
        self,
        type: MessageType,  # noqa: A002 - the policy language's word
        id: str,  # noqa: A002
        operation: Travelling,
        sender: str,
        owner: str,
        *,
        from_broker: bool,
        enters: bool,
        attached: CompiledPolicy | None,
        situation: Callable[["Message"], Situation],
        filter: Filter | None = None,  # noqa: A002
    ) -> None:
        self.type, self.id, self.operation, self.filter = type, id, operation, filter
        self.sender, self.owner, self.from_broker, self.enters = sender, owner, from_broker, enters
        self.attached = attached
        self._situation = situation

    @property
    def situation(self) -> Situation:
        """Made when the first rule asks for it."""
        made = self.__dict__.get("_made")
        if made is None:
            made = self.__dict__["_made"] = self._situation(self)
        return made

    @cached_property
    def source(self) -> Source:
        return Source("message", self.id, self.owner)

    def text(self, hidden: Collection[str] = ()) -> str:
        """What `$Message` is: the filter."""
        return str(self.filter)

    def size(self) -> int:
        """About how many bytes it has."""
        return len(self.text())

    def rulings(self, operation: Operation, matching: Matching = Matching.AFTER) -> tuple[Ruling, ...]:
        """The rules on such messages that it carries itself."""
        if self.attached is None:
            return ()
        return tuple((rule, self.source) for rule in self.attached.of(operation, self.type, matching))

    @property
    def arrival(self) -> frozenset[Point]:
        """The points of what does not leave the overlay here: of an insertion, of a copy for another broker of it, or
        of a message without a next hop."""
        return _ARRIVAL[self.enters, self.from_broker]


class PublicationMessage(Message):
    def __init__(
        self,
        event: Event,
        journey: Journey,
        operation: Travelling,
        sender: str,
        *,
        from_broker: bool,
        enters: bool,
        attached: CompiledPolicy | None,
        situation: Callable[[Message], Situation],
    ) -> None:
        self.type, self.operation, self.filter = MessageType.PUBLICATION, operation, None
        self.sender, self.owner, self.from_broker, self.enters = sender, event.publisher, from_broker, enters
        self.attached = attached
        self._situation = situation
        self.event, self.journey = event, journey
        self.route = journey.route
        self.has_turned = False  # it came by tables, and goes everywhere from here on
        self.stays_out = False  # what clients here get of it, they have got before
        self.stays_in = False  # tables are being made anew: it will be sent to other brokers when they are complete
        self.intruders: list[Filed[Subscription]] = []  # that ask for a secure topic without a token
        self.by_token: Callable[[str], bool] | None = None  # whether a client governs it by a token, if it is sealed
        self.glance: Glance | None = None  # what was seen of it without asking who receives it

    @cached_property
    def id(self) -> str:  # type: ignore[override]
        return str(self.event.id)

    def is_governed_by(self, source: Source) -> bool:
        """Whether a rule's owner may decide for others what becomes of it."""
        return source.governs or (self.by_token is not None and self.by_token(source.owner))

    def text(self, hidden: Collection[str] = ()) -> str:
        """The publication in PADRES' brackets: `[class,report],[d1,5]`."""
        attributes = self.event.attributes.items()
        said = tuple((name, Constant(value)) for name, value in attributes if name not in hidden)
        return written_publication(Publication(said))

    def size(self) -> int:
        attributes = self.event.attributes.items()
        values = sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in attributes)
        return values + len(self.event.payload or b"")


class Hop:
    """A copy of a message: its receiver, and the subscriptions that it is for. No receiver: there is no next hop.

    `wardens` are subscriptions that govern and concern the event, but are not among those that it says it is for.
    """

    __slots__ = ("is_client", "named", "points", "receiver", "wanted", "wardens")

    def __init__(
        self, message: Message, receiver: str | None, *, is_client: bool = False, leaves: bool = False
    ) -> None:
        self.receiver, self.is_client = receiver, is_client
        self.named: Callable[[], Collection[str]] = tuple  # the attributes that filters behind the link speak of
        self.wanted: list[Filed[Subscription]] = []
        self.wardens: list[Filed[Subscription]] = []
        if is_client:
            self.points = _TO_CLIENT[message.enters]
        else:
            self.points = message.arrival | _EGRESS if leaves else message.arrival
