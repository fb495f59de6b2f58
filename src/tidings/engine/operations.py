"""Operations: the inputs of an engine, from clients, from neighbours and from the driver.

Operations are immutable values. An operation that an engine sends to a neighbour (`Send`) arrives there wrapped in a
`Receive`. An operation of a client names the client; the `admit` step checks whether that client may do it. The `tag`
of a class is its encoded name, which stays when the class is renamed.
"""

from typing import TypeAlias
from uuid import UUID

import msgspec

from tidings.engine.headers import NEW, ForwardingHeader, Provenance, RuleSnapshot
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.linkstate import LinkState


class _Operation(msgspec.Struct, frozen=True, tag=True):
    """The base of all operations: frozen, encoded with a tag that names the class."""


class Advertise(_Operation, frozen=True):
    """Add an advertisement, or replace the advertisement of the same id and owner."""

    advertisement: Advertisement
    way: Provenance | None = None  # set between brokers only


class Unadvertise(_Operation, frozen=True):
    """Remove an advertisement. Rules of `policy` are applied to the removal."""

    client: str
    id: str
    policy: str | None = None
    way: Provenance | None = None


class Subscribe(_Operation, frozen=True):
    """Add a subscription, or replace the subscription of the same id and owner."""

    subscription: Subscription
    way: Provenance | None = None


class Unsubscribe(_Operation, frozen=True):
    """Remove a subscription. Rules of `policy` are applied to the removal."""

    client: str
    id: str
    policy: str | None = None
    way: Provenance | None = None


class SetContext(_Operation, frozen=True):
    """Replace a client's whole context. `by` is another client that sets it, with the client's permission."""

    client: str
    context: Context
    by: str | None = None
    way: Provenance | None = None


class DelegateContext(_Operation, frozen=True, tag="Entrust"):
    """A client allows another client to set its context, or withdraws that permission."""

    client: str
    other: str
    entrusted: bool = True


class SetPolicy(_Operation, frozen=True):
    """Set the policy of a client's subscription or advertisement; None removes it.

    If the client is the broker itself, this sets the operator's policy of the filter: it stays local to this broker and
    stands beside the owner's policy.
    """

    client: str
    id: str
    policy: str | None
    way: Provenance | None = None


class Define(_Operation, frozen=True):
    """Define the schema of a subject, or extend it."""

    client: str
    schema: Schema


class Publish(_Operation, frozen=True):
    """Publish an event. Between brokers, `journey` is the header with what earlier brokers did; from clients it is
    `NEW`.
    """

    event: Event
    journey: ForwardingHeader = NEW  # between brokers: what happened to the event on its way


class Republish(_Operation, frozen=True):
    """Send a publication of this broker's journal again, to the brokers in `only`, which may have missed it.

    With `whose`, it is only for the durable subscriptions of these clients. The event was admitted before, and local
    clients have it already. No event is sent twice in the same round, and rounds rise; see `RedeliveryTracker`.
    """

    event: Event
    round: int
    only: tuple[str, ...] = ()
    whose: tuple[str, ...] = ()


class SetLaggingBrokers(_Operation, frozen=True, tag="Lag"):
    """Exclude these brokers from new publications, because redelivery is still sending them older ones."""

    brokers: tuple[str, ...]


class Redecide(_Operation, frozen=True, tag="Judge"):
    """Decide again whether durable subscriptions of a client get a publication that was accepted before.

    The decision had to wait for an answer of the trust provider, and was lost with the client's connection or with the
    process. `journey` is the header with which the publication came. `sender` is the neighbour that it came from, or
    empty if it was published here. `answers` are the trust groups that the sender has proved or failed to belong to.
    `rules` are the rules for every copy as they were in force when the publication came.
    """

    event: Event
    client: str
    subscriptions: tuple[str, ...]
    journey: ForwardingHeader = NEW
    sender: str = ""
    answers: tuple[tuple[str, bool], ...] = ()
    rules: tuple[RuleSnapshot, ...] = ()


class Connect(_Operation, frozen=True):
    """A client has connected. `moved`: it was at another broker before, which hands over what it has of the client.

    `session` counts the client's connections, at whichever broker; the broker with the highest session has the client.
    If it is None, the brokers' clocks decide.
    """

    client: str
    moved: bool = False
    session: int | None = None


class Disconnect(_Operation, frozen=True):
    """A client has disconnected: its advertisements and its subscriptions that are not durable are removed."""

    client: str


class Join(_Operation, frozen=True):
    """A link to a neighbour is up."""

    neighbour: str
    cost: int = 1


class Leave(_Operation, frozen=True):
    """A link to a neighbour is down: remove the filters and contexts that came over it."""

    neighbour: str


class Receive(_Operation, frozen=True):
    """An operation that came over the link from a neighbour."""

    neighbour: str
    operation: "Travelling"


class Tick(_Operation, frozen=True):
    """Time has passed. The driver sends this at every heartbeat, and when a `Wake` asks for it."""


class SetLoad(_Operation, frozen=True):
    """Set how busy the broker is, from 0 to 1, as the driver measured it."""

    load: float


class Trust(_Operation, frozen=True):
    """Answer an `AskTrust`: whether a party is a member of a trust group.

    The answer is cached up to the time `until` (microseconds).
    """

    party: str
    group: str
    member: bool
    until: int = 0


