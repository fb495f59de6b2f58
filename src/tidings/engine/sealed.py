"""Sealed events: where they are checked, who gets them, and what of them is handed out.

A client's publication is checked once, where it is handed in: one that waits, for tables or for an answer, is no replay
of itself. Brokers on the way pass a sealed event on only toward subscriptions with a token for its topic; such ones
stand for themselves alone on every link, so none of them is hidden behind another one.
"""

from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.engine import meta
from tidings.engine.effects import Deliver, Effect, Expelled, Log, Reject, Send, Settled
from tidings.engine.operations import Publish, Republish, Unsubscribe
from tidings.engine.refusal import Refused
from tidings.model.errors import SecurityError

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.engine.message import PublicationMessage
    from tidings.engine.tables import Filed
    from tidings.model.event import Event
    from tidings.model.notification import Notification
    from tidings.model.subscription import Subscription
    from tidings.security.gate import Gate


# Where they enter


def publish(engine: "Engine", operation: Publish) -> list[Effect]:
    """Of a client. What is refused later on was not accepted, and may come again."""
    event = operation.event
    try:
        admit(engine, event)
    except Refused as refusal:
        return [Reject(refusal.step, refusal.reason)]
    effects = engine.run_for(operation, event.publisher)
    is_refused = any(isinstance(one, Reject) for one in effects)
    if not is_refused or any(isinstance(one, Deliver | Send) for one in effects):
        note(engine, event)
    return effects


def admit(engine: "Engine", event: "Event") -> None:
    gate = engine.gate
    if gate is None:
        return
    try:
        gate.check(event, engine.now)
    except SecurityError as error:
        gate.refused[error.check] += 1
        raise Refused("admit", error.reason) from None


def note(engine: "Engine", event: "Event") -> None:
    """It was accepted: it must not come again."""
    if engine.gate is not None and event.signature is not None:
        engine.gate.ingress.note(event.publisher, engine.gate.seal_of(event))


def refused_on_the_way(engine: "Engine", operation: Publish, neighbour: str) -> list[Effect] | None:
    """What follows if an event of a neighbour is not to be trusted; None if it is. One that comes again from a journal
    is judged by the time at which it was accepted."""
    event, journey, gate = operation.event, operation.journey, engine.gate
    is_brokers_own = journey.meta and (event.publisher in engine.topology.brokers or event.publisher == neighbour)
    if gate is None or engine.assurance is None or is_brokers_own:
        return None
    try:
        gate.pass_on(event, min(event.timestamp, engine.now) if journey.route.round else engine.now)
    except SecurityError as error:
        effects: list[Effect] = [Reject("admit", error.reason)]
        if event.token is None and event.signature is None:
            effects += engine.assurance.remind(neighbour, event)
        return effects + engine.settling.refused((event.id, journey.route.round), neighbour)
    return None


def withheld(engine: "Engine", operation: Republish) -> list[Effect] | None:
    """What follows if an event of the journal is not to be sent again, since its publisher had been revoked by then."""
    if engine.gate is None:
        return None
    try:
        engine.gate.check_stored(operation.event, operation.event.timestamp)
    except SecurityError as error:
        line = f"the event {operation.event.id} is not sent again: {error.reason}"
        return [Log(line), Settled(operation.event.id, operation.round)]
    return None


def admit_subscription(engine: "Engine", subscription: "Subscription") -> None:
    """With a token that is good for it, or without one where it asks for more than a secure topic."""
    gate, assurance = engine.gate, engine.assurance
    if gate is None or assurance is None or engine.is_recalling:  # what it gets is judged again with each event
        return
    if subscription.token is not None:
        try:
            gate.subscription(subscription.token, subscription.subscriber, engine.now)
        except SecurityError as error:
            raise Refused("admit", error.reason) from None
        return
    record = assurance.confines.of(subscription)
    if record is not None:
        gate.refused["token"] += 1
        raise Refused("admit", f"the topic {record.template} is secure: subscribe with a token for it")


# Who gets them


def entitled(
    engine: "Engine", message: "PublicationMessage", wanted: list["Filed[Subscription]"]
) -> list["Filed[Subscription]"]:
    """Those with a token that is good now. Those without one that ask for the topic alone have slipped in."""
    gate, assurance, event = engine.gate, engine.assurance, message.event
    if gate is None or assurance is None:
        return wanted
    topic, now = gate.seal_of(event).topic, engine.now
    found: list[Filed[Subscription]] = []
    message.intruders = []
    for one in wanted:
        token = one.value.token
        if token is not None:
            if gate.may_get(token, one.owner, event, topic, now):
                found.append(one)
        elif not one.is_own and assurance.confines.of(one.value) is not None:
            message.intruders.append(one)
    return found


