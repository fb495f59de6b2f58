"""What an engine is asked to do: operations, from clients, from neighbours and from the driver.

Operations are values. The same ones travel between brokers: what an engine sends to a neighbour, the neighbour
`Receive`s. A client's operation names the client; whether it may is checked when it is admitted.
"""

from typing import TypeAlias
from uuid import UUID

import msgspec

from tidings.engine.journey import NEW, Journey, Way
from tidings.engine.recorded import Recorded
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.linkstate import LinkState


class _Operation(msgspec.Struct, frozen=True, tag=True):
    """What all operations share: frozen, tagged with their class when encoded."""


class Advertise(_Operation, frozen=True):
    advertisement: Advertisement
    way: Way | None = None  # between brokers


class Unadvertise(_Operation, frozen=True):
    client: str
    id: str
    policy: str | None = None
    way: Way | None = None


class Subscribe(_Operation, frozen=True):
    """A new subscription, or, under an id that its owner has, another one in its place."""

    subscription: Subscription
    way: Way | None = None


class Unsubscribe(_Operation, frozen=True):
    client: str
    id: str
    policy: str | None = None
    way: Way | None = None


class SetContext(_Operation, frozen=True):
    """The whole context of a client from now on; `by` is another client that it lets set it."""

    client: str
    context: Context
    by: str | None = None
    way: Way | None = None


class Entrust(_Operation, frozen=True):
    """A client lets another one set its context, or does so no more."""

    client: str
    other: str
    entrusted: bool = True


class SetPolicy(_Operation, frozen=True):
    """A policy for a subscription or an advertisement of the client's; None takes it away.

    Given by the broker itself (the client has the broker's name), it is the operator's: local to this broker, beside
    the owner's.
    """

    client: str
    id: str
    policy: str | None
    way: Way | None = None


class Define(_Operation, frozen=True):
    """The schema of a subject, or a longer version of it."""

    client: str
    schema: Schema


class Publish(_Operation, frozen=True):
    event: Event
    journey: Journey = NEW  # between brokers: what happened to it on the way


class Republish(_Operation, frozen=True):
    """A publication of this broker's journal is sent again, to those brokers that may have missed it; with `whose`, for
    the durable subscriptions of these clients alone. It was admitted before, and its own clients have it. No event is
    sent twice in one round, and later rounds are higher: see `Debts`."""

    event: Event
    round: int
    only: tuple[str, ...] = ()
    whose: tuple[str, ...] = ()


class Lag(_Operation, frozen=True):
    """These brokers are being sent what they have missed: new publications, which would overtake that, are not for
    them."""

    brokers: tuple[str, ...]


class Judge(_Operation, frozen=True):
    """A publication that was accepted is decided about, for these durable subscriptions of a client: when it came, that
    had to wait for an answer, and what waited is gone, with the client's connection or with the process.

    `journey` is how it came, and `sender` the neighbour that it came from; empty: it was published here. `answers` are
    what its sender has proved: groups, and whether it belongs to them. `rules` are those for every copy, as they were
    in force then.
    """

    event: Event
    client: str
    subscriptions: tuple[str, ...]
    journey: Journey = NEW
    sender: str = ""
    answers: tuple[tuple[str, bool], ...] = ()
    rules: tuple[Recorded, ...] = ()


class Connect(_Operation, frozen=True):
    """A client is here. If it `moved`, it was at another broker before: what that one has of it, comes here.

    `session` is the client's own count of its connections, wherever: the broker with the highest one has it now. No two
    brokers' clocks can tell that as well; they have to where it is None.
    """

    client: str
    moved: bool = False
    session: int | None = None


class Disconnect(_Operation, frozen=True):
    """A client left: what is not durable goes with it."""

    client: str


class Join(_Operation, frozen=True):
    """A link to a neighbour is up."""

    neighbour: str
    cost: int = 1


class Leave(_Operation, frozen=True):
    """A link to a neighbour is gone, and all that came over it."""

    neighbour: str


class Receive(_Operation, frozen=True):
    """An operation that came over the link from a neighbour."""

    neighbour: str
    operation: "Travelling"


class Tick(_Operation, frozen=True):
    """Time has passed: the driver says so at every heartbeat."""


class SetLoad(_Operation, frozen=True):
    """How busy the broker is, from 0 to 1: measured by the driver."""

    load: float


class Trust(_Operation, frozen=True):
    """The answer to an `Authenticate`. Up to `until` (microseconds) it need not be asked again."""

    party: str
    group: str
    member: bool
    until: int = 0


