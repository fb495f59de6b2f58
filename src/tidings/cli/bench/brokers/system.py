"""What a broker must offer to be measured: how it is started, and how one publishes and subscribes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.workload import Event, Interest, Variant

Deliver = Callable[[list[bytes]], None]  # called with the stamps of the events that have come
Progress = Callable[[], None]  # called when more has been acknowledged


class Publisher(ABC):
    """A connection that publishes, and does not wait."""

    acknowledged = 0  # publications; where nobody acknowledges, all that were sent

    @abstractmethod
    def publish(self, number: int, stamp: bytes) -> None:
        """The event of that number, with the stamp at the beginning of its payload."""

    @abstractmethod
    def flush(self) -> None:
        """What was published goes out now."""

    @abstractmethod
    async def close(self) -> None: ...


class Subscriber(ABC):
    """The connection of all subscriptions."""

    @abstractmethod
    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        """How many are in place when all are, or when that many seconds have passed."""

    @abstractmethod
    async def close(self) -> None: ...


class System(ABC):
    """A broker in one way of using it."""

    name: str
    variants: tuple[Variant, ...] = (Variant.EQUALITY,)
    is_limit = False  # it looks at no content at all, and is measured with one subscription only

    @abstractmethod
    def lacking(self) -> str:
        """What to install before it can be measured; nothing if all is there."""

    @abstractmethod
    def start(self, children: Children) -> int:
        """The port that it listens on."""

    @abstractmethod
    async def publisher(self, port: int, events: Sequence[Event], progress: Progress) -> Publisher: ...

    @abstractmethod
    async def subscriber(self, port: int, deliver: Deliver) -> Subscriber: ...
