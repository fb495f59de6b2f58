"""The simulated broker: the driver around one engine, which carries out the engine's effects.

It keeps on its disk what clients have not acknowledged and what other brokers may have missed.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tidings.engine import Engine
from tidings.engine.effects import (
    AskTrust,
    ClientMoved,
    DecisionMade,
    DecisionPending,
    Deliver,
    Effect,
    HandOver,
    HandoverDone,
    LogMessage,
    MetaEventPublished,
    Persist,
    PublicationSettled,
    Reject,
    Send,
    TopologyChanging,
    TopologySettled,
    Wake,
)
from tidings.engine.operations import (
    Connect,
    Disconnect,
    Join,
    Leave,
    Operation,
    Publish,
    Receive,
    SetLaggingBrokers,
    Tick,
    TransferBacklog,
    Travelling,
    Trust,
    Unsubscribe,
)
from tidings.engine.overlay.redelivery import RedeliveryTracker
from tidings.model.limits import MAX_LOG_LINES, MAX_META_EVENTS_PER_MESSAGE, MAX_STORED_MESSAGES
from tidings.model.notification import Notification
from tidings.simulation.clock import SECOND, SimulatedClock
from tidings.simulation.disk import Key, SimulatedDisk, key_of
from tidings.simulation.link import LinkEnd
from tidings.simulation.trace import RunTrace

_TRUST_ANSWER_DELAY = 1_000  # microseconds until a trust query is answered
_TRANSFER_TIMEOUT = 5 * SECOND  # time after which a backlog transfer that was not confirmed is repeated
_RESEND_BATCH = 16  # publications that are resent together
_RESEND_INTERVAL = 1_000  # microseconds between two such pieces
_TICK = Tick()


class SessionListener(Protocol):
    """The interface by which a broker reaches a connected client."""

    name: str

    def notified(self, note: Notification, *, durable: bool) -> None: ...
    def connection_lost(self) -> None: ...
    def broker_returned(self) -> None: ...


class BrokerEnvironment(NamedTuple):
    """What all brokers of a world share."""

    clock: SimulatedClock
    trace: RunTrace
    is_member: Callable[[str, str], bool]  # whether a party is in a trust group
    trusted_for: int  # microseconds for which such an answer is valid


class BacklogParcel(NamedTuple):
    """A client's notifications on their way to another broker."""

    number: int  # at least the time at which it was sent
    keys: list[Key]


