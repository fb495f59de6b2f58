"""A pump: brings what waits in a durable inbox to its subscriber, as far as that one acknowledges and reads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from tidings.live.connection import Connection
from tidings.live.inbox import Kept
from tidings.model.errors import TidingsError
from tidings.model.notification import Notification

_STROKE = 256  # notifications at a time


class InboxPump:
    """The inbox itself limits how many are taken and not acknowledged. Reading the journal is left to a thread.

    `choose` says which of them may be handed out now, and which have to wait; nothing overtakes those.
    """

    def __init__(
        self,
        inbox: Kept,
        connection: Connection,
        choose: Callable[[list[Notification]], tuple[list[Notification], list[Notification]]],
        write: Callable[[Notification], bytes],
        readers: Executor,
        complain: Callable[[TidingsError], None],
    ) -> None:
        self._inbox, self._connection, self._choose, self._write = inbox, connection, choose, write
        self._readers, self._complain = readers, complain
        self._is_reading = False
        self._waiting: list[Notification] = []  # taken, and not to be handed out yet

    def wake(self) -> None:
        """Something may have come, been acknowledged or been read by the other side."""
        inbox, connection = self._inbox, self._connection
        while not self._is_reading and connection.is_open and not connection.is_stalled and inbox.pump is self:
            if self._waiting:
                self._send(self._waiting)
                if self._waiting:
                    return
            if inbox.must_read:
                self._is_reading = True
                loop = asyncio.get_running_loop()
                loop.run_in_executor(self._readers, inbox.take, _STROKE).add_done_callback(self._read)
                return
            notes = inbox.take(_STROKE)
            if not notes:
                return
            self._send(notes)

    def _read(self, done: "asyncio.Future[list[Notification]]") -> None:
        self._is_reading = False
        error = done.exception()
        if isinstance(error, TidingsError):
            self._complain(error)
            return
        notes = done.result()
        other = self._inbox.pump
        if other is not self:
            self._inbox.redeliver()  # whoever has it now could not know of what was being read
            if other is not None:
                other.wake()
            return
        self._send(notes)
        if notes:
            self.wake()

    def _send(self, notes: list[Notification]) -> None:
        given, self._waiting = self._choose(notes)
        for note in given:
            self._connection.send(self._write(note))
