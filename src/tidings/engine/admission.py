"""Admit: who may do this, and is it well formed? What is refused here has changed nothing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidings.engine import addressed, meta, sealed
from tidings.engine.compiling import compiled_text
from tidings.engine.journey import Journey, Way
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Advertise, Judge, Publish, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.refusal import Outdated, Refused
from tidings.engine.tables import Filed
from tidings.matching.reference import matches
from tidings.model.advertisement import Advertisement
from tidings.model.errors import PolicyError, SchemaError
from tidings.model.event import Event
from tidings.model.expression import Constant
from tidings.model.filter import Filter
from tidings.model.subscription import Subscription
from tidings.policy.application import CompiledPolicy
from tidings.policy.placement import Where, check_placement
from tidings.policy.statement import MessageType, Publication, Scalar

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def publication(engine: "Engine", operation: Publish, sender: str, *, accepted: bool = False) -> PublicationMessage:
    """`accepted`: it was, before; so it is not asked again whether it may be published."""
    event, journey = operation.event, operation.journey
    from_broker = sender in engine.neighbours
    if from_broker:
        admit_from_broker(engine, event.publisher, sender, journey.route.source)
    elif not journey.meta and not journey.route.round:  # no client's publication gets here with a journey
        admit_client(engine, event.publisher, sender)
        if not accepted:
            admit_event(engine, event)
    message = PublicationMessage(
        event,
        journey,
        operation,
        sender,
        from_broker=from_broker,
        enters=engine.enters(sender),
        attached=_attached(event, journey),
        situation=engine.situation,
    )
    sealed.let_govern(engine, message)
    return message


def again(engine: "Engine", operation: Judge) -> PublicationMessage:
    """A publication as it came, before: from a client, or from a neighbour that need not be linked any more."""
    event, journey, sender = operation.event, operation.journey, operation.sender
    message = PublicationMessage(
        event,
        journey,
        Publish(event, journey),
        sender or event.publisher,
        from_broker=bool(sender),
        enters=not sender or engine.leaves(sender),
        attached=_attached(event, journey),
        situation=engine.situation,
    )
    sealed.let_govern(engine, message)
    return message


def _attached(event: Event, journey: Journey) -> CompiledPolicy | None:
    return admit_policy(event.policy if journey.policy is None else journey.policy, Where.ATTACHED_TO_PUBLICATION)


def filter(engine: "Engine", operation: Advertise | Subscribe, sender: str) -> Message:  # noqa: A001 - the step's word
    known: Filed[Advertisement] | Filed[Subscription] | None
    if isinstance(operation, Advertise):
        kind, given, owner = MessageType.ADVERTISEMENT, operation.advertisement, operation.advertisement.publisher
        known, taken = engine.advertisements.get(given.id), engine.subscriptions.get(given.id) is not None
        where, own = Where.ATTACHED_TO_ADVERTISEMENT, Where.BROKER_ADVERTISEMENT
        subject = None
    else:
        kind, given, owner = MessageType.SUBSCRIPTION, operation.subscription, operation.subscription.subscriber  # type: ignore[assignment]
        known, taken = engine.subscriptions.get(given.id), engine.advertisements.get(given.id) is not None
        where, own = Where.ATTACHED_TO_SUBSCRIPTION, Where.BROKER_SUBSCRIPTION
        subject = operation.subscription.subject
    from_broker = sender in engine.neighbours
    if from_broker:
        admit_from_broker(engine, owner, sender, _way(operation).origin)
    else:
        admit_client(engine, owner, sender)
        admit_id(engine, given.id, owner)
        admit_subject(engine, subject, given.content)
        if isinstance(operation, Subscribe):
            addressed.admit(operation.subscription)
    if taken or (known is not None and known.owner != owner):
        raise Refused("admit", f"the id {given.id} is taken; choose another one, or leave it out")
    if from_broker and known is not None:
        admit_news(engine, known, _way(operation), sender)
    if engine.gate is not None and isinstance(operation, Subscribe):
        sealed.admit_subscription(engine, operation.subscription)
    return Message(
        kind,
        given.id,
        operation,
        sender,
        owner,
        from_broker=from_broker,
        enters=engine.enters(sender),
        # What another broker lets its own filters say was checked there; rules before matching are idle here.
        attached=admit_policy(given.policy, own if from_broker or owner == engine.name else where),
        situation=engine.situation,
        filter=given.content,
    )


def removal(engine: "Engine", operation: Unadvertise | Unsubscribe, sender: str) -> Message:
    known: Filed[Advertisement] | Filed[Subscription] | None
    if isinstance(operation, Unadvertise):
        kind, what, where = MessageType.UNADVERTISEMENT, "advertisement", Where.ATTACHED_TO_UNADVERTISEMENT
        known = engine.advertisements.get(operation.id)
    else:
        kind, what, where = MessageType.UNSUBSCRIPTION, "subscription", Where.ATTACHED_TO_UNSUBSCRIPTION
        known = engine.subscriptions.get(operation.id)
    if sender in engine.neighbours and (known is None or not sent_by(known, sender)):
        engine.forget_former(operation.id, sender)
        raise Outdated  # it came in the meantime from elsewhere, or was dropped
    if known is None or known.owner != operation.client or not sent_by(known, sender):
        raise Refused("admit", f"{operation.client} has no {what} {operation.id}")
    return Message(
        kind,
        operation.id,
        operation,
        sender,
        operation.client,
        from_broker=sender in engine.neighbours,
        enters=engine.enters(sender),
        attached=admit_policy(operation.policy, where),
        situation=engine.situation,
        filter=known.value.content,
    )


def admit_news(engine: "Engine", known: Filed[Any], way: Way, sender: str) -> None:
    """Of what is known already the newest version counts; and what comes again, anew, in a changed network.

    Over a link things come in their order, so the last one counts there.
    """
    if known.hop == sender or way.version > known.version or (not known.is_local and known.digest != way.digest):
        return
    if not known.is_local and way.origin == known.origin:
        known.senders |= {sender}  # over several links, toward several brokers
    raise Outdated


def sent_by(known: Filed[Any], sender: str) -> bool:
    return known.hop == sender or sender in known.senders


def _way(operation: Advertise | Subscribe) -> Way:
    if operation.way is None:
        raise Refused("admit", "a broker says whose client's a filter is, and which version")
    return operation.way


def admit_client(engine: "Engine", client: str, sender: str) -> None:
    """A client has a name of its own; only the broker itself acts in the broker's."""
    if client in engine.neighbours or (
        client in engine.topology.brokers and (client != engine.name or sender != engine.name)
    ):
        raise Refused("admit", f"{client} is the name of a broker; choose another one for a client")


