"""A broker: the shell around one engine. It carries out effects, and keeps what its clients have not acknowledged."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidings.engine import Engine
from tidings.engine.effects import Ask, Deliver, Effect, HandOver, Log, Persist, Reject, Send, Told
from tidings.engine.operations import (
    Disconnect,
    Join,
    Leave,
    Operation,
    Receive,
    SetContext,
    Subscribe,
    Tick,
    Travelling,
    Trust,
    Unsubscribe,
)
from tidings.model.limits import MAX_LOG_LINES, MAX_STORED_MESSAGES, MAX_TOLD_EVENTS
from tidings.model.notification import Notification
from tidings.simulation.clock import Clock
from tidings.simulation.disk import Disk, Key
from tidings.simulation.link import End
from tidings.simulation.network import Network
from tidings.simulation.trace import Trace

_ANSWER = 1_000  # microseconds until a question of trust is answered
_SHIPMENT = 5_000  # microseconds until notifications have been handed to another broker
_TICK = Tick()


class Session(Protocol):
    """What a broker tells a client that is connected."""

    name: str

    def notified(self, note: Notification, *, durable: bool) -> None: ...
    def cut_off(self) -> None: ...
    def come_back(self) -> None: ...


class Surroundings(NamedTuple):
    """What all brokers of a world share."""

    clock: Clock
    trace: Trace
    network: Network
    brokers: dict[str, "Broker"]
    is_member: Callable[[str, str], bool]  # of a trust group
    trusted_for: int  # microseconds


class Broker:
    def __init__(self, name: str, make_engine: Callable[[], Engine], surroundings: Surroundings) -> None:
        self.name = name
        self._make_engine = make_engine
        self._surroundings = surroundings
        self._clock, self._trace = surroundings.clock, surroundings.trace
        self.engine = make_engine()
        self.disk = Disk()
        self.is_up = True
        self.ends: dict[str, End] = {}
        self.sessions: dict[str, Session] = {}
        self._stranded: dict[str, Session] = {}  # clients that come back when the broker does
        self._shipping: set[str] = set()  # clients whose notifications are on their way to another broker
        self.received_itself: list[Notification] = []  # for subscriptions of its own
        self.told: deque[Told] = deque(maxlen=MAX_TOLD_EVENTS)
        self.persisted: deque[Persist] = deque(maxlen=MAX_STORED_MESSAGES)
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.rejected: deque[Reject] = deque(maxlen=MAX_LOG_LINES)

    # Operations

    def do(self, operation: Operation, sender: str = "-") -> list[Effect]:
        """One operation, and what follows from it here; what it sends is under way then."""
        now = self._clock.now
        self._trace.operation(now, self.name, sender, operation)
        effects = self.engine.handle(operation, now)
        self._carry_out(effects)
        return effects

    def joined(self, neighbour: str, cost: int) -> None:
        self.do(Join(neighbour, cost))

    def left(self, neighbour: str) -> None:
        self.do(Leave(neighbour))

    def received(self, neighbour: str, operation: Travelling) -> None:
        now = self._clock.now
        self._trace.operation(now, self.name, neighbour, operation)
        self._carry_out(self.engine.handle(Receive(neighbour, operation), now))

    def tick(self) -> None:
        """A heartbeat interval has passed; nobody need know of it unless something follows."""
        if not self.is_up:
            return
        effects = self.engine.handle(_TICK, self._clock.now)
        if effects:
            self._trace.operation(self._clock.now, self.name, "-", _TICK)
            self._carry_out(effects)
        for client in list(self.disk.moved):
            self._ship(client)

    @property
    def is_settled(self) -> bool:
        """Nothing is to be done here that can be done."""
        if not self.is_up:
            return True
        return self.engine.is_settled and not any(map(self._can_ship, self.disk.moved))

    def _carry_out(self, effects: list[Effect]) -> None:
        ends = self.ends
        for effect in effects:
            if type(effect) is Send:
                ends[effect.neighbour].send(effect.operation)
            elif type(effect) is Deliver:
                self._deliver(effect.notification, durable=effect.durable is not None)
            else:
                self._carry_out_rare(effect)

    def _carry_out_rare(self, effect: Effect) -> None:
        match effect:
            case Ask(party, group):
                self._clock.at(self._clock.now + _ANSWER, self._answer, party, group)
            case HandOver(client, broker):
                self.hand_over(client, broker)
            case Reject():
                self.rejected.append(effect)
            case Told():
                self.told.append(effect)
            case Persist():
                self.persisted.append(effect)
            case Log(line):
                self.log.append(line)
            case _:
                pass  # a remark is for who asked: it is among the effects that `do` answers

    def _answer(self, party: str, group: str) -> None:
        if self.is_up:
            until = self._clock.now + self._surroundings.trusted_for
            self.do(Trust(party, group, self._surroundings.is_member(party, group), until))

    # Clients

    def connect(self, client: Session) -> None:
        """What waited for the client is delivered first; then its library says what it has."""
        self.sessions[client.name] = client
        self.disk.moved.pop(client.name, None)
        for note in self.disk.waiting(client.name):
            self._hand(client, note, durable=True)

    def disconnect(self, client: str) -> None:
        if self.sessions.pop(client, None) is not None:
            self.do(Disconnect(client))
        self._stranded.pop(client, None)

    def strand(self, client: Session) -> None:
        """A client wants to be here, and waits for the broker to be back."""
        self._stranded[client.name] = client

    def unsubscribe(self, operation: Unsubscribe) -> list[Effect]:
        effects = self.do(operation)
        if not any(isinstance(one, Reject) for one in effects):
            self.disk.forget_subscription(operation.client, operation.id)
        return effects

    def acknowledged(self, client: Session, key: Key) -> None:
        if self.is_up and self.sessions.get(client.name) is client:
            self.disk.acknowledge(client.name, key)

    def _deliver(self, note: Notification, *, durable: bool) -> None:
        client = self.sessions.get(note.subscriber)
        if durable and not self.disk.keep(note):
            return
        if client is not None:
            self._hand(client, note, durable=durable)
        elif note.subscriber == self.name:
            self.received_itself.append(note)

    def _hand(self, client: Session, note: Notification, *, durable: bool) -> None:
        self._trace.notification(self._clock.now, self.name, note)
        client.notified(note, durable=durable)

    # Clients that have moved: what waits here follows them

    def hand_over(self, client: str, broker: str) -> None:
        if client not in self.sessions and broker != self.name:
            self.disk.moved[client] = broker
            self._ship(client)

    def take_over(self, notes: list[Notification]) -> None:
        """Notifications that waited at another broker, for a client that has come here, and may have gone on."""
        for note in notes:
            self._deliver(note, durable=True)
        for client in {note.subscriber: None for note in notes}:
            self._ship(client)

    def _can_ship(self, client: str) -> bool:
        target = self.disk.moved.get(client)
        if target is None or client in self._shipping or not self.disk.waiting(client):
            return False
        return self._surroundings.network.connects(self.name, target)

    def _ship(self, client: str) -> None:
        if self._can_ship(client):
            self._shipping.add(client)
            self._clock.at(self._clock.now + _SHIPMENT, self._shipped, client, self.disk.moved[client])

    def _shipped(self, client: str, target: str) -> None:
        """They are forgotten here once they are on the other broker's disk."""
        if not self.is_up or client not in self._shipping:
            return
        self._shipping.discard(client)
        there = self._surroundings.brokers[target]
        if self.disk.moved.get(client) == target and there.is_up:
            notes = self.disk.waiting(client)
            self.disk.forget(client, notes)
            self._trace.note(self._clock.now, self.name, f"hands {len(notes)} for {client} to {target}")
            there.take_over(notes)

    # Crash and restart

    def crash(self) -> None:
        """Everything is gone but the disk, without a word to anybody."""
        self.disk.write_tables(self.engine.tables())
        self.is_up = False
        for end in self.ends.values():
            end.stop()
        self._stranded.update(self.sessions)
        self.sessions = {}
        self._shipping.clear()
        for client in self._stranded.values():
            client.cut_off()

    def restart(self) -> None:
        """With what is on the disk; links come up by themselves, clients come back after a while."""
        self.engine = self._make_engine()
        self.is_up = True
        for name, context in self.disk.contexts.items():
            self.do(SetContext(name, context))
        for subscription in self.disk.subscriptions:
            self.do(Subscribe(subscription))
        for end in self.ends.values():
            end.start(self)
        stranded, self._stranded = self._stranded, {}
        for client in stranded.values():
            client.come_back()

    def __repr__(self) -> str:
        return f"<broker {self.name} {'up' if self.is_up else 'down'}>"