class SimulatedBroker:
    """A broker of a simulated world: an engine, its disk, its links and its client sessions."""

    def __init__(self, name: str, make_engine: Callable[[], Engine], environment: BrokerEnvironment) -> None:
        self.name = name
        self._make_engine = make_engine
        self._environment = environment
        self._clock, self._trace = environment.clock, environment.trace
        self.engine = make_engine()
        self.disk = SimulatedDisk()
        self.redelivery = RedeliveryTracker(name)
        self._is_resending = False
        self.is_up = True
        self._is_paused = False
        self._deferred: list[Callable[[], None]] = []  # actions postponed until the end of a pause
        self.ends: dict[str, LinkEnd] = {}
        self.sessions: dict[str, SessionListener] = {}
        self._waiting_clients: dict[str, SessionListener] = {}  # clients that connect when the broker is back
        self._parcels: dict[str, BacklogParcel] = {}  # by client
        self._parcel_number = 0  # the number of the last parcel
        self.received_itself: list[Notification] = []  # notifications for the broker's own subscriptions
        self.meta_events: deque[MetaEventPublished] = deque(maxlen=MAX_META_EVENTS_PER_MESSAGE)
        self.persisted: deque[Persist] = deque(maxlen=MAX_STORED_MESSAGES)
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.rejected: deque[Reject] = deque(maxlen=MAX_LOG_LINES)

    # Operations

    def do(self, operation: Operation, sender: str = "-") -> list[Effect]:
        """Handle an operation of a client, an operator or the broker itself, and carry out its effects.

        Returns the effects. Accepted publications are journaled if the broker resends.
        """
        now = self._clock.now
        if sender in self.sessions:
            self.disk.last_operation[sender] = now
        self._trace.operation(now, self.name, sender, operation)
        effects = self.engine.handle(operation, now)
        if (
            isinstance(operation, Publish)
            and self._resends
            and not any(isinstance(effect, Reject) for effect in effects)
        ):
            offset = self.disk.write(operation.event)
            self.redelivery.published(offset, operation.event, goes_on=bool(self.engine.state.links.neighbours))
        self._carry_out(effects)
        self._update_redelivery()
        return effects

    def joined(self, neighbour: str, cost: int) -> None:
        """A link has come up."""
        self.do(Join(neighbour, cost))

    def left(self, neighbour: str) -> None:
        """A link has gone down."""
        self.do(Leave(neighbour))

    def received(self, neighbour: str, operation: Travelling) -> None:
        """Handle an operation from a neighbour."""
        now = self._clock.now
        self._trace.operation(now, self.name, neighbour, operation)
        self._carry_out(self.engine.handle(Receive(neighbour, operation), now))
        self._update_redelivery()

    def tick(self) -> None:
        """Run what is due by time. Called once per heartbeat interval; traced only if it has effects."""
        if not self.is_there:
            return
        effects = self.engine.handle(_TICK, self._clock.now)
        if effects:
            self._trace.operation(self._clock.now, self.name, "-", _TICK)
            self._carry_out(effects)
        for client in list(self.disk.moved):
            self._transfer_backlog(client)
        self.redelivery.tick(self._clock.now)
        self._update_redelivery()

    @property
    def is_settled(self) -> bool:
        """Whether nothing that could be done is pending here. True for a broker that is down or paused."""
        if not self.is_there:
            return True
        return (
            self.engine.is_settled
            and self.redelivery.is_settled
            and not any(map(self._can_transfer_backlog, self.disk.moved))
        )

    def _carry_out(self, effects: list[Effect]) -> None:
        ends = self.ends
        for effect in effects:
            if type(effect) is Send:
                ends[effect.neighbour].send(effect.operation)
            elif type(effect) is Deliver:
                self._deliver(effect.notification, effect.durable)
            else:
                self._carry_out_rare(effect)

    def _carry_out_rare(self, effect: Effect) -> None:
        match effect:
            case AskTrust(party, group):
                self._clock.at(self._clock.now + _TRUST_ANSWER_DELAY, self._answer, party, group)
            case DecisionPending(judge):
                self.disk.store_pending_decision(judge)
            case DecisionMade(event, client):
                self.disk.remove_decision(event, client)
            case Wake(microseconds):
                self._clock.in_background(self._clock.now + microseconds, self.tick)
            case HandOver(client, broker):
                self.hand_over(client, broker)  # the context is not transferred: the client sets it again
            case HandoverDone(number):
                self._remove_transferred(number)
            case TopologyChanging(brokers):
                self.redelivery.topology_changing(brokers)
            case TopologySettled(brokers):
                self.redelivery.topology_settled(brokers, self._clock.now)
            case PublicationSettled(event, round):
                self.redelivery.settled(event, round)
            case ClientMoved(client, broker, session):
                self.redelivery.moved(client, broker, session, self._clock.now)
            case Reject():
                self.rejected.append(effect)
            case MetaEventPublished():
                self.meta_events.append(effect)
            case Persist():
                self.persisted.append(effect)
            case LogMessage(line):
                self.log.append(line)
            case _:
                pass  # for the caller of `do`, such as a policy warning

    def _answer(self, party: str, group: str) -> None:
        if self._is_paused:
            self._deferred.append(partial(self._answer, party, group))
        elif self.is_up:
            until = self._clock.now + self._environment.trusted_for
            self.do(Trust(party, group, self._environment.is_member(party, group), until))

    # Redelivery to other brokers

    @property
    def _resends(self) -> bool:
        return self.engine.state.settings.resends

    def _update_redelivery(self) -> None:
        """Tell the engine which brokers lag, and start resending if needed.

        A lagging broker gets new publications only after the older ones that are resent to it.
        """
        lagging = self.redelivery.lagging
        if lagging != self.engine.settlement.lagging:
            self.engine.handle(SetLaggingBrokers(lagging), self._clock.now)
        if self.redelivery.has_to_send and not self._is_resending:
            self._is_resending = True
            self._clock.in_background(self._clock.now + _RESEND_INTERVAL, self._resend, self.engine)

    def _resend(self, engine: Engine) -> None:
        """Resend the next piece of the journal. Does nothing if the broker was restarted since."""
        if self._is_paused:
            self._deferred.append(partial(self._resend, engine))
            return
        if self.engine is not engine or not self.is_up:
            return  # the broker crashed since this was scheduled
        self._is_resending = False
        now = self._clock.now
        piece = self.redelivery.next_range(now)
        if piece is not None:
            stop = min(piece.stop, piece.start + _RESEND_BATCH)
            for offset in range(piece.start, stop):
                again = self.redelivery.republish(piece, offset, self.disk.journal[offset], now)
                self._trace.operation(now, self.name, "-", again)
                self._carry_out(self.engine.handle(again, now))
            self.redelivery.reached(piece, stop)
        self._update_redelivery()

    # Clients

    def connect(self, client: SessionListener, session: int, *, moved: bool) -> None:
        """Start a client's session, deliver its backlog, and make decisions that are pending for it."""
        self.sessions[client.name] = client
        self.disk.moved.pop(client.name, None)
        self.disk.sessions[client.name] = session
        if moved:
            self.disk.moved_in.add(client.name)
        self.do(Connect(client.name, moved, session), client.name)
        for note in self.disk.waiting(client.name):
            self._notify(client, note, durable=True)
        for decision in self.disk.pending_decisions(client.name):
            self.do(decision)

    def disconnect(self, client: str) -> None:
        """End a client's session."""
        if self.sessions.pop(client, None) is not None:
            self.do(Disconnect(client))
        self._waiting_clients.pop(client, None)

    def connect_on_return(self, client: SessionListener) -> None:
        """Remember a client that wants to connect when the broker is back."""
        self._waiting_clients[client.name] = client

    def unsubscribe(self, operation: Unsubscribe) -> list[Effect]:
        """Remove a subscription, and its notifications from the disk unless the engine refuses."""
        effects = self.do(operation, operation.client)
        if not any(isinstance(effect, Reject) for effect in effects):
            self.disk.remove_subscription(operation.client, operation.id)
        return effects

    def acknowledged(self, client: SessionListener, key: Key) -> None:
        """Remove a notification that a client of this broker has acknowledged."""
        if self.is_there and self.sessions.get(client.name) is client:
            self.disk.acknowledge(client.name, key)

    def _deliver(self, note: Notification, durable: str | None) -> None:
        """Store a durable notification, and hand it to the client if it is connected. Drops one that is stored
        already."""
        client = self.sessions.get(note.subscriber)
        if durable is not None and not self.disk.store(note, durable):
            return
        if client is not None:
            self._notify(client, note, durable=durable is not None)
        elif note.subscriber == self.name:
            self.received_itself.append(note)

    def _notify(self, client: SessionListener, note: Notification, *, durable: bool) -> None:
        self._trace.notification(self._clock.now, self.name, note)
        client.notified(note, durable=durable)

    # Clients that have moved: their backlog is transferred

    def hand_over(self, client: str, broker: str) -> None:
        """Transfer a client's backlog to the broker that it moved to, unless it is connected here."""
        if client not in self.sessions:
            self.disk.moved[client] = broker
            self._transfer_backlog(client)

    def _transfer_backlog(self, client: str) -> None:
        """Send a client's backlog, or send it again if it was not confirmed in time. It stays on the disk until
        confirmed."""
        now = self._clock.now
        sent = self._parcels.get(client)
        if self._can_transfer_backlog(client) and (sent is None or now - sent.number >= _TRANSFER_TIMEOUT):
            backlog = self.disk.backlog(client)
            number = self._parcel_number = max(now, self._parcel_number + 1)
            self._parcels[client] = BacklogParcel(number, [key_of(note) for note, _ in backlog])
            self.do(TransferBacklog(self.name, self.disk.moved[client], number, backlog))

    def _remove_transferred(self, number: int) -> None:
        """The other broker has stored a parcel: remove its notifications here."""
        for client, parcel in list(self._parcels.items()):
            if parcel.number == number:
                del self._parcels[client]
                for key in parcel.keys:
                    self.disk.acknowledge(client, key)

    def _can_transfer_backlog(self, client: str) -> bool:
        """Return whether a client has a backlog here and there is a path to its broker."""
        return self.disk.moved[client] in self.engine.topology.brokers and bool(self.disk.waiting(client))

    # Crash and restart

    def crash(self) -> None:
        """Lose everything but the disk. Neighbours and clients are not notified."""
        self.disk.write_tables(self.engine.tables())
        self.disk.redelivery = self.redelivery.state()
        if self.engine.topic_gossip is not None:
            self.disk.topic_gossip = self.engine.topic_gossip.state()
        self.is_up = self._is_paused = False
        self._deferred = []
        for end in self.ends.values():
            end.stop()
        self._parcels.clear()
        self._disconnect_clients()

    def restart(self) -> None:
        """Start a new engine from the disk. Links come up by themselves; clients connect after a delay."""
        self.engine = self._make_engine()
        self.redelivery = RedeliveryTracker(self.name, self.disk.redelivery, len(self.disk.journal))
        self._is_resending = False
        self.is_up = True
        if self.engine.topic_gossip is not None and self.disk.topic_gossip:
            self.engine.topic_gossip.restore(self.disk.topic_gossip)
        self.engine.is_replaying = True
        for operation, time in self.disk.restoring_operations():
            self.engine.handle(operation, time)
        self.engine.is_replaying = False
        for end in self.ends.values():
            end.start(self)
        self._reconnect_clients()

    def _disconnect_clients(self) -> None:
        self._waiting_clients.update(self.sessions)
        self.sessions = {}
        for client in self._waiting_clients.values():
            client.connection_lost()

    def _reconnect_clients(self) -> None:
        clients, self._waiting_clients = self._waiting_clients, {}
        for client in clients.values():
            client.broker_returned()

    # Pause: the broker loses nothing, but seems gone to all others

    @property
    def is_there(self) -> bool:
        """Whether the broker is up and not paused."""
        return self.is_up and not self._is_paused

    def pause(self) -> None:
        """Stop processing; clients lose their connections."""
        self._is_paused = True
        for end in self.ends.values():
            end.pause()
        self._deferred += (partial(self._end_session, name) for name in self.sessions)
        self._disconnect_clients()

    def resume(self) -> None:
        """Process what arrived during the pause, including that clients have disconnected."""
        self._is_paused = False
        for end in self.ends.values():
            end.resume()
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()
        self._reconnect_clients()

    def _end_session(self, client: str) -> None:
        self.do(Disconnect(client))

    def __repr__(self) -> str:
        return f"<broker {self.name} {'up' if self.is_up else 'down'}>"
