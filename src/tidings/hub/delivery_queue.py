"""The delivery queue: deliveries in the order of their publications, each withheld until its publication is on disk."""

import threading
from collections import deque
from typing import Protocol

from tidings.hub.subscription import HubSubscription
from tidings.model.notification import Notification
from tidings.runtime.outcome import OperationOutcome, ReleaseBatch, batches, expect_batch

_CALLBACK_BATCH = 64  # notifications that one callback gets before the next subscription's callback runs


class Runnable(Protocol):
    """A subscription with a callback, of which one thread at a time runs the callback."""

    def claim(self) -> bool:
        """Claim the callback for this thread; False if nothing waits or another thread runs it."""
        ...

    def run(self, limit: int) -> int:
        """Run the callback; return how many times it has raised."""
        ...

    def release(self) -> None: ...


class Callbacks:
    """Runs subscriptions' callbacks in the thread that delivered to them, and counts those that raise."""

    def __init__(self) -> None:
        self.failed = 0
        self._threads = threading.local()
        self._count_lock = threading.Lock()

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
                    failed = subscription.run(_CALLBACK_BATCH)
                    if failed:
                        with self._count_lock:
                            self.failed += failed
                finally:
                    subscription.release()
                self.wake(subscription)  # more notifications may have come, or the limit was reached
        finally:
            self._threads.running = False
            while ready:  # only after an exception: release the claims, so that other threads may run these callbacks
                ready.popleft().release()


class DeliveryQueue:
    """Releases deliveries into inboxes in publication order. `queue` needs the hub's lock; any thread may `drain`."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._batches: deque[tuple[int, ReleaseBatch[HubSubscription]]] = deque()  # after the offset to be synced
        self._drain_lock = threading.Lock()
        self._callbacks = callbacks
        self.delivered = self.lost = 0

    def queue(self, outcome: OperationOutcome[HubSubscription], first: int, meta_events_offset: int, end: int) -> None:
        """Append the deliveries of an outcome, to be released once the journal is synced up to `end`.

        Args:
            outcome: The outcome of an operation.
            first: The offset of the operation's own row.
            meta_events_offset: The offset of the first meta-event's row.
            end: The offset up to which the journal must be synced; 0 if the deliveries do not wait for the disk.
        """
        if not outcome.meta_events and not outcome.durable:
            self._batches.append((end, ReleaseBatch(outcome.deliveries, first)))
            return
        for batch in batches(outcome, first, meta_events_offset):
            self._batches.append((end, batch))
            expect_batch(batch)

    def drain(self, synced: int) -> list[tuple[HubSubscription, Notification]]:
        """Put every delivery whose rows are synced into its inbox; return the notifications lost to full inboxes.

        `synced` is the offset up to which the journal is on disk. On return, every releasable delivery that was added
        before is in its inbox, even if another thread put it there.
        """
        losses: list[tuple[HubSubscription, Notification]] = []
        with self._drain_lock:
            queue = self._batches
            while queue and queue[0][0] <= synced:
                _, (deliveries, offset) = queue.popleft()
                self.delivered += len(deliveries)
                for subscription, notification in deliveries:
                    lost = subscription.inbox.put(notification, offset)
                    if lost is not None:
                        self.lost += 1
                        losses.append((subscription, lost))
                    if subscription.callback is not None:
                        self._callbacks.wake(subscription)
        return losses
