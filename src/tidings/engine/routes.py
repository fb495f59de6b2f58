"""Route: what was decided becomes effects, and the tables learn of it."""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine import meta
from tidings.engine.concern import Concern, toward_advertisements
from tidings.engine.deciding import final_attributes
from tidings.engine.effects import Deliver, Effect, Log, Persist, Reject, Remark, Send
from tidings.engine.governing import Delivery, Governed, LinkCopy, forbidden, govern_filter
from tidings.engine.journey import Journey, Shape
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Advertise, Publish, SetContext, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.remarks import suspicious
from tidings.engine.tables import Cut, Filed
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.limits import MAX_TOLD_EVENTS
from tidings.model.notification import Notification, shown
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.statement import MessageType, Operation
from tidings.policy.widening import without
from tidings.routing.advertisement import attracts, without_publishers

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


# Publications


def plainly(event: Event, wanted: list[Filed[Subscription]]) -> list[Effect]:
    """Where no rule has to be asked: a notification each, as published or cut as its rule always does."""
    event = shown(event)
    return [_plain(event, one.value) if one.cut is None else _cut(event, one.value, one.cut) for one in wanted]


def _plain(event: Event, subscription: Subscription) -> Deliver:
    return Deliver(
        Notification(
            event=event,
            subscription=subscription.id,
            subscriber=subscription.subscriber,
            attributes=event.attributes,
            payload=event.payload,
        ),
        subscription.durable,
    )


def _cut(event: Event, subscription: Subscription, cut: Cut) -> Deliver:
    attributes = cut.of(event.attributes)
    if attributes is not event.attributes:
        event = msgspec.structs.replace(event, attributes=attributes)
    return _plain(event, subscription)


def publication(engine: "Engine", message: PublicationMessage, concerned: Concern, governed: Governed) -> list[Effect]:
    effects: list[Effect] = [delivered(message.event, one) for one in governed.deliveries]
    effects += [Send(one.hop.receiver or "", _forwarded(message, one)) for one in governed.copies]
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    return effects + told(engine, message, governed)


def delivered(event: Event, delivery: Delivery) -> Deliver:
    return delivered_to(event, [one.value for one in delivery.wanted], delivery.shape)


def delivered_to(event: Event, wanted: list[Subscription], shape: Shape) -> Deliver:
    """The notification for one subscription, or with notify="client" for all of a client's that the event concerns."""
    first, event = wanted[0], shown(event)
    attributes = final_attributes(event, shape)
    payload = event.payload if shape.payload is None else shape.payload
    together = first.notify == "client"
    durable = next((one.durable for one in wanted if one.durable is not None), None)
    if attributes is not event.attributes or payload is not event.payload:
        # What a policy took away is not to be found in the event either.
        event = msgspec.structs.replace(event, attributes=attributes, payload=payload)
    return Deliver(
        Notification(
            event=event,
            subscription=first.id,
            subscriber=first.subscriber,
            attributes=attributes,
            payload=payload,
            subscriptions=tuple(one.id for one in wanted) if together else (),
            trace=shape.trace,
        ),
        durable,
    )


def _forwarded(message: PublicationMessage, copy: LinkCopy) -> Publish:
    gone = copy.common.removed | copy.dropped
    event = message.event
    if gone:
        kept = {name: value for name, value in event.attributes.items() if name not in gone}
        event = msgspec.structs.replace(event, attributes=Attributes.trusted(kept))
    common = msgspec.structs.replace(copy.common, removed=frozenset())
    own = {name: msgspec.structs.replace(one, removed=one.removed - gone) for name, one in copy.own.items()}
    policy = None if message.attached is None else str(message.attached.policy)
    own = {name: one for name, one in own.items() if one != Shape()}
    return Publish(event, Journey(policy, message.journey.meta, common, own))


