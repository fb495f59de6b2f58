"""A link between two brokers: delivers operations once and in order over an unreliable network.

Theory of operation:

1. Incarnations. Each end has an incarnation number, and a new one whenever it goes down or its broker stops. Frames
   for or from an earlier incarnation are dropped.
2. Handshake. Both ends send greetings with their own incarnation and the one that they know of the peer. An end is
   up when it learns that the peer knows its incarnation.
3. Delivery. Operations are numbered. Each frame acknowledges the operations received so far; unacknowledged ones are
   retransmitted; the receiver passes them on in order.
4. Liveness. An end that hears nothing for `PATIENCE` heartbeats goes down. The other end goes down when it hears the
   new incarnation.
5. Shortcut. While the network is smooth and both ends are up, none of this is simulated: an operation is scheduled
   directly at the other end, and no heartbeats are sent.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from tidings.engine.operations import Travelling
from tidings.simulation.clock import SECOND, SimulatedClock
from tidings.simulation.counters import LinkTally
from tidings.simulation.network import NetworkPath

HEARTBEAT = SECOND // 2
PATIENCE = 6  # heartbeats that may be missing before a link goes down
_FRAME_OVERHEAD_BYTES = 24  # bytes of a frame in addition to its operation
_RETRANSMIT_BATCH = 64  # frames that are retransmitted together
_MIN_RETRANSMIT_DELAY = 10_000  # microseconds before the first retransmission


class LinkListener(Protocol):
    """The interface by which a link notifies the broker at its end."""

    def joined(self, neighbour: str, cost: int) -> None: ...
    def left(self, neighbour: str) -> None: ...
    def received(self, neighbour: str, operation: Travelling) -> None: ...


class DatagramKind(Enum):
    """The kinds of frames."""

    GREETING = "greeting"
    HEARTBEAT = "heartbeat"
    OPERATION = "operation"


class Frame(NamedTuple):
    """A datagram between the ends of a link."""

    kind: DatagramKind
    source: int  # the sender's incarnation
    target: int  # the receiver's incarnation as the sender knows it; 0: unknown
    is_up: bool  # whether the link is up at the sender's end
    acknowledged: int  # how many operations the sender has received in order
    number: int = 0
    operation: Travelling | None = None


class LinkEnd:
    """One end of a link, at the broker `name`. `peer_incarnation` is the incarnation of the other end, at `neighbour`,
    0 if unknown."""

    def __init__(self, link: "SimulatedLink", name: str, neighbour: str, path: NetworkPath, tally: LinkTally) -> None:
        """Create an end that is down.

        Args:
            link: The link.
            name: The broker at this end.
            neighbour: The broker at the other end.
            way: The network path to the other end.
            tally: Counts the operations that are sent.
        """
        self._link, self._clock, self._path, self._tally = link, link.clock, path, tally
        self.name, self.neighbour = name, neighbour
        self.other: LinkEnd = self
        self.listener: LinkListener | None = None
        self.is_started = self.is_up = self._is_paused = False
        self._paused_calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # calls that arrived during a pause
        self.incarnation, self.peer_incarnation = 1, 0
        self._liveness = Liveness(HEARTBEAT, PATIENCE, 0)
        self._is_retransmitting = False
        self._start_counting()

    def _start_counting(self) -> None:
        self._sent = self._received = 0
        self._unacknowledged: dict[int, tuple[Travelling, int]] = {}  # operation and size by number, in order
        self._out_of_order: dict[int, Travelling] = {}  # operations by number that arrived before earlier ones

    @property
    def is_waiting(self) -> bool:
        """Whether this end has sent operations that are not acknowledged. Operations that were sent while the link had
        no faults need no acknowledgement."""
        return bool(self._unacknowledged)

    # Called by the broker

    def send(self, operation: Travelling) -> None:
        """Send an operation to the neighbour. Dropped if the link is down: the engine knows of that or will hear of
        it."""
        if not self.is_up:
            return
        size = self._tally.count(operation)
        number = self._sent
        self._sent += 1
        if self._link.is_smooth:
            self._path.deliver_in_order(
                size, self.other.receive_operation, self.incarnation, self.peer_incarnation, number, operation
            )
            return
        self._unacknowledged[number] = operation, size
        self._send_frame(DatagramKind.OPERATION, number, operation, size)
        self._schedule_retransmission()

    def start(self, listener: LinkListener) -> None:
        """The broker has started and listens."""
        self.listener, self.is_started = listener, True

    def stop(self) -> None:
        """The broker has crashed; the neighbour is not notified."""
        self.is_started = self.is_up = self._is_paused = False
        self._paused_calls = []
        self._new_incarnation()

    @property
    def is_there(self) -> bool:
        """Whether the broker is up and not paused."""
        return self.is_started and not self._is_paused

    def pause(self) -> None:
        """Queue arriving frames until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Process the queued frames."""
        self._is_paused = False
        calls, self._paused_calls = self._paused_calls, []
        for receive_frame, arguments in calls:
            receive_frame(*arguments)

    # Protocol

    def come_up(self) -> None:
        """The link is up at this end: notify the broker."""
        self.is_up = True
        self._start_counting()
        self._liveness.heard(self._clock.now)
        if self.listener is not None:
            self.listener.joined(self.neighbour, self._link.cost)

    def listen_from(self, now: int) -> None:
        """Restart the liveness timeout."""
        self._liveness.heard(now)

    def send_heartbeat(self) -> None:
        """Check liveness, and send a heartbeat, or a greeting while the link is down. Called once per heartbeat
        interval."""
        if not self.is_there:
            return
        if self.is_up and not self._liveness.is_alive(self._clock.now):
            self._go_down()
        if self.is_up:
            self._send_frame(DatagramKind.HEARTBEAT)
        else:
            self.greet()

    def greet(self) -> None:
        """Send a greeting."""
        self._send_frame(DatagramKind.GREETING)

    def receive_frame(self, frame: Frame) -> None:
        """Process a frame."""
        if self._is_paused:
            self._paused_calls.append((self.receive_frame, (frame,)))
        if not self.is_there:
            return
        if frame.kind is DatagramKind.GREETING:
            self._handle_greeting(frame)
        elif frame.source == self.peer_incarnation and frame.target == self.incarnation:
            if not self.is_up:
                self.come_up()  # the other end only sends this when it is up
            self._liveness.heard(self._clock.now)
            for number in [number for number in self._unacknowledged if number < frame.acknowledged]:
                del self._unacknowledged[number]
            if frame.operation is not None:
                self.receive_operation(frame.source, frame.target, frame.number, frame.operation)
                self._send_frame(DatagramKind.HEARTBEAT)

    def receive_operation(self, source: int, target: int, number: int, operation: Travelling) -> None:
        """Receive an operation; pass it to the broker when all earlier ones have been received.

        Args:
            source: The sender's incarnation.
            target: This end's incarnation, as the sender knows it.
            number: The number of the operation.
            operation: The operation.
        """
        if self._is_paused:
            self._paused_calls.append((self.receive_operation, (source, target, number, operation)))
            return
        if (
            not self.is_up
            or source != self.peer_incarnation
            or target != self.incarnation
            or number < self._received
            or self.listener is None
        ):
            return
        if number > self._received:
            self._out_of_order[number] = operation
            return
        self._received += 1
        self.listener.received(self.neighbour, operation)
        while self._out_of_order and self._received in self._out_of_order:
            following = self._out_of_order.pop(self._received)
            self._received += 1
            self.listener.received(self.neighbour, following)

    def _handle_greeting(self, frame: Frame) -> None:
        if frame.source < self.peer_incarnation:
            return
        if frame.source > self.peer_incarnation:
            if self.is_up:
                self._go_down()
            self.peer_incarnation = frame.source
        if frame.target != self.incarnation:
            self.greet()  # the peer does not know this incarnation yet
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
        if self.listener is not None:
            self.listener.left(self.neighbour)

    def _new_incarnation(self) -> None:
        self.incarnation += 1
        self.peer_incarnation = 0
        self._start_counting()

    def _send_frame(
        self, kind: DatagramKind, number: int = 0, operation: Travelling | None = None, size: int = 0
    ) -> None:
        frame = Frame(kind, self.incarnation, self.peer_incarnation, self.is_up, self._received, number, operation)
        self._path.send_datagram(size + _FRAME_OVERHEAD_BYTES, self.other.receive_frame, frame)

    def _schedule_retransmission(self) -> None:
        if not self._is_retransmitting:
            self._is_retransmitting = True
            delay = max(_MIN_RETRANSMIT_DELAY, 2 * (self._path.delay + self.other._path.delay))
            self._clock.in_background(self._clock.now + delay, self._retransmit)

    def _retransmit(self) -> None:
        self._is_retransmitting = False
        if self._unacknowledged and self._is_paused:
            self._schedule_retransmission()
        elif self._unacknowledged:
            for number in list(self._unacknowledged)[:_RETRANSMIT_BATCH]:
                operation, size = self._unacknowledged[number]
                self._send_frame(DatagramKind.OPERATION, number, operation, size)
            self._schedule_retransmission()


class SimulatedLink:
    """A link with its two ends. While it is smooth and both ends are up, no heartbeats are sent."""

    def __init__(
        self,
        clock: SimulatedClock,
        one: str,
        other: str,
        paths: tuple[NetworkPath, NetworkPath],
        tallies: tuple[LinkTally, LinkTally],
        cost: int,
    ) -> None:
        """Create a link whose ends are down.

        Args:
            clock: The clock.
            one: The first broker.
            other: The second broker.
            ways: The network paths, from the first and from the second broker.
            tallies: The counters, in the same order.
            cost: The cost of the link.
        """
        self.clock, self.cost = clock, cost
        self.is_smooth = True
        self._paths = paths
        self.ends = LinkEnd(self, one, other, paths[0], tallies[0]), LinkEnd(self, other, one, paths[1], tallies[1])
        first, second = self.ends
        first.other, second.other = second, first

    def begin(self) -> None:
        """Bring both ends up at once, at the start of the world."""
        first, second = self.ends
        first.peer_incarnation, second.peer_incarnation = second.incarnation, first.incarnation
        self.network_changed()
        for end in self.ends:
            end.come_up()

    def network_changed(self) -> None:
        """Start heartbeats if the network is not smooth any more."""
        if not all(path.is_smooth for path in self._paths):
            self.start_heartbeats()

    def start_heartbeats(self) -> None:
        """Send heartbeats until everything is well again, because the network or a broker has changed."""
        if self.is_smooth:
            self.is_smooth = False
            for end in self.ends:
                end.listen_from(self.clock.now)
            self.clock.in_background(self.clock.now, self._send_heartbeats)

    @property
    def is_settled(self) -> bool:
        """Whether both ends know the true state of the link, and no operation is on its way."""
        if self.is_smooth:
            return True
        first, second = self.ends
        if all(path.is_passable for path in self._paths) and first.is_there and second.is_there:
            return self._is_up and not first.is_waiting and not second.is_waiting
        return not any(end.is_there and end.is_up for end in self.ends)

    def __repr__(self) -> str:
        states = "/".join("up" if end.is_up else "down" if end.is_started else "off" for end in self.ends)
        return f"<link {self.ends[0].name}-{self.ends[1].name} {states}>"

    @property
    def _is_up(self) -> bool:
        first, second = self.ends
        is_known = first.peer_incarnation == second.incarnation and second.peer_incarnation == first.incarnation
        return is_known and first.is_up and second.is_up

    def _send_heartbeats(self) -> None:
        if self._is_up and self.is_settled and all(path.is_smooth for path in self._paths):
            self.is_smooth = True
            return
        for end in self.ends:
            end.send_heartbeat()
        self.clock.in_background(self.clock.now + HEARTBEAT, self._send_heartbeats)


class Liveness:
    """The timeout of a connection: alive while something was received within the last `patience` heartbeat
    intervals.

    Times are in microseconds; the caller passes the time.
    """

    __slots__ = ("_last", "_patience")

    def __init__(self, interval: int, patience: int, now: int) -> None:
        """`interval` is the time between heartbeats, and `patience` the number of them that may be missing."""
        self._patience = interval * patience
        self._last = now

    def heard(self, now: int) -> None:
        """Record that something was received."""
        self._last = max(self._last, now)

    def is_alive(self, now: int) -> bool:
        """Return whether something was received recently enough."""
        return now - self._last <= self._patience
