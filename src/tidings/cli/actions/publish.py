"""The command `tidings publish`: publish one event from the command line, or many from standard input.

A thread reads standard input in chunks, `LineReader` splits them into lines, and each line becomes a task that
publishes one event. A semaphore limits the events in flight. A refused line is counted and reported; the others go on.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, get_args

from tidings.cli.connection import ANSWER_SECONDS, BrokerConnection
from tidings.cli.options import parse_json_object, parse_payload
from tidings.cli.output import err, out, print_json
from tidings.coerce import context_filter
from tidings.model.errors import ClosedError, InvalidValueError, TidingsError
from tidings.model.limits import MAX_FRAME_BYTES
from tidings.model.receipt import Durability, Receipt

_IN_FLIGHT = 1_024
_CHUNK = 1 << 18  # bytes
_SHOWN_REFUSALS = 10
_KEYS = ("attributes", "subject", "payload", "subscribers")
_STRONGEST_FIRST: tuple[Durability, ...] = get_args(Durability)[::-1]


class CommonFields(NamedTuple):
    """The fields that all events of a call share. With `sealed`, an event that would be sent unsealed is refused.

    Under the routing strategy `advertisement`, the client advertises first and waits `advertise_seconds` for the
    advertisement to reach all brokers and for subscriptions to arrive. None: the client does not advertise.
    """

    subject: str | None
    subscribers: str | None
    payload: bytes | None
    policy: Any
    safe: str
    context: dict[str, Any]
    advertise_seconds: float | None
    sealed: bool = False


class PublishingClient(Protocol):
    """What the command needs of its client."""

    async def set_context(self, mapping: Mapping[str, Any], /, *, timeout: float | None = None) -> None: ...
    async def ask(self, question: str, *, timeout: float | None = None) -> Any: ...
    async def advertise(
        self,
        content: str = "",
        publisher_context: list[str] | None = None,
        subscriber_context: Iterable[str] = (),
        *,
        timeout: float | None = None,
    ) -> Any: ...
    async def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: str | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: Any = None,
        safe: str = "journaled",
        *,
        sealed: bool = False,
    ) -> Receipt: ...
    async def until_closed(self) -> None: ...


def publish_event(caller: BrokerConnection, text: str, common: CommonFields, *, as_json: bool) -> None:
    """Publish one event, and print its receipt.

    Args:
        caller: The connection to the broker.
        text: The event's attributes, as a JSON object.
        common: The event's other fields.
        as_json: Print JSON.
    """
    attributes = parse_json_object(text, "the event")

    async def publish() -> Receipt:
        async with caller.client(as_json=as_json) as client:
            await _prepare(client, common)
            return await _send_event(client, {"attributes": attributes}, common)

    receipt = asyncio.run(publish())
    if as_json:
        event = receipt.event
        sealed = {} if receipt.sealed is None else {"sealed": receipt.sealed}
        safe = {"safe": receipt.safe}
        print_json({"id": str(event.id), "timestamp": event.timestamp, "offset": receipt.offset, **sealed, **safe})
    else:
        seal = "" if receipt.sealed is None else f", sealed, epoch {receipt.sealed}"
        safety = f", {receipt.safe}{_shortfall(receipt.safe, common.safe)}"
        out.print(f"published {receipt.event.id}{seal}{safety}", markup=False, soft_wrap=True)


def publish_stdin(
    caller: BrokerConnection, common: CommonFields, *, are_events: bool, rate: float | None, as_json: bool
) -> None:
    """Publish one event for each line of standard input, and print how many were published and refused.

    Args:
        caller: The connection to the broker.
        common: What all events share.
        are_events: A line is an event as `subscribe` writes it, not just its attributes.
        rate: The limit of events per second; None: no limit.
        as_json: Print JSON.

    Raises:
        ClosedError: The client was closed before all lines were published.
        TidingsError: Some lines were refused.
    """
    tally = asyncio.run(_publish_all_lines(caller.client(timeout=None, as_json=as_json), common, are_events, rate))
    if as_json:
        sealed = {"sealed": tally.epochs.total()} if tally.epochs else {}
        safe = {"safe": dict(tally.durabilities)} if tally.durabilities else {}
        print_json({"published": tally.published, "refused": tally.refused, **sealed, **safe})
    else:
        details = f"{tally.sealed_text}{tally.durability_text(common.safe)}"
        out.print(f"published {tally.published:,}, refused {tally.refused:,}{details}", markup=False, soft_wrap=True)
    if tally.closed is not None:
        raise tally.closed
    if tally.refused:
        raise TidingsError(f"{tally.refused:,} of {tally.published + tally.refused:,} events were not published")


def _shortfall(durability: Durability, requested: str) -> str:
    """Return the reason why an event is only accepted although more durability was requested; else an empty text."""
    return ": the broker has no journal" if durability == "accepted" and requested != "accepted" else ""


class _Tally:
    """Counts of published and refused events, by epoch of the key and by durability."""

    def __init__(self) -> None:
        self.published = self.refused = 0
        self.closed: Exception | None = None  # why the client was closed before the last line
        self.epochs: Counter[int] = Counter()  # number of sealed events by the epoch of their key
        self.durabilities: Counter[Durability] = Counter()  # number of published events by durability

    def publish(self, receipt: Receipt) -> None:
        """Count a published event."""
        self.published += 1
        self.durabilities[receipt.safe] += 1
        if receipt.sealed is not None:
            self.epochs[receipt.sealed] += 1

    @property
    def sealed_text(self) -> str:
        """The sealed events for the summary, such as `, sealed 3 in epoch 1`; empty without any."""
        return "".join(f", sealed {count:,} in epoch {epoch}" for epoch, count in sorted(self.epochs.items()))

    def durability_text(self, requested: str) -> str:
        """Return the durabilities for the summary, such as `, journaled 3`; empty without any."""
        durabilities = (durability for durability in _STRONGEST_FIRST if durability in self.durabilities)
        return "".join(
            f", {durability} {self.durabilities[durability]:,}{_shortfall(durability, requested)}"
            for durability in durabilities
        )

    def refuse(self, line: int, error: TidingsError) -> None:
        """Count a refused line, and report it on standard error if it is among the first."""
        self.refused += 1
        if self.refused <= _SHOWN_REFUSALS:
            err.print(f"tidings: line {line}: {str(error).splitlines()[0]}", markup=False, soft_wrap=True)


async def _publish_all_lines(
    connection: AbstractAsyncContextManager[PublishingClient],
    common: CommonFields,
    are_events: bool,
    rate: float | None,
) -> _Tally:
    """Publish the lines of standard input, with at most `_IN_FLIGHT` events in flight, and return the counts."""
    tally, in_flight = _Tally(), asyncio.Semaphore(_IN_FLIGHT)
    loop = asyncio.get_running_loop()

    async def publish(number: int, fields: dict[str, Any]) -> None:
        try:
            tally.publish(await _send_event(client, fields, common))
        except ClosedError:
            raise  # the client is closed, so all further lines would fail
        except TidingsError as error:
            tally.refuse(number, error)
        finally:
            in_flight.release()

    async def read_lines(group: asyncio.TaskGroup) -> None:
        due = loop.time()
        async for number, line in _stdin_lines():
            try:
                if len(line) > LONGEST:
                    raise InvalidValueError(f"the line is longer than {LONGEST:,} bytes")
                fields = parse_json_object(line, "the event")
                if are_events:
                    fields = {name: fields[name] for name in _KEYS if fields.get(name) is not None}
                else:
                    fields = {"attributes": fields}
            except TidingsError as error:
                tally.refuse(number, error)
                continue
            await in_flight.acquire()
            if rate is not None:
                due = max(due + 1 / rate, loop.time())
                await asyncio.sleep(due - loop.time())
            group.create_task(publish(number, fields))

    async with connection as client:
        await _prepare(client, common)
        try:
            async with asyncio.TaskGroup() as group:
                closing = group.create_task(client.until_closed())  # detects a closed client also while no line arrives
                await read_lines(group)
                closing.cancel()
        except* ClosedError as errors:
            tally.closed = errors.exceptions[0]
    return tally


async def _prepare(client: PublishingClient, common: CommonFields) -> None:
    """Set the publisher's context, and advertise if routing needs it, before the first event."""
    if common.context:
        await client.set_context(common.context, timeout=ANSWER_SECONDS)
    if common.advertise_seconds is None:
        return
    status = await client.ask("status", timeout=ANSWER_SECONDS)
    if status["strategy"] == "advertisement" and len(status["brokers"]) > 1:
        subscriber_filter = context_filter(common.subscribers)
        await client.advertise(
            publisher_context=sorted(common.context),
            subscriber_context=() if subscriber_filter is None else sorted(subscriber_filter.names),
            timeout=ANSWER_SECONDS,
        )
        await asyncio.sleep(common.advertise_seconds)