def without_matching(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """Rules before matching have decided: it is refused, or a publication is sent to those neighbours as
    it is."""
    return unmatched(engine, message, governed) + told(engine, message, governed)


def unmatched(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """The same without what is told of it."""
    if governed.refused is not None:
        return [Reject("govern", f"blocked before matching by {governed.refused}")]
    effects: list[Effect] = []
    for name in dict.fromkeys(governed.forwards_to):
        if name not in engine.neighbours:
            effects.append(Log(f"ForwardTo: {name} is no neighbour of {engine.name}"))
        elif name != message.sender and not forbidden(engine, message, name, governed):
            if engine.held.holds(name) and isinstance(message, PublicationMessage):
                effects += engine.held.hold(message, (), [(engine.hop(message, name), None)])
            else:
                effects.append(Send(name, message.operation))
    return effects


# Filters


def filter(  # noqa: A001 - the step's word
    engine: "Engine", message: Message, concerned: Concern, governed: Governed
) -> list[Effect]:
    effects: list[Effect] = []
    operation = message.operation
    given: Advertisement | Subscription
    given = operation.advertisement if isinstance(operation, Advertise) else operation.subscription  # type: ignore[union-attr]
    if message.attached is not None:
        given = msgspec.structs.replace(given, policy=str(message.attached.policy))
    if governed.excluded:
        given = msgspec.structs.replace(given, content=without_publishers(given.content, governed.excluded))
        effects += [
            Remark(given.id, f"not for the events of {publisher}: kept out by {decision}")
            for publisher, decision in governed.excluded.items()
        ]
    before: set[str] = set()
    filed: Filed[Advertisement] | Filed[Subscription] | None = None
    if governed.uninserted is None:
        before, filed = engine.file(message, given)
        effects += remarks(engine, filed)
    else:
        effects.append(Reject("govern", f"kept out of the tables by {governed.uninserted}"))
    sent = set()
    for hop, kept, removed in governed.filters:
        neighbour = hop.receiver or ""
        effects += _sent(engine, neighbour, given, kept, removed)
        sent.add(neighbour)
    if filed is not None:
        filed.sent, filed.flooded = sent, sent - {hop.receiver for hop in concerned.hops}
    effects += [Send(name, _removal_of(given)) for name in sorted(before - sent)]
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    if isinstance(given, Advertisement) and filed is not None:
        effects += _attracted(engine, filed)  # type: ignore[arg-type]
    effects += told(engine, message, governed)
    return effects if message.attached is None else effects + engine.advertise_meta()


def remarks(engine: "Engine", filed: Filed[Advertisement] | Filed[Subscription]) -> list[Effect]:
    """What is suspicious about the policy that a filter has: told where it was set."""
    if not filed.is_client and filed.operator_policy is None:
        return []
    return [Remark(filed.id, one) for one in suspicious(filed, lone=not engine.neighbours)]


def _sent(
    engine: "Engine",
    neighbour: str,
    given: Advertisement | Subscription,
    kept: frozenset[str] | None,
    removed: frozenset[str],
) -> list[Effect]:
    content = given.content
    gone = removed if kept is None else removed | (content.names - kept)
    content = without(content, gone)
    if isinstance(given, Advertisement):
        return [Send(neighbour, Advertise(msgspec.structs.replace(given, content=content)))]
    context = engine.context_for(given.subscriber, neighbour)  # goes before the subscription
    ahead = [] if context is None else [Send(neighbour, SetContext(given.subscriber, context))]
    return [*ahead, Send(neighbour, Subscribe(msgspec.structs.replace(given, content=content)))]


def _removal_of(given: Advertisement | Subscription) -> Unadvertise | Unsubscribe:
    if isinstance(given, Advertisement):
        return Unadvertise(given.publisher, given.id)
    return Unsubscribe(given.subscriber, given.id)


def _attracted(engine: "Engine", advertisement: Filed[Advertisement]) -> list[Effect]:
    """Subscriptions that were here before go toward a new advertisement, if it came from a neighbour."""
    if advertisement.is_client:
        return []
    effects: list[Effect] = []
    for filed in engine.subscriptions:
        if advertisement.hop in filed.sent or filed.hop == advertisement.hop:
            continue
        if attracts(advertisement.value, filed.value):
            effects += forward_subscription(engine, filed, advertisement.hop)
    return effects


def forward_subscription(engine: "Engine", filed: Filed[Subscription], neighbour: str) -> list[Effect]:
    """Sends a subscription that is filed already to one more neighbour, under the rules that it meets."""
    message, rulings = engine.subscription_again(filed)
    governed = Governed()
    hop = engine.hop(message, neighbour)
    govern_filter(message, rulings, hop, governed)
    effects: list[Effect] = []
    for _, kept, removed in governed.filters:
        effects += _sent(engine, neighbour, filed.value, kept, removed)
        filed.sent.add(neighbour)
    return effects + engine.held.hold(message, rulings, governed.waiting) + told(engine, message, governed)


def forward_advertisement(engine: "Engine", filed: Filed[Advertisement], neighbour: str) -> list[Effect]:
    """Sends an advertisement that is filed already to one more neighbour, under its own rules."""
    if filed.hop == neighbour or neighbour in filed.sent:
        return []
    message = engine.advertisement_again(filed)
    governed = Governed()
    rulings = message.rulings(Operation.FORWARD)
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    effects: list[Effect] = []
    for _, kept, removed in governed.filters:
        effects += _sent(engine, neighbour, filed.value, kept, removed)
        filed.sent.add(neighbour)
    return effects + engine.held.hold(message, rulings, governed.waiting) + told(engine, message, governed)


def late(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """A copy that had to wait."""
    if isinstance(message, PublicationMessage):
        return publication(engine, message, Concern(), governed)
    effects: list[Effect] = []
    table: Any = engine.advertisements if message.type is MessageType.ADVERTISEMENT else engine.subscriptions
    for hop, kept, removed in governed.filters:
        neighbour = hop.receiver or ""
        filed = table.get(message.id)
        if isinstance(message.operation, Unadvertise | Unsubscribe):
            effects.append(Send(neighbour, message.operation))
        elif filed is not None:  # it may have been taken back meanwhile
            effects += _sent(engine, neighbour, filed.value, kept, removed)
            filed.sent.add(neighbour)
    return effects + told(engine, message, governed)


def removal(engine: "Engine", message: Message, concerned: Concern, governed: Governed) -> list[Effect]:
    effects: list[Effect] = [Send(hop.receiver or "", message.operation) for hop, _, _ in governed.filters]
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    if message.type is MessageType.UNADVERTISEMENT:
        effects += _unfile_advertisement(engine, message.id)
    else:
        engine.unfile_subscription(message.id)
    return effects + told(engine, message, governed)


def _unfile_advertisement(engine: "Engine", id: str) -> list[Effect]:  # noqa: A002
    """Subscriptions that went toward it and toward no other come back."""
    gone = engine.unfile_advertisement(id)
    effects: list[Effect] = []
    if gone.is_client:
        return effects
    for filed in engine.subscriptions:
        if gone.hop in filed.flooded:
            continue
        if gone.hop in filed.sent and gone.hop not in toward_advertisements(engine, filed.value, filed.hop):
            filed.sent.discard(gone.hop)
            effects.append(Send(gone.hop, Unsubscribe(filed.owner, filed.id)))
    return effects


# What is told


def told(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """Lines for the log, messages for a store, meta-events; a meta-event causes no others."""
    news = said(engine, message, governed)
    effects = kept(message, governed)
    for place, attributes in enumerate(news):
        effects += engine.tell(attributes, message.id, str(place))
    return effects


def kept(message: Message, governed: Governed) -> list[Effect]:
    """Lines for the log, and messages for a store."""
    effects: list[Effect] = [Log(line) for line in governed.logs]
    event = message.event if isinstance(message, PublicationMessage) else None
    return effects + [Persist(store, message.situation.message, event) for store in governed.persists]


def said(engine: "Engine", message: Message, governed: Governed) -> list[Attributes]:
    """The meta-events that follow, in their order; of a meta-event, none. If there are too many, that is logged."""
    if isinstance(message, PublicationMessage) and message.journey.meta:
        return []
    said = list(governed.publishes)
    for failure in governed.failures:
        said.append(meta.exception(engine.name, str(failure), failure.outcome.failure or "", message.id))
    for link, one in governed.conflicts:
        if engine.is_news(link, one):
            said.append(meta.conflict(engine.name, link, one.one, one.other, one.reason, message.id))
    if len(said) > MAX_TOLD_EVENTS:
        left = len(said) - MAX_TOLD_EVENTS
        governed.logs.append(
            f"{left:,} meta-events about one message more than MAX_TOLD_EVENTS: they are not published"
        )
        del said[MAX_TOLD_EVENTS:]
    return said
