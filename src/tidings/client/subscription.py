"""A subscription over the network, as its subscriber holds it: an asynchronous stream of notifications."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from tidings.client.acknowledging import Acknowledging
from tidings.client.calling import Callback, Calling
from tidings.model.durability import NO_JOURNAL_AT_BROKER
from tidings.model.errors import ClosedError, InvalidValueError, SecurityError, TidingsError, UnreachableError
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.timeout import checked_timeout
from tidings.protocol import answers, requests

if TYPE_CHECKING:
    from tidings.client.client import Client
    from tidings.client.opening import Opening
    from tidings.policy.policy import Policy
    from tidings.security.token import Token

OnRefused = Callable[[Notification, TidingsError], Any]
_LOG = logging.getLogger("tidings.client")
# So many more than its limit may wait here: what has come together with the last one, or before an answer that the
# program waits for meanwhile. Then the oldest is lost.
MORE = 10_000
CANNOT_OPEN = "the event is sealed, and this client has no identity to open it"


class Subscription:
    """Made by `Client.subscribe`: `await` it, or enter it with `async with`; then iterate.

    `lost` counts what was lost for it since it was too slow to take it, `refused` what came sealed and could not be
    opened; `findings` are remarks on the policy that was given with it, and of a durable one that the broker where the
    client is has no journal. Of a durable one, what is not acknowledged comes again after the next connection.
    """

    # A client may have very many: nothing is here that most of them do not need.
    __slots__ = (
        *("_acknowledging", "_callback", "_calling", "_client", "_closed", "_findings", "_is_ended", "_on_lost"),
        *("_on_refused", "_waiters", "_waiting", "is_confined", "limit", "lost", "opening", "raw", "refused", "token"),
        *("timeout", "topic", "wanted", "__weakref__"),
    )

    def __init__(
        self,
        client: "Client",
        wanted: requests.Subscribe,
        limit: int,
        callback: Callback | None,
        on_lost: Callable[[int], Any] | None,
        *,
        topic: str | None = None,
        raw: bool = False,
        on_refused: "OnRefused | None" = None,
    ) -> None:
        self.wanted = wanted
        self.topic, self.raw = topic, raw
        self.timeout: float | None = None  # seconds, for the broker's answer to it
        self.token: Token | None = None  # with which it was made, on a secure topic
        self.is_confined = False  # to that topic: it asks for nothing else
        self.opening: Opening | None = None  # of a secure client, unless it is raw
        self.lost = self.refused = 0
        self._findings: tuple[str, ...] = ()
        self.limit = limit
        self._client = client
        self._callback, self._on_lost, self._on_refused = callback, on_lost, on_refused
        self._waiting: deque[Notification] = deque()
        self._acknowledging = None if wanted.durable is None else Acknowledging()
        self._waiters: tuple[asyncio.Future[None], ...] = ()  # of those who wait for something to come
        self._closed: Exception | None = None
        self._is_ended = False
        self._calling: Calling | None = None

    @property
    def id(self) -> str:
        return self.wanted.id

    @property
    def durable(self) -> str | None:
        return self.wanted.durable

    @property
    def findings(self) -> list[str]:
        is_kept = self.durable is None or self._client.has_journal
        return [*self._findings] if is_kept else [*self._findings, NO_JOURNAL_AT_BROKER]

    @property
    def waiting(self) -> int:
        """How many notifications have come and not been taken."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._is_ended

    @property
    def failure(self) -> Exception | None:
        """Why nothing comes any more, if it was not closed here."""
        return self._closed

    # Taking

    async def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """What waits, at most `limit`. If nothing does, what comes within `timeout` seconds; None waits until something
        comes or the subscription ends.

        When nothing waits and the subscription has ended, a `ClosedError` says so; if the broker or the client has
        ended it, the error says why.
        """
        if not self._waiting and not self._is_ended and timeout != 0:
            try:
                async with asyncio.timeout(checked_timeout(timeout)):
                    await self._come()
            except TimeoutError:
                return []
        return self.take_waiting(limit)

    def take_waiting(self, limit: int | None) -> list[Notification]:
        """What waits, at most `limit`; an error if nothing does and nothing more comes."""
        if self._is_ended and not self._waiting:
            raise self._ending()
        count = len(self._waiting) if limit is None else min(limit, len(self._waiting))
        return [self.next() for _ in range(count)]

    def _ending(self) -> Exception:
        """Why nothing more comes."""
        if self._closed is None:
            return ClosedError(f"the subscription {self.id} is closed")
        return self._closed.with_traceback(None)  # it may be raised many times

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            if self._is_ended:
                if self._closed is not None:
                    raise self._ending()
                raise StopAsyncIteration
            await self._come()
        return self.next()

    async def _come(self) -> None:
        while not self._waiting and not self._is_ended:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters += (waiter,)
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, ()
        for one in waiters:
            if not one.done():  # else who waited has given up
                one.set_result(None)

    def next(self) -> Notification:
        """The first that waits; there has to be one."""
        note = self._waiting.popleft()
        if self._acknowledging is not None:
            self._acknowledging.taken(note.event.id)
        if len(self._waiting) == self.limit // 2:
            self._client.has_room()
        return note

    # Acknowledging

    async def acknowledge(self, *notes: Notification | UUID, timeout: float | None = None) -> int:
        """Of a durable subscription: these need not be given again; how many of them it was given.

        It waits while as much is under way to the broker as may be. When the `timeout` is over, the notifications are
        acknowledged all the same, as soon as the broker can be told.
        """
        if self._acknowledging is None:
            raise InvalidValueError(f"{self.id} is not durable: there is nothing to acknowledge")
        seconds = checked_timeout(timeout)
        events = [note.event.id if isinstance(note, Notification) else note for note in notes]
        for event in events:
            if not isinstance(event, UUID):
                raise InvalidValueError(f"acknowledge takes notifications or ids of events, not {type(event).__name__}")
        known = self._acknowledging.acknowledged(events)
        self._client.acknowledge(self, known)
        await self._client.room(seconds)
        return len(known)

    async def acknowledge_all(self, timeout: float | None = None) -> int:
        """The same for everything that was taken."""
        taken = () if self._acknowledging is None else self._acknowledging.all_taken()
        return await self.acknowledge(*taken, timeout=timeout)

    # Beyond

    def replay(
        self, since: datetime | int | Receipt | None = None, timeout: float | None = None
    ) -> AsyncIterator[Notification]:
        """What the subscription would get if the events since then came now, from the broker's journal."""
        return self._client.replay(since, subscriptions=[self], timeout=timeout)

    async def unsubscribe(self, policy: "str | Policy | None" = None, timeout: float | None = None) -> None:
        """Ends the subscription for good, a durable one too. What waits can still be taken."""
        await self._client.unsubscribe(self.id, policy, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Ends the subscription, unless it is durable: that one goes on collecting at the broker.

        The broker is told, and its answer is waited for: at most 5 seconds, or `timeout`. Without a connection nothing
        is waited for, since the subscription ended at the broker when the connection did.
        """
        seconds = checked_timeout(timeout)
        self.end()
        if self.durable is None:
            await self._client.retire(self, seconds)
        else:
            self._client.leave(self)

    # Beginning and end

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def __aenter__(self) -> Self:
        return await self._begun()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _begun(self) -> Self:
        await self._client.begin(self)
        if self._callback is not None and self._calling is None:
            self._calling = Calling(self, self._callback)
        return self

    # For the client

    def begun(self, done: answers.Done) -> None:
        """The broker has it; a durable one under the id that it got first."""
        if done.id != self.id:
            self.wanted = msgspec.structs.replace(self.wanted, id=done.id)
        self._findings = done.findings

    def notified(self, note: Notification) -> None:
        if self._acknowledging is not None and not self._acknowledging.came(note.event.id):
            if self._acknowledging.is_acknowledged(note.event.id):
                self._client.acknowledge(self, [note.event.id])  # which was lost on the way
            return
        if self.opening is not None and self.opening.concerns(note):
            self.opening.take(note)
        elif note.event.signature is not None and not self.raw:
            self.refuse(note, SecurityError("key", CANNOT_OPEN))
        else:
            self.put(note)

    def put(self, note: Notification) -> None:
        """What the program gets."""
        self._waiting.append(note)
        if self.durable is None and len(self._waiting) > self.limit + MORE:
            self._waiting.popleft()
            self.told_lost(1)
        if self._calling is not None:
            self._calling.wake()
        if self._waiters:
            self._wake()

    def refuse(self, note: Notification, error: TidingsError) -> None:
        """What came sealed and cannot be opened. Where it is only that nobody answers, a durable one gets it again with
        the next connection."""
        is_known = self._acknowledging is not None and self._acknowledging.forget(note.event.id)
        if is_known and not isinstance(error, UnreachableError):
            self._client.acknowledge(self, [note.event.id])
        self.told_refused(note, error)

    def told_refused(self, note: Notification, error: TidingsError) -> None:
        self.refused += 1
        if self._on_refused is None:
            return
        try:
            self._on_refused(note, error)
        except Exception:
            _LOG.exception("the function on_refused of the subscription %s raised", self.id)

    @property
    def is_full(self) -> bool:
        """Of a durable one no more comes than may be unacknowledged."""
        sealed = 0 if self.opening is None else len(self.opening)
        return self.durable is None and len(self._waiting) + sealed >= self.limit

    def told_lost(self, count: int) -> None:
        self.lost += count
        if self._on_lost is None:
            return
        try:
            self._on_lost(count)
        except Exception:
            _LOG.exception("the function on_lost of the subscription %s raised", self.id)

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; what waits can still be taken."""
        if self.opening is not None:
            self.opening.end()
        self._is_ended, self._closed = True, self._closed or error
        self._wake()

    def __repr__(self) -> str:
        return f"<{self.id}: {self.wanted.content or 'everything'}, {self.waiting} waiting>"
