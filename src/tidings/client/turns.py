"""Turns: who waits for room goes on one after the other, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """`has_room` says whether one more may go on."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.called = 0  # those who have been told that there is room, and have not gone on yet
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Returns when it is one's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.call()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was called, and does not go on
                self.called -= 1
                self.call()
            raise
        self.called -= 1
        if self._waiting and not self._is_due:  # who goes on now may not take the room after all: the next one may
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._due)

    def _due(self) -> None:
        self._is_due = False
        self.call()

    def call(self) -> None:
        """Whoever may go on now, does."""
        while self._waiting and self._has_room():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self.called += 1
