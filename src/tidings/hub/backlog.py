"""A backlog: the inbox of a durable subscription, which keeps every notification until it is acknowledged.

In memory is a window: from the oldest that is not acknowledged, at most `limit` notifications on. What comes after
the window stays in the journal, and is read again when there is room. Without a journal there is nothing to read from:
then the oldest is lost, as in any other inbox.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable
from uuid import UUID

from tidings.hub.inbox import Acknowledged, Queue
from tidings.model.notification import Notification

Entry = tuple[int, Notification]  # offset of the publication, and what the subscription gets of it
Read = Callable[[int, int], tuple[list[Entry], int]]  # from an offset, so many: those, and the offset to go on from


class Backlog(Queue):
    """Offsets are those of the publications in the journal, or in the order of a hub without one."""

    def __init__(self, limit: int, read: Read | None) -> None:
        super().__init__(limit)
        self._read = read
        self._entries: deque[Entry] = deque()  # not taken, in order
        self._taken: OrderedDict[UUID, Entry] = OrderedDict()  # and not acknowledged, in order
        self._beyond: set[int] = set()  # acknowledged, while an earlier one is not
        self._floor = 0  # everything below is acknowledged
        self._last = -1  # the last that was due
        self._pending = 0  # due and not acknowledged
        self._unread: int | None = None  # from here on, the journal has more than the window
        self._next = 0  # below this, all that is due is in the window
        self._filling = False

    @property
    def waiting(self) -> int:
        return max(0, self._pending - len(self._taken))

    @property
    def size(self) -> int:
        """The number of notifications in memory, taken or not."""
        return len(self._entries) + len(self._taken)

    def ready(self) -> bool:
        with self._changed:
            return bool(self._entries) or self._is_behind()

    def expect(self, offset: int) -> None:
        with self._changed:
            self._last = offset
            self._pending += 1

    def put(self, note: Notification, offset: int) -> Notification | None:
        oldest = None
        with self._changed:
            if self._closed or offset < self._next:
                return None
            if self._unread is None:
                if len(self._entries) + len(self._taken) + len(self._beyond) < self.limit:
                    self._append(offset, note)
                elif self._read is None:
                    oldest = self._lose_oldest()
                    self._append(offset, note)
                else:
                    self._unread = offset
            if self._sleepers:
                self._changed.notify_all()
        return oldest

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        taken = self._take(limit, 0)
        return taken or (self._take(limit, timeout) if timeout != 0 else [])

    def redeliver(self) -> int:
        with self._changed:
            again = len(self._taken)
            self._entries = deque(sorted([*self._taken.values(), *self._entries], key=_offset))
            self._taken.clear()
            self._changed.notify_all()
            return again

    def has_taken(self) -> list[UUID]:
        with self._changed:
            return list(self._taken)

    # Acknowledging: first what it would mean, then, once that is written down, that it is so

    def acknowledgement(self, events: Iterable[UUID]) -> Acknowledged | None:
        with self._changed:
            wanted = dict.fromkeys(events)
            found = {event: [self._taken[event][0]] for event in wanted if event in self._taken}
            if len(found) < len(wanted):  # given back by `redeliver`, or acknowledged before
                for offset, note in self._entries:
                    if note.event.id in wanted and note.event.id not in self._taken:
                        found.setdefault(note.event.id, []).append(offset)  # an event may have come twice
            if not found:
                return None
            offsets = [offset for copies in found.values() for offset in copies]
            floor = self._floor_without(found)
            beyond = [offset for offset in offsets if offset >= floor]
            return Acknowledged(floor, beyond, len(offsets), list(found))

    def acknowledge(self, done: Acknowledged) -> None:
        with self._changed:
            given_back = {event for event in done.events if self._taken.pop(event, None) is None}
            if given_back:
                self._entries = deque(entry for entry in self._entries if entry[1].event.id not in given_back)
            self._acknowledged(done.floor, done.beyond, done.count)
            self._changed.notify_all()  # there may be room

    # What outlives the process

    def state(self) -> tuple[int, list[int], int, int]:
        with self._changed:
            return self._floor, sorted(self._beyond), self._last, self._pending

    def restore(self, floor: int, beyond: Iterable[int], last: int, pending: int) -> None:
        self._floor, self._beyond, self._last, self._pending = floor, set(beyond), last, pending
        self._next = floor
        self._unread = floor if last >= floor else None

    def recall(self, offset: int) -> None:
        """Counts the publication at `offset` of the journal as due. It is read from the journal when it is taken."""
        self._last, self._pending = offset, self._pending + 1
        if self._unread is None:
            self._unread = offset

    def recall_acknowledgement(self, floor: int, beyond: Iterable[int], count: int) -> None:
        self._acknowledged(floor, beyond, count)
        if self._unread is not None:
            self._unread = max(self._unread, floor)
            if self._unread > self._last:
                self._unread = None

    # What the above is made of; the lock is held, except where it says otherwise

    def _append(self, offset: int, note: Notification) -> None:
        self._entries.append((offset, note))
        self._next = offset + 1

    def _lose_oldest(self) -> Notification:
        _, note = self._entries.popleft() if self._entries else self._taken.popitem(last=False)[1]
        self.lost += 1
        self._pending -= 1
        return note

    def _take(self, limit: int | None, timeout: float | None) -> list[Notification]:
        """Not under the lock: reading the journal must not keep publishers waiting."""
        self._fill()
        with self._changed:
            if not self._entries and timeout != 0:
                self._sleep(timeout)
            if self._entries or self._filling or not self._is_behind():
                return self._taking(limit)
        self._fill()
        with self._changed:
            return self._taking(limit)

    def _taking(self, limit: int | None) -> list[Notification]:
        count = len(self._entries) if limit is None else min(limit, len(self._entries))
        notes: list[Notification] = []
        for _ in range(count):
            entry = self._entries.popleft()
            note = entry[1]
            if note.event.id in self._taken:
                self._pending -= 1  # it has come twice, and is acknowledged with the first
            else:
                self._taken[note.event.id] = entry
                notes.append(note)
        return notes

    def _sleep(self, timeout: float | None) -> None:
        self._sleepers += 1
        try:
            self._changed.wait_for(lambda: self._entries or self._is_behind() or self.quiet, timeout)
        finally:
            self._sleepers -= 1

    def _is_behind(self) -> bool:
        """Whether reading the journal would bring more."""
        return self._unread is not None and not self._filling and self._room() > 0

    def _room(self) -> int:
        return self.limit - len(self._entries) - len(self._taken) - len(self._beyond)

    def _fill(self) -> None:
        """Reads on where the window ended; only if nothing waits. Not under the lock, and one thread at a time."""
        with self._changed:
            if self._entries or not self._is_behind() or self._read is None:
                return
            start, room = self._unread, self._room() + len(self._beyond)
            self._filling = True
        found: list[Entry] = []
        position = start or 0
        try:
            found, position = self._read(position, room)
        finally:
            with self._changed:
                self._filling = False
                self._entries.extend(
                    entry for entry in found if entry[0] >= self._floor and entry[0] not in self._beyond
                )
                self._next = max(self._next, position)
                self._unread = position if position <= self._last else None
                if self._unread is None and not self._entries and not self._taken:
                    self._pending = 0  # what could not be read again is not waited for
                self._changed.notify_all()

    def _floor_without(self, found: Container[UUID]) -> int:
        """Below which everything is acknowledged, once these are."""
        taken = next((offset for event, (offset, _) in self._taken.items() if event not in found), None)
        entry = next((offset for offset, note in self._entries if note.event.id not in found), None)
        left = [offset for offset in (taken, entry, self._unread) if offset is not None]
        # What is due and on its way into the window has an offset of its own, above everything that is in it.
        return min(left) if left else self._next

    def _acknowledged(self, floor: int, beyond: Iterable[int], count: int) -> None:
        self._floor = max(self._floor, floor)
        # The journal counts an event that has come twice as two that are due, and may count one acknowledgement.
        self._pending = max(0, self._pending - count) if self._floor <= self._last else 0
        if self._read is None:
            return  # what is acknowledged is gone, and cannot be read again
        self._beyond.update(beyond)
        if self._beyond:
            self._beyond = {offset for offset in self._beyond if offset >= self._floor}


def _offset(entry: Entry) -> int:
    return entry[0]
