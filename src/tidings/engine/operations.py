"""What an engine is asked to do: operations, from clients, from neighbours and from the driver.

Operations are values. The same ones travel between brokers: what an engine sends to a neighbour, the neighbour
`Receive`s. A client's operation names the client; whether it may is checked when it is admitted.
"""

from typing import TypeAlias

import msgspec

from tidings.engine.journey import NEW, Journey
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context


class _Operation(msgspec.Struct, frozen=True, tag=True):
    """What all operations share: frozen, tagged with their class when encoded."""


class Advertise(_Operation, frozen=True):
    advertisement: Advertisement


class Unadvertise(_Operation, frozen=True):
    client: str
    id: str
    policy: str | None = None


class Subscribe(_Operation, frozen=True):
    """A new subscription, or, under an id that its owner has, another one in its place."""

    subscription: Subscription


class Unsubscribe(_Operation, frozen=True):
    client: str
    id: str
    policy: str | None = None


class SetContext(_Operation, frozen=True):
    """The whole context of a client from now on; `by` is another client that it lets set it."""

    client: str
    context: Context
    by: str | None = None


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


class Define(_Operation, frozen=True):
    """The schema of a subject, or a longer version of it."""

    client: str
    schema: Schema


class Publish(_Operation, frozen=True):
    event: Event
    journey: Journey = NEW  # between brokers: what happened to it on the way


class Disconnect(_Operation, frozen=True):
    """A client left: what is not durable goes with it."""

    client: str


class Join(_Operation, frozen=True):
    """A link to a neighbour is up; `cost` is what it costs to use it."""

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
    """A heartbeat interval has passed."""


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


Travelling: TypeAlias = Advertise | Unadvertise | Subscribe | Unsubscribe | SetContext | SetPolicy | Define | Publish
Operation: TypeAlias = Travelling | Entrust | Disconnect | Join | Leave | Receive | Tick | SetLoad | Trust | Lost
