"""A broker: the shell around one engine. It carries out effects, and keeps what its clients have not acknowledged."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tidings.engine import Engine
from tidings.engine.debts import Debts
from tidings.engine.effects import (
    Arranged,
    Ask,
    Decided,
    Deliver,
    Effect,
    HandedOver,
    HandOver,
    Log,
    Moved,
    Persist,
    Rearranging,
    Reject,
    Send,
    Settled,
    Told,
    Undecided,
    Wake,
)
from tidings.engine.operations import (
    Carry,
    Connect,
    Disconnect,
    Join,
    Lag,
    Leave,
    Operation,
    Publish,
    Receive,
    Tick,
    Travelling,
    Trust,
    Unsubscribe,
)
from tidings.model.limits import MAX_LOG_LINES, MAX_STORED_MESSAGES, MAX_TOLD_EVENTS
from tidings.model.notification import Notification
from tidings.simulation.clock import SECOND, Clock
from tidings.simulation.disk import Disk, Key, key_of
from tidings.simulation.link import End
from tidings.simulation.trace import Trace

_ANSWER = 1_000  # microseconds until a question of trust is answered
_LOST = 5 * SECOND  # so long after they were sent, notifications that have not arrived are sent again
_PIECE = 16  # publications that are sent again together
_BETWEEN = 1_000  # microseconds between them and the next ones
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
    is_member: Callable[[str, str], bool]  # of a trust group
    trusted_for: int  # microseconds


class Parcel(NamedTuple):
    """Notifications on their way to another broker."""

    number: int  # not before the time at which it was sent
    keys: list[Key]


class Broker:
    def __init__(self, name: str, make_engine: Callable[[], Engine], surroundings: Surroundings) -> None:
        self.name = name
        self._make_engine = make_engine
        self._surroundings = surroundings
        self._clock, self._trace = surroundings.clock, surroundings.trace
        self.engine = make_engine()
        self.disk = Disk()
        self.debts = Debts(name)
        self._is_sending_again = False
        self.is_up = True
        self._is_paused = False
        self._deferred: list[Callable[[], None]] = []  # what is to be done when it goes on
        self.ends: dict[str, End] = {}
        self.sessions: dict[str, Session] = {}
        self._stranded: dict[str, Session] = {}  # clients that come back when the broker does
        self._parcels: dict[str, Parcel] = {}  # by client
        self._number = 0  # of the last parcel
        self.received_itself: list[Notification] = []  # for subscriptions of its own
        self.told: deque[Told] = deque(maxlen=MAX_TOLD_EVENTS)
        self.persisted: deque[Persist] = deque(maxlen=MAX_STORED_MESSAGES)
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.rejected: deque[Reject] = deque(maxlen=MAX_LOG_LINES)

    # Operations

    def do(self, operation: Operation, sender: str = "-") -> list[Effect]:
        """One operation, and what follows from it here; what it sends is under way then."""
        now = self._clock.now
        if sender in self.sessions:
            self.disk.heard[sender] = now
        self._trace.operation(now, self.name, sender, operation)
        effects = self.engine.handle(operation, now)
        if isinstance(operation, Publish) and self._resends and not any(isinstance(one, Reject) for one in effects):
            offset = self.disk.write(operation.event)
            self.debts.published(offset, operation.event, goes_on=bool(self.engine.neighbours))
        self._carry_out(effects)
        self._see_to_debts()
        return effects

    def joined(self, neighbour: str, cost: int) -> None:
        self.do(Join(neighbour, cost))

    def left(self, neighbour: str) -> None:
        self.do(Leave(neighbour))

    def received(self, neighbour: str, operation: Travelling) -> None:
        now = self._clock.now
        self._trace.operation(now, self.name, neighbour, operation)
        self._carry_out(self.engine.handle(Receive(neighbour, operation), now))
        self._see_to_debts()

    def tick(self) -> None:
        """A heartbeat interval has passed; nobody need know of it unless something follows."""
        if not self.is_there:
            return
        effects = self.engine.handle(_TICK, self._clock.now)
        if effects:
            self._trace.operation(self._clock.now, self.name, "-", _TICK)
            self._carry_out(effects)
        for client in list(self.disk.moved):
            self._carry(client)
        self.debts.tick(self._clock.now)
        self._see_to_debts()

    @property
    def is_settled(self) -> bool:
        """Nothing is to be done here that can be done."""
        if not self.is_there:
            return True
        return self.engine.is_settled and self.debts.is_settled and not any(map(self._can_carry, self.disk.moved))

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
            case Ask(party, group):
                self._clock.at(self._clock.now + _ANSWER, self._answer, party, group)
            case Undecided(judge):
                self.disk.owe(judge)
            case Decided(event, client):
                self.disk.decided(event, client)
            case Wake(microseconds):
                self._clock.in_background(self._clock.now + microseconds, self.tick)
            case HandOver(client, broker):
                self.hand_over(client, broker)  # a simulated client sets its context again itself
            case HandedOver(number):
                self._handed_over(number)
            case Rearranging(brokers):
                self.debts.rearranging(brokers)
            case Arranged(brokers):
                self.debts.arranged(brokers, self._clock.now)
            case Settled(event, round):
                self.debts.settled(event, round)
            case Moved(client, broker, session):
                self.debts.moved(client, broker, session, self._clock.now)
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
        if self._is_paused:
            self._deferred.append(partial(self._answer, party, group))
        elif self.is_up:
            until = self._clock.now + self._surroundings.trusted_for
            self.do(Trust(party, group, self._surroundings.is_member(party, group), until))

    # What may have been lost between brokers

    @property
    def _resends(self) -> bool:
        return self.engine.settings.resends

    def _see_to_debts(self) -> None:
        """New publications are not for those that are sent older ones first; which they are, a piece at a time."""
        lagging = self.debts.lagging
        if lagging != self.engine.overlay.lagging:
            self.engine.handle(Lag(lagging), self._clock.now)
        if self.debts.has_to_send and not self._is_sending_again:
            self._is_sending_again = True
            self._clock.in_background(self._clock.now + _BETWEEN, self._send_again, self.engine)

    def _send_again(self, engine: Engine) -> None:
        if self._is_paused:
            self._deferred.append(partial(self._send_again, engine))
            return
        if self.engine is not engine or not self.is_up:
            return  # it was another life
        self._is_sending_again = False
        now = self._clock.now
        piece = self.debts.piece(now)
        if piece is not None:
            stop = min(piece.stop, piece.start + _PIECE)
            for offset in range(piece.start, stop):
                again = self.debts.sends_again(piece, offset, self.disk.journal[offset], now)
                self._trace.operation(now, self.name, "-", again)
                self._carry_out(self.engine.handle(again, now))
            self.debts.reached(piece, stop)
        self._see_to_debts()

    # Clients

    def connect(self, client: Session, session: int, *, moved: bool) -> None:
        """What waited for the client is delivered first; then its library says what it has."""
        self.sessions[client.name] = client
        self.disk.moved.pop(client.name, None)
        self.disk.sessions[client.name] = session
        self.do(Connect(client.name, moved, session), client.name)
        for note in self.disk.waiting(client.name):
            self._hand(client, note, durable=True)
        for judge in self.disk.undecided(client.name):
            self.do(judge)

    def disconnect(self, client: str) -> None:
        if self.sessions.pop(client, None) is not None:
            self.do(Disconnect(client))
        self._stranded.pop(client, None)

    def strand(self, client: Session) -> None:
        """A client wants to be here, and waits for the broker to be back."""
        self._stranded[client.name] = client

    def unsubscribe(self, operation: Unsubscribe) -> list[Effect]:
        effects = self.do(operation, operation.client)
        if not any(isinstance(one, Reject) for one in effects):
            self.disk.forget_subscription(operation.client, operation.id)
        return effects

    def acknowledged(self, client: Session, key: Key) -> None:
        if self.is_there and self.sessions.get(client.name) is client:
            self.disk.acknowledge(client.name, key)

    def _deliver(self, note: Notification, durable: str | None) -> None:
        client = self.sessions.get(note.subscriber)
        if durable is not None and not self.disk.keep(note, durable):
            return
        if client is not None:
            self._hand(client, note, durable=durable is not None)
        elif note.subscriber == self.name:
            self.received_itself.append(note)

    def _hand(self, client: Session, note: Notification, *, durable: bool) -> None:
        self._trace.notification(self._clock.now, self.name, note)
        client.notified(note, durable=durable)

    # Clients that have moved: what waits here follows them

    def hand_over(self, client: str, broker: str) -> None:
        if client not in self.sessions:
            self.disk.moved[client] = broker
            self._carry(client)

    def _carry(self, client: str) -> None:
        """Kept here until the other broker has it; what seems to be lost on the way is sent again."""
        now = self._clock.now
        sent = self._parcels.get(client)
        if self._can_carry(client) and (sent is None or now - sent.number >= _LOST):
            owed = self.disk.owed(client)
            number = self._number = max(now, self._number + 1)
            self._parcels[client] = Parcel(number, [key_of(note) for note, _ in owed])
            self.do(Carry(self.name, self.disk.moved[client], number, owed))

    def _handed_over(self, number: int) -> None:
        for client, parcel in list(self._parcels.items()):
            if parcel.number == number:
                del self._parcels[client]
                for key in parcel.keys:
                    self.disk.acknowledge(client, key)

    def _can_carry(self, client: str) -> bool:
        """Whether something waits that has not followed its client, to a broker that there is a way to."""
        return self.disk.moved[client] in self.engine.topology.brokers and bool(self.disk.waiting(client))

    # Crash and restart

    def crash(self) -> None:
        """Everything is gone but the disk, without a word to anybody."""
        self.disk.write_tables(self.engine.tables())
        self.disk.debts = self.debts.state()
        if self.engine.assurance is not None:
            self.disk.assurance = self.engine.assurance.state()
        self.is_up = self._is_paused = False
        self._deferred = []
        for end in self.ends.values():
            end.stop()
        self._parcels.clear()
        self._cut_off()

    def restart(self) -> None:
        """With what is on the disk; links come up by themselves, clients come back after a while."""
        self.engine = self._make_engine()
        self.debts = Debts(self.name, self.disk.debts, len(self.disk.journal))
        self._is_sending_again = False
        self.is_up = True
        if self.engine.assurance is not None and self.disk.assurance:
            self.engine.assurance.restore(self.disk.assurance)
        self.engine.is_recalling = True
        for operation, when in self.disk.restored():
            self._carry_out(self.engine.handle(operation, when))
        self.engine.is_recalling = False
        for end in self.ends.values():
            end.start(self)
        self._call_back()

    def _cut_off(self) -> None:
        self._stranded.update(self.sessions)
        self.sessions = {}
        for client in self._stranded.values():
            client.cut_off()

    def _call_back(self) -> None:
        stranded, self._stranded = self._stranded, {}
        for client in stranded.values():
            client.come_back()

    # A pause: nothing is lost, and all the others believe that the broker is gone

    @property
    def is_there(self) -> bool:
        """Whether it is up, and does anything."""
        return self.is_up and not self._is_paused

    def pause(self) -> None:
        self._is_paused = True
        for end in self.ends.values():
            end.pause()
        self._deferred += (partial(self._client_is_gone, name) for name in self.sessions)
        self._cut_off()

    def resume(self) -> None:
        """It hears what has come meanwhile, and that its clients did not wait for it."""
        self._is_paused = False
        for end in self.ends.values():
            end.resume()
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()
        self._call_back()

    def _client_is_gone(self, client: str) -> None:
        self.do(Disconnect(client))

    def __repr__(self) -> str:
        return f"<broker {self.name} {'up' if self.is_up else 'down'}>"
