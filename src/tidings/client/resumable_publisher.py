"""Publishes a series of events under one client name, in order, and resumes where it was interrupted.

The broker keeps the sequence number of every publisher's last event. When the series is given again from its
beginning, events whose numbers are not above it were published before and are skipped, however long ago that was.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol
from uuid import UUID

import msgspec

from tidings.client.connector import connect
from tidings.client.identity import TlsIdentity
from tidings.model.errors import (
    ClosedError,
    JournalError,
    PublishedBeforeError,
    TidingsError,
    UnreachableError,
)
from tidings.model.receipt import Receipt

IN_FLIGHT = 1_024  # publications that are sent before the first of them must be answered
MOST_REASONS = 10
_RETRY_SECONDS_MIN, _RETRY_SECONDS_MAX = 0.05, 2.0  # seconds between two attempts


class SeriesEvent(msgspec.Struct, frozen=True):
    """An event of a series; its `id` must be the same each time the series is published."""

    id: UUID
    attributes: dict[str, Any] = {}
    payload: bytes | None = None
    subject: str | None = None
    subscribers: str | None = None
    policy: str | None = None


class SeriesResult(msgspec.Struct):
    """The outcome of a series: `known` counts events of an earlier attempt, `reasons` lists the first refusals."""

    published: int = 0
    known: int = 0
    refused: int = 0
    reasons: list[str] = []


_Row = tuple[int | None, SeriesEvent | TidingsError]  # None: the next sequence number


class SeriesPosition(Protocol):
    """Stores, beyond the end of this process, the sequence number after which the series is counted."""

    def begin(self, last: int) -> int | None:
        """Return the number after which the series counts; None if numbers do not show what was published.

        `last` is the number of the client's last publication, where a new series begins.
        """

    def lose_count(self) -> None:
        """Record that numbers no longer show what was published: from now on only ids do."""


class SeriesClient(Protocol):
    """What publishing a series needs of its client."""

    async def publish(
        self,
        attributes: Mapping[str, Any] | None,
        subscribers: str | None,
        payload: bytes | None,
        subject: str | None,
        policy: str | None,
        safe: str,
        id: UUID | str | None,  # noqa: A002
        sequence: int | None,
        /,
    ) -> Receipt: ...


class ResumablePublisher:
    """Publishes series under a client name that no other client may use.

    `patience` is how many seconds the broker may be unreachable, or have a full disk, before an error.
    """

    def __init__(
        self,
        addresses: str | Iterable[str],
        name: str,
        identity: TlsIdentity | None = None,
        *,
        safe: str = "journaled",
        patience: float = 60.0,
    ) -> None:
        self._addresses = addresses if isinstance(addresses, str) else ",".join(addresses)
        self._name, self._identity = name, identity
        self._safe, self._patience = safe, patience

    def publish_series(self, events: Iterator[SeriesEvent | TidingsError], position: SeriesPosition) -> SeriesResult:
        """Publish a whole series; return how many events were published, known from an earlier attempt, or refused.

        `events` must yield the same series each time; an event that could not be read stands in it as its error.

        Raises:
            UnreachableError: No broker answered, or its disk was full, for `patience` seconds.
        """
        return asyncio.run(self._publish_series(events, position))

    async def _publish_series(
        self, events: Iterator[SeriesEvent | TidingsError], position: SeriesPosition
    ) -> SeriesResult:
        result, number = SeriesResult(), 0
        async with connect(self._addresses, self._name, self._identity, patience=self._patience) as client:
            last = client.sequence
            start = position.begin(last)
            while batch := list(islice(events, IN_FLIGHT)):
                if start is None:
                    await self._publish_all(client, [(None, event) for event in batch], result)
                    continue
                numbered = list(enumerate(batch, start + number + 1))
                number += len(batch)
                new = [row for row in numbered if row[0] > last]
                result.known += len(batch) - len(new)
                full = await self._publish_once(client, new, result)
                if full:  # these events will get other numbers than their position gives
                    position.lose_count()
                    start = None
                    await self._publish_all(client, full, result)
        return result

    async def _publish_all(self, client: SeriesClient, rows: list[_Row], result: SeriesResult) -> None:
        """Publish rows, retrying with backoff while the broker's disk is full and patience lasts."""
        delay, waited = _RETRY_SECONDS_MIN, 0.0
        while rows := await self._publish_once(client, rows, result):
            if waited >= self._patience:
                raise UnreachableError(
                    f"{self._addresses}: the broker takes nothing since {self._patience:g} seconds; is its disk full?"
                )
            await asyncio.sleep(delay)
            waited, delay = waited + delay, min(2 * delay, _RETRY_SECONDS_MAX)

    async def _publish_once(self, client: SeriesClient, rows: Sequence[_Row], result: SeriesResult) -> list[_Row]:
        """Publish rows once; return those for which the broker's disk had no room."""
        unpublished: list[_Row] = []
        sent: list[tuple[int | None, SeriesEvent]] = []
        for number, event in rows:
            if isinstance(event, TidingsError):
                _count_refusal(result, str(event))
            else:
                sent.append((number, event))
        for (_, event), answer in zip(sent, await self._await_answers(client, sent), strict=True):
            match answer:
                case PublishedBeforeError():
                    result.known += 1
                case JournalError():
                    unpublished.append((None, event))
                case TidingsError():
                    _count_refusal(result, f"{event.id}: {answer}")
                case _:
                    result.published += 1
        return unpublished

    async def _await_answers(
        self, client: SeriesClient, rows: list[tuple[int | None, SeriesEvent]]
    ) -> list[Receipt | TidingsError]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._publish(client, event, number)) for number, event in rows]
        waiting = set(tasks)
        try:
            while waiting:
                answered, waiting = await asyncio.wait(waiting, timeout=self._patience)
                if waiting and not answered:
                    raise UnreachableError(
                        f"{self._addresses}: no answer for {self._patience:g} seconds; {len(waiting):,} publications "
                        f"of {self._name} wait for one"
                    )
        finally:
            for task in waiting:
                task.cancel()
        return [task.result() for task in tasks]

    async def _publish(self, client: SeriesClient, event: SeriesEvent, number: int | None) -> Receipt | TidingsError:
        try:
            return await client.publish(
                event.attributes,
                event.subscribers,
                event.payload,
                event.subject,
                event.policy,
                self._safe,
                event.id,
                number,
            )
        except ClosedError:
            raise  # the client is closed; the event itself is fine
        except TidingsError as error:
            return error


def _count_refusal(result: SeriesResult, reason: str) -> None:
    result.refused += 1
    if len(result.reasons) < MOST_REASONS:
        result.reasons.append(reason)
