"""What is to go out, in order: each thing is held back until everything below its offset is on the disk."""

from collections import deque
from collections.abc import Callable
from typing import Any


class Outgoing:
    """First in, first out, whatever it is: so nothing overtakes what came before it."""

    def __init__(self) -> None:
        self._things: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._things)

    def add(self, after: int, act: Callable[..., Any], *about: Any) -> None:
        """`act(*about)` is to be done once everything below `after` is safe."""
        self._things.append((after, act, about))

    def given_up(self) -> list[tuple[int, Callable[..., Any], tuple[Any, ...]]]:
        """Everything that waits, which is forgotten here."""
        things, self._things = self._things, deque()
        return list(things)

    @property
    def wants(self) -> int:
        """Up to where the disk must have got for the first of them to go; 0: it may go now."""
        return self._things[0][0] if self._things else 0

    def drain(self, synced: int) -> None:
        things = self._things
        while things and things[0][0] <= synced:
            _, act, about = things.popleft()
            act(*about)
