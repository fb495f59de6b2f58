"""Route: what was decided becomes effects, and the tables learn of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine import placing, sealed, telling
from tidings.engine.concern import Concern
from tidings.engine.deciding import final_attributes
from tidings.engine.effects import Deliver, Effect, Log, Reject, Remark, Send
from tidings.engine.governing import Delivery, Governed, LinkCopy, forbidden, govern_filter
from tidings.engine.journey import Journey, Shape, Way
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Advertise, Publish, Unadvertise, Unsubscribe
from tidings.engine.passing import without_unasked
from tidings.engine.remarks import suspicious
from tidings.engine.ruled import Cut, Ruling
from tidings.engine.tables import Filed
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.notification import Notification, shown
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.statement import MessageType, Operation
from tidings.policy.widening import without
from tidings.routing.advertisement import without_publishers
from tidings.routing.offers import META, attracts

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.security.gate import Gate


# Publications


def plainly(
    engine: "Engine",
    message: PublicationMessage,
    wanted: list[Filed[Subscription]],
    onward: Mapping[str, list[Filed[Subscription]]],
) -> list[Effect]:
    """Where no rule has to be asked: a notification each, as published or cut as its rule always does; and neighbours
    get it as it came."""
    effects: list[Effect] = [*copies(message.event, wanted, engine.gate)]
    if onward:
        passed = _as_it_is(message)
        for name, found in onward.items():
            effects.append(Send(name, without_unasked(engine, passed, name) if found else passed))
    return effects


def copies(event: Event, wanted: list[Filed[Subscription]], gate: "Gate | None" = None) -> list[Deliver]:
    """A notification each."""
    if not wanted:
        return []
    event = shown(event)
    if event.signature is not None:
        event = sealed.handed_out(gate, event)
    return [
        _plain(event, one.value) if one.is_plain or one.cut is None else _cut(event, one.value, one.cut)
        for one in wanted
    ]


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
        event = sealed.passed_on(msgspec.structs.replace(event, attributes=attributes))
    return _plain(event, subscription)


def publication(engine: "Engine", message: PublicationMessage, concerned: Concern, governed: Governed) -> list[Effect]:
    effects: list[Effect] = [delivered(message.event, one, engine.gate) for one in governed.deliveries]
    effects += [Send(one.hop.receiver or "", _forwarded(engine, message, one)) for one in governed.copies]
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    return effects + telling.told(engine, message, governed)


def delivered(event: Event, delivery: Delivery, gate: "Gate | None" = None) -> Deliver:
    return delivered_to(event, [one.value for one in delivery.wanted], delivery.shape, gate)


def delivered_to(event: Event, wanted: list[Subscription], shape: Shape, gate: "Gate | None" = None) -> Deliver:
    """The notification for one subscription, or with notify="client" for all of a client's that the event concerns."""
    first, event = wanted[0], shown(event)
    attributes = final_attributes(event, shape)
    payload = event.payload if shape.payload is None or event.signature is not None else shape.payload
    together = first.notify == "client"
    durable = next((one.durable for one in wanted if one.durable is not None), None)
    if attributes is not event.attributes or payload is not event.payload:
        # What a policy took away is not to be found in the event either.
        event = msgspec.structs.replace(event, attributes=attributes, payload=payload)
    if event.signature is not None:
        event = sealed.handed_out(gate, event, dict(shape.added))
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


def _forwarded(engine: "Engine", message: PublicationMessage, copy: LinkCopy) -> Publish:
    gone = copy.common.removed | copy.dropped
    event = message.event
    if gone:
        kept = {name: value for name, value in event.attributes.items() if name not in gone}
        event = sealed.passed_on(msgspec.structs.replace(event, attributes=Attributes.trusted(kept)))
    common = msgspec.structs.replace(copy.common, removed=frozenset())
    own = {name: msgspec.structs.replace(one, removed=one.removed - gone) for name, one in copy.own.items()}
    policy = None if message.attached is None else str(message.attached.policy)
    own = {name: one for name, one in own.items() if one != Shape()}
    passed = Publish(event, Journey(policy, message.journey.meta, common, own, message.route))
    return without_unasked(engine, passed, copy.hop.receiver or "") if copy.hop.wanted else passed


