"""Questions to a hub that change nothing: what was, what would be, and why."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidings.hub.history import Since
from tidings.hub.roster import NOTHING
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.model.event import Event, checked_payload, checked_subject
from tidings.model.identity import uuid7
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes
from tidings.texts import context_filter, policy_text

if TYPE_CHECKING:
    from tidings.hub.desk import Desk
    from tidings.model.explanation import Explanation


def replayed(desk: "Desk", ids: list[str], since: Since) -> Iterator[Notification]:
    """What the subscriptions would get if the events since then came now."""
    if desk.archive is None:
        raise InvalidValueError("a hub without a folder keeps no events to replay; Hub(folder) does")
    return _replayed(desk, ids, desk.archive.history.events(since))


def _replayed(desk: "Desk", ids: list[str], events: Iterator[tuple[int, Event]]) -> Iterator[Notification]:
    for _, event in events:
        yield from replayed_from(desk, ids, event)


def replayed_from(desk: "Desk", ids: list[str], event: Event) -> Iterator[Notification]:
    """What the subscriptions would get of one event."""
    given: set[str] = set()  # with notify="client" one notification answers several of them
    for id in ids:  # noqa: A001
        if id in given:
            continue
        with desk.guard:
            note = desk.engine.preview(event, id, desk.now(), desk.trusts)
        if note is not None:
            given.update(note.subscriptions)
            yield note


def past_event(desk: "Desk", given: Any) -> Event | None:
    """The event that is meant, if it is a past one; None if what is given describes one that might come."""
    if isinstance(given, Receipt | Notification):
        return given.event
    if isinstance(given, Event):
        return given
    if not isinstance(given, UUID | str):
        return None
    try:
        id = given if isinstance(given, UUID) else UUID(given)  # noqa: A001
    except ValueError:
        raise InvalidValueError(f"{given!r} is no event: give its id, its receipt, or attributes") from None
    if desk.archive is None:
        raise InvalidValueError("a hub without a folder keeps no events; give the receipt, or attributes")
    found = desk.archive.history.event(id)
    if found is None:
        raise RefusedError("admit", f"the journal has no event {id}")
    return found


def possible_event(
    desk: "Desk",
    publisher: str,
    attributes: Mapping[str, Any],
    *,
    subscribers: Any = None,
    payload: bytes | None = None,
    subject: str | None = None,
    policy: Any = None,
) -> Event:
    """The event that it would be if the publisher published it now."""
    checked = Attributes.of(attributes)
    with desk.guard:
        now = desk.now()
        return Event(
            id=uuid7(now, desk.clock.entropy()),
            publisher=publisher,
            timestamp=now,
            sequence=desk.roster.sequences.get(publisher, 0) + 1,
            attributes=checked,
            subject=checked_subject(subject),
            payload=checked_payload(payload) if payload else None,
            context=desk.roster.contexts.get(publisher, NOTHING),
            subscribers=context_filter(subscribers),
            policy=policy_text(policy),
        )


def explained(
    desk: "Desk",
    event: Event,
    subscription: str | None,
    client: str | None,
    viewer: str | None = None,
    *,
    is_past: bool = False,
    links_down: Collection[str] = (),
) -> "list[Explanation]":
    """Of one subscription, or of all that a client has; `viewer` is who asks, None is the operator. `links_down` are
    the neighbours whose links are configured and down."""
    with desk.guard:
        found = desk.engine.explain(
            event,
            subscription=subscription,
            client=client,
            viewer=viewer,
            trusts=desk.trusts,
            accepted=is_past,
            links_down=links_down,
        )
    if subscription is not None and not found:
        raise RefusedError("admit", f"there is no subscription {subscription} that {viewer or 'anybody'} may ask about")
    return found
