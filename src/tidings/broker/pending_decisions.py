"""Pending decisions: whether clients get publications that were accepted while a trust proof of the client was missing.

While the client is connected, the engine waits for its proof. If the connection or the process ends first, what the
engine had is gone. The decision is then made when the client connects again, in order, before anything newer reaches
it.
"""

from collections.abc import Container
from uuid import UUID

from tidings.engine.operations import Redecide
from tidings.runtime.outcome import OperationOutcome, pending_decisions_with_offsets
from tidings.runtime.subscription_registry import RegisteredSubscription


class PendingDecisions:
    """The decisions that are owed to clients, by client and event, oldest first, with the offsets of the publications.

    Their number per client is bounded by the number of publications that the engine lets wait for a client.
    """

    def __init__(self) -> None:
        self._pending: dict[str, dict[UUID, tuple[Redecide, int]]] = {}  # with the publication's offset, oldest first
        self._in_engine: dict[str, set[UUID]] = {}  # the events of these that the engine has, and waits with

    def add(self, redecide: Redecide, offset: int) -> None:
        """Record a pending decision and its publication's offset; one that is recorded already keeps its place."""
        self._pending.setdefault(redecide.client, {}).setdefault(redecide.event.id, (redecide, offset))

    def record(self, outcome: OperationOutcome[RegisteredSubscription], first: int, meta_events_offset: int) -> None:
        """Record which decisions an outcome leaves pending, with the offsets of their publications, and which it ends.

        `first` is the offset of the operation's own row, `meta_events_offset` that of the first meta-event behind it.
        """
        if outcome.pending_decisions:
            for redecide, offset in pending_decisions_with_offsets(outcome, first, meta_events_offset):
                self.add(redecide, offset)
                self.engine_waits(redecide.event.id, redecide.client)
        for decision in outcome.decided:
            self.remove(decision.event, decision.client)

    def drop_journaled(self, outcome: OperationOutcome[RegisteredSubscription]) -> None:
        """Drop from `outcome` pending decisions that are journaled already, and ends of decisions that never were."""
        for decision in outcome.pending_decisions:
            self.engine_waits(decision.event.id, decision.client)
        outcome.pending_decisions = tuple(
            decision
            for decision in outcome.pending_decisions
            if not self.is_pending(decision.event.id, decision.client)
        )
        outcome.decided = tuple(
            decision for decision in outcome.decided if self.is_pending(decision.event, decision.client)
        )

    def engine_waits(self, event: UUID, client: str) -> None:
        """Record that the engine has the publication, and waits for the client's proof."""
        self._in_engine.setdefault(client, set()).add(event)

    def engine_forgot(self, client: str) -> None:
        """Record that the engine no longer waits with any publication for `client`; the decisions stay pending."""
        self._in_engine.pop(client, None)

    def is_pending(self, event: UUID, client: str) -> bool:
        """Return whether a decision about `event` is pending for `client`."""
        return event in self._pending.get(client, ())

    def remove(self, event: UUID, client: str) -> None:
        """Remove a decision: it was made, or another broker owes it now."""
        pending, in_engine = self._pending.get(client, {}), self._in_engine.get(client, set())
        pending.pop(event, None)
        in_engine.discard(event)
        if not pending:
            self._pending.pop(client, None)
        if not in_engine:
            self._in_engine.pop(client, None)

    def of(self, client: str) -> list[Redecide]:
        """Return the pending decisions of `client` that the engine is not waiting with, oldest first."""
        in_engine = self._in_engine.get(client, ())
        return [redecide for event, (redecide, _) in self._pending.get(client, {}).items() if event not in in_engine]

    def lowest_offset(self, subscriptions: Container[str]) -> int | None:
        """Return the lowest offset of a publication that may yet be given to one of `subscriptions`; None if none."""
        return min(
            (
                offset
                for pending in self._pending.values()
                for redecide, offset in pending.values()
                if any(subscription in subscriptions for subscription in redecide.subscriptions)
            ),
            default=None,
        )

    def state(self) -> list[tuple[int, str]]:
        """Return for a snapshot: offsets of publications, each with a client that is owed a decision about it."""
        return [(offset, client) for client, pending in self._pending.items() for _, offset in pending.values()]
