"""The release queue: calls that wait, in order, until everything below an offset of the journal is on disk."""

from collections import deque
from collections.abc import Callable
from typing import Any


class ReleaseQueue:
    """A first-in, first-out queue of calls, each with the offset below which the journal must be synced first.

    A call never overtakes one that was added before it, even if its own offset is synced already.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, sync_offset: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Queue the call `call(*arguments)` until everything below `sync_offset` is on disk; 0: it needs no sync."""
        self._calls.append((sync_offset, call, arguments))

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
