"""The time limit of a request."""

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
        state: Gives the state of the connection, for the error.
        effect: What the caller may rely on when the limit is over, for the error.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():  # the body has a limit of its own
            raise
        raise RequestTimeoutError(f"{request}: not done within {seconds:g} s ({state()}); {effect}") from None
