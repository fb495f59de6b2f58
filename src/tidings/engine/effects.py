"""What an engine wants done: effects, for its driver to carry out in their order."""

from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from tidings.engine.journey import PLAIN, Shape
from tidings.engine.operations import Heed, Judge, Learn, Publish, Revoke, Travelling
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.model.values import Attributes, Context


class _Effect(msgspec.Struct, frozen=True, tag=True):
    """What all effects share: frozen, tagged with their class when encoded."""


class Deliver(_Effect, frozen=True):
    """A notification for a client; `durable` is the name of the subscription that waits for an acknowledgement."""

    notification: Notification
    durable: str | None = None


class Send(_Effect, frozen=True):
    """An operation for a neighbour, in the order of the link."""

    neighbour: str
    operation: Travelling


class Reject(_Effect, frozen=True):
    """The operation was refused, at this step and for this reason; what it asked for was not done."""

    step: str  # admit, match, govern
    reason: str


class Ask(_Effect, frozen=True):
    """Does the party belong to the trust group? Answered with a `Trust`; the link waits in order meanwhile."""

    party: str
    group: str


class Undecided(_Effect, frozen=True):
    """What durable subscriptions of a client get of a publication depends on an answer that is asked for. Until a
    `Decided` comes, the driver owes them the decision: when the client is here again, `judge` brings it about."""

    judge: Judge


class Decided(_Effect, frozen=True):
    """What waited for an answer is decided; what the client gets, if anything, was delivered before this."""

    event: UUID
    client: str


class Told(_Effect, frozen=True):
    """A meta-event that the broker published; its deliveries are effects of their own, after this one."""

    event: Event


class Persist(_Effect, frozen=True):
    """A message that a rule wants kept in a store of the broker; `message` is its text."""

    store: str
    message: str
    event: Event | None = None


class HandOver(_Effect, frozen=True):
    """A client has moved to another broker: what waits for it here is to be carried there (`Carry`), and so is the
    context that it had here."""

    client: str
    broker: str
    context: Context = Context()


class HandedOver(_Effect, frozen=True):
    """What was carried under that number has arrived, and need be kept no longer."""

    number: int


class RestoreContext(_Effect, frozen=True):
    """A client had this context at the broker that it was at before, and has none here: the driver sets
    it, unless the client has set an empty one."""

    client: str
    context: Context


class Rearranging(_Effect, frozen=True):
    """The network has changed: these brokers are in it now, and what was not settled before may be lost."""

    brokers: frozenset[str]


class Arranged(_Effect, frozen=True):
    """Tables are complete again: what these brokers may have missed finds its way."""

    brokers: frozenset[str]


class Settled(_Effect, frozen=True):
    """A publication of this broker's has reached, in that round, all that it can reach."""

    event: UUID
    round: int


class Moved(_Effect, frozen=True):
    """A client is at that broker now: what is owed to a broker that is gone may be due to it there."""

    client: str
    broker: str
    session: int


class Wake(_Effect, frozen=True):
    """A `Tick` is wanted after so many microseconds; one that comes with a heartbeat before that does no harm."""

    microseconds: int


class Learnt(_Effect, frozen=True):
    """What was learnt of secure topics, from a neighbour or a token: to be kept where it outlives the broker."""

    operation: Learn | Heed | Revoke


class Expelled(_Effect, frozen=True):
    """The subscription of a client was removed: it asks for a secure topic, and has no token."""

    client: str
    subscription: str
    reason: str


class Log(_Effect, frozen=True):
    line: str


class Remark(_Effect, frozen=True):
    """What is suspicious about a policy that was set: it is in force all the same."""

    id: str
    finding: str


Effect: TypeAlias = (
    Deliver
    | Send
    | Reject
    | Ask
    | Undecided
    | Decided
    | Told
    | Persist
    | HandOver
    | HandedOver
    | RestoreContext
    | Rearranging
    | Arranged
    | Settled
    | Moved
    | Wake
    | Learnt
    | Expelled
    | Log
    | Remark
)


def timed(effects: list[Effect], broker: str, microseconds: int) -> list[Effect]:
    """The effects with the time that the broker spent on them, where a rule asked for it: the driver knows."""
    return [_timed(one, _Stopwatch(broker, microseconds)) for one in effects]


class _Stopwatch(NamedTuple):
    broker: str
    microseconds: int

    @property
    def attribute(self) -> str:
        return f"$trace.{self.broker}.microseconds"

    def trace(self, hops: tuple[Trace, ...]) -> tuple[Trace, ...]:
        """Zero stands for a time that was asked for and is not known yet."""
        return tuple(
            msgspec.structs.replace(one, microseconds=self.microseconds)
            if one.broker == self.broker and one.microseconds == 0
            else one
            for one in hops
        )

    def shape(self, shape: Shape) -> Shape:
        added = tuple((name, self.microseconds if name == self.attribute else value) for name, value in shape.added)
        return msgspec.structs.replace(shape, added=added, trace=self.trace(shape.trace))


def _timed(effect: Effect, watch: _Stopwatch) -> Effect:
    match effect:
        case Deliver(note, durable) if note.trace or watch.attribute in note.attributes:
            event, attributes = note.event, note.attributes
            if watch.attribute in attributes and event.signature is None:  # what was added to a sealed one is signed
                attributes = Attributes.trusted({**attributes, watch.attribute: watch.microseconds})
                event = msgspec.structs.replace(event, attributes=attributes)
            trace = watch.trace(note.trace)
            return Deliver(msgspec.structs.replace(note, event=event, trace=trace, attributes=attributes), durable)
        case Send(neighbour, Publish(event, journey)) if journey.common != PLAIN or journey.own:
            own = {name: watch.shape(one) for name, one in journey.own.items()}
            carried = msgspec.structs.replace(journey, common=watch.shape(journey.common), own=own)
            return Send(neighbour, Publish(event, carried))
    return effect
