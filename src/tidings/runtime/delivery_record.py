"""What an event's journal row notes about its delivery: notifications due, and decisions that are pending.

The row of a publication lists the durable subscriptions that it is due to, each with the changes that policies made to
its copy. After a restart the notifications are rebuilt from these, without matching and evaluating policies again:
policies, load and trust answers may have changed.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.effects import DecisionMade
from tidings.engine.headers import NEW, ForwardingHeader, RuleSnapshot
from tidings.engine.operations import Redecide
from tidings.filters import ContextFilter
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace, subscriber_view
from tidings.model.values import Attributes

DUE = "$due"


class NotificationChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a notification differs from its event; only the differences are written."""

    subscription: str
    attributes: dict[str, Any] | None = None
    payload: bytes | msgspec.UnsetType | None = msgspec.UNSET
    subscriptions: tuple[str, ...] = ()
    trace: tuple[Trace, ...] = ()
    signature: bytes | None = None  # the changed seal of a sealed event, after attributes were removed or added


def encode(notification: Notification, event: Event) -> str | NotificationChanges:
    """Return the journal form of a notification: the subscription id, or its `NotificationChanges` if it has any."""
    has_same_attributes = notification.attributes is event.attributes or notification.attributes == event.attributes
    is_as_sealed = notification.event.signature == event.signature
    if (
        has_same_attributes
        and notification.payload == event.payload
        and not notification.subscriptions
        and not notification.trace
        and is_as_sealed
    ):
        return notification.subscription
    return NotificationChanges(
        notification.subscription,
        None if has_same_attributes else dict(notification.attributes),
        msgspec.UNSET if notification.payload == event.payload else notification.payload,
        notification.subscriptions,
        notification.trace,
        None if is_as_sealed else notification.event.signature,
    )


def subscriptions(due: Iterable[Any]) -> list[str]:
    """Return the subscription ids in a journal row's list of due notifications."""
    return [entry if isinstance(entry, str) else entry["subscription"] for entry in due]


def notification(due: Iterable[Any], event: Event, subscription: str, subscriber: str) -> Notification | None:
    """Return the notification of the event that is due to the subscription, or None if it is not due.

    Args:
        due: The row's list of due notifications.
        event: The event of the row.
        subscription: The id of the subscription.
        subscriber: The client that owns the subscription.
    """
    for entry in due:
        if entry == subscription:
            return _notification(event, NotificationChanges(subscription), subscriber)
        if not isinstance(entry, str) and entry["subscription"] == subscription:
            return _notification(event, msgspec.convert(entry, NotificationChanges), subscriber)
    return None


def _notification(event: Event, changes: NotificationChanges, subscriber: str) -> Notification:
    event = subscriber_view(event)
    attributes = event.attributes if changes.attributes is None else Attributes.trusted(changes.attributes)
    payload = event.payload if isinstance(changes.payload, msgspec.UnsetType) else changes.payload
    if attributes is not event.attributes or payload is not event.payload:
        # What a policy removed must not appear in the notification's event either.
        event = msgspec.structs.replace(event, attributes=attributes, payload=payload)
    if changes.signature is not None:
        event = msgspec.structs.replace(event, signature=changes.signature)
    return Notification(
        event=event,
        subscription=changes.subscription,
        subscriber=subscriber,
        attributes=attributes,
        payload=payload,
        subscriptions=changes.subscriptions,
        trace=changes.trace,
    )


PENDING = "$owed"
DECIDED = "decided"  # kind of the rows which say that a pending decision was made


class PendingDecisionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pending decision (`Redecide`) in the journal row of its event, without the event itself."""

    client: str
    subscriptions: tuple[str, ...]
    journey: ForwardingHeader = NEW
    sender: str = ""
    answers: tuple[tuple[str, bool], ...] = ()
    rules: tuple[RuleSnapshot, ...] = ()


def pending_decision(redecide: Redecide) -> Any:
    """Return the journal form of a pending decision."""
    record = PendingDecisionRecord(
        redecide.client, redecide.subscriptions, redecide.journey, redecide.sender, redecide.answers, redecide.rules
    )
    return msgspec.json.decode(msgspec.json.encode(record))


def decision(decision_made: DecisionMade) -> journal.Operation:
    """Return the journal row which says that a pending decision was made."""
    return journal.Operation.control(DECIDED, client=decision_made.client, id=str(decision_made.event))


def pending_decisions_of(row: journal.Operation) -> list[Redecide]:
    """Return the decisions about a publication that were pending when its row was written."""
    data = journal_codec.driver_notes(row).get(PENDING, ())
    if not data:
        return []
    event = row.event(ContextFilter.parse)
    records = msgspec.convert(data, list[PendingDecisionRecord])
    return [Redecide(event, *msgspec.structs.astuple(record)) for record in records]


def decided_by(row: journal.Operation) -> tuple[UUID, str]:
    """Return the event id and the client of a row that `decision` made."""
    return UUID(row.id or ""), row.client or ""