def without_matching(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """Rules before matching have decided: it is refused, or a publication is sent to those neighbours as
    it is."""
    return unmatched(engine, message, governed) + telling.told(engine, message, governed)


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
            elif isinstance(message, PublicationMessage):
                effects.append(Send(name, _as_it_is(message)))
            else:
                effects.append(Send(name, message.operation))
    return effects


def _as_it_is(message: PublicationMessage) -> Publish:
    """It goes on with the route that it has."""
    operation = message.operation
    if isinstance(operation, Publish) and operation.journey.route is message.route:
        return operation
    return Publish(message.event, msgspec.structs.replace(message.journey, route=message.route))


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
    before: Filed[Any] | None = None
    filed: Filed[Any] | None = None
    way = operation.way  # type: ignore[union-attr]
    if governed.uninserted is None:
        before, filed = engine.file(message, given, way)
        effects += remarks(engine, filed)
    else:
        effects.append(Reject("govern", f"kept out of the tables by {governed.uninserted}"))
    here = filed or engine.prospective(given, message.sender, way)
    asked = {hop.receiver or "" for hop in concerned.hops}
    if before is not None:
        here.sent, here.toward = before.sent, before.toward  # what is sent of the new one takes the place of the old
    anew = before is not None and before.version[0] != here.version[0]  # in another session of its client
    effects += _spread(engine, here, governed, concerned.rulings, asked, anew=anew)
    if before is not None:
        effects += _not_for_these(engine, here, {hop.receiver or "" for hop, _, _ in governed.filters})
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    if isinstance(given, Advertisement) and filed is not None:
        effects += _attracted(engine, filed)
        if before is not None and not before.is_client:
            effects += _released(engine, before.hop)  # it offers less now, or its publisher has moved
    effects += telling.told(engine, message, governed)
    return effects if message.attached is None and not given.id.startswith(META) else effects + engine.advertise_meta()


def _spread(
    engine: "Engine",
    filed: Filed[Any],
    governed: Governed,
    rulings: tuple[Ruling, ...],
    asked: set[str],
    *,
    anew: bool = False,
) -> list[Effect]:
    """To the neighbours that it may go to; where nobody asked for it, a rule has made it go."""
    effects: list[Effect] = []
    wanted = {} if isinstance(filed.value, Advertisement) else engine.toward(filed)
    for hop, kept, removed in governed.filters:
        neighbour = hop.receiver or ""
        if isinstance(filed.value, Advertisement):
            effects.append(_advertised(engine, filed, neighbour, kept, removed))
        else:
            scoped = wanted.get(neighbour, False)
            effects += placing.put(engine, filed, neighbour, scoped, kept, removed, rulings, anew=anew)
        if neighbour not in asked:
            filed.flooded |= {neighbour}
    return effects


def _not_for_these(engine: "Engine", filed: Filed[Any], told: set[str]) -> list[Effect]:
    """Neighbours that had the one before and do not get this one have neither."""
    return _taken_back_from(engine, filed, sorted((filed.sent | filed.toward.keys()) - told))


def taken_back(engine: "Engine", filed: Filed[Any]) -> list[Effect]:
    """From all that have it."""
    return _taken_back_from(engine, filed, sorted(filed.sent))


def _taken_back_from(engine: "Engine", filed: Filed[Any], neighbours: list[str]) -> list[Effect]:
    effects: list[Effect] = []
    for name in neighbours:
        if isinstance(filed.value, Advertisement):
            filed.sent -= {name}
            effects.append(Send(name, Unadvertise(filed.owner, filed.id, way=_way(engine, filed, name))))
        else:
            effects += placing.withdraw(engine, filed, name)
    return effects


def remarks(engine: "Engine", filed: Filed[Advertisement] | Filed[Subscription]) -> list[Effect]:
    """What is suspicious about the policy that a filter has: told where it was set."""
    if not filed.is_client and filed.operator_policy is None:
        return []
    return [Remark(filed.id, one) for one in suspicious(filed, lone=not engine.neighbours)]


def _advertised(
    engine: "Engine",
    filed: Filed[Advertisement],
    neighbour: str,
    kept: frozenset[str] | None,
    removed: frozenset[str],
) -> Send:
    content = filed.value.content
    gone = removed if kept is None else removed | (content.names - kept)
    given = msgspec.structs.replace(filed.value, content=without(content, gone))
    filed.sent |= {neighbour}
    return Send(neighbour, Advertise(given, _way(engine, filed, neighbour)))


def _way(engine: "Engine", filed: Filed[Any], neighbour: str) -> Way:
    return Way(filed.origin, filed.version, engine.digest_for(neighbour))


def _attracted(engine: "Engine", advertisement: Filed[Advertisement]) -> list[Effect]:
    """Subscriptions that were here before go toward a new advertisement, if it came from a neighbour."""
    if advertisement.is_client:
        return []
    effects: list[Effect] = []
    for filed in [one for one in engine.subscriptions if one.hop != advertisement.hop and engine.is_current(one)]:
        if filed.toward.get(advertisement.hop) is not True and attracts(advertisement.value, filed.value):
            effects += placing.place(engine, filed)
    return effects


def forward_advertisement(engine: "Engine", filed: Filed[Advertisement], neighbour: str) -> list[Effect]:
    """Sends an advertisement that is filed already to one more neighbour, under its own rules."""
    if filed.hop == neighbour or neighbour in filed.sent:
        return []
    message = engine.advertisement_again(filed)
    governed = Governed()
    rulings = message.rulings(Operation.FORWARD)
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    effects: list[Effect] = [
        _advertised(engine, filed, neighbour, kept, removed) for _, kept, removed in governed.filters
    ]
    return effects + engine.held.hold(message, rulings, governed.waiting) + telling.told(engine, message, governed)


def late(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """A copy that had to wait."""
    if isinstance(message, PublicationMessage):
        return publication(engine, message, Concern(), governed)
    effects: list[Effect] = []
    table: Any = engine.advertisements if message.type is MessageType.ADVERTISEMENT else engine.subscriptions
    filed = table.get(message.id)
    if isinstance(message.operation, Unadvertise | Unsubscribe):
        effects += [Send(hop.receiver or "", message.operation) for hop, _, _ in governed.filters]
    elif filed is not None:  # it may have been taken back meanwhile
        effects += _spread(engine, filed, governed, message.rulings(Operation.FORWARD), set(filed.toward))
    return effects + telling.told(engine, message, governed)


def removal(engine: "Engine", message: Message, concerned: Concern, governed: Governed) -> list[Effect]:
    filed: Filed[Any]
    if message.type is MessageType.UNADVERTISEMENT:
        filed = engine.advertisements[message.id]
    else:
        filed = engine.subscriptions[message.id]
    engine.unfile(filed)
    effects: list[Effect] = []
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in filed.toward:
            effects += placing.uncover(engine, filed, name)  # type: ignore[arg-type]
    for hop, _, _ in governed.filters:
        neighbour = hop.receiver or ""
        removed = msgspec.structs.replace(message.operation, way=_way(engine, filed, neighbour))
        effects.append(Send(neighbour, removed))
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in filed.sent:
            placing.forget_context(engine, filed.owner, name)
    effects += engine.held.hold(message, concerned.rulings, governed.waiting)
    if message.type is MessageType.UNADVERTISEMENT and not filed.is_client:
        effects += _released(engine, filed.hop)
    return effects + telling.told(engine, message, governed)


def _released(engine: "Engine", neighbour: str) -> list[Effect]:
    """Subscriptions that went toward an advertisement that is gone, and toward no other, come back."""
    effects: list[Effect] = []
    for filed in [one for one in engine.subscriptions if neighbour in one.toward and engine.is_current(one)]:
        effects += placing.place(engine, filed)
    return effects
