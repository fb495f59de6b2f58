"""Admit: check that the sender may do an operation and that the operation is well formed.

The functions build the `Message` that the later steps work on. They raise `Refusal` before anything has changed.
"""

import re
from typing import Any

from tidings.engine import meta_events
from tidings.engine.effects import Effect, Send
from tidings.engine.headers import ForwardingHeader, Provenance
from tidings.engine.message import Arrival, Message, OutdatedNews, PublicationMessage, Refusal
from tidings.engine.operations import Advertise, Define, Publish, Redecide, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import compiled_text
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.registration import remove_former_subscription
from tidings.engine.turn import Turn
from tidings.matching.reference import matches
from tidings.model.advertisement import Advertisement
from tidings.model.errors import PolicyError, SchemaError
from tidings.model.event import Event
from tidings.model.expression import And, Attribute, Comparison, Condition, Constant, Like
from tidings.model.filter import FilterValue
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.placement import PolicyPlace, check_placement
from tidings.security.rpc.messages import SERVICE_TOPIC


def admit_publication(turn: Turn, operation: Publish, sender: str, *, accepted: bool = False) -> PublicationMessage:
    """Check a publication and return it as a message. Raises `Refusal`.

    Args:
        turn: The state of the broker, and the operation at hand.
        operation: The publication.
        sender: The client or neighbour that it came from.
        accepted: The publication was accepted before: do not check again whether its client may publish it.
    """
    state = turn.state
    event, journey = operation.event, operation.journey
    from_broker = sender in state.links.neighbours
    if from_broker:
        admit_from_broker(state, event.publisher, sender, journey.route.source)
    elif not journey.meta and not journey.route.round:  # clients cannot send a header
        admit_client(state, event.publisher, sender)
        if not accepted:
            admit_event(state, event)
    message = PublicationMessage(
        operation,
        Arrival(sender, from_broker, state.links.is_ingress(sender)),
        attached=_attached(event, journey),
        rule_context=turn.rule_context,
    )
    sealed_events.let_govern(turn, message)
    return message


def rebuild_message(turn: Turn, operation: Redecide) -> PublicationMessage:
    """Return an accepted publication as the message it came in, from a client or from a neighbour (linked or not)."""
    event, journey, sender = operation.event, operation.journey, operation.sender
    message = PublicationMessage(
        Publish(event, journey),
        Arrival(sender or event.publisher, bool(sender), not sender or turn.state.links.is_external(sender)),
        attached=_attached(event, journey),
        rule_context=turn.rule_context,
    )
    sealed_events.let_govern(turn, message)
    return message


def _attached(event: Event, journey: ForwardingHeader) -> CompiledPolicy | None:
    return admit_policy(event.policy if journey.policy is None else journey.policy, PolicyPlace.ATTACHED_TO_PUBLICATION)


def admit_filter(turn: Turn, operation: Advertise | Subscribe, sender: str) -> Message:
    """Check a subscription or an advertisement and return it as a message. Raises `Refusal` or `OutdatedNews`."""
    state = turn.state
    known: FilterEntry[Advertisement] | FilterEntry[Subscription] | None
    if isinstance(operation, Advertise):
        kind, value, owner = MessageType.ADVERTISEMENT, operation.advertisement, operation.advertisement.publisher
        known, taken = (
            state.filters.advertisements.get(value.id),
            state.filters.subscriptions.get(value.id) is not None,
        )
        where, own = PolicyPlace.ATTACHED_TO_ADVERTISEMENT, PolicyPlace.BROKER_ADVERTISEMENT
        subject = None
    else:
        kind, value, owner = MessageType.SUBSCRIPTION, operation.subscription, operation.subscription.subscriber  # type: ignore[assignment]
        known, taken = (
            state.filters.subscriptions.get(value.id),
            state.filters.advertisements.get(value.id) is not None,
        )
        where, own = PolicyPlace.ATTACHED_TO_SUBSCRIPTION, PolicyPlace.BROKER_SUBSCRIPTION
        subject = operation.subscription.subject
    from_broker = sender in state.links.neighbours
    if from_broker:
        admit_from_broker(state, owner, sender, _provenance(operation).origin)
    else:
        admit_client(state, owner, sender)
        admit_id(state, value.id, owner)
        admit_subject(state, subject, value.content)
        if isinstance(operation, Subscribe):
            admit_service_topic(operation.subscription)
    if taken or (known is not None and known.owner != owner):
        raise Refusal("admit", f"the id {value.id} is taken; choose another one, or leave it out")
    if from_broker and known is not None:
        admit_newer_version(state, known, _provenance(operation), sender)
    if turn.gate is not None and isinstance(operation, Subscribe):
        sealed_events.admit_subscription(turn, operation.subscription)
    return Message(
        kind,
        value.id,
        operation,
        Arrival(sender, from_broker, state.links.is_ingress(sender)),
        owner,
        # The policies of another broker's own filters were checked there; rules before matching do not act here.
        attached=admit_policy(value.policy, own if from_broker or owner == state.name else where),
        rule_context=turn.rule_context,
        filter=value.content,
    )


