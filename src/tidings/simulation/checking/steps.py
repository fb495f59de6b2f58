"""The steps of a history, as values: what clients do, and waiting. Faults are steps, too.

A step that is refused, or is not possible in its place, changes nothing; so any part of a history is a history.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.values import Value
from tidings.simulation.client import SimulatedClient
from tidings.simulation.faults import Fault


class SteppedWorld(Protocol):
    """The world in which steps are taken: its clients and its time."""

    @property
    def clients(self) -> Mapping[str, SimulatedClient]: ...
    def run(self, seconds: float) -> None: ...
    def settle(self) -> None: ...


class _Step(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """What all steps of clients share."""

    client: str


class Subscribes(_Step, frozen=True):
    """The client subscribes; a subscription with the same id is replaced."""

    id: str
    content: str = ""
    publishers: str | None = None
    policy: str | None = None
    durable: str | None = None

    def apply(self, world: SteppedWorld) -> None:
        with suppress(RefusedError):
            world.clients[self.client].subscribe(
                self.content, publishers=self.publishers, policy=self.policy, durable=self.durable, id=self.id
            )


class Unsubscribes(_Step, frozen=True):
    """The client removes a subscription."""

    id: str

    def apply(self, world: SteppedWorld) -> None:
        client = world.clients[self.client]
        if self.id in {subscription.id for subscription in client.subscriptions()}:
            with suppress(RefusedError):
                client.unsubscribe(self.id)


class Advertises(_Step, frozen=True):
    """The client advertises."""

    id: str
    content: str = ""
    publisher_context: tuple[str, ...] | None = ()  # None: all names; the default offers none
    subscriber_context: tuple[str, ...] = ()

    def apply(self, world: SteppedWorld) -> None:
        with suppress(RefusedError):
            world.clients[self.client].advertise(
                self.content, self.publisher_context, self.subscriber_context, id=self.id
            )


class Unadvertises(_Step, frozen=True):
    """The client removes an advertisement."""

    id: str

    def apply(self, world: SteppedWorld) -> None:
        client = world.clients[self.client]
        if self.id in {advertisement.id for advertisement in client.advertisements()}:
            with suppress(RefusedError):
                client.unadvertise(self.id)


class SetsContext(_Step, frozen=True):
    """The client sets its whole context."""

    context: dict[str, Value] = {}

    def apply(self, world: SteppedWorld) -> None:
        with suppress(RefusedError):
            world.clients[self.client].set_context(self.context)


class Publishes(_Step, frozen=True):
    """The client publishes an event."""

    attributes: dict[str, Value] = {}
    subscribers: str | None = None

    def apply(self, world: SteppedWorld) -> Event | None:
        """Publish, and return the event if it was accepted."""
        with suppress(RefusedError):
            return world.clients[self.client].publish(self.attributes, subscribers=self.subscribers).event
        return None


class Leaves(_Step, frozen=True):
    """The client disconnects."""

    def apply(self, world: SteppedWorld) -> None:
        world.clients[self.client].disconnect()


class Returns(_Step, frozen=True):
    """The client connects."""

    def apply(self, world: SteppedWorld) -> None:
        world.clients[self.client].connect()


class Moves(_Step, frozen=True):
    """The client moves to another broker."""

    broker: str

    def apply(self, world: SteppedWorld) -> None:
        world.clients[self.client].move(self.broker)


class Waits(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Virtual time passes."""

    seconds: float

    def apply(self, world: SteppedWorld) -> None:
        world.run(self.seconds)


class Settles(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Virtual time passes until the effects of all earlier steps have reached every broker."""

    def apply(self, world: SteppedWorld) -> None:
        world.settle()


Step = (
    Subscribes
    | Unsubscribes
    | Advertises
    | Unadvertises
    | SetsContext
    | Publishes
    | Leaves
    | Returns
    | Moves
    | Waits
    | Settles
    | Fault
)
