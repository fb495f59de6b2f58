"""A subscription over the network, as its subscriber holds it: an asynchronous stream of notifications."""

import asyncio
import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from tidings.model.errors import ClosedError, InvalidValueError, SecurityError, TidingsError, UnreachableError
from tidings.model.limits import MAX_REMEMBERED_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.protocol import requests

if TYPE_CHECKING:
    from tidings.client.client import Client
    from tidings.client.opening import Opening
    from tidings.policy.policy import Policy
    from tidings.security.token import Token

Callback = Callable[[Notification], Any]
OnRefused = Callable[[Notification, TidingsError], Any]
_LOG = logging.getLogger("tidings.client")
# So many more than its limit may wait here: what has come together with the last one, or before an answer that the
# program waits for meanwhile. Then the oldest is lost.
MORE = 10_000
CANNOT_OPEN = "the event is sealed, and this client has no identity to open it"


class Subscription:
    """Made by `Client.subscribe`: `await` it, or enter it with `async with`; then iterate.

    `lost` counts what was lost for it since it was too slow to take it, `refused` what came sealed and could not be
    opened; `findings` are remarks on the policy that was given with it. Of a durable one, what is not acknowledged
    comes again after the next connection.
    """

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
        self.token: Token | None = None  # with which it was made, on a secure topic
        self.is_confined = False  # to that topic: it asks for nothing else
        self.opening: Opening | None = None  # of a secure client, unless it is raw
        self.lost = self.refused = 0
        self.findings: list[str] = []
        self.limit = limit
        self._client = client
        self._callback, self._on_lost, self._on_refused = callback, on_lost, on_refused
        self._waiting: deque[Notification] = deque()
        # Of a durable one: what has come and is not acknowledged, whether it was taken; and what was acknowledged last.
        self._unacknowledged: OrderedDict[UUID, bool] = OrderedDict()
        self._acknowledged: OrderedDict[UUID, None] = OrderedDict()
        self._waiters: list[asyncio.Future[None]] = []  # of those who wait for something to come
        self._closed: Exception | None = None
        self._is_ended = False
        self._worker: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.wanted.id

    @property
    def durable(self) -> str | None:
        return self.wanted.durable

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
        """What waits, at most `limit`. If nothing does, what comes within `timeout` seconds; None waits for ever."""
        if not self._waiting and timeout != 0:
            try:
                async with asyncio.timeout(timeout):
                    await self._come()
            except TimeoutError:
                return []
        count = len(self._waiting) if limit is None else min(limit, len(self._waiting))
        return [self._take() for _ in range(count)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            if self._is_ended:
                if self._closed is not None:
                    raise self._closed
                raise StopAsyncIteration
            await self._come()
        return self._take()

    async def _come(self) -> None:
        while not self._waiting and not self._is_ended:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            if not one.done():  # else who waited has given up
                one.set_result(None)

    def _take(self) -> Notification:
        note = self._waiting.popleft()
        if self.durable is not None:
            self._unacknowledged[note.event.id] = True
        if len(self._waiting) == self.limit // 2:
            self._client.has_room()
        return note

    # Acknowledging

    async def acknowledge(self, *notes: Notification | UUID) -> int:
        """Of a durable subscription: these need not be given again; how many of them it was given."""
        if self.durable is None:
            raise InvalidValueError(f"{self.id} is not durable: there is nothing to acknowledge")
        events = [note.event.id if isinstance(note, Notification) else note for note in notes]
        for event in events:
            if not isinstance(event, UUID):
                raise InvalidValueError(f"acknowledge takes notifications or ids of events, not {type(event).__name__}")
        known = [event for event in dict.fromkeys(events) if self._unacknowledged.get(event)]
        for event in known:
            del self._unacknowledged[event]
            self._acknowledged[event] = None
            if len(self._acknowledged) > MAX_REMEMBERED_NOTIFICATIONS:
                self._acknowledged.popitem(last=False)
        self._client.acknowledge(self, known)
        await self._client.room()
        return len(known)

    async def acknowledge_all(self) -> int:
        """The same for everything that was taken."""
        return await self.acknowledge(*[event for event, taken in self._unacknowledged.items() if taken])

    # Beyond

    def replay(self, since: datetime | int | Receipt | None = None) -> AsyncIterator[Notification]:
        """What the subscription would get if the events since then came now, from the broker's journal."""
        return self._client.replay(since, subscriptions=[self])

    async def unsubscribe(self, policy: "str | Policy | None" = None) -> None:
        """Ends the subscription for good, a durable one too. What waits can still be taken."""
        await self._client.unsubscribe(self.id, policy)

    async def close(self) -> None:
        """Ends the subscription, unless it is durable: that one goes on collecting at the broker."""
        if self.durable is not None:
            self._client.leave(self)
        elif not self._is_ended:
            await self.unsubscribe()
        self.end()

    # Beginning and end

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def __aenter__(self) -> Self:
        return await self._begun()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _begun(self) -> Self:
        await self._client.begin(self)
        if self._callback is not None and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(self._callback))
        return self

    async def _work(self, callback: Callback) -> None:
        """Hands notifications to the callback; returning acknowledges, raising is logged."""
        try:
            async for note in self:
                try:
                    made = callback(note)
                    if inspect.isawaitable(made):
                        await made
                except Exception:
                    _LOG.exception("the callback of the subscription %s raised", self.id)
                    continue
                if self.durable is not None:
                    await self.acknowledge(note)
        except ClosedError:
            return

    # For the client

    def notified(self, note: Notification) -> None:
        if self.durable is not None:
            event = note.event.id
            if event in self._unacknowledged:
                return  # it is here, and comes again since another connection cannot know that
            if event in self._acknowledged:
                self._client.acknowledge(self, [event])  # which was lost on the way
                return
            self._unacknowledged[event] = False
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
        if self._waiters:
            self._wake()

    def refuse(self, note: Notification, error: TidingsError) -> None:
        """What came sealed and cannot be opened. Where it is only that nobody answers, a durable one gets it again with
        the next connection."""
        is_known = self.durable is not None and self._unacknowledged.pop(note.event.id, None) is not None
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
