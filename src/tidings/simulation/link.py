"""A link between two brokers: operations arrive once and in order, over a network that promises neither.

Both ends greet until each has heard that the other has heard it; then the link is up at both. Every time an end comes
or goes it has another incarnation, and what is meant for an earlier one is dropped. An end that hears nothing for too
long is down, and so is the other one when it hears of that. As long as the network is smooth nothing of this needs to
be acted out: an operation is carried straight to the other end.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from tidings.engine.operations import Travelling
from tidings.routing.liveness import Liveness
from tidings.simulation.clock import SECOND, Clock
from tidings.simulation.counters import Tally
from tidings.simulation.network import Way

HEARTBEAT = SECOND // 2
PATIENCE = 6  # heartbeats that may fail to come before a link is down
_OVERHEAD = 24  # bytes of a frame beside the operation in it
_AT_ONCE = 64  # frames that are sent again together
_SOONEST = 10_000  # microseconds before a frame is sent again


class Shell(Protocol):
    """What a link tells the broker at its end."""

    def joined(self, neighbour: str, cost: int) -> None: ...
    def left(self, neighbour: str) -> None: ...
    def received(self, neighbour: str, operation: Travelling) -> None: ...


class Kind(Enum):
    GREETING = "greeting"
    HEARTBEAT = "heartbeat"
    OPERATION = "operation"


class Frame(NamedTuple):
    kind: Kind
    source: int  # the sender's incarnation
    target: int  # the receiver's, as far as the sender knows; 0: it has heard nothing
    is_up: bool  # whether the link is up at the sender's end
    taken: int  # so many operations have arrived at the sender's end
    number: int = 0
    operation: Travelling | None = None


class End:
    """One end of a link, at the broker `name`; `peer` is the incarnation of the end at `neighbour`."""

    def __init__(self, link: "Link", name: str, neighbour: str, way: Way, tally: Tally) -> None:
        self._link, self._clock, self._way, self._tally = link, link.clock, way, tally
        self.name, self.neighbour = name, neighbour
        self.other: End = self
        self.shell: Shell | None = None
        self.is_on = self.is_up = self._is_paused = False
        self._unheard: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # what has come meanwhile
        self.own, self.peer = 1, 0
        self._liveness = Liveness(HEARTBEAT, PATIENCE, 0)
        self._sending_again = False
        self._start_counting()

    def _start_counting(self) -> None:
        self._sent = self._taken = 0
        self._unacknowledged: dict[int, tuple[Travelling, int]] = {}  # by number, in order
        self._early: dict[int, Travelling] = {}  # that came before those in front of them

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to arrive at the other end, as far as this one knows."""
        return bool(self._unacknowledged)

    # What the broker does

    def send(self, operation: Travelling) -> None:
        """An operation for the neighbour; dropped if the link is down, as its engine has heard or is about to hear."""
        if not self.is_up:
            return
        size = self._tally.count(operation)
        number = self._sent
        self._sent += 1
        if self._link.is_smooth:
            self._way.carry(size, self.other.take, self.own, self.peer, number, operation)
            return
        self._unacknowledged[number] = operation, size
        self._throw(Kind.OPERATION, number, operation, size)
        self._send_again_later()

    def start(self, shell: Shell) -> None:
        """The broker is there, and greets."""
        self.shell, self.is_on = shell, True

    def stop(self) -> None:
        """The broker is gone, without a word."""
        self.is_on = self.is_up = self._is_paused = False
        self._unheard = []
        self._new_incarnation()

    @property
    def is_there(self) -> bool:
        """Whether the broker is, and does anything."""
        return self.is_on and not self._is_paused

    def pause(self) -> None:
        """The broker does nothing for a while; what comes is there when it goes on."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        unheard, self._unheard = self._unheard, []
        for hear, given in unheard:
            hear(*given)

    # What happens by itself

    def come_up(self) -> None:
        self.is_up = True
        self._start_counting()
        self._liveness.heard(self._clock.now)
        if self.shell is not None:
            self.shell.joined(self.neighbour, self._link.cost)

    def listen_from(self, now: int) -> None:
        """From now on silence is counted."""
        self._liveness.heard(now)

    def beat(self) -> None:
        if not self.is_there:
            return
        if self.is_up and not self._liveness.is_alive(self._clock.now):
            self._go_down()
        if self.is_up:
            self._throw(Kind.HEARTBEAT)
        else:
            self.greet()

    def greet(self) -> None:
        self._throw(Kind.GREETING)

    def hear(self, frame: Frame) -> None:
        """A frame has come."""
        if self._is_paused:
            self._unheard.append((self.hear, (frame,)))
        if not self.is_there:
            return
        if frame.kind is Kind.GREETING:
            self._greeted(frame)
        elif frame.source == self.peer and frame.target == self.own:
            if not self.is_up:
                self.come_up()  # the other end would not send this if it were not up
            self._liveness.heard(self._clock.now)
            for number in [number for number in self._unacknowledged if number < frame.taken]:
                del self._unacknowledged[number]
            if frame.operation is not None:
                self.take(frame.source, frame.target, frame.number, frame.operation)
                self._throw(Kind.HEARTBEAT)

    def take(self, source: int, target: int, number: int, operation: Travelling) -> None:
        """An operation has come; it is handed on when all before it have been."""
        if self._is_paused:
            self._unheard.append((self.take, (source, target, number, operation)))
            return
        if not self.is_up or source != self.peer or target != self.own or number < self._taken or self.shell is None:
            return
        if number > self._taken:
            self._early[number] = operation
            return
        self._taken += 1
        self.shell.received(self.neighbour, operation)
        while self._early and self._taken in self._early:
            following = self._early.pop(self._taken)
            self._taken += 1
            self.shell.received(self.neighbour, following)

    def _greeted(self, frame: Frame) -> None:
        if frame.source < self.peer:
            return
        if frame.source > self.peer:
            if self.is_up:
                self._go_down()
            self.peer = frame.source
        if frame.target != self.own:
            self.greet()  # it has not heard of this end yet
            return
        self._liveness.heard(self._clock.now)
        if not self.is_up:
            self.come_up()
            self.greet()
        elif not frame.is_up:
            self.greet()

    def _go_down(self) -> None:
        self.is_up = False
        self._new_incarnation()
        if self.shell is not None:
            self.shell.left(self.neighbour)

    def _new_incarnation(self) -> None:
        self.own += 1
        self.peer = 0
        self._start_counting()

    def _throw(self, kind: Kind, number: int = 0, operation: Travelling | None = None, size: int = 0) -> None:
        frame = Frame(kind, self.own, self.peer, self.is_up, self._taken, number, operation)
        self._way.throw(size + _OVERHEAD, self.other.hear, frame)

    def _send_again_later(self) -> None:
        if not self._sending_again:
            self._sending_again = True
            soon = max(_SOONEST, 2 * (self._way.delay + self.other._way.delay))
            self._clock.in_background(self._clock.now + soon, self._send_again)

    def _send_again(self) -> None:
        self._sending_again = False
        if self._unacknowledged and self._is_paused:
            self._send_again_later()
        elif self._unacknowledged:
            for number in list(self._unacknowledged)[:_AT_ONCE]:
                operation, size = self._unacknowledged[number]
                self._throw(Kind.OPERATION, number, operation, size)
            self._send_again_later()


class Link:
    """Two ends. While the network between them is smooth and both are up, heartbeats need not be sent."""

    def __init__(
        self, clock: Clock, one: str, other: str, ways: tuple[Way, Way], tallies: tuple[Tally, Tally], cost: int
    ) -> None:
        self.clock, self.cost = clock, cost
        self.is_smooth = True
        self._ways = ways
        self.ends = End(self, one, other, ways[0], tallies[0]), End(self, other, one, ways[1], tallies[1])
        first, second = self.ends
        first.other, second.other = second, first

    def begin(self) -> None:
        """Both ends are up at once, when a world begins."""
        first, second = self.ends
        first.peer, second.peer = second.own, first.own
        self.network_changed()
        for end in self.ends:
            end.come_up()

    def network_changed(self) -> None:
        if not all(way.is_smooth for way in self._ways):
            self.stir()

    def stir(self) -> None:
        """The network, or a broker, is no longer what it was: heartbeats are sent until all is well."""
        if self.is_smooth:
            self.is_smooth = False
            for end in self.ends:
                end.listen_from(self.clock.now)
            self.clock.in_background(self.clock.now, self._beat)

    @property
    def is_settled(self) -> bool:
        """Whether both ends have found out how things are, and nothing is on its way between them."""
        if self.is_smooth:
            return True
        first, second = self.ends
        if all(way.is_passable for way in self._ways) and first.is_there and second.is_there:
            return self._is_up and not first.is_waiting and not second.is_waiting
        return not any(end.is_there and end.is_up for end in self.ends)

    def __repr__(self) -> str:
        states = "/".join("up" if end.is_up else "down" if end.is_on else "off" for end in self.ends)
        return f"<link {self.ends[0].name}-{self.ends[1].name} {states}>"

    @property
    def _is_up(self) -> bool:
        first, second = self.ends
        known = first.peer == second.own and second.peer == first.own
        return known and first.is_up and second.is_up

    def _beat(self) -> None:
        if self._is_up and self.is_settled and all(way.is_smooth for way in self._ways):
            self.is_smooth = True
            return
        for end in self.ends:
            end.beat()
        self.clock.in_background(self.clock.now + HEARTBEAT, self._beat)