def admit_removal(turn: Turn, operation: Unadvertise | Unsubscribe, sender: str) -> Message:
    """Check the removal of a subscription or an advertisement and return it as a message.

    Raises `Refusal`, or `OutdatedNews` if the neighbour that removes the filter is not the one this broker has it from.
    """
    state = turn.state
    known: FilterEntry[Advertisement] | FilterEntry[Subscription] | None
    if isinstance(operation, Unadvertise):
        kind, what, where = MessageType.UNADVERTISEMENT, "advertisement", PolicyPlace.ATTACHED_TO_UNADVERTISEMENT
        known = state.filters.advertisements.get(operation.id)
    else:
        kind, what, where = MessageType.UNSUBSCRIPTION, "subscription", PolicyPlace.ATTACHED_TO_UNSUBSCRIPTION
        known = state.filters.subscriptions.get(operation.id)
    if sender in state.links.neighbours and (known is None or not was_sent_by(known, sender)):
        remove_former_subscription(state, operation.id, sender)
        raise OutdatedNews  # another neighbour sent it, or it was dropped
    if known is None or known.owner != operation.client or not was_sent_by(known, sender):
        raise Refusal("admit", f"{operation.client} has no {what} {operation.id}")
    return Message(
        kind,
        operation.id,
        operation,
        Arrival(sender, sender in state.links.neighbours, state.links.is_ingress(sender)),
        operation.client,
        attached=admit_policy(operation.policy, where),
        rule_context=turn.rule_context,
        filter=known.value.content,
    )


def admit_newer_version(state: BrokerState, known: FilterEntry[Any], provenance: Provenance, sender: str) -> None:
    """Raise `OutdatedNews` unless what a neighbour sends replaces the `known` version of a filter.

    It does if it comes from the same neighbour (links are FIFO), if its version is newer, or if it was sent again under
    a new topology digest. The same filter from a second neighbour is only noted among its senders.

    Args:
        state: The state of the broker.
        known: The filter as it is in the table.
        provenance: The provenance of the filter that came.
        sender: The neighbour that sent it.
    """
    if (
        known.hop == sender
        or provenance.version > known.version
        or (not known.is_local and known.digest != provenance.digest)
    ):
        return
    if not known.is_local and provenance.origin == known.origin:
        known.senders |= {sender}  # it came over several links, on its way to several brokers
    raise OutdatedNews


def was_sent_by(known: FilterEntry[Any], sender: str) -> bool:
    """Whether a filter came from this sender."""
    return known.hop == sender or sender in known.senders


def _provenance(operation: Advertise | Subscribe) -> Provenance:
    if operation.way is None:
        raise Refusal("admit", "a broker says whose client's a filter is, and which version")
    return operation.way


def admit_client(state: BrokerState, client: str, sender: str) -> None:
    """Raise `Refusal` if a client uses the name of a broker; only this broker itself acts under its own name."""
    if client in state.links.neighbours or (
        client in state.links.topology.brokers and (client != state.name or sender != state.name)
    ):
        raise Refusal("admit", f"{client} is the name of a broker; choose another one for a client")


def admit_from_broker(state: BrokerState, owner: str, sender: str, origin: str) -> None:
    """Raise `Refusal` if a neighbour sends something in the name of a broker that is not its origin.

    Args:
        state: The state of the broker.
        owner: The owner of the filter, context or event.
        sender: The neighbour that sent it.
        origin: The broker from whose client it is said to come.
    """
    is_broker = owner in state.links.topology.brokers or owner in state.links.neighbours
    if owner == state.name or (is_broker and owner not in (sender, origin)):
        raise Refusal("admit", f"{owner} is the name of a broker, and this came from {sender}")


def admit_id(state: BrokerState, id: str, owner: str) -> None:  # noqa: A002 - the filter's own word
    """Raise `Refusal` if a client's filter has an id that starts with `$`: such ids are the system's."""
    if id.startswith("$") and owner != state.name:
        raise Refusal("admit", f"the id {id} starts with '$': such ids are the system's; choose another one")


