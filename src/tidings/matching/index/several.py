"""Several events, as they are: a batch without a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.matching.documents import text_of
from tidings.matching.index.batch import Batch
from tidings.matching.index.columns import Columns, Events
from tidings.matching.index.scopes import Others, Scopes
from tidings.model.event import Event
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.values import Context


class Several(Batch):
    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.size = len(events)
        self.has_contexts = any(event.context for event in events)
        self.has_subscribers = any(event.subscribers is not None for event in events)
        self._contexts = None

    def encoded(self, columns: Columns) -> Events:
        if not columns.asks_system:
            return columns.encode_rows([event.attributes for event in self._events])
        has_payload = PAYLOAD in columns.numbers
        return columns.encode_rows([_everything(event, has_payload) for event in self._events])

    def row(self, event: int) -> Mapping[str, Any]:
        given = self._events[event]
        return {**given.attributes, SUBJECT: given.subject, PUBLISHER: given.publisher, PAYLOAD: given.payload}

    def subscribers(self) -> list[str | None]:
        return [None if event.subscribers is None else str(event.subscribers) for event in self._events]

    def context(self, event: int) -> Context:
        return self._events[event].context

    def _encoded_contexts(self, scopes: Scopes) -> Others:
        return scopes.publishers([event.context for event in self._events])


def _everything(event: Event, has_payload: bool) -> Mapping[str, Any]:
    """With what the system says of it, as far as some filter asks."""
    text = text_of(event.payload) if has_payload else None
    return {**event.attributes, SUBJECT: event.subject, PUBLISHER: event.publisher, PAYLOAD: text}