async def _send_event(client: PublishingClient, fields: dict[str, Any], common: CommonFields) -> Receipt:
    """Publish an event of a line, with the common fields where the line has none of its own."""
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict):
        raise InvalidValueError("attributes: must be a JSON object")
    return await client.publish(
        attributes,
        subscribers=fields.get("subscribers", common.subscribers),
        payload=parse_payload(fields["payload"]) if "payload" in fields else common.payload,
        subject=fields.get("subject", common.subject),
        policy=common.policy,
        safe=common.safe,
        sealed=common.sealed,
    )


async def _stdin_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield the non-empty lines of standard input with their numbers, as soon as they arrive."""
    lines = LineReader()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()
    # A daemon thread, since it may block in `os.read` when the command ends.
    threading.Thread(target=_read_stdin, args=(chunks, loop), daemon=True).start()
    while data := await chunks.get():
        for line in lines.feed(data):
            yield line
    for line in lines.end():
        yield line


def _read_stdin(chunks: "asyncio.Queue[bytes]", loop: asyncio.AbstractEventLoop) -> None:
    """Read standard input in a thread and put each chunk into the queue; an empty chunk marks the end."""
    data = b"begun"
    with contextlib.suppress(RuntimeError, CancelledError):  # the event loop has been closed
        while data:
            data = os.read(sys.stdin.fileno(), _CHUNK)
            asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()


LONGEST = 2 * MAX_FRAME_BYTES  # bytes: enough for the largest event that a broker accepts, with its payload in Base64


class LineReader:
    """Split chunks of bytes into numbered, non-empty lines, in bounded memory.

    A line longer than `longest` is cut to `longest + 1` bytes, so that the caller can detect and refuse it.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._number = 0
        self.rest = bytearray()  # the start of a line whose end has not arrived

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that this chunk completes."""
        *ends, last = data.split(b"\n")
        for end in ends:
            self._append(end)
            yield from self.end()
        self._append(last)

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Complete the current line, and yield it unless it is empty."""
        self._number += 1
        line, self.rest = bytes(self.rest), bytearray()
        if line.strip():
            yield self._number, line

    def _append(self, data: bytes) -> None:
        self.rest += data[: max(0, self._longest + 1 - len(self.rest))]
