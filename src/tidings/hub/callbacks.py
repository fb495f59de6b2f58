"""Callbacks: run by the thread that delivers, one at a time per subscription, in order, and never inside each other.

A callback may publish, subscribe or unsubscribe: callbacks that this causes wait in its thread until it has returned.
"""

import threading
from collections import deque
from typing import Protocol

_TURN = 64  # notifications of one subscription before another gets its turn


class Runnable(Protocol):
    def claim(self) -> bool:
        """Whether something waits that no thread is at; if so, this thread is at it now."""
        ...

    def run(self, limit: int) -> None: ...

    def release(self) -> None: ...


class Callbacks:
    def __init__(self) -> None:
        self.failed = 0
        self._threads = threading.local()
        self._counting = threading.Lock()

    def count_failure(self) -> None:
        with self._counting:
            self.failed += 1

    def wake(self, subscription: Runnable) -> None:
        """Something was put into its inbox; `run` will see to it. Cheap, and may be called with locks held."""
        if subscription.claim():
            try:
                self._threads.ready.append(subscription)
            except AttributeError:
                self._threads.ready, self._threads.running = deque([subscription]), False

    def run(self) -> None:
        """Runs what this thread has woken, unless it is doing so already. No lock may be held."""
        ready: deque[Runnable] | None = getattr(self._threads, "ready", None)
        if not ready or self._threads.running:
            return
        self._threads.running = True
        try:
            while ready:
                one = ready.popleft()
                try:
                    one.run(_TURN)
                finally:
                    one.release()
                self.wake(one)  # more may have come, or been left
        finally:
            self._threads.running = False
            while ready:  # only if it was interrupted: others may go on with them
                ready.popleft().release()
