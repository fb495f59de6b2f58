"""The inbox of a durable subscription, which keeps every notification until it is acknowledged.

Rules:

1. A notification that is due stays, in memory or in the journal, until it is acknowledged.
2. At most `limit` notifications are in memory: a window that begins with the oldest unacknowledged one. Later ones
   are read from the journal when there is room.
3. Without a journal nothing can be read again: if the window is full, the oldest notification is lost.

Theory of operation. A notification is identified by the offset of its publication. The processor calls `expect` when
the publication is written, and `put` once it is on disk. If the window is full, `put` drops the notification and notes
its offset in `_unread_from`: from there on, `take` reads the journal (`_read_journal`). `take` moves notifications from
`_entries` to `_taken`; `redeliver` moves them back. Acknowledging has two steps, so that the journal is written between
them: `acknowledgement` computes the effect, `acknowledge` applies it. Acknowledged offsets are those below `_floor`,
and those in `_acknowledged_offsets`. After a restart, `restore` loads the state of the snapshot, and `restore_due` and
`restore_acknowledgement` apply the rows after it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable
from uuid import UUID

from tidings.model.notification import Notification
from tidings.runtime.inboxes import BoundedInbox

Entry = tuple[int, Notification]  # offset of the publication, and the subscription's notification of it
Read = Callable[[int, int], tuple[list[Entry], int]]  # (offset, count) -> entries, and the offset to read on from


class AcknowledgedEvents:
    """An acknowledgement's effect on a durable inbox: offsets below `floor`, and those in `beyond`, are acknowledged.

    `events` are the ids, `count` the number of notifications.
    """

    __slots__ = ("beyond", "count", "events", "floor")

    def __init__(self, floor: int, beyond: list[int], count: int, events: list[UUID]) -> None:
        self.floor, self.beyond, self.count, self.events = floor, beyond, count, events


class DurableInbox(BoundedInbox):
    """The inbox of a durable subscription. Offsets are the journal's, or in a hub without one, counted operations."""

    def __init__(self, limit: int, read: Read | None) -> None:
        super().__init__(limit)
        self._read = read
        self._entries: deque[Entry] = deque()  # in memory and not taken, by offset
        self._taken: OrderedDict[UUID, Entry] = OrderedDict()  # taken and not acknowledged, oldest first
        self._acknowledged_offsets: set[int] = set()  # acknowledged offsets above the floor
        self._floor = 0  # every offset below it is acknowledged
        self._last = -1  # the highest offset that is due
        self._unacknowledged = 0  # how many are due and not acknowledged
        self._unread_from: int | None = None  # due notifications from this offset on are only in the journal
        self._next = 0  # every due notification below this offset has entered the window
        self._is_reading = False

    @property
    def waiting(self) -> int:
        """The number of notifications due and not taken, in memory or in the journal."""
        return max(0, self._unacknowledged - len(self._taken))

    @property
    def has_journal(self) -> bool:
        """Whether notifications that do not fit into the window are read from a journal."""
        return self._read is not None

    @property
    def size(self) -> int:
        """The number of notifications in memory, taken or not."""
        return len(self._entries) + len(self._taken)

    def ready(self) -> bool:
        with self._changed:
            return bool(self._entries) or self._is_behind()

    def expect(self, offset: int) -> None:
        """Count the publication at `offset` as due, before its notification is put."""
        with self._changed:
            self._last = offset
            self._unacknowledged += 1

    def put(self, notification: Notification, offset: int) -> Notification | None:
        """Add a notification to the window, or leave it to be read from the journal if the window is full.

        Returns the notification that was dropped, if there is no journal.
        """
        oldest = None
        with self._changed:
            if self._closed or offset < self._next:
                return None
            if self._unread_from is None:
                if len(self._entries) + len(self._taken) + len(self._acknowledged_offsets) < self.limit:
                    self._append(offset, notification)
                elif self._read is None:
                    oldest = self._lose_oldest()
                    self._append(offset, notification)
                else:
                    self._unread_from = offset
            if self._waiters:
                self._changed.notify_all()
        return oldest

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        taken = self._take(limit, 0)
        return taken or (self._take(limit, timeout) if timeout != 0 else [])

    def redeliver(self) -> int:
        with self._changed:
            count = len(self._taken)
            self._entries = deque(sorted([*self._taken.values(), *self._entries], key=_offset))
            self._taken.clear()
            self._changed.notify_all()
            return count

    def taken_events(self) -> list[UUID]:
        with self._changed:
            return list(self._taken)

    # Acknowledging: compute the effect; the processor journals it; then apply it

    def acknowledgement(self, events: Iterable[UUID]) -> AcknowledgedEvents | None:
        """Compute the effect of acknowledging these events, without applying it.

        None if none of them is unacknowledged.
        """
        with self._changed:
            events_once = dict.fromkeys(events)
            offsets_by_event = {event: [self._taken[event][0]] for event in events_once if event in self._taken}
            if len(offsets_by_event) < len(events_once):  # put back by `redeliver`, or acknowledged before
                for offset, notification in self._entries:
                    if notification.event.id in events_once and notification.event.id not in self._taken:
                        offsets_by_event.setdefault(notification.event.id, []).append(
                            offset
                        )  # an event may be there twice
            if not offsets_by_event:
                return None
            offsets = [offset for copies in offsets_by_event.values() for offset in copies]
            floor = self._floor_after(offsets_by_event)
            beyond = [offset for offset in offsets if offset >= floor]
            return AcknowledgedEvents(floor, beyond, len(offsets), list(offsets_by_event))

    def acknowledge(self, acknowledged: AcknowledgedEvents) -> None:
        """Apply an acknowledgement that `acknowledgement` computed, once it is journaled."""
        with self._changed:
            not_taken = {event for event in acknowledged.events if self._taken.pop(event, None) is None}
            if not_taken:
                self._entries = deque(entry for entry in self._entries if entry[1].event.id not in not_taken)
            self._apply_acknowledgement(acknowledged.floor, acknowledged.beyond, acknowledged.count)
            self._changed.notify_all()  # the window may have room now

    # Snapshot and restart

    def state(self) -> tuple[int, list[int], int, int]:
        """Return floor, offsets acknowledged above it, last due offset, and number pending, for a snapshot."""
        with self._changed:
            return self._floor, sorted(self._acknowledged_offsets), self._last, self._unacknowledged

    def restore(self, floor: int, beyond: Iterable[int], last: int, pending: int) -> None:
        """Restore the state that `state` returned.

        Args:
            floor: The offset below which everything is acknowledged.
            beyond: The acknowledged offsets above the floor.
            last: The highest offset that is due.
            pending: How many notifications are due and not acknowledged.
        """
        self._floor, self._acknowledged_offsets, self._last, self._unacknowledged = floor, set(beyond), last, pending
        self._next = floor
        self._unread_from = floor if last >= floor else None

    def restore_due(self, offset: int) -> None:
        """Count the publication at `offset` of the journal as due; `take` reads it from the journal."""
        self._last, self._unacknowledged = offset, self._unacknowledged + 1
        if self._unread_from is None:
            self._unread_from = offset

    def restore_acknowledgement(self, floor: int, beyond: Iterable[int], count: int) -> None:
        """Apply an acknowledgement from the journal."""
        self._apply_acknowledgement(floor, beyond, count)
        if self._unread_from is not None:
            self._unread_from = max(self._unread_from, floor)
            if self._unread_from > self._last:
                self._unread_from = None

    # Implementation; the lock is held, except where a docstring says otherwise

    def _append(self, offset: int, notification: Notification) -> None:
        self._entries.append((offset, notification))
        self._next = offset + 1

    def _lose_oldest(self) -> Notification:
        _, notification = self._entries.popleft() if self._entries else self._taken.popitem(last=False)[1]
        self.lost += 1
        self._unacknowledged -= 1
        return notification

    def _take(self, limit: int | None, timeout: float | None) -> list[Notification]:
        """Take from memory, reading the journal if needed; without the lock, so that publishers need not wait."""
        self._read_journal()
        with self._changed:
            if not self._entries and timeout != 0:
                self._wait(timeout)
            if self._entries or self._is_reading or not self._is_behind():
                return self._taking(limit)
        self._read_journal()
        with self._changed:
            return self._taking(limit)

    def _taking(self, limit: int | None) -> list[Notification]:
        count = len(self._entries) if limit is None else min(limit, len(self._entries))
        notifications: list[Notification] = []
        for _ in range(count):
            entry = self._entries.popleft()
            notification = entry[1]
            if notification.event.id in self._taken:
                self._unacknowledged -= 1  # a second copy of the event; acknowledging the first covers it
            else:
                self._taken[notification.event.id] = entry
                notifications.append(notification)
        return notifications

    def _wait(self, timeout: float | None) -> None:
        self._waiters += 1
        try:
            self._changed.wait_for(lambda: self._entries or self._is_behind() or self.is_idle, timeout)
        finally:
            self._waiters -= 1

    def _is_behind(self) -> bool:
        """Whether reading the journal would bring more notifications into the window."""
        return self._unread_from is not None and not self._is_reading and self._free_slots() > 0

    def _free_slots(self) -> int:
        return self.limit - len(self._entries) - len(self._taken) - len(self._acknowledged_offsets)

    def _read_journal(self) -> None:
        """Read from the journal where the window ended, if memory is empty; without the lock, one thread at a time."""
        with self._changed:
            if self._entries or not self._is_behind() or self._read is None:
                return
            start, room = self._unread_from, self._free_slots() + len(self._acknowledged_offsets)
            self._is_reading = True
        entries: list[Entry] = []
        position = start or 0
        try:
            entries, position = self._read(position, room)
        finally:
            with self._changed:
                self._is_reading = False
                self._entries.extend(
                    entry for entry in entries if entry[0] >= self._floor and entry[0] not in self._acknowledged_offsets
                )
                self._next = max(self._next, position)
                self._unread_from = position if position <= self._last else None
                if self._unread_from is None and not self._entries and not self._taken:
                    self._unacknowledged = 0  # rows may be gone from the journal: do not count them
                self._changed.notify_all()

    def _floor_after(self, acknowledged: Container[UUID]) -> int:
        """Return the offset below which everything is acknowledged once the events in `acknowledged` are."""
        taken = next((offset for event, (offset, _) in self._taken.items() if event not in acknowledged), None)
        entry = next(
            (offset for offset, notification in self._entries if notification.event.id not in acknowledged), None
        )
        remaining = [offset for offset in (taken, entry, self._unread_from) if offset is not None]
        # A notification that is due but not put yet has an offset above everything in the window.
        return min(remaining) if remaining else self._next

    def _apply_acknowledgement(self, floor: int, beyond: Iterable[int], count: int) -> None:
        self._floor = max(self._floor, floor)
        # An event that was journaled twice counts as two due, but may be acknowledged once.
        self._unacknowledged = max(0, self._unacknowledged - count) if self._floor <= self._last else 0
        if self._read is None:
            return  # without a journal, an acknowledged notification cannot be read again
        self._acknowledged_offsets.update(beyond)
        if self._acknowledged_offsets:
            self._acknowledged_offsets = {offset for offset in self._acknowledged_offsets if offset >= self._floor}


def _offset(entry: Entry) -> int:
    return entry[0]
