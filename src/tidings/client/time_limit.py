"""The time limit of a client's request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidings.client.connection_state import ConnectionState
from tidings.model.errors import RequestTimeoutError


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
