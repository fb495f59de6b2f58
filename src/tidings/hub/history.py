"""What a journal tells of the past: what is still due to durable subscriptions, and events to look at again."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from tidings.engine import records
from tidings.filters import ContextFilter
from tidings.hub import due
from tidings.hub.backlog import Entry, Read
from tidings.journal import EVENTS, PUBLISH
from tidings.model.errors import OffsetGoneError
from tidings.model.event import Event
from tidings.model.since import Since as Since
from tidings.model.since import start_of
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.journal import Journal, Record

_READERS = 32  # files that are held open for subscriptions that are behind


class History:
    def __init__(self, journal: "Journal") -> None:
        self._journal = journal
        self._readers: OrderedDict[tuple[str, int], Iterator[Record]] = OrderedDict()  # by subscription and place
        self._changing = threading.Lock()

    @property
    def reader_count(self) -> int:
        """The number of files that are held open for subscriptions that are behind."""
        return len(self._readers)

    def due_to(self, subscription: Subscription) -> Read:
        """Reads on in what is due to a durable subscription."""
        id, subscriber = subscription.id, subscription.subscriber  # noqa: A001
        named = msgspec.json.encode(id).decode()

        def read(start: int, count: int) -> tuple[list[Entry], int]:
            self._sync()
            end = self._journal.synced  # once: what is synced while this reads is for the next time
            found: list[Entry] = []
            position = start
            for record in self._from(id, start, end):
                position = record.offset + 1
                row = record.operation
                if row.kind in EVENTS and row.body is not None and named in row.body:
                    said = records.notes(row).get(due.DUE, ())
                    note = due.notification(said, row.event(ContextFilter.parse), id, subscriber)
                    if note is not None:
                        found.append((record.offset, note))
                if len(found) >= count:
                    return found, position
            return found, max(position, end)

        return read

    def events(self, since: Since) -> Iterator[tuple[int, Event]]:
        """The events that were accepted from then on, with their offsets, up to the present."""
        return self.events_from(*start_of(since))

    def events_from(self, start: int, timestamp: int) -> Iterator[tuple[int, Event]]:
        """The same from an offset on, without those before a time."""
        self._sync()
        for record in self._journal.read(max(start, self._journal.first)):
            if record.timestamp >= timestamp and record.operation.kind == PUBLISH:
                yield record.offset, record.operation.event(ContextFilter.parse)

    def event(self, id: UUID) -> Event | None:  # noqa: A002
        """The event of that id, if it is in the journal."""
        wanted = str(id)
        self._sync()
        for record in self._journal.read():
            if record.operation.kind in EVENTS and record.operation.id == wanted:
                return record.operation.event(ContextFilter.parse)
        return None

    def close(self) -> None:
        """Lets go of the files that are held open."""
        with self._changing:
            self._readers.clear()

    def _sync(self) -> None:
        """Only what is durable can be read, and what was only accepted belongs to the past as well."""
        if self._journal.synced < self._journal.next:
            self._journal.sync()

    def _from(self, id: str, start: int, end: int) -> Iterator["Record"]:  # noqa: A002
        """The records up to the end. Where a subscription stopped reading, it goes on without looking for the place."""
        with self._changing:
            reader = self._readers.pop((id, start), None)
        while start < end:
            reader = self._journal.read(start, end) if reader is None else reader
            try:
                for record in reader:
                    start = record.offset + 1
                    self._put_back(id, start, reader)
                    yield record
                    with self._changing:
                        self._readers.pop((id, start), None)
            except OffsetGoneError as gone:
                start = gone.first
            reader = None

    def _put_back(self, id: str, start: int, reader: "Iterator[Record]") -> None:  # noqa: A002
        with self._changing:
            self._readers[id, start] = reader
            if len(self._readers) > _READERS:
                self._readers.popitem(last=False)
