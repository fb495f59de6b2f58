"""Sends a client's requests to its broker, each within its time limit, and restores its state by requests elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from tidings.client.connection import ConnectionState
from tidings.model.errors import RequestTimeoutError
from tidings.model.schema import Schema, versions_of
from tidings.model.time_arguments import checked_timeout
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind

Request = tuple[FrameKind, msgspec.Struct]


class SessionState:
    """A client's context, advertisements, subscriptions and schemas, which it sets again wherever it connects next."""

    def __init__(self) -> None:
        self.context = Context()
        self.has_set_context = False  # by this program; otherwise the broker keeps an earlier program's context
        self.advertisements: dict[str, requests.AdvertiseRequest] = {}
        self.subscriptions: dict[str, requests.SubscribeRequest] = {}
        self.delegates: dict[str, bool] = {}
        self.schemas: dict[str, Schema] = {}
        self.announces_context = (
            False  # whether the broker needs the context: the client has subscribed, or lets others set it
        )

    def set_context(self, context: Context) -> None:
        """Set the client's context."""
        self.context, self.has_set_context = context, True

    def restore_requests(self) -> list[Request]:
        """Return the requests that restore the state at a broker, in the required order, the context first."""
        restored: list[Request] = [
            (FrameKind.DEFINE, requests.DefineSchemaRequest(0, schema.subject, tuple(versions_of(schema))))
            for schema in self.schemas.values()
        ]
        if self.announces_context and self.has_set_context:
            restored.append((FrameKind.SET_CONTEXT, requests.SetContextRequest(0, self.context)))
        restored += (
            (FrameKind.ENTRUST, requests.DelegateContextRequest(0, other, allowed))
            for other, allowed in self.delegates.items()
        )
        restored += ((FrameKind.ADVERTISE, request) for request in self.advertisements.values())
        restored += ((FrameKind.SUBSCRIBE, request) for request in self.subscriptions.values())
        return restored

    def with_policy(self, id: str, policy: str | None) -> None:  # noqa: A002
        """Record the new policy of a subscription or an advertisement."""
        if id in self.subscriptions:
            self.subscriptions[id] = msgspec.structs.replace(self.subscriptions[id], policy=policy)
        if id in self.advertisements:
            self.advertisements[id] = msgspec.structs.replace(self.advertisements[id], policy=policy)


@asynccontextmanager
async def time_limit(
    seconds: float | None,
    request: str,
    state: Callable[[], ConnectionState],
    effect: str = "the request may still be carried out",
) -> AsyncIterator[None]:
    """Raise a `RequestTimeoutError` if the body has not ended after so many seconds; None sets no limit.

    Args:
        seconds: The limit.
        request: The name of the request, for the error.
        state: Returns the state of the connection, for the error.
        effect: What the caller may rely on after the timeout, for the error.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():  # the body's own timeout
            raise
        raise RequestTimeoutError(f"{request}: not done within {seconds:g} s ({state()}); {effect}") from None


class RequestSession(Protocol):
    """What requests need of the client's session."""

    session_state: SessionState

    @property
    def state(self) -> ConnectionState: ...
    async def request(self, kind: FrameKind, message: msgspec.Struct) -> Any: ...


class RequestSender:
    """Sends the requests of one client; `timeout` is the limit, in seconds, of requests that set none themselves."""

    def __init__(self, session: RequestSession, timeout: float | None) -> None:
        self._session = session
        self.timeout = checked_timeout(timeout)

    def limit(self, timeout: float | None, request: str, *effect: str) -> AbstractAsyncContextManager[None]:
        """Return the time limit for a request, by default the client's; `effect` is as in `time_limit`."""
        seconds = self.timeout if timeout is None else checked_timeout(timeout)
        return time_limit(seconds, request, lambda: self._session.state, *effect)

    async def request(self, kind: FrameKind, message: msgspec.Struct) -> answers.RequestDone:
        """Send a request that changes something, and return the broker's answer; raise the error if it refuses."""
        done: answers.RequestDone = await self._session.request(kind, message)
        return done

    async def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """Send the broker a query, which changes nothing, and return its answer."""
        async with self.limit(timeout, question):
            return await self._session.request(FrameKind.ASK, requests.QueryRequest(0, question, about))

    async def announce_context(self) -> None:
        """Send the broker the client's context, now and whenever it changes from now on."""
        session_state = self._session.session_state
        if not session_state.announces_context:
            session_state.announces_context = True
            if session_state.has_set_context:
                await self.request(FrameKind.SET_CONTEXT, requests.SetContextRequest(0, session_state.context))
