"""The questions of one client, answered one after the other: an answer may be long, and take long, and a question is
short and quickly asked."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tidings.protocol import requests

if TYPE_CHECKING:
    from tidings.live.questions import Questions
    from tidings.live.session import Session

_WAITING = 64  # questions, with which a client is not read for a while


class Inquiries:
    """Who does not read answers gets no more of them; who asks faster than it is answered is not read."""

    def __init__(self, session: "Session", questions: "Questions") -> None:
        self._session, self._questions = session, questions
        self._waiting: deque[requests.Ask] = deque()
        self._is_busy = False  # a thread looks for an answer

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= _WAITING

    def put(self, asked: requests.Ask) -> None:
        self._waiting.append(asked)
        self.go_on()

    def go_on(self) -> None:
        """Somebody has asked, been answered, or read what there was."""
        connection = self._session.connection
        while self._waiting and not self._is_busy and connection.is_open and not connection.is_stalled:
            asked = self._waiting.popleft()
            done = self._questions.answer(self._session, asked)
            if done is not None:
                self._is_busy = True
                done.add_done_callback(lambda answer, request=asked.request: self._answered(request, answer))  # type: ignore[misc]

    def _answered(self, request: int, answer: "asyncio.Future[Any]") -> None:
        self._is_busy = False
        self._questions.answered(self._session, request, answer)
        self.go_on()
        self._session.look_again()
