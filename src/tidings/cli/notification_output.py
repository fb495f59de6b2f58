"""Write notifications to standard output as they arrive, up to a count, a time limit or an interruption."""

import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidings.cli.options import payload_text
from tidings.client.sync import SyncSubscription
from tidings.model.errors import SecurityError
from tidings.model.notification import Notification

_PAGE = 256  # notifications in a batch
_LOOK = 0.5  # seconds between two checks whether the reader of standard output is still there


def json_line(notification: Notification) -> dict[str, Any]:
    """Return a notification as a dictionary for one line of JSON. A sealed payload is described, not included."""
    event = notification.event
    seal = None if event.signature is None else describe_sealed_payload(notification)
    fields: dict[str, Any] = {
        "id": str(event.id),
        "publisher": event.publisher,
        "timestamp": event.timestamp,
        "sequence": event.sequence,
        "subject": event.subject,
        "attributes": dict(notification.attributes),
        "payload": payload_text(notification.payload) if seal is None else None,
        "context": dict(event.context),
        "subscription": notification.subscription,
    }
    if seal is not None:
        fields["sealed"] = seal._asdict()
    if notification.subscriptions:
        fields["subscriptions"] = list(notification.subscriptions)
    return fields


class SealedPayload(NamedTuple):
    """The length and the epoch of a sealed payload, which are readable without its key."""

    bytes: int
    epoch: int | None  # None: the seal is malformed

    def __str__(self) -> str:
        return f"sealed, {self.bytes:,} bytes" + ("" if self.epoch is None else f", epoch {self.epoch}")


def describe_sealed_payload(notification: Notification) -> SealedPayload:
    """Describe the payload of a notification whose event is sealed."""
    from tidings.security.sealing.envelope import Seal

    try:
        epoch: int | None = Seal.of(notification.event).epoch
    except SecurityError:
        epoch = None
    return SealedPayload(len(notification.payload or b""), epoch)


class LossCounter:
    """A thread-safe counter of notifications that were lost or could not be opened. The client's thread adds to it."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count

    def take(self) -> int:
        """Return the count since the last call, and reset it."""
        with self._lock:
            count, self._count = self._count, 0
        return count


def follow(
    subscription: SyncSubscription,
    write: Callable[[Notification], None],
    *,
    count: int | None = None,
    seconds: float | None = None,
    before_batch: Callable[[], None] | None = None,
    is_durable: bool = False,
) -> None:
    """Write the notifications of a subscription until a count or a time limit is reached, or standard output is closed.

    Args:
        subscription: The subscription to take notifications from, in batches.
        write: Called with each notification.
        count: How many notifications to write; None: no limit.
        seconds: How long to wait and write; None: no limit.
        before_batch: Called before each batch is written.
        is_durable: Acknowledge each batch after it has been written and flushed.

    Raises:
        BrokenPipeError: The reader of standard output has exited. This is detected even if nothing more is written.
    """
    until = None if seconds is None else time.monotonic() + seconds
    remaining = count
    while remaining is None or remaining > 0:
        wait = _LOOK if until is None else min(_LOOK, until - time.monotonic())
        if wait <= 0:
            return
        notifications = subscription.take(_PAGE if remaining is None else min(_PAGE, remaining), wait)
        if before_batch is not None:
            before_batch()
        for notification in notifications:
            write(notification)
        sys.stdout.flush()
        if notifications and is_durable:
            subscription.acknowledge(*notifications)
        if remaining is not None:
            remaining -= len(notifications)
        _check_reader()


def _check_reader() -> None:
    """Raise BrokenPipeError if the reader of standard output has exited."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0)):
        raise BrokenPipeError


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Run the body until Ctrl-C or SIGTERM, and then leave it without an error."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
