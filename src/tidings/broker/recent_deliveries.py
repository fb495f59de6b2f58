"""Deduplication of durable deliveries: which events durable subscriptions of this broker were given recently.

When a client moves between brokers, an event may arrive over several paths. It is delivered once.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from tidings.hub.subscription import HubSubscription
from tidings.model.limits import MAX_REMEMBERED_DELIVERIES

_ID = 16  # bytes


class RecentDeliveries:
    """The latest deliveries to durable subscriptions: pairs of a subscription and an event.

    At most MAX_REMEMBERED_DELIVERIES are remembered. Keys are subscription objects, not ids: a subscription that ended
    and was made again has been given nothing.
    """

    def __init__(self) -> None:
        self._deliveries: dict[tuple[HubSubscription, UUID], None] = {}  # the oldest first

    def record(self, subscription: HubSubscription, event: UUID) -> bool:
        """Record that `event` is delivered to a subscription; return False if it was delivered to it before."""
        key = subscription, event
        if key in self._deliveries:
            return False
        self._deliveries[key] = None
        if len(self._deliveries) > MAX_REMEMBERED_DELIVERIES:
            del self._deliveries[next(iter(self._deliveries))]
        return True

    def forget(self, subscription: HubSubscription, event: UUID) -> None:
        """Take back a `record`: the event was not delivered after all."""
        self._deliveries.pop((subscription, event), None)

    # Snapshot

    def state(self, subscriptions: Iterable[HubSubscription]) -> dict[str, bytes]:
        """Return the events of each of these subscriptions, for a snapshot: their ids, joined, by subscription id."""
        event_ids: dict[HubSubscription, list[bytes]] = {subscription: [] for subscription in subscriptions}
        for subscription, event in self._deliveries:
            if subscription in event_ids:
                event_ids[subscription].append(event.bytes)
        return {subscription.id: b"".join(events) for subscription, events in event_ids.items() if events}

    def restore(self, state: Mapping[str, bytes], subscriptions: Mapping[str, HubSubscription]) -> None:
        """Restore what `state` has returned; subscriptions that no longer exist are skipped."""
        for id, events in state.items():  # noqa: A001
            if (subscription := subscriptions.get(id)) is not None:
                for start in range(0, len(events), _ID):
                    self.record(subscription, UUID(bytes=events[start : start + _ID]))
