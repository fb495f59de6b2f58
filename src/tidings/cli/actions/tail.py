"""The command `tidings tail`: print matching events as they arrive, one line each."""

import datetime as dt
import json
from collections import deque
from uuid import UUID

from rich.text import Text

from tidings.cli.connection import BrokerConnection, request_timeout
from tidings.cli.notification_output import LossCounter, describe_sealed_payload, follow, json_line, until_interrupted
from tidings.cli.options import payload_text
from tidings.cli.output import err, out, print_json, time_text
from tidings.client.sync import SyncSubscription
from tidings.model.notification import Notification

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
        _print_lost(losses)
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


def _print_lost(losses: LossCounter) -> None:
    if lost := losses.take():
        err.print(f"tidings: {lost:,} events were lost, as they came too fast", markup=False)


class _Lines:
    """Prints notifications as lines, and skips live ones that the replay has already printed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._replayed: set[UUID] = set()

    def replay(self, subscription: SyncSubscription, since: dt.datetime, count: int | None) -> int | None:
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
