"""`tidings tail`: events as they come, a line each, for people."""

import datetime as dt
import json
from collections import deque
from uuid import UUID

from rich.text import Text

from tidings.cli.caller import Caller, answer_seconds
from tidings.cli.stream import Losses, follow, json_line, sealed, until_interrupted
from tidings.cli.terminal import err, out, print_json
from tidings.cli.values import payload_text
from tidings.client.synchronous import SyncSubscription
from tidings.model.notification import Notification

_PUBLISHER, _SUBJECT = 16, 12  # columns


def tail(
    caller: Caller,
    content: str,
    format: str,  # noqa: A002 - the option's name
    *,
    since: dt.datetime | None,
    count: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """What matches, from now on; with `since`, what the broker's journal has of it from then on comes first."""
    losses, lines = Losses(), _Lines(as_json=as_json)
    shut: deque[Notification] = deque()

    def between() -> None:
        _tell_lost(losses)
        while shut:
            lines.write(shut.popleft())

    with (
        until_interrupted(),
        caller.opened(answer_seconds(seconds), as_json=as_json) as client,
        client.subscribe(
            content,
            format=format,
            on_lost=losses.add,
            raw=not caller.is_member,
            on_refused=lambda note, _: shut.append(note),
        ) as subscription,
    ):
        if since is not None:
            count = lines.replay(subscription, since, count)
        follow(subscription, lines.write, count=count, seconds=seconds, between=between)


def _tell_lost(losses: Losses) -> None:
    if lost := losses.taken():
        err.print(f"tidings: {lost:,} events were lost, as they came too fast", markup=False)


class _Lines:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._replayed: set[UUID] = set()

    def replay(self, subscription: SyncSubscription, since: dt.datetime, count: int | None) -> int | None:
        """How many are left to be shown."""
        for note in subscription.replay(since):
            if count is not None and count <= 0:
                break
            self.write(note)
            self._replayed.add(note.event.id)
            count = None if count is None else count - 1
        return count

    def write(self, note: Notification) -> None:
        if note.event.id in self._replayed:
            return  # published between the subscription and the replay: it came both ways
        if self._as_json:
            print_json(json_line(note))
        else:
            out.print(_line(note), soft_wrap=True)


def _line(note: Notification) -> Text:
    event = note.event
    at = dt.datetime.fromtimestamp(event.timestamp / 1e6, dt.UTC).isoformat(timespec="milliseconds")
    line = Text(at.removesuffix("+00:00"), style="dim")
    line.append(f" {event.publisher:<{_PUBLISHER}}", style="cyan")
    line.append(f" {event.subject or '-':<{_SUBJECT}}", style="green")
    for name, value in note.attributes.items():
        line.append(f" {name}=", style="dim")
        line.append(json.dumps(value, ensure_ascii=False), style="default")
    if event.signature is not None:
        line.append(f" {sealed(note)}", style="yellow")
    elif note.payload is not None:
        told = payload_text(note.payload)
        line.append(f" {told if isinstance(told, str) else f'{len(note.payload):,} bytes'}", style="yellow")
    return line
