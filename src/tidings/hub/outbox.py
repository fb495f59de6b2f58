"""The outbox: deliveries in the order of their publications, each held back until its publication is safe."""

import threading
from collections import deque
from typing import NamedTuple

from tidings.hub.callbacks import Callbacks
from tidings.hub.subscription import HubSubscription
from tidings.model.notification import Notification


class Batch(NamedTuple):
    """What one publication delivers; to be held back until everything below `after` is on the disk."""

    deliveries: list[tuple[HubSubscription, Notification]]
    offset: int  # of the publication
    after: int


class Outbox:
    """Batches are added in order, by whoever holds the hub's lock; any thread may drain."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._batches: deque[Batch] = deque()
        self._draining = threading.Lock()
        self._callbacks = callbacks
        self.delivered = self.lost = 0

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)

    def drain(self, synced: int) -> list[tuple[HubSubscription, Notification]]:
        """Puts into the inboxes what may be delivered; what was lost for it, where there was no room.

        When it returns, everything that was added before and is safe is in its inbox, whoever has put it there.
        """
        losses: list[tuple[HubSubscription, Notification]] = []
        with self._draining:
            batches = self._batches
            while batches and batches[0].after <= synced:
                deliveries, offset, _ = batches.popleft()
                self.delivered += len(deliveries)
                for subscription, note in deliveries:
                    lost = subscription.inbox.put(note, offset)
                    if lost is not None:
                        self.lost += 1
                        losses.append((subscription, lost))
                    if subscription.callback is not None:
                        self._callbacks.wake(subscription)
        return losses
