"""Sealed events in the engine: where they are checked, which subscribers get them, and what they are shown.

1. A client's publication is checked once, where it is published. One that waits, for routing tables or a trust answer,
   is not taken for a replay of itself.
2. Brokers on the way forward a sealed event only toward subscriptions with a token for its topic. Such subscriptions
   neither cover others nor are covered, so every broker on the way sees their tokens.
3. Notifications and forwarded copies are trimmed: they lack what would reveal removed attributes.
"""

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.engine.effects import Deliver, Effect, LogMessage, PublicationSettled, Reject, Send
from tidings.engine.message import Refusal, TokenRights
from tidings.engine.operations import Publish, Republish
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.turn import Turn
from tidings.model.errors import SecurityError

if TYPE_CHECKING:
    from tidings.engine.message import PublicationMessage
    from tidings.engine.state.filters import FilterEntry
    from tidings.model.event import Event
    from tidings.model.notification import Notification
    from tidings.model.subscription import Subscription
    from tidings.security.gate import DeliveryGate, StoredEventGate


# At the ingress, and from neighbours


def publish(turn: Turn, operation: Publish, run: Callable[[Publish, str], list[Effect]]) -> list[Effect]:
    """Check a client's publication and `run` it. One that is refused may be published again: it was not accepted."""
    event = operation.event
    try:
        check_at_gate(turn, event)
    except Refusal as refusal:
        return [Reject(refusal.step, refusal.reason)]
    effects = run(operation, event.publisher)
    is_refused = any(isinstance(effect, Reject) for effect in effects)
    if not is_refused or any(isinstance(effect, Deliver | Send) for effect in effects):
        remember_event(turn, event)
    return effects


def check_at_gate(turn: Turn, event: "Event") -> None:
    """Check a client's publication at the gate. Raises `Refusal`."""
    gate = turn.gate
    if gate is None:
        return
    try:
        gate.check(event, turn.now)
    except SecurityError as error:
        gate.refused[error.check] += 1
        raise Refusal("admit", error.reason) from None


def remember_event(turn: Turn, event: "Event") -> None:
    """Remember an accepted event, so that a replay of it is refused."""
    if turn.gate is not None and event.signature is not None:
        turn.gate.ingress.record(event.publisher, turn.gate.seal_of(event))


def refuse_from_neighbour(turn: Turn, operation: Publish, neighbour: str) -> list[Effect] | None:
    """Return the effects of refusing a neighbour's event that fails the gate; None if it passes.

    A redelivered event is checked as of the time at which it was accepted.
    """
    event, journey, gate = operation.event, operation.journey, turn.gate
    is_brokers_own = journey.meta and (
        event.publisher in turn.state.links.topology.brokers or event.publisher == neighbour
    )
    if gate is None or turn.topic_gossip is None or is_brokers_own:
        return None
    try:
        gate.pass_on(event, min(event.timestamp, turn.now) if journey.route.round else turn.now)
    except SecurityError as error:
        effects: list[Effect] = [Reject("admit", error.reason)]
        if event.token is None and event.signature is None:
            effects += turn.topic_gossip.remind(neighbour, event)
        return effects + turn.settlement.refused((event.id, journey.route.round), neighbour)
    return None


def refuse_resend(turn: Turn, operation: Republish) -> list[Effect] | None:
    """Return the effects if a journaled event is not sent again because its publisher was revoked; None otherwise."""
    if turn.gate is None:
        return None
    try:
        turn.gate.check_stored(operation.event, operation.event.timestamp)
    except SecurityError as error:
        line = f"the event {operation.event.id} is not sent again: {error.reason}"
        return [LogMessage(line), PublicationSettled(operation.event.id, operation.round)]
    return None


def admit_subscription(turn: Turn, subscription: "Subscription") -> None:
    """Check a subscription's token. Raises `Refusal`; also if it asks only for a secure topic and has no token."""
    gate, topic_gossip = turn.gate, turn.topic_gossip
    if gate is None or topic_gossip is None or turn.is_replaying:  # each event is checked again
        return
    if subscription.token is not None:
        try:
            gate.subscription(subscription.token, subscription.subscriber, turn.now)
        except SecurityError as error:
            raise Refusal("admit", error.reason) from None
        return
    record = topic_gossip.token_requirements.of(subscription)
    if record is not None:
        gate.refused["token"] += 1
        raise Refusal("admit", f"the topic {record.template} is secure: subscribe with a token for it")


# Recipients


