"""The delivery queue: deliveries in the order of their publications, each withheld until its publication is on disk."""

import threading
from collections import deque
from typing import NamedTuple, Protocol

from tidings.hub.subscription import HubSubscription
from tidings.model.notification import Notification

_CALLBACK_BATCH = 64  # notifications that one callback gets before the next subscription's callback runs


class Runnable(Protocol):
    """A subscription with a callback, of which one thread at a time runs the callback."""

    def claim(self) -> bool:
        """Claim the callback for this thread; False if nothing waits or another thread runs it."""
        ...

    def run(self, limit: int) -> None: ...

    def release(self) -> None: ...


class Callbacks:
    """Runs subscriptions' callbacks in the thread that delivered to them, and counts those that raise."""

    def __init__(self) -> None:
        self.failed = 0
        self._threads = threading.local()
        self._count_lock = threading.Lock()

    def count_failure(self) -> None:
        with self._count_lock:
            self.failed += 1

    def wake(self, subscription: Runnable) -> None:
        """Schedule the subscription's callback for this thread's next `run`. Cheap; may be called with locks held."""
        if subscription.claim():
            try:
                self._threads.ready.append(subscription)
            except AttributeError:
                self._threads.ready, self._threads.running = deque([subscription]), False

    def run(self) -> None:
        """Run the callbacks that this thread has scheduled, unless it is doing so already. No lock may be held."""
        ready: deque[Runnable] | None = getattr(self._threads, "ready", None)
        if not ready or self._threads.running:
            return
        self._threads.running = True
        try:
            while ready:
                subscription = ready.popleft()
                try:
                    subscription.run(_CALLBACK_BATCH)
                finally:
                    subscription.release()
                self.wake(subscription)  # more notifications may have come, or the limit was reached
        finally:
            self._threads.running = False
            while ready:  # only after an exception: release the claims, so that other threads may run these callbacks
                ready.popleft().release()


class ReleaseBatch(NamedTuple):
    """The deliveries of one publication, to be released once the journal is synced up to `after`."""

    deliveries: list[tuple[HubSubscription, Notification]]
    offset: int  # the publication's journal offset
    after: int


class DeliveryQueue:
    """Releases deliveries into inboxes in publication order. `add` needs the hub's lock; any thread may `drain`."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._batches: deque[ReleaseBatch] = deque()
        self._drain_lock = threading.Lock()
        self._callbacks = callbacks
        self.delivered = self.lost = 0

    def add(self, batch: ReleaseBatch) -> None:
        """Append the deliveries of a publication. The hub's lock is held."""
        self._batches.append(batch)

    def drain(self, synced: int) -> list[tuple[HubSubscription, Notification]]:
        """Put every delivery whose rows are synced into its inbox; return the notifications lost to full inboxes.

        `synced` is the offset up to which the journal is on disk. On return, every releasable delivery that was added
        before is in its inbox, even if another thread put it there.
        """
        losses: list[tuple[HubSubscription, Notification]] = []
        with self._drain_lock:
            batches = self._batches
            while batches and batches[0].after <= synced:
                deliveries, offset, _ = batches.popleft()
                self.delivered += len(deliveries)
                for subscription, notification in deliveries:
                    lost = subscription.inbox.put(notification, offset)
                    if lost is not None:
                        self.lost += 1
                        losses.append((subscription, lost))
                    if subscription.callback is not None:
                        self._callbacks.wake(subscription)
        return losses
