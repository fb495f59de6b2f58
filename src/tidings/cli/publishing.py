"""`tidings publish`: one event from the command line, or many from standard input."""

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any, NamedTuple, get_args

from tidings.cli.caller import ANSWER_SECONDS, Caller
from tidings.cli.lines import LONGEST, Lines
from tidings.cli.terminal import err, out, print_json
from tidings.cli.values import json_object, payload_of
from tidings.client.client import Client
from tidings.model.durability import Durability
from tidings.model.errors import ClosedError, InvalidValueError, TidingsError
from tidings.model.receipt import Receipt
from tidings.texts import context_filter

_IN_FLIGHT = 1_024
_CHUNK = 1 << 18  # bytes
_SHOWN_REFUSALS = 10
_KEYS = ("attributes", "subject", "payload", "subscribers")
_STRONGEST_FIRST: tuple[Durability, ...] = get_args(Durability)[::-1]


class Common(NamedTuple):
    """What all events of a call have. With `sealed`, an event that would go in the clear is refused.

    Brokers that lead the way by advertisements are told first that there will be events, and have the seconds of
    `spreading` to tell each other, and for subscriptions to come; None: they are not told.
    """

    subject: str | None
    subscribers: str | None
    payload: bytes | None
    policy: Any
    safe: str
    context: dict[str, Any]
    spreading: float | None
    sealed: bool = False


def publish_one(caller: Caller, text: str, common: Common, *, as_json: bool) -> None:
    attributes = json_object(text, "the event")

    async def published() -> Receipt:
        async with caller.client(as_json=as_json) as client:
            await _begin(client, common)
            return await _publish(client, {"attributes": attributes}, common)

    receipt = asyncio.run(published())
    if as_json:
        event = receipt.event
        sealed = {} if receipt.sealed is None else {"sealed": receipt.sealed}
        safe = {"safe": receipt.safe}
        print_json({"id": str(event.id), "timestamp": event.timestamp, "offset": receipt.offset, **sealed, **safe})
    else:
        seal = "" if receipt.sealed is None else f", sealed, epoch {receipt.sealed}"
        safety = f", {receipt.safe}{_shortfall(receipt.safe, common.safe)}"
        out.print(f"published {receipt.event.id}{seal}{safety}", markup=False, soft_wrap=True)


def publish_lines(caller: Caller, common: Common, *, whole: bool, rate: float | None, as_json: bool) -> None:
    """`whole`: a line is an event as `subscribe` writes it, not just attributes."""
    tally = asyncio.run(_publish_all(caller.client(timeout=None, as_json=as_json), common, whole, rate))
    if as_json:
        sealed = {"sealed": tally.epochs.total()} if tally.epochs else {}
        safe = {"safe": dict(tally.durabilities)} if tally.durabilities else {}
        print_json({"published": tally.published, "refused": tally.refused, **sealed, **safe})
    else:
        said = f"{tally.seals}{tally.safety(common.safe)}"
        out.print(f"published {tally.published:,}, refused {tally.refused:,}{said}", markup=False, soft_wrap=True)
    if tally.closed is not None:
        raise tally.closed
    if tally.refused:
        raise TidingsError(f"{tally.refused:,} of {tally.published + tally.refused:,} events were not published")


def _shortfall(safe: Durability, asked: str) -> str:
    """Why events are only accepted, where more was asked; empty if it was not."""
    return ": the broker has no journal" if safe == "accepted" and asked != "accepted" else ""


class _Tally:
    def __init__(self) -> None:
        self.published = self.refused = 0
        self.closed: Exception | None = None  # why the client has ended before the lines did
        self.epochs: Counter[int] = Counter()  # sealed events, by the epoch of their key
        self.durabilities: Counter[Durability] = Counter()  # published events, by their durability

    def publish(self, receipt: Receipt) -> None:
        self.published += 1
        self.durabilities[receipt.safe] += 1
        if receipt.sealed is not None:
            self.epochs[receipt.sealed] += 1

    @property
    def seals(self) -> str:
        """`, sealed 3 in epoch 1`: the seals, in words for the summary; empty without any."""
        return "".join(f", sealed {count:,} in epoch {epoch}" for epoch, count in sorted(self.epochs.items()))

    def safety(self, asked: str) -> str:
        """`, journaled 3`: how safe the events are, in words for the summary; empty without any."""
        kinds = (one for one in _STRONGEST_FIRST if one in self.durabilities)
        return "".join(f", {one} {self.durabilities[one]:,}{_shortfall(one, asked)}" for one in kinds)

    def refuse(self, line: int, error: TidingsError) -> None:
        self.refused += 1
        if self.refused <= _SHOWN_REFUSALS:
            err.print(f"tidings: line {line}: {str(error).splitlines()[0]}", markup=False, soft_wrap=True)


