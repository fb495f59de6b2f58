"""Sealed events in the engine: where they are checked, which subscribers get them, and what they are shown.

1. A client's publication is checked once, where it is published. One that waits, for routing tables or a trust answer,
   is not taken for a replay of itself.
2. Brokers on the way forward a sealed event only toward subscriptions with a token for its topic. Such subscriptions
   neither cover others nor are covered, so every broker on the way sees their tokens.
3. Notifications and forwarded copies are trimmed: they lack what would reveal removed attributes.
"""

from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.engine import meta_events
from tidings.engine.effects import Deliver, Effect, LogMessage, PublicationSettled, Reject, Send, SubscriptionExpelled
from tidings.engine.message import Refusal
from tidings.engine.operations import Publish, Republish, Unsubscribe
from tidings.model.errors import SecurityError

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.engine.message import PublicationMessage
    from tidings.engine.state.filters import FilterEntry
    from tidings.model.event import Event
    from tidings.model.notification import Notification
    from tidings.model.subscription import Subscription
    from tidings.security.gate import DeliveryGate


# At the ingress, and from neighbours


def publish(engine: "Engine", operation: Publish) -> list[Effect]:
    """Check and run a client's publication. One that is refused may be published again, since it was not accepted."""
    event = operation.event
    try:
        check_at_gate(engine, event)
    except Refusal as refusal:
        return [Reject(refusal.step, refusal.reason)]
    effects = engine.run_client_operation(operation, event.publisher)
    is_refused = any(isinstance(effect, Reject) for effect in effects)
    if not is_refused or any(isinstance(effect, Deliver | Send) for effect in effects):
        remember_event(engine, event)
    return effects


def check_at_gate(engine: "Engine", event: "Event") -> None:
    """Check a client's publication at the gate. Raises `Refusal`."""
    gate = engine.gate
    if gate is None:
        return
    try:
        gate.check(event, engine.now)
    except SecurityError as error:
        gate.refused[error.check] += 1
        raise Refusal("admit", error.reason) from None


def remember_event(engine: "Engine", event: "Event") -> None:
    """Remember an accepted event, so that a replay of it is refused."""
    if engine.gate is not None and event.signature is not None:
        engine.gate.ingress.record(event.publisher, engine.gate.seal_of(event))


def refuse_from_neighbour(engine: "Engine", operation: Publish, neighbour: str) -> list[Effect] | None:
    """Return the effects of refusing a neighbour's event that fails the gate; None if it passes.

    A redelivered event is checked as of the time at which it was accepted.
    """
    event, journey, gate = operation.event, operation.journey, engine.gate
    is_brokers_own = journey.meta and (event.publisher in engine.topology.brokers or event.publisher == neighbour)
    if gate is None or engine.topic_gossip is None or is_brokers_own:
        return None
    try:
        gate.pass_on(event, min(event.timestamp, engine.now) if journey.route.round else engine.now)
    except SecurityError as error:
        effects: list[Effect] = [Reject("admit", error.reason)]
        if event.token is None and event.signature is None:
            effects += engine.topic_gossip.remind(neighbour, event)
        return effects + engine.settlement.refused((event.id, journey.route.round), neighbour)
    return None


def refuse_resend(engine: "Engine", operation: Republish) -> list[Effect] | None:
    """Return the effects if a journaled event is not sent again because its publisher was revoked; None otherwise."""
    if engine.gate is None:
        return None
    try:
        engine.gate.check_stored(operation.event, operation.event.timestamp)
    except SecurityError as error:
        line = f"the event {operation.event.id} is not sent again: {error.reason}"
        return [LogMessage(line), PublicationSettled(operation.event.id, operation.round)]
    return None


def admit_subscription(engine: "Engine", subscription: "Subscription") -> None:
    """Check a subscription's token. Raises `Refusal`; also if it asks only for a secure topic and has no token."""
    gate, topic_gossip = engine.gate, engine.topic_gossip
    if gate is None or topic_gossip is None or engine.is_replaying:  # each event is checked again
        return
    if subscription.token is not None:
        try:
            gate.subscription(subscription.token, subscription.subscriber, engine.now)
        except SecurityError as error:
            raise Refusal("admit", error.reason) from None
        return
    record = topic_gossip.token_requirements.of(subscription)
    if record is not None:
        gate.refused["token"] += 1
        raise Refusal("admit", f"the topic {record.template} is secure: subscribe with a token for it")


# Recipients


