"""Ports: what several parts of a broker need of each other. `Broker` gives each part the ports that it takes.

What only one part needs of the node is a protocol in that part's module.
"""

from asyncio import TimerHandle
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

from tidings.broker.config.tables import LimitsTable
from tidings.broker.net.channel import Channel
from tidings.engine import Engine
from tidings.engine.effects import Reject
from tidings.engine.operations import Operation, Travelling
from tidings.runtime.clock import Clock
from tidings.runtime.outcome import OperationOutcome
from tidings.runtime.subscription_registry import RegisteredSubscription, SubscriptionRegistry


class Scheduler(Protocol):
    """The turns of the broker's event loop, its timers, and the threads that read the journal."""

    @property
    def clock(self) -> Clock:
        """The source of acceptance times."""
        ...

    @property
    def readers(self) -> Executor:
        """The threads that read the journal."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is being stopped, and begins nothing new."""
        ...

    def now(self) -> float:
        """Return the time of the event loop, in seconds."""
        ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> TimerHandle:
        """Call `call` after so many seconds; return a handle that cancels the call."""
        ...

    def defer_to_turn_end(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn of the event loop."""
        ...

    def flush(self) -> None:
        """End a turn of the event loop: release what is ready, run deferred calls, and update backpressure."""
        ...


class SessionPort(Protocol):
    """The session of a connected client or observer, as the other parts of the broker use it."""

    @property
    def name(self) -> str:
        """The client's name."""
        ...

    @property
    def number(self) -> int:
        """The session number of the client's HELLO."""
        ...

    @property
    def connection(self) -> Channel:
        """The client's connection."""
        ...

    @property
    def has_set_context(self) -> bool:
        """Whether the client has set its context over this connection."""
        ...

    def set_limits(self, limits: LimitsTable) -> None:
        """Apply other limits to this client from now on."""
        ...

    def update_throttle(self) -> None:
        """Read from the client, or pause, as its limits and the state of the broker require now."""
        ...

    def wake_deliveries(self) -> None:
        """Have every durable delivery of the client send what it can."""
        ...

    def disconnect_slow(self, reason: str) -> None:
        """Abort the connection of a client that does not read."""
        ...


class Sessions(Protocol):
    """The sessions of the broker's clients and observers."""

    def get(self, client: str) -> SessionPort | None:
        """Return the session of a client that is connected; None if it is not."""
        ...

    def all(self) -> Collection[SessionPort]:
        """Return the sessions of clients and of observers."""
        ...

    def client_names(self) -> Collection[str]:
        """Return the names of the connected clients; observers are no clients."""
        ...

    def ended(self, session: SessionPort, reason: str) -> None:
        """Remove the session of a client whose connection is gone, and disconnect the client in the engine."""
        ...

    def announce_subject(self, subject: str) -> None:
        """Tell every client the number by which it may name a subject from now on."""
        ...


class NeighbourLink(Protocol):
    """The link to a neighbour, as the other parts of the broker use it."""

    @property
    def name(self) -> str:
        """The neighbour's name."""
        ...

    @property
    def cost(self) -> int:
        """The cost of the link in routing."""
        ...

    @property
    def dialled(self) -> bool:
        """Whether this broker opened the connection."""
        ...

    @property
    def connection(self) -> Channel:
        """The connection to the neighbour."""
        ...

    @property
    def sent(self) -> int:
        """How many operations were sent to the neighbour."""
        ...

    @property
    def received(self) -> int:
        """How many operations came from the neighbour."""
        ...

    def send(self, operation: Travelling) -> None:
        """Send an operation to the neighbour."""
        ...


class Links(Protocol):
    """The links that are up."""

    def get(self, neighbour: str) -> NeighbourLink | None:
        """Return the link to a neighbour; None if it is down."""
        ...

    def all(self) -> Collection[NeighbourLink]:
        """Return the links that are up."""
        ...


class OperationPort(Protocol):
    """The node: the engine, and what handles operations and journals them."""

    @property
    def engine(self) -> Engine:
        """The engine; a rebuild replaces it."""
        ...

    @property
    def registry(self) -> SubscriptionRegistry[RegisteredSubscription]:
        """The subscriptions and the state of the clients."""
        ...

    def operate(
        self,
        operation: Operation,
        reply: Callable[[list[str] | Reject], None] | None = None,
        row_notes: Mapping[str, Any] | None = None,
        *,
        sync: bool,
    ) -> OperationOutcome[RegisteredSubscription]:
        """Handle an operation of a client or of the broker itself, journal it, and queue what follows from it.

        Args:
            operation: The operation to handle.
            reply: Called in its turn, with the findings on the operation's policy, or with the `Reject` if it was
                refused.
            row_notes: Values that are stored with the operation's row in the journal.
            sync: Whether the reply and the effects wait until the operation is on disk.
        """
        ...


class NodePort(OperationPort, Protocol):
    """The node, also for what is not journaled itself."""

    def drive(self, operation: Operation) -> OperationOutcome[RegisteredSubscription]:
        """Have the engine handle an operation that is not journaled itself: of a neighbour, a timer or a link."""
        ...

    def log_line(self, line: str) -> None:
        """Log a line under the name of the broker."""
        ...