async def _publish_all(connection: Client, common: Common, whole: bool, rate: float | None) -> _Tally:
    tally, room = _Tally(), asyncio.Semaphore(_IN_FLIGHT)
    loop = asyncio.get_running_loop()

    async def publish(number: int, given: dict[str, Any]) -> None:
        try:
            tally.publish(await _publish(client, given, common))
        except ClosedError:
            raise  # no other line would be published either
        except TidingsError as error:
            tally.refuse(number, error)
        finally:
            room.release()

    async def publish_lines(group: asyncio.TaskGroup) -> None:
        due = loop.time()
        async for number, line in _lines():
            try:
                if len(line) > LONGEST:
                    raise InvalidValueError(f"the line is longer than {LONGEST:,} bytes")
                given = json_object(line, "the event")
                if whole:
                    given = {name: given[name] for name in _KEYS if given.get(name) is not None}
                else:
                    given = {"attributes": given}
            except TidingsError as error:
                tally.refuse(number, error)
                continue
            await room.acquire()
            if rate is not None:
                due = max(due + 1 / rate, loop.time())
                await asyncio.sleep(due - loop.time())
            group.create_task(publish(number, given))

    async with connection as client:
        await _begin(client, common)
        try:
            async with asyncio.TaskGroup() as group:
                closing = group.create_task(client.until_closed())  # also while no line comes
                await publish_lines(group)
                closing.cancel()
        except* ClosedError as errors:
            tally.closed = errors.exceptions[0]
    return tally


async def _begin(client: Client, common: Common) -> None:
    """What has to be known of a publisher before its events are."""
    if common.context:
        await client.set_context(common.context, timeout=ANSWER_SECONDS)
    if common.spreading is None:
        return
    status = await client.ask("status", timeout=ANSWER_SECONDS)
    if status["strategy"] == "advertisement" and len(status["brokers"]) > 1:
        wanted = context_filter(common.subscribers)
        await client.advertise(
            publisher_context=sorted(common.context),
            subscriber_context=() if wanted is None else sorted(wanted.names),
            timeout=ANSWER_SECONDS,
        )
        await asyncio.sleep(common.spreading)


async def _publish(client: Client, given: dict[str, Any], common: Common) -> Receipt:
    attributes = given.get("attributes", {})
    if not isinstance(attributes, dict):
        raise InvalidValueError("attributes: must be a JSON object")
    return await client.publish(
        attributes,
        subscribers=given.get("subscribers", common.subscribers),
        payload=payload_of(given["payload"]) if "payload" in given else common.payload,
        subject=given.get("subject", common.subject),
        policy=common.policy,
        safe=common.safe,
        sealed=common.sealed,
    )


async def _lines() -> AsyncIterator[tuple[int, bytes]]:
    """The lines of standard input that are not empty, with their numbers, as soon as they are there."""
    lines = Lines()
    read: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()
    # A thread that nobody waits for: it may sit there with nothing to read when all is to end.
    threading.Thread(target=_read, args=(read, loop), daemon=True).start()
    while data := await read.get():
        for one in lines.feed(data):
            yield one
    for one in lines.end():
        yield one


def _read(into: "asyncio.Queue[bytes]", loop: asyncio.AbstractEventLoop) -> None:
    """What standard input has, as it comes; nothing at its end."""
    data = b"begun"
    with contextlib.suppress(RuntimeError, CancelledError):  # the loop has ended meanwhile
        while data:
            data = os.read(sys.stdin.fileno(), _CHUNK)
            asyncio.run_coroutine_threadsafe(into.put(data), loop).result()
