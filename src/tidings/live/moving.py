"""Clients that have moved to another broker: what waits here for their durable subscriptions follows them, and so
does the context that they had here, unless they have set another one there.

It is kept here until the other broker says that it has it, and sent again where that does not come. So does what they
are owed a decision about: it is published once more, for them alone, and decided where they are.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidings.engine.debts import MOVING
from tidings.engine.effects import Decided, Settled
from tidings.engine.operations import Carry, Judge, Republish, Unsubscribe
from tidings.hub.subscription import HubSubscription
from tidings.live.inbox import Kept
from tidings.model.errors import TidingsError
from tidings.model.notification import Notification
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_PARCEL = 200  # notifications at a time
_PARCEL_BYTES = 1024 * 1024  # of payloads, with the last of which it is full
_PATIENCE = 2.0  # seconds until what has not arrived is sent again


class Parcel(NamedTuple):
    """Notifications of one subscription, or a client's context, on their way to another broker."""

    client: str
    subscription: HubSubscription | None  # None: the client's context
    events: list[UUID]
    sent: float


class Following(NamedTuple):
    """An event that is published once more for a client that is elsewhere, in that round."""

    client: str
    round: int
    sent: float


class Moving:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._to: dict[str, str] = {}  # client -> broker
        self._contexts: dict[str, Context] = {}  # that clients had here, until the other broker has them
        self._parcels: dict[int, Parcel] = {}  # by number
        self._reading: set[str] = set()  # subscriptions whose backlog is being read
        self._number = 0
        self._ripe: dict[str, float] = {}  # clients, and when their wishes are known everywhere
        self._following: dict[UUID, Following] = {}  # what is to be decided elsewhere

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way, nor waits for a broker that there is a way to."""
        return not self._parcels and not self._reading and not any(map(self._can_go, self._to))

    @property
    def under_way(self) -> list[str]:
        """The clients that something waits for which is to follow them."""
        return sorted({parcel.client for parcel in self._parcels.values()} | self._to.keys())

    def hand_over(self, client: str, broker: str, context: Context) -> None:
        """The client is at that broker now, and had that context here."""
        session = self._broker.sessions.get(client)
        if session is not None:
            session.connection.abort(f"{client} has connected to {broker}")
            self._broker.left(session, f"it has connected to {broker}")
        under_way = self._subscriptions_under_way()
        for held in self._waiting(client):
            if held.id not in under_way:
                held.inbox.redeliver()  # what its connection took along, and it has perhaps never got, follows it too
        self._broker.desk.roster.moved(client)
        self._to[client] = broker
        if context:
            self._contexts[client] = context
        self._ripe[client] = self._broker.now() + MOVING / 1_000_000
        self._broker.desk.undecided.left(client)
        self.go_on()

    def came_back(self, client: str) -> None:
        """It is here again, and gets what waits from here."""
        self._to.pop(client, None)
        self._contexts.pop(client, None)
        self._following = {event: one for event, one in self._following.items() if one.client != client}
        for number, parcel in list(self._parcels.items()):
            if parcel.client == client:
                del self._parcels[number]

    def handed_over(self, number: int) -> None:
        """The other broker has it."""
        parcel = self._parcels.pop(number, None)
        if parcel is None:
            return
        if parcel.subscription is None:
            self._contexts.pop(parcel.client, None)
        else:
            self._broker.desk.acknowledge(parcel.subscription, parcel.events)
        self.go_on()

    def settled(self, done: Settled) -> None:
        """It has come to where the client is, which owes it the decision now."""
        following = self._following.get(done.event)
        if following is not None and following.round == done.round:
            del self._following[done.event]
            self._broker.desk.decide(Decided(done.event, following.client))
            self.go_on()

    def go_on(self) -> None:
        """Sends what can be sent; looked at again from time to time."""
        now = self._broker.now()
        for number, parcel in list(self._parcels.items()):
            if now - parcel.sent > _PATIENCE:
                del self._parcels[number]
                if parcel.subscription is not None:
                    parcel.subscription.inbox.redeliver()
        for client in list(self._to):
            self._send(client)

    def _waiting(self, client: str) -> list[HubSubscription]:
        return [one for one in self._broker.desk.roster.of(client) if isinstance(one.inbox, Kept)]

    def _subscriptions_under_way(self) -> set[str]:
        return {parcel.subscription.id for parcel in self._parcels.values() if parcel.subscription is not None}

    def _can_go(self, client: str) -> bool:
        if self._to[client] not in self._broker.desk.engine.topology.brokers:
            return False
        is_any_waiting = any(one.waiting for one in self._waiting(client))
        return is_any_waiting or client in self._contexts or bool(self._undecided(client))

    def _undecided(self, client: str) -> list[Judge]:
        """What can follow it: rules of advertisements go along only while these are there."""
        known = self._broker.desk.engine.advertisements
        return [
            judge
            for judge in self._broker.desk.undecided.of(client)
            if all(one.kind != "advertisement" or known.get(one.id) is not None for one in judge.rules)
        ]

    def _send(self, client: str) -> None:
        self._carry_context(client)
        self._have_decided(client)
        under_way = self._subscriptions_under_way()
        for held in self._waiting(client):
            inbox = held.inbox
            if held.id in under_way or held.id in self._reading or not isinstance(inbox, Kept):
                continue
            if not inbox.waiting and self._broker.desk.undecided.of(client):
                continue
            if not inbox.waiting:
                self._forget(client, held)
            elif not self._can_go(client):
                continue
            elif inbox.must_read:
                self._reading.add(held.id)
                loop = asyncio.get_running_loop()
                done = loop.run_in_executor(self._broker.readers, _taken, inbox)
                done.add_done_callback(lambda notes, held=held: self._read(client, held, notes))  # type: ignore[misc]
            else:
                self._carry(client, held, _taken(inbox))
        if not self._waiting(client) and client not in self._contexts:
            self._to.pop(client, None)

    def _carry_context(self, client: str) -> None:
        is_under_way = any(one.client == client and one.subscription is None for one in self._parcels.values())
        if client in self._contexts and not is_under_way and self._can_go(client):
            number = self._numbered(Parcel(client, None, [], self._broker.now()))
            contexts = {client: self._contexts[client]}
            self._broker.desk.drive(Carry(self._broker.name, self._to[client], number, (), contexts))

    def _have_decided(self, client: str) -> None:
        """Publishes what the client is owed a decision about once more, for it alone, where it is."""
        desk, now = self._broker.desk, self._broker.now()
        if now < self._ripe.get(client, 0.0) or not self._can_go(client):
            return
        for judge in self._undecided(client):
            event, before = judge.event, self._following.get(judge.event.id)
            if before is not None and now - before.sent < _PATIENCE:
                continue
            if judge.journey.own or not judge.journey.common.is_plain:  # rules on its way have decided about this copy
                desk.note(f"the event {event.id} cannot follow {client}: rules have changed it on its way here")
                desk.decide(Decided(event.id, client))
                continue
            self._number = max(self._number + 1, self._broker.clock.now())
            self._following[event.id] = Following(client, self._number, now)
            desk.drive(Republish(event, self._number, (self._to[client],), (client,)))

    def _read(self, client: str, held: HubSubscription, done: "asyncio.Future[list[Notification]]") -> None:
        self._reading.discard(held.id)
        error = done.exception()
        if isinstance(error, TidingsError):
            self._broker.desk.note(f"what waits for {client} cannot follow it: {error}")
            return
        if client in self._to:
            self._carry(client, held, done.result())
            self._broker.flush()

    def _carry(self, client: str, held: HubSubscription, notes: list[Notification]) -> None:
        if not notes:
            return
        broker = self._broker
        number = self._numbered(Parcel(client, held, [note.event.id for note in notes], broker.now()))
        owed = tuple((note, held.durable or "") for note in notes)
        broker.desk.drive(Carry(broker.name, self._to[client], number, owed))

    def _numbered(self, parcel: Parcel) -> int:
        self._number = max(self._number + 1, self._broker.clock.now())
        self._parcels[self._number] = parcel
        return self._number

    def _forget(self, client: str, held: HubSubscription) -> None:
        """All of it is there: the subscription is the other broker's alone."""
        self._broker.desk.forget(Unsubscribe(client, held.id))


def _taken(inbox: Kept) -> list[Notification]:
    """The next that go together: as many as make a frame of moderate size."""
    notes = inbox.take(1)
    size = sum(len(note.payload or b"") for note in notes)
    while notes and len(notes) < _PARCEL and size < _PARCEL_BYTES and not inbox.must_read:
        found = inbox.take(1)
        if not found:
            break
        notes += found
        size += len(found[0].payload or b"")
    return notes
