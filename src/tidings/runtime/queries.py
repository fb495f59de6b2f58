"""Read-only queries: replay past events, and explain why an event does or does not reach a subscription."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tidings.coerce import context_filter, policy_text
from tidings.engine import Engine
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.model.event import Event, checked_payload, checked_subject
from tidings.model.identity import uuid7
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes
from tidings.runtime.clock import Clock
from tidings.runtime.due_from_journal import JournalHistory, Since
from tidings.runtime.subscription_registry import EMPTY_CONTEXT, SubscriptionRegistry

if TYPE_CHECKING:
    from tidings.model.explanation import Explanation


class QueriedState(Protocol):
    """The state that queries read; a `Processor` has it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def lock(self) -> AbstractContextManager[None]: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def registry(self) -> SubscriptionRegistry[Any]: ...

    @property
    def history(self) -> JournalHistory | None:
        """Reads the journal; None if there is none."""
        ...

    def now(self) -> int:
        """Return the acceptance time. The lock is held."""
        ...

    def trusts(self, party: str, group: str) -> bool:
        """Ask the trust provider whether `party` belongs to `group`, without caching the answer."""
        ...


def replay_events(state: QueriedState, ids: list[str], since: Since) -> Iterator[Notification]:
    """Replay the journaled events from `since` on: yield the notifications that the subscriptions would get now.

    Raises:
        InvalidValueError: The hub has no journal.
    """
    if state.history is None:
        raise InvalidValueError("a hub without a folder keeps no events to replay; Hub(folder) does")
    return _replayed(state, ids, state.history.events(since))


def _replayed(state: QueriedState, ids: list[str], events: Iterator[tuple[int, Event]]) -> Iterator[Notification]:
    for _, event in events:
        yield from preview_event(state, ids, event)


def preview_event(state: QueriedState, ids: list[str], event: Event) -> Iterator[Notification]:
    """Yield the notifications that the subscriptions would get if `event` were published now."""
    notified: set[str] = set()  # subscriptions with a notification: with notify="client" one covers several
    for id in ids:  # noqa: A001
        if id in notified:
            continue
        with state.lock:
            notification = state.engine.preview(event, id, state.now(), state.trusts)
        if notification is not None:
            notified.update(notification.subscriptions)
            yield notification


def past_event(state: QueriedState, event_or_id: Any) -> Event | None:
    """Return the past event that `event_or_id` identifies, or None if it holds attributes of a possible event.

    `event_or_id` is an event, a receipt, a notification, or the id of an event in the journal.

    Raises:
        InvalidValueError: `event_or_id` is an id, and malformed, or the hub has no journal.
        RefusedError: The journal has no event of that id.
    """
    if isinstance(event_or_id, Receipt | Notification):
        return event_or_id.event
    if isinstance(event_or_id, Event):
        return event_or_id
    if not isinstance(event_or_id, UUID | str):
        return None
    try:
        id = event_or_id if isinstance(event_or_id, UUID) else UUID(event_or_id)  # noqa: A001
    except ValueError:
        raise InvalidValueError(f"{event_or_id!r} is no event: give its id, its receipt, or attributes") from None
    if state.history is None:
        raise InvalidValueError("a hub without a folder keeps no events; give the receipt, or attributes")
    event = state.history.event(id)
    if event is None:
        raise RefusedError("admit", f"the journal has no event {id}")
    return event


def possible_event(
    state: QueriedState,
    publisher: str,
    attributes: Mapping[str, Any],
    *,
    subscribers: Any = None,
    payload: bytes | None = None,
    subject: str | None = None,
    policy: Any = None,
) -> Event:
    """Return the event that would result if `publisher` published these values now, without publishing it.

    Args:
        state: The state to query.
        publisher: The publishing client, whose context and sequence the event gets.
        attributes: The event's attributes.
        subscribers: Filter over subscribers' contexts.
        payload: The event's payload.
        subject: The event's subject.
        policy: The policy attached to the event.
    """
    checked = Attributes.of(attributes)
    with state.lock:
        now = state.now()
        return Event(
            id=uuid7(now, state.clock.entropy()),
            publisher=publisher,
            timestamp=now,
            sequence=state.registry.events.sequences.get(publisher, 0) + 1,
            attributes=checked,
            subject=checked_subject(subject),
            payload=checked_payload(payload) if payload else None,
            context=state.registry.contexts.get(publisher, EMPTY_CONTEXT),
            subscribers=context_filter(subscribers),
            policy=policy_text(policy),
        )


def explain_event(
    state: QueriedState,
    event: Event,
    subscription: str | None,
    client: str | None,
    viewer: str | None = None,
    *,
    is_past: bool = False,
    links_down: Collection[str] = (),
) -> "list[Explanation]":
    """Explain an event's way to one subscription, or to each subscription of a client.

    Args:
        state: The state to query.
        event: The event to explain.
        subscription: The subscription's id, or None.
        client: The client whose subscriptions to explain, if no subscription is given.
        viewer: The client that asks, and sees only what it may; None for the operator.
        is_past: Whether the event was accepted before, so that admission is not checked again.
        links_down: The neighbours whose links are configured but down.

    Raises:
        RefusedError: The subscription does not exist, or `viewer` may not ask about it.
    """
    with state.lock:
        explanations = state.engine.explain(
            event,
            subscription=subscription,
            client=client,
            viewer=viewer,
            trusts=state.trusts,
            accepted=is_past,
            links_down=links_down,
        )
    if subscription is not None and not explanations:
        raise RefusedError("admit", f"there is no subscription {subscription} that {viewer or 'anybody'} may ask about")
    return explanations
