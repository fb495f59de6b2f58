"""The release queue: calls that wait, in order, until everything below an offset of the journal is on disk."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tidings.broker.pending_decisions import PendingDecisions
from tidings.engine.effects import Effect
from tidings.engine.overlay.redelivery import RedeliveryTracker
from tidings.model.event import Event
from tidings.runtime.outcome import OperationOutcome, batches, expect
from tidings.runtime.subscription_registry import RegisteredSubscription

Task = tuple[Callable[..., None], tuple[Any, ...]]


class LinksPort(Protocol):
    """What a node needs of the broker around it: to carry out effects that concern other brokers and parties."""

    def tasks_for(self, effects: list[Effect]) -> list[Task]:
        """Return the calls that carry out effects, to be made in their turn.

        Operations for neighbours are bound to the links that are up now, not to later links to the same neighbours.
        """
        ...

    def trust_answer(self, party: str, group: str) -> tuple[bool, int] | None:
        """Return whether a party belongs to a trust group, and until when (microseconds) that holds.

        Returns None if the party has to prove it first: it is challenged, and the answer comes later.
        """
        ...

    def on_published(self, event: Event, offset: int) -> None:
        """Called when a client's event was accepted, with its offset in the journal (or its count without one)."""

    def is_unsettled(self, offset: int) -> bool:
        """Return whether the publication at this offset has not been settled yet."""
        ...

    def before_sync(self) -> None:
        """Called when the journal is about to be synced: append the rows that should be durable with it."""

    def relink_all(self) -> None:
        """Called when the engine was rebuilt and knows no neighbours: make every link anew after this turn."""

    def flush(self) -> None:
        """End a turn of the event loop: release what is ready, and run deferred calls."""
        ...

    @property
    def redelivery(self) -> RedeliveryTracker:
        """Knows which publications other brokers have yet to be sent."""
        ...


class DeliveryCounter(Protocol):
    """Counts the notifications to the clients of a broker."""

    delivered: int


class ReleaseQueue:
    """A first-in, first-out queue of calls, each with the offset below which the journal must be synced first.

    A call never overtakes one that was added before it, even if its own offset is synced already.
    """

    def __init__(self, counter: DeliveryCounter, pending_decisions: PendingDecisions) -> None:
        self._calls: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._counter, self._pending_decisions = counter, pending_decisions

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, sync_offset: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Queue the call `call(*arguments)` until everything below `sync_offset` is on disk; 0: it needs no sync."""
        self._calls.append((sync_offset, call, arguments))

    def add_tasks(self, sync_offset: int, tasks: list[Task]) -> None:
        """Queue tasks until everything below `sync_offset` is on disk."""
        self._calls.extend((sync_offset, call, arguments) for call, arguments in tasks)

    def queue(
        self, outcome: OperationOutcome[RegisteredSubscription], first: int, meta_events_offset: int, end: int
    ) -> None:
        """Record the decisions of a journaled operation, and queue its deliveries; durable ones wait for the disk.

        Args:
            outcome: The outcome of the operation.
            first: The offset of the operation's own row.
            meta_events_offset: The offset of the first meta-event's row.
            end: The offset below which the journal must be synced for the outcome to be durable.
        """
        self._pending_decisions.record(outcome, first, meta_events_offset)
        if outcome.deliveries:
            self.add_deliveries(outcome, first, meta_events_offset, end if outcome.durable else 0)

    def add_deliveries(
        self, outcome: OperationOutcome[RegisteredSubscription], first: int, meta_events_offset: int, sync_offset: int
    ) -> None:
        """Queue the deliveries of an outcome until everything below `sync_offset` is on disk.

        Args:
            outcome: The outcome of an operation.
            first: The offset of the operation's own row.
            meta_events_offset: The offset of the first meta-event's row.
            sync_offset: The offset below which the journal must be synced; 0 if the deliveries do not wait.
        """
        expect(outcome, first, meta_events_offset)
        self._calls.append((sync_offset, deliver, (outcome, first, meta_events_offset)))
        self._counter.delivered += len(outcome.deliveries)

    def take_all(self) -> list[tuple[int, Callable[..., Any], tuple[Any, ...]]]:
        """Remove and return all queued calls, as (offset, function, arguments)."""
        calls, self._calls = self._calls, deque()
        return list(calls)

    def drain(self, synced: int) -> None:
        """Make the calls at the front, up to the first one that needs more than what is `synced`."""
        calls = self._calls
        while calls and calls[0][0] <= synced:
            _, call, arguments = calls.popleft()
            call(*arguments)


def deliver(outcome: OperationOutcome[RegisteredSubscription], first: int, meta_events_offset: int) -> None:
    """Put the notifications of an outcome into the inboxes of their subscriptions, in the order of offsets.

    `first` is the offset of the operation's own row, `meta_events_offset` that of the first meta-event.
    """
    for batch in batches(outcome, first, meta_events_offset):
        for subscription, notification in batch.deliveries:
            subscription.inbox.put(notification, batch.offset)
