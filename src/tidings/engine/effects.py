"""What an engine wants done: effects, for its driver to carry out in their order."""

from typing import TypeAlias

import msgspec

from tidings.engine.operations import Travelling
from tidings.model.event import Event
from tidings.model.notification import Notification


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


class Told(_Effect, frozen=True):
    """A meta-event that the broker published; its deliveries are effects of their own, after this one."""

    event: Event


class Persist(_Effect, frozen=True):
    """A message that a rule wants kept in a store of the broker; `message` is its text."""

    store: str
    message: str
    event: Event | None = None


class Log(_Effect, frozen=True):
    line: str


class Remark(_Effect, frozen=True):
    """What is suspicious about a policy that was set: it is in force all the same."""

    id: str
    finding: str


Effect: TypeAlias = Deliver | Send | Reject | Ask | Told | Persist | Log | Remark
