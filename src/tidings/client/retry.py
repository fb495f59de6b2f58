"""Retries requests to services that may still be starting, for a limited time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tidings.model.errors import UnreachableError
from tidings.model.time_arguments import checked_seconds

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
