"""What was accepted while its receiver was being challenged: the receiver is owed a decision about it.

As long as the receiver is connected, the engine waits for its proof. What the end of the connection, or of the process,
takes along is judged again when the receiver is here again, in its order, before anything new comes to it.
"""

from collections.abc import Container
from uuid import UUID

from tidings.engine.operations import Judge


class Undecided:
    """By client and event; at most as many for a client as the engine lets wait."""

    def __init__(self) -> None:
        self._owed: dict[str, dict[UUID, tuple[Judge, int]]] = {}  # with the offset, the oldest first

    def note(self, judge: Judge, offset: int) -> None:
        """One that is known stays where it is, though it waits again."""
        self._owed.setdefault(judge.client, {}).setdefault(judge.event.id, (judge, offset))

    def knows(self, event: UUID, client: str) -> bool:
        return event in self._owed.get(client, ())

    def decided(self, event: UUID, client: str) -> None:
        owed = self._owed.get(client)
        if owed is not None:
            owed.pop(event, None)
            if not owed:
                del self._owed[client]

    def of(self, client: str) -> list[Judge]:
        return [judge for judge, _ in self._owed.get(client, {}).values()]

    def floor(self, subscriptions: Container[str]) -> int | None:
        """The offset of the oldest that may still be given to one of these subscriptions."""
        return min(
            (
                offset
                for owed in self._owed.values()
                for judge, offset in owed.values()
                if any(one in subscriptions for one in judge.subscriptions)
            ),
            default=None,
        )

    def state(self) -> list[tuple[int, str]]:
        """For a snapshot: where the rows are that say it, and to whom a decision about them is still owed."""
        return [(offset, client) for client, owed in self._owed.items() for _, offset in owed.values()]