def subscriptions_with_token(
    engine: "Engine", message: "PublicationMessage", wanted: list["FilterEntry[Subscription]"]
) -> list["FilterEntry[Subscription]"]:
    """Return the subscriptions whose token lets them get a sealed event now.

    Subscriptions to the topic alone that lack a token become `subscriptions_without_token` of the message and are
    expelled.
    """
    gate, topic_gossip, event = engine.gate, engine.topic_gossip, message.event
    if gate is None or topic_gossip is None:
        return wanted
    topic, now = gate.seal_of(event).topic, engine.now
    found: list[FilterEntry[Subscription]] = []
    message.subscriptions_without_token = []
    for entry in wanted:
        token = entry.value.token
        if token is not None:
            if gate.may_get(token, entry.owner, event, topic, now):
                found.append(entry)
        elif not entry.is_own and topic_gossip.token_requirements.of(entry.value) is not None:
            message.subscriptions_without_token.append(entry)
    return found


def expel_subscriptions(engine: "Engine", message: "PublicationMessage") -> list[Effect]:
    """Expel a message's `subscriptions_without_token`, which came before their topic was known."""
    effects: list[Effect] = []
    subscriptions_without_token, message.subscriptions_without_token = message.subscriptions_without_token, []
    for entry in subscriptions_without_token:
        if engine.subscriptions.get(entry.id) is not entry:
            continue  # an earlier event of the same batch has expelled it
        reason = "it asks for a secure topic: subscribe again with a token for it"
        effects.append(SubscriptionExpelled(entry.owner, entry.id, reason))
        effects += engine.run(Unsubscribe(entry.owner, entry.id), entry.hop)
        effects += engine.publish_meta_event(meta_events.expelled(engine.name, entry.owner, entry.id, reason), entry.id)
    return effects


def is_for(engine: "Engine", entry: "FilterEntry[Subscription]", event: "Event") -> bool:
    """Whether a subscription may get the event, as far as its token says; its own broker checks again."""
    gate, token = engine.gate, entry.value.token
    if gate is None or event.signature is None:
        return True
    return token is not None and gate.may_get(
        token, entry.owner, event, gate.seal_of(event).topic, engine.now, cut=True
    )


def may_keep(engine: "Engine", note: "Notification") -> bool:
    """Whether a notification that came from a moved client's former broker is stored for the client.

    If the subscription is not here yet, the notification is stored, and checked when it is delivered.
    """
    try:
        if engine.subscriptions.get(note.subscription) is not None:
            check_notification(engine, note, engine.now)
    except SecurityError:
        return False
    return True


def check_notification(engine: "Engine", note: "Notification", now: int) -> None:
    """Raise `SecurityError` unless a stored notification may still be delivered."""
    gate, event = engine.gate, note.event
    if gate is None or event.signature is None:
        return
    gate.check_stored(event, event.timestamp)
    entry = engine.subscriptions.get(note.subscription)
    token = None if entry is None else entry.value.token
    gate.check_get(token, note.subscriber, event, gate.seal_of(event).topic, now, cut=True)


# Dry runs: nothing is counted or remembered


def check_publication(engine: "Engine", event: "Event", *, accepted: bool) -> None:
    """Raise `Refusal` if an event may not be published now, or, if it was accepted, not be delivered again."""
    if engine.gate is None:
        return
    try:
        if accepted:
            engine.gate.check_stored(event, event.timestamp)
        else:
            engine.gate.check(event, engine.now)
    except SecurityError as error:
        raise Refusal("admit", error.reason) from None


def check_receiver(engine: "Engine", event: "Event", entry: "FilterEntry[Subscription]") -> bool:
    """Raise `Refusal` if a subscription may not get a sealed event; return whether there was anything to check."""
    gate = engine.gate
    if gate is None or event.signature is None:
        return False
    try:
        gate.check_get(entry.value.token, entry.owner, event, gate.seal_of(event).topic, engine.now)
    except SecurityError as error:
        raise Refusal("token", error.reason) from None
    return True


# Governing


def governs(engine: "Engine", event: "Event", client: str) -> bool:
    """Whether a token of one of a client's subscriptions lets it govern a sealed event."""
    gate = engine.gate
    if gate is None or event.signature is None:
        return False
    tokens = (entry.value.token for entry in engine.subscriptions.of(client))
    topic = gate.seal_of(event).topic
    return any(token is not None and gate.may_govern(token, client, event, topic, engine.now) for token in tokens)


def let_govern(engine: "Engine", message: "PublicationMessage") -> None:
    """Let the owners of tokens that allow it govern a sealed event; their tokens are checked when rules are matched."""
    if engine.gate is not None and message.event.signature is not None:
        message.by_token = partial(governs, engine, message.event)


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
