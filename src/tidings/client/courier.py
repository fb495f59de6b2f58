"""A courier: publishes many events as one client, in their order, and goes on where it was interrupted.

How far it has come is known by the broker, which keeps the number of every publisher's last event: of a series that is
given again from its beginning, what has been published is passed over by its number, however long ago that was.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol
from uuid import UUID

import msgspec

from tidings.client.client import Client
from tidings.client.connecting import connect
from tidings.client.identity import Identity
from tidings.model.errors import (
    ClosedError,
    JournalError,
    PublishedBeforeError,
    TidingsError,
    UnreachableError,
)
from tidings.model.receipt import Receipt

IN_FLIGHT = 1_024  # publications that are sent before the first of them is answered
MOST_REASONS = 10
_SOONEST, _LATEST = 0.05, 2.0  # seconds between two attempts


class Letter(msgspec.Struct, frozen=True):
    """What is to be published; `id` is the same each time that the series is given."""

    id: UUID
    attributes: dict[str, Any] = {}
    payload: bytes | None = None
    subject: str | None = None
    subscribers: str | None = None
    policy: str | None = None


class Delivered(msgspec.Struct):
    """What became of a series: `known` were published in an earlier attempt, `reasons` are of the first refusals."""

    published: int = 0
    known: int = 0
    refused: int = 0
    reasons: list[str] = []


_Row = tuple[int | None, Letter | TidingsError]  # with its number, or with the next one


class Place(Protocol):
    """Remembers, beyond the end of this process, after which number a series is counted."""

    def begin(self, last: int) -> int | None:
        """`last` is the number of the client's last publication, with which a new series begins. None: the numbers
        do not tell any more what has been published."""

    def lose_count(self) -> None:
        """From now on they do not: ids alone decide."""


class Courier:
    """`patience` is for how many seconds no broker may answer. Nobody else publishes under its `name`."""

    def __init__(
        self,
        addresses: str | Iterable[str],
        name: str,
        identity: Identity | None = None,
        *,
        safe: str = "journaled",
        patience: float = 60.0,
    ) -> None:
        self._addresses = addresses if isinstance(addresses, str) else ",".join(addresses)
        self._name, self._identity = name, identity
        self._safe, self._patience = safe, patience

    def deliver(self, letters: Iterator[Letter | TidingsError], place: Place) -> Delivered:
        """All of a series, which is the same each time; what could not even be read stands in it as its error."""
        return asyncio.run(self._deliver(letters, place))

    async def _deliver(self, letters: Iterator[Letter | TidingsError], place: Place) -> Delivered:
        done, number = Delivered(), 0
        async with connect(self._addresses, self._name, self._identity, patience=self._patience) as client:
            last = client.sequence
            start = place.begin(last)
            while chunk := list(islice(letters, IN_FLIGHT)):
                if start is None:
                    await self._all_of(client, [(None, letter) for letter in chunk], done)
                    continue
                numbered = list(enumerate(chunk, start + number + 1))
                number += len(chunk)
                new = [one for one in numbered if one[0] > last]
                done.known += len(chunk) - len(new)
                full = await self._some_of(client, new, done)
                if full:  # what is taken later has other numbers than it would have had
                    place.lose_count()
                    start = None
                    await self._all_of(client, full, done)
        return done

    async def _all_of(self, client: Client, rows: list[_Row], done: Delivered) -> None:
        """Publishes rows, again and again as long as the broker's disk is full and patience lasts."""
        delay, waited = _SOONEST, 0.0
        while rows := await self._some_of(client, rows, done):
            if waited >= self._patience:
                raise UnreachableError(
                    f"{self._addresses}: the broker takes nothing since {self._patience:g} seconds; is its disk full?"
                )
            await asyncio.sleep(delay)
            waited, delay = waited + delay, min(2 * delay, _LATEST)

    async def _some_of(self, client: Client, rows: Sequence[_Row], done: Delivered) -> list[_Row]:
        """Publishes rows; those that there was no room for on the broker's disk are left."""
        left: list[_Row] = []
        sent: list[tuple[int | None, Letter]] = []
        for number, letter in rows:
            if isinstance(letter, TidingsError):
                _refuse(done, str(letter))
            else:
                sent.append((number, letter))
        for (_, letter), answer in zip(sent, await self._answers(client, sent), strict=True):
            match answer:
                case PublishedBeforeError():
                    done.known += 1
                case JournalError():
                    left.append((None, letter))
                case TidingsError():
                    _refuse(done, f"{letter.id}: {answer}")
                case _:
                    done.published += 1
        return left

    async def _answers(self, client: Client, rows: list[tuple[int | None, Letter]]) -> list[Receipt | TidingsError]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._publish(client, letter, number)) for number, letter in rows]
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

    async def _publish(self, client: Client, letter: Letter, number: int | None) -> Receipt | TidingsError:
        try:
            return await client.publish(
                letter.attributes,
                letter.subscribers,
                letter.payload,
                letter.subject,
                letter.policy,
                self._safe,
                letter.id,
                number,
            )
        except ClosedError:
            raise  # nothing is wrong with the event
        except TidingsError as error:
            return error


def _refuse(done: Delivered, reason: str) -> None:
    done.refused += 1
    if len(done.reasons) < MOST_REASONS:
        done.reasons.append(reason)
