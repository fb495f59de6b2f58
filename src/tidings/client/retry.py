"""Services that have just been started: their clients ask again until they answer, for a limited time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tidings.model.errors import UnreachableError
from tidings.model.timeout import checked_seconds

_PAUSE = 0.2  # seconds between two questions
_Answer = TypeVar("_Answer")


def _always(_: Any) -> bool:
    return True


class Retry:
    """Asks again until `seconds` are over; they begin when it is made, so that several questions share them.

    Only silence, and an answer that finds nothing, are reasons to ask again. A refusal is an answer.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._end = time.monotonic() + checked_seconds(seconds, "wait")

    async def answer_to(
        self, question: Callable[[], Awaitable[_Answer]], is_found: Callable[[_Answer], bool] = _always
    ) -> _Answer:
        """The first answer that `is_found` accepts. When the time is over, the last answer, or the last error, counts.

        A question that has begun in time is not cut short: it has a time limit of its own.
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
