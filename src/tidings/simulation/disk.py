"""What a broker has on its disk: what was published at it and who may have missed it, durable subscriptions with their
owners' contexts, what waits for their owners, and what these are owed a decision about."""

from collections.abc import Iterator
from uuid import UUID

from tidings.engine.debts import State
from tidings.engine.operations import Connect, Judge, Operation, SetContext, Subscribe
from tidings.engine.tables import Tables
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context

Key = tuple[str, UUID]  # a subscription, and an event
Owed = tuple[Notification, str]  # with the name of the durable subscription


class Disk:
    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.contexts: dict[str, Context] = {}
        self.sessions: dict[str, int] = {}  # client -> the session in which it was here last
        self.heard: dict[str, int] = {}  # client -> when it last said something
        self.moved: dict[str, str] = {}  # client -> the broker that it went to, and that what waits here follows it to
        self.journal: list[Event] = []  # what was published here
        self.assurance = b""  # what was known of secure topics, and what must not come again
        self.debts: State | None = None  # what others may have missed of that
        self._waiting: dict[str, dict[Key, Owed]] = {}  # by client, in order
        self._undecided: dict[tuple[str, UUID], Judge] = {}  # by client and event, in order

    def write(self, event: Event) -> int:
        """The offset at which it is in the journal."""
        self.journal.append(event)
        return len(self.journal) - 1

    def write_tables(self, tables: Tables) -> None:
        """What of a broker's tables outlives it. Every change is on the disk once it is accepted: so it is enough to
        look when the broker is gone."""
        self.subscriptions = [
            one for one in tables.subscriptions if one.durable is not None and tables.hops.get(one.id) == one.subscriber
        ]
        owners = {one.subscriber for one in self.subscriptions}
        self.contexts = {name: context for name, context in tables.contexts.items() if name in owners}

    def restored(self) -> Iterator[tuple[Operation, int]]:
        """What is to be said to a new engine, and when that was so: it is no news, and must not count as such where
        there is news of a client that has gone elsewhere."""
        for client in sorted({one.subscriber for one in self.subscriptions}, key=lambda name: (self.heard[name], name)):
            when = self.heard[client]
            yield Connect(client, session=self.sessions[client]), when
            if client in self.contexts:
                yield SetContext(client, self.contexts[client]), when
            for subscription in self.subscriptions:
                if subscription.subscriber == client:
                    yield Subscribe(subscription), when

    def keep(self, note: Notification, durable: str) -> bool:
        """Until it is acknowledged; whether it was not there already."""
        kept = self._waiting.setdefault(note.subscriber, {})
        if key_of(note) in kept:
            return False
        kept[key_of(note)] = note, durable
        return True

    def owe(self, judge: Judge) -> None:
        """Until it is decided."""
        self._undecided.setdefault((judge.client, judge.event.id), judge)

    def decided(self, event: UUID, client: str) -> None:
        self._undecided.pop((client, event), None)

    def undecided(self, client: str) -> list[Judge]:
        return [judge for (name, _), judge in self._undecided.items() if name == client]

    def acknowledge(self, client: str, key: Key) -> None:
        kept = self._waiting.get(client, {})
        kept.pop(key, None)
        if not kept:
            self._waiting.pop(client, None)

    def waiting(self, client: str) -> list[Notification]:
        return [note for note, _ in self._waiting.get(client, {}).values()]

    def owed(self, client: str) -> tuple[Owed, ...]:
        """The same, as it is carried to another broker."""
        return tuple(self._waiting.get(client, {}).values())

    def forget_subscription(self, client: str, id: str) -> None:  # noqa: A002
        for key in [key for key in self._waiting.get(client, {}) if key[0] == id]:
            self.acknowledge(client, key)


def key_of(note: Notification) -> Key:
    return note.subscription, note.event.id
