"""Sends a client's requests to its broker, each within its time limit."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from tidings.client.connection_state import ConnectionState
from tidings.client.session_state import SessionState
from tidings.model.errors import RequestTimeoutError
from tidings.model.time_arguments import checked_timeout
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind


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
