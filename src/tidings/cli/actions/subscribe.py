"""The commands `tidings subscribe` and `tidings tail`: print notifications as they come, as JSON or for people."""

import datetime as dt
import json
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from rich.text import Text

from tidings.cli.connection import BrokerConnection, request_timeout, until_interrupted
from tidings.cli.options import payload_text
from tidings.cli.output import err, out, print_json, time_text
from tidings.model.errors import SecurityError
from tidings.model.notification import Notification

_PAGE = 256  # notifications in a batch
_LOOK = 0.5  # seconds between two checks whether the reader of standard output is still there


class FollowedSubscription(Protocol):
    """What the commands need of their subscription."""

    @property
    def id(self) -> str: ...
    @property
    def findings(self) -> list[str]: ...
    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]: ...
    def acknowledge(self, *notes: Notification) -> int: ...
    def replay(self, since: dt.datetime) -> Iterator[Notification]: ...


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
    subscription: FollowedSubscription,
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


class SubscribeOptions(NamedTuple):
    """The subscription that the command makes. `context` is the subscriber's own; the clients in `entrusted` may set
    it."""

    content: str
    publishers: str | None
    policy: Any
    durable: str | None
    format: str
    context: dict[str, Any]
    entrusted: list[str]


def subscribe(
    caller: BrokerConnection,
    options: SubscribeOptions,
    *,
    count: int | None,
    seconds: float | None,
    as_json: bool = False,
) -> None:
    """Subscribe, and write notifications as JSON lines until a limit is reached or Ctrl-C.

    Lost notifications are written as `{"lost": N}`; events that could not be opened are reported on standard error.

    Args:
        caller: The connection to the broker.
        options: What to subscribe to.
        count: How many notifications to write; None: no limit.
        seconds: How long to run; None: no limit.
        as_json: Report connection changes as JSON.
    """
    losses, refusals = LossCounter(), LossCounter()
    with until_interrupted(), caller.connect(request_timeout(seconds), as_json=as_json) as client:
        if options.context:
            client.set_context(options.context)
        for client_name in options.entrusted:
            client.let_set_context(client_name)
        with client.subscribe(
            options.content,
            publishers=options.publishers,
            policy=options.policy,
            durable=options.durable,
            format=options.format,
            on_lost=losses.add,
            on_refused=lambda *_: refusals.add(1),
        ) as subscription:
            _print_findings(subscription)
            follow(
                subscription,
                lambda notification: print_json(json_line(notification)),
                count=count,
                seconds=seconds,
                before_batch=lambda: _print_lost(losses, refusals),
                is_durable=options.durable is not None,
            )


def _print_findings(subscription: FollowedSubscription) -> None:
    for finding in subscription.findings:
        err.print(finding, markup=False, soft_wrap=True)
    err.print(f"tidings: {subscription.id} waits for events", markup=False, soft_wrap=True)


def _print_lost(losses: LossCounter, refusals: LossCounter) -> None:
    if count := losses.take():
        print_json({"lost": count})
    if count := refusals.take():
        err.print(f"tidings: {count:,} sealed events could not be decrypted", markup=False)


_PUBLISHER, _SUBJECT = 16, 12  # characters


def tail(
    caller: BrokerConnection,
    content: str,
    format: str,  # noqa: A002 - the option's name
    *,
    since: dt.datetime | None,
    count: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Print events that match a filter from now on; with `since`, first replay them from the broker's journal.

    Args:
        caller: The connection to the broker.
        content: The filter.
        format: The notation of the filter.
        since: The time from which journaled events are replayed; None: no replay.
        count: How many events to print; None: no limit.
        seconds: How long to run; None: no limit.
        as_json: Print JSON lines.
    """
    losses, lines = LossCounter(), _Lines(as_json=as_json)
    unopened: deque[Notification] = deque()

    def before_batch() -> None:
        _report_lost(losses)
        while unopened:
            lines.write(unopened.popleft())

    with (
        until_interrupted(),
        caller.connect(request_timeout(seconds), as_json=as_json) as client,
        client.subscribe(
            content,
            format=format,
            on_lost=losses.add,
            raw=not caller.is_member,
            on_refused=lambda notification, _: unopened.append(notification),
        ) as subscription,
    ):
        if since is not None:
            count = lines.replay(subscription, since, count)
        follow(subscription, lines.write, count=count, seconds=seconds, before_batch=before_batch)


def _report_lost(losses: LossCounter) -> None:
    if lost := losses.take():
        err.print(f"tidings: {lost:,} events were lost: they arrived faster than they were printed", markup=False)


class _Lines:
    """Prints notifications as lines, and skips live ones that the replay has already printed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._replayed: set[UUID] = set()

    def replay(self, subscription: FollowedSubscription, since: dt.datetime, count: int | None) -> int | None:
        """Print the replayed notifications, and return how many of `count` are left."""
        for notification in subscription.replay(since):
            if count is not None and count <= 0:
                break
            self.write(notification)
            self._replayed.add(notification.event.id)
            count = None if count is None else count - 1
        return count

    def write(self, notification: Notification) -> None:
        if notification.event.id in self._replayed:
            return  # published between subscription and replay, so delivered by both
        if self._as_json:
            print_json(json_line(notification))
        else:
            out.print(_line(notification), soft_wrap=True)


def _line(notification: Notification) -> Text:
    """Return an event as a coloured line for the terminal."""
    event = notification.event
    line = Text(time_text(event.timestamp), style="dim")
    line.append(f" {event.publisher:<{_PUBLISHER}}", style="cyan")
    line.append(f" {event.subject or '-':<{_SUBJECT}}", style="green")
    for name, value in notification.attributes.items():
        line.append(f" {name}=", style="dim")
        line.append(json.dumps(value, ensure_ascii=False), style="default")
    if event.signature is not None:
        line.append(f" {describe_sealed_payload(notification)}", style="yellow")
    elif notification.payload is not None:
        text = payload_text(notification.payload)
        line.append(f" {text if isinstance(text, str) else f'{len(notification.payload):,} bytes'}", style="yellow")
    return line