def admit_event(state: BrokerState, event: Event) -> None:
    """Check a client's event: no reserved class, conforming to its subject's schema, advertised if that is required."""
    event_class = event.attributes.get("class")
    if event_class in meta_events.RESERVED:
        raise Refusal(
            "admit", f"events of the class {event_class!r} are published by brokers only; choose another class"
        )
    schema = None if event.subject is None else state.subjects.find(event.subject)
    if schema is not None:
        try:
            schema.bits_of(event.attributes)
        except SchemaError as error:
            raise Refusal("admit", str(error)) from None
    if _advertisements_required(state) and not any(
        matches(entry.value.content, event) for entry in state.filters.advertisements.of(event.publisher)
    ):
        raise Refusal("admit", f"{event.publisher} has advertised nothing like this event; advertise it first")


def _advertisements_required(state: BrokerState) -> bool:
    """Whether a client may publish only events that match one of its advertisements."""
    required = state.settings.advertisements_required
    return bool(state.links.neighbours) and state.strategy.name == "advertisement" if required is None else required


def admit_subject(state: BrokerState, subject: str | None, content: FilterValue) -> None:
    """Raise `Refusal` if a filter on a subject with a schema uses an attribute that the schema lacks."""
    schema = None if subject is None else state.subjects.find(subject)
    if schema is None:
        return
    for name in sorted(content.names):
        try:
            schema.bits({name})
        except SchemaError as error:
            raise Refusal("admit", str(error)) from None


def admit_policy(text: str | None, where: PolicyPlace) -> CompiledPolicy | None:
    """Compile a policy; raise `Refusal` if it cannot be parsed or may not stand at that place."""
    if text is None:
        return None
    try:
        compiled = compiled_text(text)
        check_placement(compiled.policy, where)
        meta_events.check_published_classes(compiled)
    except PolicyError as error:
        raise Refusal("admit", f"policy: {error}") from None
    return compiled


ADDRESS = 32  # characters of an address: 128 random bits in hexadecimal
_WILD = re.compile(r"[%_\\]")


def admit_service_topic(subscription: Subscription) -> None:
    """Raise `Refusal` if a subscription uses the service topic without naming a complete address.

    Subscribers must know an address to receive what is sent to it; a pattern that matches any address is refused.
    """
    if names_address(subscription) and not _is_named(subscription.content.expression):
        raise Refusal("admit", f"{SERVICE_TOPIC} can only be asked for with =, and joined to the rest with AND")


def names_address(subscription: Subscription) -> bool:
    """Whether a subscription's filter uses the service topic."""
    return SERVICE_TOPIC in subscription.content.names


def keep_addressed(
    message: "PublicationMessage", wanted: list["FilterEntry[Subscription]"]
) -> list["FilterEntry[Subscription]"]:
    """Return the matching subscriptions that name an address, if the event has one; otherwise all of them."""
    if SERVICE_TOPIC not in message.event.attributes:
        return wanted
    return [entry for entry in wanted if names_address(entry.value)]


def check_receiver(event: Event, subscription: Subscription) -> None:
    """Raise `Refusal` if an event with an address matches a subscription that does not name the address."""
    if SERVICE_TOPIC in event.attributes and not names_address(subscription):
        raise Refusal("content", f"the event has a {SERVICE_TOPIC}, and the subscription does not name it")


def _is_named(condition: Condition) -> bool:
    """Whether the condition requires the service topic to be a constant, or to start with a whole address."""
    match condition:
        case Comparison(Attribute(name), "=", Constant()) | Comparison(Constant(), "=", Attribute(name)):
            return name == SERVICE_TOPIC
        case Like(Attribute(name), pattern):
            return name == SERVICE_TOPIC and len(_WILD.split(pattern, maxsplit=1)[0]) >= ADDRESS
        case And(parts):
            return any(map(_is_named, parts))
    return False


def define_schema(turn: Turn, operation: Define, sender: str) -> list[Effect]:
    """Define a subject's schema and pass a new one on to the tree neighbours. Raises `Refusal`."""
    state, schema = turn.state, operation.schema
    if state.subjects.find(schema.subject) == schema:
        return []
    try:
        state.subjects.define(schema)
    except SchemaError as error:
        raise Refusal("admit", str(error)) from None
    return [Send(name, operation) for name in state.links.tree_neighbours() if name != sender]
