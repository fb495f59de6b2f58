"""To whom a publication is due: what its row in the journal says of durable subscriptions.

With it, what was due can be given again after a restart without deciding anew: policies, load and trust may be others.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from tidings.model.event import Event
from tidings.model.notification import Notification, Trace, shown
from tidings.model.values import Attributes

DUE = "$due"


class Changed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification that is not just the event: only what differs is written."""

    subscription: str
    attributes: dict[str, Any] | None = None
    payload: bytes | msgspec.UnsetType | None = msgspec.UNSET
    subscriptions: tuple[str, ...] = ()
    trace: tuple[Trace, ...] = ()
    signature: bytes | None = None  # of a sealed event, where its seal is not as it came: something was cut or added


def written(note: Notification, event: Event) -> str | Changed:
    """The id of the subscription alone, where it gets the event as it was published."""
    same = note.attributes is event.attributes or note.attributes == event.attributes
    is_as_sealed = note.event.signature == event.signature
    if same and note.payload == event.payload and not note.subscriptions and not note.trace and is_as_sealed:
        return note.subscription
    return Changed(
        note.subscription,
        None if same else dict(note.attributes),
        msgspec.UNSET if note.payload == event.payload else note.payload,
        note.subscriptions,
        note.trace,
        None if is_as_sealed else note.event.signature,
    )


def subscriptions(due: Iterable[Any]) -> list[str]:
    """The ids in what was written."""
    return [one if isinstance(one, str) else one["subscription"] for one in due]


def notification(due: Iterable[Any], event: Event, subscription: str, subscriber: str) -> Notification | None:
    """What the subscription gets of the event, if it is due to it."""
    for one in due:
        if one == subscription:
            return _notification(event, Changed(subscription), subscriber)
        if not isinstance(one, str) and one["subscription"] == subscription:
            return _notification(event, msgspec.convert(one, Changed), subscriber)
    return None


def _notification(event: Event, changed: Changed, subscriber: str) -> Notification:
    event = shown(event)
    attributes = event.attributes if changed.attributes is None else Attributes.trusted(changed.attributes)
    payload = event.payload if isinstance(changed.payload, msgspec.UnsetType) else changed.payload
    if attributes is not event.attributes or payload is not event.payload:
        # What a policy took away is not to be found in the event either.
        event = msgspec.structs.replace(event, attributes=attributes, payload=payload)
    if changed.signature is not None:
        event = msgspec.structs.replace(event, signature=changed.signature)
    return Notification(
        event=event,
        subscription=changed.subscription,
        subscriber=subscriber,
        attributes=attributes,
        payload=payload,
        subscriptions=changed.subscriptions,
        trace=changed.trace,
    )
