"""Effects: the outputs of an engine, which its driver carries out in their order.

The `tag` of a class is its encoded name, which stays when the class is renamed.
"""

from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from tidings.engine.headers import PLAIN, CopyChanges
from tidings.engine.operations import ApplyNotice, LearnTopic, Publish, Redecide, Revoke, Travelling
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.model.values import Attributes, Context


class _Effect(msgspec.Struct, frozen=True, tag=True):
    """The base of all effects: frozen, encoded with a tag that names the class."""


class Deliver(_Effect, frozen=True):
    """Deliver a notification to a client; `durable` names the durable subscription that must acknowledge it."""

    notification: Notification
    durable: str | None = None


class Send(_Effect, frozen=True):
    """Send an operation to a neighbour. Operations must arrive in the order in which they were sent on the link."""

    neighbour: str
    operation: Travelling


class Reject(_Effect, frozen=True):
    """The operation was refused at this pipeline step for this reason, and was not carried out."""

    step: str  # admit, govern or route
    reason: str


class AskTrust(_Effect, frozen=True, tag="Ask"):
    """Ask the trust provider whether a party belongs to a trust group.

    The driver answers with a `Trust` operation. Copies for the same link wait in order until then.
    """

    party: str
    group: str


class DecisionPending(_Effect, frozen=True, tag="Undecided"):
    """Durable subscriptions of a client wait for a trust answer before it is decided what they get of a publication.

    The driver stores this until the matching `DecisionMade`. If the client was gone meanwhile, the driver runs the
    `Redecide` operation in `judge` when the client is back.
    """

    judge: Redecide


class DecisionMade(_Effect, frozen=True, tag="Decided"):
    """A pending decision was made. If the client gets the event, its `Deliver` came before this effect."""

    event: UUID
    client: str


class MetaEventPublished(_Effect, frozen=True, tag="Told"):
    """The broker published a meta-event; its deliveries follow as effects of their own."""

    event: Event


class Persist(_Effect, frozen=True):
    """A policy rule wants a message stored in one of the broker's stores; `message` is its text."""

    store: str
    message: str
    event: Event | None = None


class HandOver(_Effect, frozen=True):
    """A client has moved to another broker: send its waiting notifications and its context there.

    The driver sends a `TransferBacklog` and stores its content until a `HandoverDone`.
    """

    client: str
    broker: str
    context: Context = Context()
    session: int = 0  # of the client at the other broker


class HandoverDone(_Effect, frozen=True, tag="HandedOver"):
    """The `TransferBacklog` of this number has arrived: the driver may drop its copy."""

    number: int


class RestoreContext(_Effect, frozen=True):
    """A moved client had this context at its former broker and has none here.

    The driver sets it, unless the client has itself set an empty context.
    """

    client: str
    context: Context


class TopologyChanging(_Effect, frozen=True, tag="Rearranging"):
    """The overlay now has these brokers. Unsettled publications may get lost until tables are complete."""

    brokers: frozenset[str]


class TopologySettled(_Effect, frozen=True, tag="Arranged"):
    """The routing tables are complete again: the driver can redeliver what these brokers may have missed."""

    brokers: frozenset[str]


class PublicationSettled(_Effect, frozen=True, tag="Settled"):
    """A publication of this broker has reached, in this round, every broker that it can reach."""

    event: UUID
    round: int


class ClientMoved(_Effect, frozen=True, tag="Moved"):
    """A client has moved to `broker`: what is owed to its former broker may have to be redelivered to the new one."""

    client: str
    broker: str
    session: int


class Wake(_Effect, frozen=True):
    """Send a `Tick` after this many microseconds. An earlier `Tick` does no harm."""

    microseconds: int


class SecurityNewsLearnt(_Effect, frozen=True, tag="Learnt"):
    """The engine learnt a security operation from a neighbour or a token: the driver stores it in its journal."""

    operation: LearnTopic | ApplyNotice | Revoke


class SubscriptionExpelled(_Effect, frozen=True, tag="Expelled"):
    """The engine removed a client's subscription, because it asks for a secure topic and has no token."""

    client: str
    subscription: str
    reason: str


class LogMessage(_Effect, frozen=True, tag="Log"):
    """Write a line to the log."""

    line: str


class PolicyWarning(_Effect, frozen=True, tag="Remark"):
    """A policy that was set is in force, but looks suspicious."""

    id: str
    finding: str


Effect: TypeAlias = (
    Deliver
    | Send
    | Reject
    | AskTrust
    | DecisionPending
    | DecisionMade
    | MetaEventPublished
    | Persist
    | HandOver
    | HandoverDone
    | RestoreContext
    | TopologyChanging
    | TopologySettled
    | PublicationSettled
    | ClientMoved
    | Wake
    | SecurityNewsLearnt
    | SubscriptionExpelled
    | LogMessage
    | PolicyWarning
)


def ask_for_processing_time(effects: list[Effect], broker: str) -> bool:
    """Return whether a policy rule asked for the processing time at this broker, in a trace or in an attribute."""
    attribute = f"$trace.{broker}.microseconds"
    for effect in effects:
        if isinstance(effect, Deliver) and (effect.notification.trace or attribute in effect.notification.attributes):
            return True
    return False


def with_processing_time(effects: list[Effect], broker: str, microseconds: int) -> list[Effect]:
    """Return the effects with the processing time filled in where a policy rule asked for it.

    Args:
        effects: The effects of one operation.
        broker: The name of this broker, whose traces are filled in.
        microseconds: The time that the driver measured.
    """
    return [_with_time(effect, _Stopwatch(broker, microseconds)) for effect in effects]


class _Stopwatch(NamedTuple):
    broker: str
    microseconds: int

    @property
    def attribute(self) -> str:
        return f"$trace.{self.broker}.microseconds"

    def trace(self, hops: tuple[Trace, ...]) -> tuple[Trace, ...]:
        """Fill in the time of this broker's traces that ask for it: a zero means asked for and not measured yet."""
        return tuple(
            msgspec.structs.replace(hop, microseconds=self.microseconds)
            if hop.broker == self.broker and hop.microseconds == 0
            else hop
            for hop in hops
        )

    def shape(self, shape: CopyChanges) -> CopyChanges:
        added = tuple((name, self.microseconds if name == self.attribute else value) for name, value in shape.added)
        return msgspec.structs.replace(shape, added=added, trace=self.trace(shape.trace))


def _with_time(effect: Effect, watch: _Stopwatch) -> Effect:
    match effect:
        case Deliver(note, durable) if note.trace or watch.attribute in note.attributes:
            event, attributes = note.event, note.attributes
            if watch.attribute in attributes and event.signature is None:  # of a sealed event they are signed
                attributes = Attributes.trusted({**attributes, watch.attribute: watch.microseconds})
                event = msgspec.structs.replace(event, attributes=attributes)
            trace = watch.trace(note.trace)
            return Deliver(msgspec.structs.replace(note, event=event, trace=trace, attributes=attributes), durable)
        case Send(neighbour, Publish(event, journey)) if journey.common != PLAIN or journey.own:
            own = {name: watch.shape(changes) for name, changes in journey.own.items()}
            carried = msgspec.structs.replace(journey, common=watch.shape(journey.common), own=own)
            return Send(neighbour, Publish(event, carried))
    return effect