def expelled(engine: "Engine", message: "PublicationMessage") -> list[Effect]:
    """Subscriptions that came before their topic was known here, or known to be secure, are removed."""
    effects: list[Effect] = []
    intruders, message.intruders = message.intruders, []
    for filed in intruders:
        if engine.subscriptions.get(filed.id) is not filed:
            continue  # an event before it in a batch that was matched as a whole has removed it
        reason = "it asks for a secure topic: subscribe again with a token for it"
        effects.append(Expelled(filed.owner, filed.id, reason))
        effects += engine.run(Unsubscribe(filed.owner, filed.id), filed.hop)
        effects += engine.tell(meta.expelled(engine.name, filed.owner, filed.id, reason), filed.id)
    return effects


def is_for(engine: "Engine", filed: "Filed[Subscription]", event: "Event") -> bool:
    """Whether a subscription behind a link may have the event: who gets it is decided where its owner is."""
    gate, token = engine.gate, filed.value.token
    if gate is None or event.signature is None:
        return True
    return token is not None and gate.may_get(
        token, filed.owner, event, gate.seal_of(event).topic, engine.now, cut=True
    )


def may_keep(engine: "Engine", note: "Notification") -> bool:
    """Whether a notification that another broker has carried here is kept for its subscriber. One whose subscription is
    not here yet is: it is judged when it is handed out."""
    try:
        if engine.subscriptions.get(note.subscription) is not None:
            check_notification(engine, note, engine.now)
    except SecurityError:
        return False
    return True


def check_notification(engine: "Engine", note: "Notification", now: int) -> None:
    """Raises a `SecurityError` unless a notification that was kept may still be handed out."""
    gate, event = engine.gate, note.event
    if gate is None or event.signature is None:
        return
    gate.check_stored(event, event.timestamp)
    filed = engine.subscriptions.get(note.subscription)
    token = None if filed is None else filed.value.token
    gate.check_get(token, note.subscriber, event, gate.seal_of(event).topic, now, cut=True)


# What would happen: nothing is counted, and nothing noted


def check_publication(engine: "Engine", event: "Event", *, accepted: bool) -> None:
    """Whether it could be published now; of one that was accepted, whether it may be handed out again."""
    if engine.gate is None:
        return
    try:
        if accepted:
            engine.gate.check_stored(event, event.timestamp)
        else:
            engine.gate.check(event, engine.now)
    except SecurityError as error:
        raise Refused("admit", error.reason) from None


def check_receiver(engine: "Engine", event: "Event", filed: "Filed[Subscription]") -> bool:
    """Whether there is anything to ask; a subscription that may not have the event is refused."""
    gate = engine.gate
    if gate is None or event.signature is None:
        return False
    try:
        gate.check_get(filed.value.token, filed.owner, event, gate.seal_of(event).topic, engine.now)
    except SecurityError as error:
        raise Refused("token", error.reason) from None
    return True


# By whom they are governed


def governs(engine: "Engine", event: "Event", client: str) -> bool:
    """Whether a client may decide for others what becomes of a sealed event: by a token of one of its subscriptions."""
    gate = engine.gate
    if gate is None or event.signature is None:
        return False
    tokens = (one.value.token for one in engine.subscriptions.of(client))
    topic = gate.seal_of(event).topic
    return any(one is not None and gate.may_govern(one, client, event, topic, engine.now) for one in tokens)


def let_govern(engine: "Engine", message: "PublicationMessage") -> None:
    """Whose rules act on it beside its publisher's is asked when they are met."""
    if engine.gate is not None and message.event.signature is not None:
        message.by_token = partial(governs, engine, message.event)


# What of them is handed out


def handed_out(gate: "Gate | None", event: "Event", added: Mapping[str, Any] | None = None) -> "Event":
    """As a subscriber gets it: without the salts of what was taken away, and with what was added signed."""
    try:
        if gate is not None:
            return gate.shown(event, added)
        return _trimmed(event, shown=True, added=added or ())
    except SecurityError:
        return event  # what is no seal has no salts: only where no gate looks


def passed_on(event: "Event") -> "Event":
    """As a neighbour gets it, after something was taken away."""
    if event.signature is None:
        return event
    try:
        return _trimmed(event, shown=False)
    except SecurityError:
        return event


def _trimmed(event: "Event", *, shown: bool, added: Container[str] = ()) -> "Event":
    from tidings.security import envelope  # with it come ciphers: only for those who have sealed events

    return envelope.trimmed(event, shown=shown, added=added)
