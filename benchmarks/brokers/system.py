"""The interface of a broker to measure: how to start it, publish and subscribe."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.workload import BenchEvent, Interest, Variant

Deliver = Callable[[list[bytes]], None]  # called with the stamps of the delivered events
Progress = Callable[[], None]  # called when more publications were acknowledged


class BenchPublisher(ABC):
    """A connection that publishes without waiting."""

    acknowledged = 0  # number of acknowledged publications; of all sent, if the broker does not acknowledge

    @abstractmethod
    def publish(self, number: int, stamp: bytes) -> None:
        """Publish event `number`, with the stamp at the beginning of its payload. `flush` sends it."""

    @abstractmethod
    def flush(self) -> None:
        """Send the events that were published since the last call."""

    @abstractmethod
    async def close(self) -> None: ...


class BenchSubscriber(ABC):
    """A connection that has all subscriptions."""

    @abstractmethod
    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        """Subscribe until all subscriptions are in place or the seconds are over, and return how many are in place."""

    @abstractmethod
    async def close(self) -> None: ...


class System(ABC):
    """A broker in one configuration: how to start it, and how to connect a publisher and a subscriber to it."""

    name: str
    variants: tuple[Variant, ...] = (Variant.EQUALITY,)
    is_limit = False  # does not match content, and is measured with one subscription only

    @abstractmethod
    def lacking(self) -> str:
        """Return what must be installed before the system can be measured; an empty text if nothing is missing."""

    @abstractmethod
    def start(self, children: ChildProcesses) -> int:
        """Start the broker, and return the port that it listens on."""

    @abstractmethod
    async def publisher(self, port: int, events: Sequence[BenchEvent], progress: Progress) -> BenchPublisher: ...

    @abstractmethod
    async def subscriber(self, port: int, deliver: Deliver) -> BenchSubscriber: ...
