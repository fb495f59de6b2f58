"""Pending decisions: whether clients get publications that were accepted while a trust proof of the client was missing.

While the client is connected, the engine waits for its proof. If the connection or the process ends first, what the
engine had is gone. The decision is then made when the client connects again, in order, before anything newer reaches
it.
"""

from collections.abc import Container
from uuid import UUID

from tidings.engine.operations import Redecide
from tidings.hub.outcome import OperationOutcome


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


class TrustPendingError(Exception):
    """An operation must wait for the answer to a trust question: whether a party belongs to a trust group.

    The operation was not done. `question` is the party and the group; `earlier_outcome` has the effects that the engine
    produced before the operation, which the caller must carry out.
    """

    def __init__(self, question: tuple[str, str], earlier_outcome: OperationOutcome) -> None:
        super().__init__("whether {} belongs to {} is not known yet".format(*question))
        self.question, self.earlier_outcome = question, earlier_outcome