def subscriptions_with_token(
    turn: Turn, message: "PublicationMessage", wanted: list["FilterEntry[Subscription]"]
) -> list["FilterEntry[Subscription]"]:
    """Return the subscriptions whose token lets them get a sealed event now.

    Subscriptions to the topic alone that lack a token become the `subscriptions_without_token` of the message's
    `TokenRights` and are expelled.
    """
    gate, topic_gossip, event = turn.gate, turn.topic_gossip, message.event
    if gate is None or topic_gossip is None:
        return wanted
    topic, now = gate.seal_of(event).topic, turn.now
    found: list[FilterEntry[Subscription]] = []
    without_token: list[FilterEntry[Subscription]] = []
    for entry in wanted:
        token = entry.value.token
        if token is not None:
            if gate.may_get(token, entry.owner, event, topic, now):
                found.append(entry)
        elif not entry.is_own and topic_gossip.token_requirements.of(entry.value) is not None:
            without_token.append(entry)
    if message.tokens is not None:
        message.tokens.subscriptions_without_token = without_token
    return found


def is_for(turn: Turn, entry: "FilterEntry[Subscription]", event: "Event") -> bool:
    """Whether a subscription may get the event, as far as its token says; its own broker checks again."""
    gate, token = turn.gate, entry.value.token
    if gate is None or event.signature is None:
        return True
    return token is not None and gate.may_get(token, entry.owner, event, gate.seal_of(event).topic, turn.now, cut=True)


def may_keep(state: BrokerState, gate: "StoredEventGate | None", note: "Notification", now: int) -> bool:
    """Whether a notification that came from a moved client's former broker is stored for the client.

    If the subscription is not here yet, the notification is stored, and checked when it is delivered.

    Args:
        state: The state of the broker.
        gate: The gate of the broker.
        note: The notification.
        now: The time in microseconds.
    """
    try:
        if state.filters.subscriptions.get(note.subscription) is not None:
            check_notification(state, gate, note, now)
    except SecurityError:
        return False
    return True


def check_notification(state: BrokerState, gate: "StoredEventGate | None", note: "Notification", now: int) -> None:
    """Raise `SecurityError` unless a stored notification may still be delivered.

    Args:
        state: The state of the broker.
        gate: The gate of the broker.
        note: The notification.
        now: The time in microseconds.
    """
    event = note.event
    if gate is None or event.signature is None:
        return
    gate.check_stored(event, event.timestamp)
    entry = state.filters.subscriptions.get(note.subscription)
    token = None if entry is None else entry.value.token
    gate.check_get(token, note.subscriber, event, gate.seal_of(event).topic, now, cut=True)


# Dry runs: nothing is counted or remembered


def check_publication(turn: Turn, event: "Event", *, accepted: bool) -> None:
    """Raise `Refusal` if an event may not be published now, or, if it was accepted, not be delivered again."""
    if turn.gate is None:
        return
    try:
        if accepted:
            turn.gate.check_stored(event, event.timestamp)
        else:
            turn.gate.check(event, turn.now)
    except SecurityError as error:
        raise Refusal("admit", error.reason) from None


def check_receiver(turn: Turn, event: "Event", entry: "FilterEntry[Subscription]") -> bool:
    """Raise `Refusal` if a subscription may not get a sealed event; return whether there was anything to check."""
    gate = turn.gate
    if gate is None or event.signature is None:
        return False
    try:
        gate.check_get(entry.value.token, entry.owner, event, gate.seal_of(event).topic, turn.now)
    except SecurityError as error:
        raise Refusal("token", error.reason) from None
    return True


# Governing


def governs(turn: Turn, event: "Event", client: str) -> bool:
    """Whether a token of one of a client's subscriptions lets it govern a sealed event."""
    gate = turn.gate
    if gate is None or event.signature is None:
        return False
    tokens = (entry.value.token for entry in turn.state.filters.subscriptions.of(client))
    topic = gate.seal_of(event).topic
    return any(token is not None and gate.may_govern(token, client, event, topic, turn.now) for token in tokens)


def let_govern(turn: Turn, message: "PublicationMessage") -> None:
    """Let the owners of tokens that allow it govern a sealed event; their tokens are checked when rules are matched."""
    if turn.gate is not None and message.event.signature is not None:
        message.tokens = TokenRights(partial(governs, turn, message.event))


# Trimming


def trim_for_subscriber(gate: "DeliveryGate | None", event: "Event", added: Mapping[str, Any] | None = None) -> "Event":
    """Return a sealed event as a subscriber gets it: without the salts of removed attributes, added ones signed."""
    try:
        if gate is not None:
            return gate.shown(event, added)
        return _trimmed(event, shown=True, added=added or ())
    except SecurityError:
        return event  # the seal is invalid, so it has no salts; a gate would have refused it


def trim_for_neighbour(event: "Event") -> "Event":
    """Return an event as a neighbour gets it after attributes were removed: without their salts."""
    if event.signature is None:
        return event
    try:
        return _trimmed(event, shown=False)
    except SecurityError:
        return event


def _trimmed(event: "Event", *, shown: bool, added: Container[str] = ()) -> "Event":
    from tidings.security.sealing import envelope  # imports the cryptography packages

    return envelope.trim(event, for_subscriber=shown, added=added)
