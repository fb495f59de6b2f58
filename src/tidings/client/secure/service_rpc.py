"""Remote calls to key management centres and discovery nodes: `ask`, retries, and the inbox for the answers."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, Self, TypeVar

from tidings.client.callback_runner import Callback
from tidings.model.errors import RefusedError, SecurityError, UnreachableError
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.time_arguments import checked_seconds
from tidings.security.ca.identity import Identity
from tidings.security.rpc import messages
from tidings.security.rpc.messages import SERVICE_TOPIC, PendingCall, ServiceRecord

TIMEOUT = 10.0  # seconds
# A request whose timestamp is too far off gets no answer at all, since it may be a replay.
CLOCKS = f"whether this machine's clock is right to within {messages.FRESHNESS // 1_000_000} s"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 4.0  # seconds until a new request is sent


def now() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000


class ServiceSubscription(Protocol):
    """What services need of a subscription: it begins when it is awaited."""

    def __await__(self) -> Generator[Any, None, Self]: ...
    async def close(self, timeout: float | None = None) -> None: ...


class ServiceAdvertisement(Protocol):
    """What services need of an advertisement."""

    @property
    def id(self) -> str: ...


class ServiceClient(Protocol):
    """What services, and those who ask them, need of the client by which they are on the overlay."""

    @property
    def name(self) -> str: ...
    @property
    def mailbox(self) -> "ReplyInbox": ...
    async def advertise(self, content: str = "", *, id: str | None = None) -> ServiceAdvertisement: ...  # noqa: A002
    def subscribe(
        self,
        content: str = "",
        *,
        id: str | None = None,  # noqa: A002
        callback: Callback | None = None,
    ) -> ServiceSubscription: ...
    async def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        *,
        payload: bytes | None = None,
        safe: str = "journaled",
        timeout: float | None = None,
    ) -> Receipt: ...
    async def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any: ...
    async def until_closed(self) -> None: ...


async def ask(
    client: ServiceClient,
    identity: Identity,
    service: ServiceRecord,
    kind: str,
    body: bytes = b"",
    *,
    timeout: float = TIMEOUT,
) -> bytes:
    """Ask a service and return the body of its answer.

    Without an answer a new request is sent, since no request is answered twice; so the service may carry out the
    request twice, and after an `UnreachableError` it is unknown whether it was carried out.

    Args:
        client: The client that publishes the request.
        identity: The identity that signs the request.
        service: The service to ask.
        kind: The kind of the request.
        body: The request.
        timeout: Seconds to wait for an answer.

    Raises:
        RefusedError: The service refuses, with its reason.
        UnreachableError: The service has not answered within `timeout` seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            await client.mailbox.open()
            answer = await _call(client, identity, service, kind, body)
    except TimeoutError:
        raise UnreachableError(
            f"{service.certificate.name} ({service.certificate.role.value}) has not answered within {timeout:g} s:"
            f" see whether it is running, and has not moved to another topic, and {CLOCKS}"
        ) from None
    if isinstance(answer, RefusedError):
        raise answer
    return answer


async def _call(
    client: ServiceClient, identity: Identity, service: ServiceRecord, kind: str, body: bytes
) -> bytes | RefusedError:
    answer: asyncio.Future[bytes | RefusedError] = asyncio.get_running_loop().create_future()
    calls: dict[str, PendingCall] = {}

    def handler(topic: str, payload: bytes) -> None:
        if topic not in calls or answer.done():
            return
        try:
            answer.set_result(messages.read_answer(calls[topic], payload))
        except RefusedError as refused:
            answer.set_result(refused)
        except SecurityError:  # brokers see the reply topic: ignore answers that the service did not make
            return

    pause = _FIRST_PAUSE
    with ExitStack() as expected:  # a late answer to an earlier request counts, too
        while True:
            topic = expected.enter_context(client.mailbox.expecting(handler))
            calls[topic] = messages.ask(identity, service, kind, body, now(), topic)
            await client.publish({SERVICE_TOPIC: service.topic}, payload=calls[topic].payload, safe="accepted")
            done, _ = await asyncio.wait([answer], timeout=pause)
            if done:
                return answer.result()
            pause = min(2 * pause, _LONGEST_PAUSE)


ReplyHandler = Callable[[str, bytes], None]  # called with the reply topic and the payload


class ReplyInbox:
    """A client's inbox for answers of services: one subscription, with a new reply topic for each request.

    While an answer is awaited, the client reads in the context `expecting`: even if its other subscriptions are full.
    """

    def __init__(self, client: ServiceClient, expecting: Callable[[], AbstractContextManager[None]]) -> None:
        self._client, self._expecting = client, expecting
        self._name = secrets.token_hex(16)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._topics_made = 0
        self._handlers: dict[str, ReplyHandler] = {}

    async def open(self) -> None:
        """Advertise requests and subscribe to answers, once. Both are restored after a reconnection."""
        async with self._opening:
            if self._is_open:
                return
            await self._client.advertise(f"{SERVICE_TOPIC} IS NOT NULL", id=f"questions.{self._name}")
            await self._client.subscribe(
                f"{SERVICE_TOPIC} LIKE '{self._name}/%'", id=f"answers.{self._name}", callback=self._handle_reply
            )
            self._is_open = True

    @contextmanager
    def expecting(self, handler: ReplyHandler) -> Iterator[str]:
        """Yield a new reply topic; `handler` is called with every payload published to it, by any client."""
        self._topics_made += 1
        topic = f"{self._name}/{self._topics_made}"
        self._handlers[topic] = handler
        try:
            with self._expecting():
                yield topic
        finally:
            del self._handlers[topic]

    def _handle_reply(self, notification: Notification) -> None:
        topic = str(notification.attributes.get(SERVICE_TOPIC))
        handler = self._handlers.get(topic)
        if handler is not None and notification.event.payload is not None:
            handler(topic, notification.event.payload)


_PAUSE = 0.2  # seconds between two requests
_Answer = TypeVar("_Answer")


def _always(_: Any) -> bool:
    return True


class Retry:
    """Retries requests until `seconds` have passed since its creation, so that several requests share the time.

    Only a missing answer, and an answer that finds nothing, are retried. A refusal is final.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._end = time.monotonic() + checked_seconds(seconds, "wait")

    async def answer_to(
        self, question: Callable[[], Awaitable[_Answer]], is_found: Callable[[_Answer], bool] = _always
    ) -> _Answer:
        """Return the first answer that `is_found` accepts; after the time is over, the last answer or error counts.

        A request that began in time is not cut short: it has its own time limit.
        """
        while True:
            try:
                answer = await question()
            except UnreachableError:
                if self._is_over:
                    raise
            else:
                if is_found(answer) or self._is_over:
                    return answer
            await asyncio.sleep(_PAUSE)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end