class Lost(_Operation, frozen=True):
    """The driver's queue for a subscription was full, and so many notifications were lost: it is told."""

    client: str
    subscription: str
    count: int


class Learn(_Operation, frozen=True):
    """The record of a secure topic, signed by its owner: from now on events on it need a token."""

    record: bytes


class Heed(_Operation, frozen=True):
    """A notice of a topic's key management centre: which epochs count, and whose grants do no more."""

    notice: bytes


class Revoke(_Operation, frozen=True):
    """An update of the authority's list of revocations."""

    update: bytes


# What brokers tell each other of the overlay itself


class TellLinks(_Operation, frozen=True):
    """What is new about the links of brokers."""

    states: tuple[LinkState, ...]


class Done(_Operation, frozen=True):
    """Up the shared tree: everyone from here on down has told what is to be told in this phase."""

    digest: str
    phase: int


class Complete(_Operation, frozen=True):
    """Down the shared tree: everyone has."""

    digest: str
    phase: int


class Announce(_Operation, frozen=True):
    """Contexts that clients of a broker have now, and those that none of them has any more; along the broker's tree.

    What it attracts comes up the tree, and behind it an `Acknowledge` of the number.
    """

    origin: str
    digest: str
    number: int
    added: tuple[Context | None, ...] = ()  # None: any, of publishers in another sub-overlay
    gone: tuple[bytes, ...] = ()


class Acknowledge(_Operation, frozen=True):
    origin: str
    digest: str
    number: int


class Reside(_Operation, frozen=True):
    """Clients that have moved to a broker, and with which session: whoever else has something of them gives it up."""

    origin: str
    digest: str
    clients: dict[str, int]


class Carry(_Operation, frozen=True):
    """Notifications that wait for a client that has moved to another broker, and the contexts that clients had at the
    broker that they have left: on their way there.

    They may get lost with a link: who sent them keeps them until a `Carried` with their number comes back.
    """

    origin: str
    to: str
    number: int
    notifications: tuple[tuple[Notification, str], ...]
    contexts: dict[str, Context] = {}


class Carried(_Operation, frozen=True):
    """What was carried has arrived: on its way back to where that came from."""

    to: str
    number: int


class Settle(_Operation, frozen=True):
    """Publications of these rounds have reached all that they can reach from here on: to whoever passed them on."""

    passed: tuple[tuple[UUID, int], ...]


class TellTopics(_Operation, frozen=True):
    """Records of secure topics, signed by their owners."""

    records: tuple[bytes, ...]


class TellNotices(_Operation, frozen=True):
    """What key management centres say of their topics, signed by them."""

    notices: tuple[bytes, ...]


class AskRevocations(_Operation, frozen=True):
    """So many entries of the list of revocations are known here, under a head of that time: what is newer?"""

    version: int
    issued: int


class TellRevocations(_Operation, frozen=True):
    """What is newer, signed by the authority."""

    update: bytes


Assurances: TypeAlias = TellTopics | TellNotices | AskRevocations | TellRevocations
Signal: TypeAlias = (
    TellLinks | Done | Complete | Announce | Acknowledge | Reside | Carry | Carried | Settle | Assurances
)
Travelling: TypeAlias = (
    Advertise | Unadvertise | Subscribe | Unsubscribe | SetContext | SetPolicy | Define | Publish | Signal
)
Operation: TypeAlias = (
    Travelling
    | Entrust
    | Republish
    | Judge
    | Lag
    | Connect
    | Disconnect
    | Join
    | Leave
    | Receive
    | Tick
    | SetLoad
    | Trust
    | Lost
    | Learn
    | Heed
    | Revoke
)


def digest_of(operation: Travelling) -> str | None:
    """Of the network in which it is told; None if it counts in any."""
    match operation:
        case Done(digest) | Complete(digest) | Announce(_, digest) | Acknowledge(_, digest) | Reside(_, digest):
            return digest
        case Publish() | TellLinks() | Define() | Carry() | Carried() | Settle():
            return None
        case TellTopics() | TellNotices() | AskRevocations() | TellRevocations():
            return None
        case _:
            return None if operation.way is None else operation.way.digest


def client_of(operation: Operation) -> str:
    """Whose operation it is, before it has left its broker; empty if it is nobody's."""
    match operation:
        case Publish(event):
            return event.publisher
        case Advertise(advertisement):
            return advertisement.publisher
        case Subscribe(subscription):
            return subscription.subscriber
        case _:
            return getattr(operation, "client", "")
