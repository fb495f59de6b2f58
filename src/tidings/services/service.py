"""The base of services on the overlay: takes requests from a topic, publishes answers, and lists the service."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import TIMEOUT, ServiceClient, ServiceSubscription, now
from tidings.model.errors import ClosedError, RefusedError, SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.ca.identity import Identity
from tidings.security.rpc.messages import SERVICE_TOPIC, RpcRequest, RpcServer, ServiceRecord
from tidings.security.tdn.discovery_records import DiscoveryRecord, Visibility

_LOG = logging.getLogger("tidings.services")
QUESTIONS = 200  # per second and publisher
_CONCURRENT_REQUESTS = 256  # requests answered concurrently; further ones wait

Answerer = Callable[[RpcRequest], Awaitable[bytes]]


class RpcService:
    """Answers the requests published to a service's topic.

    `answerer` returns the body of an answer; if it raises a `TidingsError`, the client gets its reason. Malformed
    requests get no answer, so that clients cannot find a service by trying topics. `refused` counts them by reason,
    `answered` counts answers, and `quota` limits the requests of each publisher before they are decrypted.
    """

    def __init__(
        self, client: ServiceClient, respondent: RpcServer, answerer: Answerer, questions: int = QUESTIONS
    ) -> None:
        self._client, self._respondent, self._answerer = client, respondent, answerer
        self.quota = RateLimit(questions)
        self.refused: Counter[str] = Counter()
        self.answered = 0
        self._slots = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, topic: str) -> ServiceSubscription:
        """Answer requests to that topic until the returned subscription is closed.

        A topic is 32 hexadecimal digits, or a well-known word.
        """
        await self._client.advertise(f"{SERVICE_TOPIC} IS NOT NULL", id=f"{self._client.name[:120]}.answers")
        subscription = self._client.subscribe(f"{SERVICE_TOPIC} = '{topic}'", callback=self._handle_request)
        return await subscription

    async def _handle_request(self, notification: Notification) -> None:
        payload = notification.event.payload
        if payload is None:
            return
        at = now()
        if not self.quota.take(notification.event.publisher, at):
            self.refused["flood"] += 1
            return
        try:
            question = self._respondent.read(payload, at)
        except SecurityError as error:
            self.refused[error.check] += 1
            _LOG.debug("ignored an invalid request of %s: %s", notification.event.publisher, error)
            return
        # Answer in a task of its own, since the answerer may wait for a disk and must not delay other requests.
        await self._slots.acquire()
        task = asyncio.create_task(self._reply(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, question: RpcRequest) -> None:
        try:
            payload = await self._answer(question)
            await self._client.publish(
                {SERVICE_TOPIC: question.reply_to}, payload=payload, safe="accepted", timeout=TIMEOUT
            )
            self.answered += 1
        except TidingsError as error:  # the connection has ended: the client will ask again
            _LOG.debug("the answer to %s could not be sent: %s", question.certificate.name, error)
        finally:
            self._slots.release()

    async def _answer(self, question: RpcRequest) -> bytes:
        try:
            return self._respondent.answer(question, await self._answerer(question))
        except RefusedError as error:
            return self._respondent.answer(question, refused=error.reason)
        except TidingsError as error:
            return self._respondent.answer(question, refused=str(error))


_SECOND = 1_000_000  # microseconds


class RateLimit:
    """Limits the requests of each publisher to `each` per second."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.exceeded = 0  # how many requests were over the limit
        self._second = -1
        self._counts: Counter[str] = Counter()

    def take(self, publisher: str, now: int) -> bool:
        """Count a request of the publisher; return whether it is within the limit."""
        if now // _SECOND != self._second:
            self._second = now // _SECOND
            self._counts.clear()
        self._counts[publisher] += 1
        if self._counts[publisher] <= self.each:
            return True
        self.exceeded += 1
        return False


_RETRY_SECONDS = 30.0  # seconds until the next attempt, if no discovery node took the record
_RENEW_SECONDS = 86_400.0  # seconds after which the record is advertised again, before it expires


class ServiceListing:
    """Advertises a service at discovery nodes; `restriction` limits which clients may find it."""

    def __init__(self, nodes: Discovery, identity: Identity, restriction: Visibility | None = None) -> None:
        self._nodes, self._identity, self._restriction = nodes, identity, restriction
        self._service: ServiceRecord | None = None
        self._changed = asyncio.Event()

    def show(self, service: ServiceRecord) -> None:
        """Advertise this service record from now on, in place of an earlier one."""
        self._service = service
        self._changed.set()

    async def keep(self) -> None:
        """Keep the service advertised until cancelled. An overlay may have no discovery node, or get one later."""
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)
            self._changed.clear()
            if self._service is None:
                continue
            record = DiscoveryRecord.of_service(self._identity, self._service, now(), restriction=self._restriction)
            try:
                nodes = await self._nodes.advertise(record)
                _LOG.info("%s can be found at %s", self._identity.name, ", ".join(nodes))
                pause = _RENEW_SECONDS
            except ClosedError:
                return
            except TidingsError as error:
                log = _LOG.warning if isinstance(error, RefusedError) else _LOG.debug
                log("%s cannot be found at discovery nodes: %s", self._identity.name, error)
                pause = _RETRY_SECONDS