def admit_from_broker(engine: "Engine", owner: str, sender: str, origin: str) -> None:
    """What comes in the name of a broker has that broker as its origin: no client elsewhere acts in its name."""
    is_broker = owner in engine.topology.brokers or owner in engine.neighbours
    if owner == engine.name or (is_broker and owner not in (sender, origin)):
        raise Refused("admit", f"{owner} is the name of a broker, and this came from {sender}")


def admit_id(engine: "Engine", id: str, owner: str) -> None:  # noqa: A002 - the filter's own word
    if id.startswith("$") and owner != engine.name:
        raise Refused("admit", f"the id {id} starts with '$': such ids are the system's; choose another one")


def admit_event(engine: "Engine", event: Event) -> None:
    """Of a client: no class that only brokers publish, conforming to its subject's schema, advertised if need be."""
    said = event.attributes.get("class")
    if said in meta.RESERVED:
        raise Refused("admit", f"events of the class {said!r} are published by brokers only; choose another class")
    schema = None if event.subject is None else engine.subjects.find(event.subject)
    if schema is not None:
        try:
            schema.bits_of(event.attributes)
        except SchemaError as error:
            raise Refused("admit", str(error)) from None
    if engine.advertisements_required and not any(
        matches(filed.value.content, event) for filed in engine.advertisements.of(event.publisher)
    ):
        raise Refused("admit", f"{event.publisher} has advertised nothing like this event; advertise it first")


def admit_subject(engine: "Engine", subject: str | None, content: Filter) -> None:
    """A filter on a subject with a schema speaks only of attributes that the schema has."""
    schema = None if subject is None else engine.subjects.find(subject)
    if schema is None:
        return
    for name in sorted(content.names):
        try:
            schema.bits({name})
        except SchemaError as error:
            raise Refused("admit", str(error)) from None


def admit_policy(text: str | None, where: Where) -> CompiledPolicy | None:
    """The policy, if it can be read and may stand there."""
    if text is None:
        return None
    try:
        compiled = compiled_text(text)
        check_placement(compiled.policy, where)
        check_published(compiled)
    except PolicyError as error:
        raise Refused("admit", f"policy: {error}") from None
    return compiled


def check_published(compiled: CompiledPolicy) -> None:
    """What only the broker itself can tell, no rule may claim; and what rules can tell is known beforehand."""
    for said in _published(compiled):
        if not isinstance(said, Constant) or not isinstance(said.value, str):
            raise PolicyError("Publish: the event needs a class that is a plain word, as in [class,DropMessage]")
        if said.value in meta.BROKERS_OWN:
            raise PolicyError(f"Publish: events of the class {said.value} are made by the broker itself, not by rules")


def published_classes(compiled: CompiledPolicy) -> frozenset[str]:
    """The classes of the events that the rules of a policy can publish."""
    said = (one.value for one in _published(compiled) if isinstance(one, Constant))
    return frozenset(one for one in said if isinstance(one, str))


def _published(compiled: CompiledPolicy) -> Iterator[Scalar | None]:
    """What stands as the class of each event; None where there is none."""
    for rule in compiled.policy.rules:
        for branch in (*rule.branches, *rule.on_exception):
            for call in branch.actions:
                for argument in call.arguments:
                    if isinstance(argument, Publication):
                        yield dict(argument.attributes).get("class")
