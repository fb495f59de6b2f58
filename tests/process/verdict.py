"""What went wrong in a round: what was acknowledged and lost, told twice, told in another order, or never accepted."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from tests.process.publishers import Accepted, Publisher
from tests.process.subscribers import Subscriber
from tidings.journal.reader import JournalReader
from tidings.model.event import Event

_SHOWN = 3  # of each kind, with what every broker has written down of it


class Verdict:
    """`faults` are lines, and none if all is well; `events` are those that they are about."""

    def __init__(self, publishers: Iterable[Publisher], subscribers: Iterable[Subscriber]) -> None:
        publishers = list(publishers)
        self._accepted = {one.event.id: one for publisher in publishers for one in publisher.accepted}
        self._refused: set[UUID] = set().union(*(one.refused for one in publishers))
        self.faults: list[str] = []
        self.events: dict[UUID, None] = {}
        for subscriber in subscribers:
            self._judge(subscriber)

    def _judge(self, subscriber: Subscriber) -> None:
        got = {event.id for event in subscriber.events}
        lost = [one for one in self.due(subscriber) if one.event.id not in got]
        self._find(subscriber, "was not told of", lost)
        twice = [
            event
            for life in subscriber.lives
            for event, count in Counter(event.id for event in life).items()
            if count > 1
        ]
        self._find(subscriber, "was told twice of", map(self._named, twice))
        refused = [event.id for event in subscriber.events if event.id in self._refused]
        self._find(subscriber, "was told of what was refused:", refused)
        if subscriber.has_moved:
            return  # what follows a client comes late rather than never
        for events in (*subscriber.lives, subscriber.events):
            late = [f"{self._named(one.id)} behind {before}" for one, before in self._late(events)]
            self._find(subscriber, "was told late of", late, [one.id for one, _ in self._late(events)])

    def due(self, subscriber: Subscriber) -> list[Accepted]:
        return [one for one in self._accepted.values() if subscriber.is_due(one.event)]

    def _late(self, events: list[Event]) -> Iterator[tuple[Event, int]]:
        """Those behind a later one of their publisher, with the number of that. What was accepted by different brokers
        has no order that could be kept while these cannot reach each other."""
        last: dict[tuple[str, str], int] = defaultdict(int)
        for event in events:
            accepted = self._accepted.get(event.id)
            if accepted is None:
                continue
            key = event.publisher, accepted.broker
            if event.sequence < last[key]:
                yield event, last[key]
            last[key] = max(last[key], event.sequence)

    def _named(self, event: UUID) -> str:
        accepted = self._accepted.get(event)
        return f"{event}, which nobody has acknowledged" if accepted is None else str(accepted)

    def _find(
        self, subscriber: Subscriber, what: str, found: Iterable[object], events: Iterable[UUID] | None = None
    ) -> None:
        found = list(found)
        if not found:
            return
        self.faults.append(f"{subscriber.name} {what} {len(found)} events:")
        self.faults += [f"    {one}" for one in found[:_SHOWN]]
        about = list(events) if events is not None else [_id(one) for one in found]
        self.events.update(dict.fromkeys(about[:_SHOWN]))


def _id(found: object) -> UUID:
    if isinstance(found, Accepted):
        return found.event.id
    return found if isinstance(found, UUID) else UUID(str(found).partition("(")[2].partition(")")[0])


def written_down(journals: dict[str, Path], events: Iterable[UUID]) -> list[str]:
    """What the journal of each broker says of these events."""
    lines: list[str] = []
    wanted = [str(event) for event in events]
    for broker, folder in journals.items():
        reader = JournalReader(folder)
        for batch in reader.read(reader.first, reader.end):
            for row in batch.to_pylist():
                told = {name: value for name, value in row.items() if value is not None and name != "journal"}
                text = str(told)
                if any(event in text for event in wanted):
                    lines.append(f"{broker}: {text:.400}")
    return lines