class ReportLoss(_Operation, frozen=True, tag="Lost"):
    """Publish a meta-event: the driver's queue for a subscription was full, and `count` notifications were lost."""

    client: str
    subscription: str
    count: int


class LearnTopic(_Operation, frozen=True, tag="Learn"):
    """Add the record of a secure topic, signed by its owner: from now on events on the topic need a token."""

    record: bytes


class ApplyNotice(_Operation, frozen=True, tag="Heed"):
    """Apply a signed notice of a topic's key management centre: the valid epochs and the withdrawn grants."""

    notice: bytes


class Revoke(_Operation, frozen=True):
    """Apply an update of the certificate authority's revocation list."""

    update: bytes


# Between brokers, about the overlay itself


class TellLinks(_Operation, frozen=True):
    """Flood new link states through the sub-overlay."""

    states: tuple[LinkState, ...]


class PhaseDone(_Operation, frozen=True, tag="Done"):
    """Tell the parent in the shared tree that the sender's subtree has sent everything of this convergence phase."""

    digest: str
    phase: int


class PhaseComplete(_Operation, frozen=True, tag="Complete"):
    """Tell the children in the shared tree that all brokers have sent everything of this convergence phase."""

    digest: str
    phase: int


class Announce(_Operation, frozen=True):
    """Announce the contexts that a broker's clients have now (`added`) or no longer have (`gone`), along its tree.

    Subscriptions that an added context attracts travel up the tree, followed by an `Acknowledge` of the number.
    """

    origin: str
    digest: str
    number: int
    added: tuple[Context | None, ...] = ()  # None: any context, of publishers in another sub-overlay
    gone: tuple[bytes, ...] = ()


class Acknowledge(_Operation, frozen=True):
    """Tell the parent in the origin's tree that the sender's subtree has handled the announcement of this number."""

    origin: str
    digest: str
    number: int


class ClaimClients(_Operation, frozen=True, tag="Reside"):
    """Claim clients for the broker `origin`, to which they have moved; a broker with an older session gives them up."""

    origin: str
    digest: str
    clients: dict[str, int]


class TransferBacklog(_Operation, frozen=True, tag="Carry"):
    """Carry a moved client's waiting notifications, and the contexts it had, from its old broker to its new one.

    The link may lose this message: the sender stores the notifications until a `BacklogStored` with the same number
    returns.
    """

    origin: str
    to: str
    number: int
    notifications: tuple[tuple[Notification, str], ...]
    contexts: dict[str, Context] = {}


class BacklogStored(_Operation, frozen=True, tag="Carried"):
    """Tell the former broker of a moved client that the `TransferBacklog` of this number has arrived."""

    to: str
    number: int


class Settle(_Operation, frozen=True):
    """Tell the neighbour that sent them that publications of these rounds have reached everything beyond this
    broker.
    """

    passed: tuple[tuple[UUID, int], ...]


class TellTopics(_Operation, frozen=True):
    """Send records of secure topics, signed by their owners."""

    records: tuple[bytes, ...]


class TellNotices(_Operation, frozen=True):
    """Send notices of key management centres about their topics, signed by the centres."""

    notices: tuple[bytes, ...]


class AskRevocations(_Operation, frozen=True):
    """Ask a neighbour for revocations: this broker has `version` entries, under a list head issued at `issued`."""

    version: int
    issued: int


class TellRevocations(_Operation, frozen=True):
    """Send an update of the revocation list, signed by the certificate authority."""

    update: bytes


Assurances: TypeAlias = TellTopics | TellNotices | AskRevocations | TellRevocations
Signal: TypeAlias = (
    TellLinks
    | PhaseDone
    | PhaseComplete
    | Announce
    | Acknowledge
    | ClaimClients
    | TransferBacklog
    | BacklogStored
    | Settle
    | Assurances
)
Travelling: TypeAlias = (
    Advertise | Unadvertise | Subscribe | Unsubscribe | SetContext | SetPolicy | Define | Publish | Signal
)
Operation: TypeAlias = (
    Travelling
    | DelegateContext
    | Republish
    | Redecide
    | SetLaggingBrokers
    | Connect
    | Disconnect
    | Join
    | Leave
    | Receive
    | Tick
    | SetLoad
    | Trust
    | ReportLoss
    | LearnTopic
    | ApplyNotice
    | Revoke
)


def digest_of(operation: Travelling) -> str | None:
    """Return the topology digest under which a neighbour sent an operation; None if the operation counts under any."""
    match operation:
        case (
            PhaseDone(digest)
            | PhaseComplete(digest)
            | Announce(_, digest)
            | Acknowledge(_, digest)
            | ClaimClients(_, digest)
        ):
            return digest
        case Publish() | TellLinks() | Define() | TransferBacklog() | BacklogStored() | Settle():
            return None
        case TellTopics() | TellNotices() | AskRevocations() | TellRevocations():
            return None
        case _:
            return None if operation.way is None else operation.way.digest


def client_of(operation: Operation) -> str:
    """Return the local client that an operation belongs to; empty if it belongs to none."""
    match operation:
        case Publish(event):
            return event.publisher
        case Advertise(advertisement):
            return advertisement.publisher
        case Subscribe(subscription):
            return subscription.subscriber
        case _:
            return getattr(operation, "client", "")
