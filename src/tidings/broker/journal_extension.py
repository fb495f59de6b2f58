"""What a broker adds to its journal: redelivery state, recent deliveries and pending decisions."""

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

import msgspec

from tidings import journal
from tidings.broker.logs import Log
from tidings.broker.pending_decisions import PendingDecisions
from tidings.engine.overlay.redelivery import RedeliveryState, RedeliveryTracker
from tidings.model.errors import JournalError
from tidings.model.limits import MAX_REMEMBERED_DELIVERIES
from tidings.runtime.delivery_record import DECIDED, decided_by, pending_decisions_of
from tidings.runtime.subscription_registry import RegisteredSubscription

_ID = 16  # bytes
_DEBTS = "debts"  # the kind of the rows with the redelivery state
_LOG = Log("tidings.broker")


class _BrokerSnapshot(msgspec.Struct, frozen=True):
    """The part of a journal snapshot that only brokers write, beside what a hub writes."""

    debts: RedeliveryState
    given: dict[str, bytes]
    owed: list[tuple[int, str]] = []  # the offset of a publication, and a client that is owed a decision about it


class RecentDeliveries:
    """The latest deliveries to durable subscriptions: pairs of a subscription and an event.

    When a client moves between brokers, an event may arrive over several paths. It is delivered once.
    At most MAX_REMEMBERED_DELIVERIES are remembered. Keys are subscription objects, not ids: a subscription that ended
    and was made again has been given nothing.
    """

    def __init__(self) -> None:
        self._deliveries: dict[tuple[RegisteredSubscription, UUID], None] = {}  # the oldest first

    def record(self, subscription: RegisteredSubscription, event: UUID) -> bool:
        """Record that `event` is delivered to a subscription; return False if it was delivered to it before."""
        key = subscription, event
        if key in self._deliveries:
            return False
        self._deliveries[key] = None
        if len(self._deliveries) > MAX_REMEMBERED_DELIVERIES:
            del self._deliveries[next(iter(self._deliveries))]
        return True

    def forget(self, subscription: RegisteredSubscription, event: UUID) -> None:
        """Take back a `record`: the event was not delivered after all."""
        self._deliveries.pop((subscription, event), None)

    # Snapshot

    def state(self, subscriptions: Iterable[RegisteredSubscription]) -> dict[str, bytes]:
        """Return the events of each of these subscriptions, for a snapshot: their ids, joined, by subscription id."""
        event_ids: dict[RegisteredSubscription, list[bytes]] = {subscription: [] for subscription in subscriptions}
        for subscription, event in self._deliveries:
            if subscription in event_ids:
                event_ids[subscription].append(event.bytes)
        return {subscription.id: b"".join(events) for subscription, events in event_ids.items() if events}

    def restore(self, state: Mapping[str, bytes], subscriptions: Mapping[str, RegisteredSubscription]) -> None:
        """Restore what `state` has returned; subscriptions that no longer exist are skipped."""
        for id, events in state.items():  # noqa: A001
            if (subscription := subscriptions.get(id)) is not None:
                for start in range(0, len(events), _ID):
                    self.record(subscription, UUID(bytes=events[start : start + _ID]))


class RedeliveryOwner(Protocol):
    """The broker, which tracks what other brokers have yet to be sent."""

    @property
    def redelivery(self) -> RedeliveryTracker: ...


class BrokerJournal:
    """The `JournalExtension` of a broker.

    Args:
        stored: The journal, to read publications about which decisions are owed; None without a journal.
        broker: Tracks what other brokers have yet to be sent.
    """

    row_kinds = frozenset({_DEBTS, DECIDED})

    def __init__(self, stored: journal.Journal | None, broker: RedeliveryOwner) -> None:
        self._stored, self._broker = stored, broker
        self.saved_redelivery_state: RedeliveryState | None = None  # as it was read
        self.recent_deliveries = RecentDeliveries()
        self.pending_decisions = PendingDecisions()

    def restore_row(self, row: journal.Operation) -> None:
        if row.kind == DECIDED:
            self.pending_decisions.remove(*decided_by(row))
            return
        self.saved_redelivery_state = read_redelivery_row(row, self.saved_redelivery_state)

    def restore_event(
        self, row: journal.Operation, offset: int, subscriptions: Iterable[RegisteredSubscription]
    ) -> None:
        if row.id is not None:
            for subscription in subscriptions:
                self.recent_deliveries.record(subscription, UUID(row.id))
        for redecide in pending_decisions_of(row):
            self.pending_decisions.add(redecide, offset)

    def snapshot(self, subscriptions: Mapping[str, RegisteredSubscription]) -> bytes:
        deliveries = self.recent_deliveries.state(subscriptions.values())
        return msgspec.msgpack.encode(
            _BrokerSnapshot(self._broker.redelivery.state(), deliveries, self.pending_decisions.state())
        )

    def restore_snapshot(self, saved: bytes, subscriptions: Mapping[str, RegisteredSubscription]) -> None:
        if saved:
            extension = msgspec.msgpack.decode(saved, type=_BrokerSnapshot)
            self.saved_redelivery_state = extension.debts
            self.recent_deliveries.restore(extension.given, subscriptions)
            self._restore_pending_decisions(extension.owed)

    def _restore_pending_decisions(self, saved: list[tuple[int, str]]) -> None:
        """Read the publications before a snapshot about which decisions were still owed, by offset and client."""
        if self._stored is None:
            return
        for offset, client in saved:
            for record in self._stored.read(offset, offset + 1):
                for redecide in pending_decisions_of(record.operation):
                    if redecide.client == client:
                        self.pending_decisions.add(redecide, offset)

    def needed(self, subscriptions: Mapping[str, RegisteredSubscription]) -> int | None:
        """Return the offset from which the journal may have to be read again; None if no part of it has to be.

        Other brokers may have missed publications from there on, or clients may be owed decisions about them.
        """
        offsets = self._broker.redelivery.needed, self.pending_decisions.lowest_offset(subscriptions)
        return min((offset for offset in offsets if offset is not None), default=None)

    def disk_changed(self, error: JournalError | None) -> None:
        if error is None:
            _LOG.info("the disk has room again")
        else:
            _LOG.error("the disk is full, and publications are refused", reason=error)

    def journal_failed(self, error: JournalError) -> None:
        log_failure(error)


def log_failure(error: JournalError) -> None:
    """Log that the journal has failed."""
    _LOG.error("the journal has failed, and everything is refused until the broker is started again", reason=error)


def redelivery_row(state: RedeliveryState) -> journal.Operation:
    """Return the journal row with the whole redelivery state."""
    # Through JSON, since a row holds lists and `to_builtins` would leave tuples.
    return journal.Operation.control(_DEBTS, body=msgspec.json.decode(msgspec.json.encode(state)))


def redelivery_floor_row(floor: int) -> journal.Operation:
    """Return the journal row that changes only the floor: the offset below which everything is settled."""
    return journal.Operation.control(_DEBTS, body={"floor": floor})


def read_redelivery_row(row: journal.Operation, before: RedeliveryState | None = None) -> RedeliveryState:
    """Return the redelivery state after a row, given the state before it."""
    content = row.content()
    if len(content) == 1:
        return msgspec.structs.replace(before or RedeliveryState(), floor=content["floor"])
    return msgspec.convert(content, RedeliveryState)
