"""Notifications on standard output as they come, until there is no need for more."""

import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidings.cli.values import payload_text
from tidings.client.synchronous import SyncSubscription
from tidings.model.errors import SecurityError
from tidings.model.notification import Notification

_PAGE = 256
_LOOK = 0.5  # seconds between two looks whether somebody still reads


def json_line(note: Notification) -> dict[str, Any]:
    """A notification, for programs."""
    event = note.event
    seal = None if event.signature is None else sealed(note)
    told: dict[str, Any] = {
        "id": str(event.id),
        "publisher": event.publisher,
        "timestamp": event.timestamp,
        "sequence": event.sequence,
        "subject": event.subject,
        "attributes": dict(note.attributes),
        "payload": payload_text(note.payload) if seal is None else None,
        "context": dict(event.context),
        "subscription": note.subscription,
    }
    if seal is not None:
        told["sealed"] = seal._asdict()
    if note.subscriptions:
        told["subscriptions"] = list(note.subscriptions)
    return told


class Sealed(NamedTuple):
    """All that can be told of a payload without its key."""

    bytes: int
    epoch: int | None  # None: nobody knows what it is sealed with

    def __str__(self) -> str:
        return f"sealed, {self.bytes:,} bytes" + ("" if self.epoch is None else f", epoch {self.epoch}")


def sealed(note: Notification) -> Sealed:
    from tidings.security.envelope import Seal

    try:
        epoch: int | None = Seal.of(note.event).epoch
    except SecurityError:
        epoch = None
    return Sealed(len(note.payload or b""), epoch)


class Losses:
    """What was lost, or could not be opened, since it was asked for last; it is told in another thread."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count

    def taken(self) -> int:
        with self._lock:
            count, self._count = self._count, 0
        return count


def follow(
    subscription: SyncSubscription,
    write: Callable[[Notification], None],
    *,
    count: int | None = None,
    seconds: float | None = None,
    between: Callable[[], None] | None = None,
    is_durable: bool = False,
) -> None:
    """Writes what comes, at most so many and so long. Of a durable subscription, what was written is acknowledged.

    `between` is called before each batch. Who stops reading standard output ends it, even if nothing more is written.
    """
    until = None if seconds is None else time.monotonic() + seconds
    left = count
    while left is None or left > 0:
        wait = _LOOK if until is None else min(_LOOK, until - time.monotonic())
        if wait <= 0:
            return
        notes = subscription.take(_PAGE if left is None else min(_PAGE, left), wait)
        if between is not None:
            between()
        for note in notes:
            write(note)
        sys.stdout.flush()
        if notes and is_durable:
            subscription.acknowledge(*notes)
        if left is not None:
            left -= len(notes)
        _check_reader()


def _check_reader() -> None:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(found & (select.POLLERR | select.POLLNVAL) for _, found in poll.poll(0)):
        raise BrokenPipeError


@contextmanager
def until_interrupted() -> Iterator[None]:
    """What is done until Ctrl-C, or SIGTERM, has then been done: that is no failure."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
