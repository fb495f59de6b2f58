"""Reads a journal for durable subscriptions that are behind, for replay, and for single past events."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from tidings.engine import journal_codec
from tidings.filters import ContextFilter
from tidings.journal import EVENTS, PUBLISH
from tidings.model.errors import OffsetGoneError
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.model.time_arguments import Since as Since
from tidings.model.time_arguments import start_of
from tidings.runtime import delivery_record
from tidings.runtime.durable_inbox import Entry, Read

if TYPE_CHECKING:
    from tidings.journal import Journal, Record

_READERS = 32  # open journal readers of durable subscriptions that are behind


class JournalHistory:
    """Reads past events of a journal. Thread-safe.

    The journal is synced before each read, since only durable rows can be read.
    """

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal
        self._readers: OrderedDict[tuple[str, int], Iterator[Record]] = OrderedDict()  # by subscription and next offset
        self._readers_lock = threading.Lock()

    @property
    def reader_count(self) -> int:
        """The number of journal readers that are open for durable subscriptions that are behind."""
        return len(self._readers)

    def due_to(self, subscription: Subscription) -> Read:
        """Return a function that reads the notifications due to a durable subscription, for its inbox.

        The function takes an offset and a count; it returns that many entries or fewer, and the offset to read on from.
        """
        id, subscriber = subscription.id, subscription.subscriber  # noqa: A001
        quoted_id = msgspec.json.encode(id).decode()

        def read(start: int, count: int) -> tuple[list[Entry], int]:
            self._sync()
            end = self._journal.synced  # read once: rows that are synced meanwhile are for the next call
            entries: list[Entry] = []
            position = start
            for record in self._from(id, start, end):
                position = record.offset + 1
                row = record.operation
                if row.kind in EVENTS and row.body is not None and quoted_id in row.body:
                    due = journal_codec.driver_notes(row).get(delivery_record.DUE, ())
                    notification = delivery_record.notification(due, row.event(ContextFilter.parse), id, subscriber)
                    if notification is not None:
                        entries.append((record.offset, notification))
                if len(entries) >= count:
                    return entries, position
            return entries, max(position, end)

        return read

    def events(self, since: Since) -> Iterator[tuple[int, Event]]:
        """Yield the offsets and the events that were accepted since then, up to the present."""
        return self.events_from(*start_of(since))

    def events_from(self, start: int, timestamp: int) -> Iterator[tuple[int, Event]]:
        """Yield the offsets and events from the offset `start` on, skipping events accepted before `timestamp`."""
        self._sync()
        for record in self._journal.read(max(start, self._journal.first)):
            if record.timestamp >= timestamp and record.operation.kind == PUBLISH:
                yield record.offset, record.operation.event(ContextFilter.parse)

    def event(self, id: UUID) -> Event | None:  # noqa: A002
        """Return the event of that id, or None if the journal does not have it."""
        text = str(id)
        self._sync()
        for record in self._journal.read():
            if record.operation.kind in EVENTS and record.operation.id == text:
                return record.operation.event(ContextFilter.parse)
        return None

    def close(self) -> None:
        """Close the open readers."""
        with self._readers_lock:
            self._readers.clear()

    def _sync(self) -> None:
        """Sync the journal: events that were accepted without waiting for the disk are to be read as well."""
        if self._journal.synced < self._journal.next:
            self._journal.sync()

    def _from(self, id: str, start: int, end: int) -> Iterator["Record"]:  # noqa: A002
        """Yield the records from `start` to `end`, with the reader that stopped at `start` last time, if still open."""
        with self._readers_lock:
            reader = self._readers.pop((id, start), None)
        while start < end:
            reader = self._journal.read(start, end) if reader is None else reader
            try:
                for record in reader:
                    start = record.offset + 1
                    self._put_back(id, start, reader)
                    yield record
                    with self._readers_lock:
                        self._readers.pop((id, start), None)
            except OffsetGoneError as gone:
                start = gone.first
            reader = None

    def _put_back(self, id: str, start: int, reader: "Iterator[Record]") -> None:  # noqa: A002
        with self._readers_lock:
            self._readers[id, start] = reader
            if len(self._readers) > _READERS:
                self._readers.popitem(last=False)
