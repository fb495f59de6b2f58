"""What a desk asks of whoever has links to other brokers."""

from collections.abc import Callable
from typing import Any, Protocol

from tidings.engine.debts import State
from tidings.engine.effects import Effect
from tidings.model.event import Event

Task = tuple[Callable[..., None], tuple[Any, ...]]


class Neighbours(Protocol):
    """Who carries out what concerns other brokers."""

    def bound(self, effects: list[Effect]) -> list[Task]:
        """What is to be done for effects, when it is their turn: what is sent is for the links that there are now."""
        ...

    def asked(self, party: str, group: str) -> tuple[bool, int] | None:
        """Whether the party belongs to the trust group, and until when (microseconds) that need not be asked again;
        None if the party has to prove it first."""
        ...

    def published(self, event: Event, offset: int) -> None:
        """An event of a client is in the journal, or would be."""

    def is_waiting(self, offset: int) -> bool:
        """Whether the publication there has not arrived yet wherever it is due."""
        ...

    def committing(self) -> None:
        """The journal is about to be synced: what should be in it has to be written now."""

    def begin_anew(self) -> None:
        """The engine has forgotten what others have told it: at the end of this turn every link is made anew."""

    def flush(self) -> None: ...
    def debts(self) -> State: ...
    def needed(self) -> int | None:
        """From which offset on the journal may have to be read again, for other brokers."""
        ...
