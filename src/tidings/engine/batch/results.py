"""Collect the results of a batch while it runs: copies as columns, everything else as rows.

Events are numbered: an event of the table by its row, a meta-event from the number of rows on.
"""

from typing import Any

import numpy as np

from tidings.engine.batch.transformations import (
    Transformation,
    Transformations,
    transformation_between,
    transformation_of_changes,
    transformation_of_projection,
)
from tidings.engine.effects import (
    AskTrust,
    Deliver,
    Effect,
    LogMessage,
    MetaEventPublished,
    Persist,
    Reject,
)
from tidings.engine.state.filters import FilterEntry, FilterTable
from tidings.engine.state.recipients import RecipientColumns, RecipientCopies, concat_copies
from tidings.engine.steps.govern import Delivery
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription


class CopyCollector:
    """The copies of a batch so far, as columns, and the shapes that they have."""

    def __init__(self) -> None:
        self.shapes = Transformations()
        self._parts: list[RecipientCopies] = []
        self._single: list[tuple[int, int, int]] = []
        self._places: dict[int, int] = {}
        self._subscriptions: list[Subscription] = []  # of single copies, as they were at that time

    def add_copies(self, event: Any, place: Any, entries: list[FilterEntry[Subscription]], shape: Any) -> None:
        """Record many copies.

        Args:
            event: The number of each copy's event.
            place: The position of each copy's subscription in `entries`.
            entries: The subscriptions.
            shape: The shape of each copy.
        """
        if len(event):
            self.add_columns(event, place, RecipientColumns.of([entry.value for entry in entries]), shape)

    def add_columns(self, event: Any, place: Any, directory: RecipientColumns, shape: Any) -> None:
        """Record many copies.

        Args:
            event: The number of each copy's event.
            place: The position of each copy's subscription in `directory`.
            directory: The subscriptions.
            shape: The shape of each copy.
        """
        self._parts.append(RecipientCopies(event, place, shape, directory))

    def add_delivery(self, event: int, delivery: Delivery) -> None:
        """Record the copies of a delivery that the engine's own steps decided."""
        shape = self.shapes.number(transformation_of_changes(delivery.changes))
        self._single += [(event, self._subscription_number(entry.value), shape) for entry in delivery.subscriptions]

    def add_static_copies(self, event: int, entries: list[FilterEntry[Subscription]]) -> None:
        """Record copies of one event, as published or with the projections that their rules always make."""
        for entry in entries:
            shape = (
                0 if entry.projection is None else self.shapes.number(transformation_of_projection(entry.projection))
            )
            self._single.append((event, self._subscription_number(entry.value), shape))

    def add_notification(self, number: int, event: Event, note: Notification, table: FilterTable[Subscription]) -> None:
        """Record the copies of a notification that the engine made.

        Args:
            number: The number of the event.
            event: The event as published.
            note: The notification.
            table: The subscriptions that the notification names.
        """
        shape = self.shapes.number(transformation_between(event, note))
        for name in note.subscriptions or (note.subscription,):
            self._single.append((number, self._subscription_number(table[name].value), shape))

    def deliveries(self) -> RecipientCopies:
        """Return all copies, sorted by event; the copies of an event are in the order of recording."""
        single = np.array(self._single, np.int64).reshape(-1, 3)
        parts = list(self._parts)
        if len(single) or not parts:
            shapes = single[:, 2].astype(np.int32)
            parts.append(RecipientCopies(single[:, 0], single[:, 1], shapes, RecipientColumns.of(self._subscriptions)))
        if len(parts) == 1 and not len(single):
            return parts[0]
        event, place, shape, directory = concat_copies(parts)
        order = np.argsort(event, kind="stable")
        return RecipientCopies(event[order], place[order], shape[order], directory)

    def transformation(self, number: int) -> Transformation:
        """Return the transformation with this number."""
        return self.shapes.distinct[number]

    def _subscription_number(self, subscription: Subscription) -> int:
        number = self._places.get(id(subscription))
        if number is None:
            number = self._places[id(subscription)] = len(self._subscriptions)
            self._subscriptions.append(subscription)  # a reference, so that Python does not reuse its id
        return number


class ResultCollector:
    """The results of a batch so far; `rows` is the number of rows in the table."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.copies = CopyCollector()
        self.rejected: list[tuple[int, str, str]] = []
        self.meta_events: list[tuple[Event, int]] = []  # meta-event, number of the event that caused it
        self.logs: list[tuple[int, str]] = []
        self.persists: list[tuple[int, Persist]] = []
        self.asks: list[tuple[int, str, str]] = []

    def reject(self, event: int, step: str, reason: str) -> None:
        """Record that an operation was refused."""
        self.rejected.append((event, step, reason))

    def add_meta_event(self, event: Event, cause: int) -> int:
        """Record a meta-event, and return its number."""
        self.meta_events.append((event, cause))
        return self.rows + len(self.meta_events) - 1

    def add_effects(
        self, number: int, event: Event | None, effects: list[Effect], subscriptions: FilterTable[Subscription]
    ) -> None:
        """Record the effects that the engine returned for one operation.

        Args:
            number: The number of the event, or the row of another operation.
            event: The event, if the operation is a publication.
            effects: The effects.
            subscriptions: The subscriptions that the effects name.
        """
        cause = number
        for effect in effects:
            match effect:
                case Deliver(note) if event is not None:
                    self.copies.add_notification(number, event, note, subscriptions)
                case MetaEventPublished(event):
                    number = self.add_meta_event(event, cause)
                case Reject(step, reason):
                    self.reject(number, step, reason)
                case LogMessage(line):
                    self.logs.append((number, line))
                case Persist():
                    self.persists.append((number, effect))
                case AskTrust(party, group):
                    self.asks.append((number, party, group))
