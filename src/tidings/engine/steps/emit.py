"""Emit: turn what was decided about a message into effects, and update the tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.effects import Deliver, Effect, LogMessage, PolicyWarning, Reject, Send
from tidings.engine.headers import CopyChanges, ForwardingHeader, Provenance
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Advertise, Publish, Unadvertise, Unsubscribe
from tidings.engine.security import sealed_events
from tidings.engine.state.filter_rules import Ruling, StaticProjection
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import propagation, report
from tidings.engine.steps.decisions import final_attributes
from tidings.engine.steps.govern import Delivery, GovernResult, LinkCopy, govern_filter, is_blocked_for_neighbour
from tidings.engine.steps.match import MatchResult
from tidings.engine.steps.next_hops import strip_unrequested_context
from tidings.engine.steps.report import suspicious
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.notification import Notification, subscriber_view
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.ast import MessageType, RuleOperation
from tidings.policy.evaluation.actions import without_attributes
from tidings.routing.advertisement import without_publishers
from tidings.routing.advertisement_table import META, attracts

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.security.gate import DeliveryGate


# Publications


def emit_unchanged(
    engine: "Engine",
    message: PublicationMessage,
    wanted: list[FilterEntry[Subscription]],
    onward: Mapping[str, list[FilterEntry[Subscription]]],
) -> list[Effect]:
    """Emit a publication that no rule has to be evaluated for.

    Each subscription gets a notification with the event as published, or with the fixed projection of its only rule.
    Neighbours get the publication as it came.

    Args:
        engine: The broker.
        message: The publication.
        wanted: The local subscriptions that get it.
        onward: The neighbours that get it, each with the matching subscriptions behind the link.
    """
    effects: list[Effect] = [*plain_deliveries(message.event, wanted, engine.gate)]
    if onward:
        publication = _unchanged_publication(message)
        for name, found in onward.items():
            effects.append(Send(name, strip_unrequested_context(engine, publication, name) if found else publication))
    return effects


def plain_deliveries(
    event: Event, wanted: list[FilterEntry[Subscription]], gate: "DeliveryGate | None" = None
) -> list[Deliver]:
    """Return a delivery for each of the subscriptions, with the event as published or with a fixed projection of it."""
    if not wanted:
        return []
    event = subscriber_view(event)
    if event.signature is not None:
        event = sealed_events.trim_for_subscriber(gate, event)
    return [
        _plain_delivery(event, entry.value)
        if entry.is_plain or entry.projection is None
        else _projected_delivery(event, entry.value, entry.projection)
        for entry in wanted
    ]


def _plain_delivery(event: Event, subscription: Subscription) -> Deliver:
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


def _projected_delivery(event: Event, subscription: Subscription, cut: StaticProjection) -> Deliver:
    attributes = cut.of(event.attributes)
    if attributes is not event.attributes:
        event = sealed_events.trim_for_neighbour(msgspec.structs.replace(event, attributes=attributes))
    return _plain_delivery(event, subscription)


def emit_publication(
    engine: "Engine", message: PublicationMessage, match_result: MatchResult, governed: GovernResult
) -> list[Effect]:
    """Emit a governed publication: deliveries, copies for neighbours, waiting copies, and reports.

    Args:
        engine: The broker.
        message: The publication.
        match_result: The rules for every copy.
        governed: What rules decided.
    """
    effects: list[Effect] = [
        governed_delivery(message.event, delivery, engine.gate) for delivery in governed.deliveries
    ]
    effects += [Send(copy.hop.receiver or "", _link_publication(engine, message, copy)) for copy in governed.copies]
    effects += engine.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    return effects + report.report(engine, message, governed)


def governed_delivery(event: Event, delivery: Delivery, gate: "DeliveryGate | None" = None) -> Deliver:
    """Return the effect that delivers a governed notification."""
    return delivery_with_changes(
        event, [subscription.value for subscription in delivery.subscriptions], delivery.changes, gate
    )


def delivery_with_changes(
    event: Event, wanted: list[Subscription], changes: CopyChanges, gate: "DeliveryGate | None" = None
) -> Deliver:
    """Return the notification for one subscription, or with notify="client" for several of one client.

    Args:
        event: The event as it was matched.
        wanted: The subscriptions that the notification is for.
        changes: The changes that rules decided.
        gate: The gate of the broker, for sealed events.
    """
    first, event = wanted[0], subscriber_view(event)
    attributes = final_attributes(event, changes)
    payload = event.payload if changes.payload is None or event.signature is not None else changes.payload
    is_combined = first.notify == "client"
    durable = next((subscription.durable for subscription in wanted if subscription.durable is not None), None)
    if attributes is not event.attributes or payload is not event.payload:
        # The event inside the notification must not reveal removed attributes.
        event = msgspec.structs.replace(event, attributes=attributes, payload=payload)
    if event.signature is not None:
        event = sealed_events.trim_for_subscriber(gate, event, dict(changes.added))
    return Deliver(
        Notification(
            event=event,
            subscription=first.id,
            subscriber=first.subscriber,
            attributes=attributes,
            payload=payload,
            subscriptions=tuple(subscription.id for subscription in wanted) if is_combined else (),
            trace=changes.trace,
        ),
        durable,
    )


def _link_publication(engine: "Engine", message: PublicationMessage, copy: LinkCopy) -> Publish:
    """Return a publication as it is sent to a neighbour, with its header and without removed attributes."""
    removed_names = copy.common.removed | copy.dropped
    event = message.event
    if removed_names:
        kept = {name: value for name, value in event.attributes.items() if name not in removed_names}
        event = sealed_events.trim_for_neighbour(msgspec.structs.replace(event, attributes=Attributes.trusted(kept)))
    common = msgspec.structs.replace(copy.common, removed=frozenset())
    own = {
        name: msgspec.structs.replace(changes, removed=changes.removed - removed_names)
        for name, changes in copy.own.items()
    }
    policy = None if message.attached is None else str(message.attached.policy)
    own = {name: entry for name, entry in own.items() if entry != CopyChanges()}
    publication = Publish(event, ForwardingHeader(policy, message.journey.meta, common, own, message.route))
    return (
        strip_unrequested_context(engine, publication, copy.hop.receiver or "")
        if copy.hop.subscriptions
        else publication
    )


def emit_unmatched_with_reports(engine: "Engine", message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a message that rules before matching refused or sent on, with its reports."""
    return emit_unmatched(engine, message, governed) + report.report(engine, message, governed)


def emit_unmatched(engine: "Engine", message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a message that rules before matching refused or sent on, without its reports."""
    if governed.refused is not None:
        return [Reject("govern", f"blocked before matching by {governed.refused}")]
    effects: list[Effect] = []
    for name in dict.fromkeys(governed.forwards_to):
        if name not in engine.neighbours:
            effects.append(LogMessage(f"ForwardTo: {name} is no neighbour of {engine.name}"))
        elif name != message.sender and not is_blocked_for_neighbour(engine, message, name, governed):
            if engine.deferred.has_waiting_copies(name) and isinstance(message, PublicationMessage):
                effects += engine.deferred.enqueue_copies(message, (), [(engine.hop(message, name), None)])
            elif isinstance(message, PublicationMessage):
                effects.append(Send(name, _unchanged_publication(message)))
            else:
                effects.append(Send(name, message.operation))
    return effects


def _unchanged_publication(message: PublicationMessage) -> Publish:
    """Return a publication unchanged, with its current route."""
    operation = message.operation
    if isinstance(operation, Publish) and operation.journey.route is message.route:
        return operation
    return Publish(message.event, msgspec.structs.replace(message.journey, route=message.route))


# Filters


def emit_filter(engine: "Engine", message: Message, match_result: MatchResult, governed: GovernResult) -> list[Effect]:
    """Insert a governed filter into its table and forward it; forward or withdraw others that this affects.

    Args:
        engine: The broker.
        message: The subscription or advertisement.
        match_result: The neighbours it was matched to, and its rules.
        governed: What rules decided.
    """
    effects: list[Effect] = []
    operation = message.operation
    value: Advertisement | Subscription
    value = operation.advertisement if isinstance(operation, Advertise) else operation.subscription  # type: ignore[union-attr]
    if message.attached is not None:
        value = msgspec.structs.replace(value, policy=str(message.attached.policy))
    if governed.excluded:
        value = msgspec.structs.replace(value, content=without_publishers(value.content, governed.excluded))
        effects += [
            PolicyWarning(value.id, f"not for the events of {publisher}: kept out by {decision}")
            for publisher, decision in governed.excluded.items()
        ]
    before: FilterEntry[Any] | None = None
    entry: FilterEntry[Any] | None = None
    provenance = operation.way  # type: ignore[union-attr]
    if governed.uninserted is None:
        before, entry = engine.insert_filter(message, value, provenance)
        effects += policy_warnings(engine, entry)
    else:
        effects.append(Reject("govern", f"kept out of the tables by {governed.uninserted}"))
    current_entry = entry or engine.prospective_entry(value, message.sender, provenance)
    matched_neighbours = {hop.receiver or "" for hop in match_result.hops}
    if before is not None:
        current_entry.sent_to, current_entry.target_links = (
            before.sent_to,
            before.target_links,
        )  # the new version replaces the former one at neighbours
    is_new_session = (
        before is not None and before.version[0] != current_entry.version[0]
    )  # the client sent it in another session
    effects += _forward_filter(
        engine, current_entry, governed, match_result.rulings, matched_neighbours, is_new_session=is_new_session
    )
    if before is not None:
        effects += _withdraw_from_others(engine, current_entry, {hop.receiver or "" for hop, _, _ in governed.filters})
    effects += engine.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    if isinstance(value, Advertisement) and entry is not None:
        effects += _forward_attracted_subscriptions(engine, entry)
        if before is not None and not before.is_client:
            effects += _withdraw_unattracted_subscriptions(
                engine, before.hop
            )  # the advertisement may offer less, or its publisher has moved
    effects += report.report(engine, message, governed)
    return effects if message.attached is None and not value.id.startswith(META) else effects + engine.advertise_meta()


def _forward_filter(
    engine: "Engine",
    entry: FilterEntry[Any],
    governed: GovernResult,
    rulings: tuple[Ruling, ...],
    matched_neighbours: set[str],
    *,
    is_new_session: bool = False,
) -> list[Effect]:
    """Send a filter to the neighbours that rules let it go to; note those that only a rule sends it to as flooded."""
    effects: list[Effect] = []
    wanted = {} if isinstance(entry.value, Advertisement) else engine.propagation_targets(entry)
    for hop, kept, removed in governed.filters:
        neighbour = hop.receiver or ""
        if isinstance(entry.value, Advertisement):
            effects.append(_send_advertisement(engine, entry, neighbour, kept, removed))
        else:
            scoped = wanted.get(neighbour, False)
            effects += propagation.put_on_link(
                engine, entry, neighbour, scoped, kept, removed, rulings, is_new_session=is_new_session
            )
        if neighbour not in matched_neighbours:
            entry.flooded |= {neighbour}
    return effects


def _withdraw_from_others(engine: "Engine", entry: FilterEntry[Any], informed_neighbours: set[str]) -> list[Effect]:
    """Withdraw a replaced filter from the neighbours that had it and are not in `informed_neighbours`."""
    return _withdraw_filter_from(
        engine, entry, sorted((entry.sent_to | entry.target_links.keys()) - informed_neighbours)
    )


def withdraw_filter(engine: "Engine", entry: FilterEntry[Any]) -> list[Effect]:
    """Withdraw a filter from all neighbours that have it."""
    return _withdraw_filter_from(engine, entry, sorted(entry.sent_to))


def _withdraw_filter_from(engine: "Engine", entry: FilterEntry[Any], neighbours: list[str]) -> list[Effect]:
    effects: list[Effect] = []
    for name in neighbours:
        if isinstance(entry.value, Advertisement):
            entry.sent_to -= {name}
            effects.append(Send(name, Unadvertise(entry.owner, entry.id, way=_provenance(engine, entry, name))))
        else:
            effects += propagation.withdraw(engine, entry, name)
    return effects


def policy_warnings(engine: "Engine", entry: FilterEntry[Advertisement] | FilterEntry[Subscription]) -> list[Effect]:
    """Return warnings about what looks suspicious in a filter's policies, at the broker where they were set."""
    if not entry.is_client and entry.operator_policy is None:
        return []
    return [PolicyWarning(entry.id, finding) for finding in suspicious(entry, lone=not engine.neighbours)]


def _send_advertisement(
    engine: "Engine",
    entry: FilterEntry[Advertisement],
    neighbour: str,
    kept: frozenset[str] | None,
    removed: frozenset[str],
) -> Send:
    """Send an advertisement to a neighbour, without the predicates that rules removed."""
    content = entry.value.content
    removed_names = removed if kept is None else removed | (content.names - kept)
    value = msgspec.structs.replace(entry.value, content=without_attributes(content, removed_names))
    entry.sent_to |= {neighbour}
    return Send(neighbour, Advertise(value, _provenance(engine, entry, neighbour)))


def _provenance(engine: "Engine", entry: FilterEntry[Any], neighbour: str) -> Provenance:
    return Provenance(entry.origin, entry.version, engine.digest_for(neighbour))


def _forward_attracted_subscriptions(engine: "Engine", advertisement: FilterEntry[Advertisement]) -> list[Effect]:
    """Forward stored subscriptions toward a new advertisement that came from a neighbour."""
    if advertisement.is_client:
        return []
    effects: list[Effect] = []
    for entry in [
        subscription
        for subscription in engine.subscriptions
        if subscription.hop != advertisement.hop and engine.is_current(subscription)
    ]:
        if entry.target_links.get(advertisement.hop) is not True and attracts(advertisement.value, entry.value):
            effects += propagation.propagate(engine, entry)
    return effects


def forward_advertisement(engine: "Engine", entry: FilterEntry[Advertisement], neighbour: str) -> list[Effect]:
    """Send a stored advertisement to one more neighbour, applying the Forward rules of its own policy."""
    if entry.hop == neighbour or neighbour in entry.sent_to:
        return []
    message = engine.rebuild_advertisement_message(entry)
    governed = GovernResult()
    rulings = message.rulings(RuleOperation.FORWARD)
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    effects: list[Effect] = [
        _send_advertisement(engine, entry, neighbour, kept, removed) for _, kept, removed in governed.filters
    ]
    return (
        effects
        + engine.deferred.enqueue_copies(message, rulings, governed.waiting)
        + report.report(engine, message, governed)
    )


def emit_deferred(engine: "Engine", message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a copy that had to wait for an answer of the trust provider."""
    if isinstance(message, PublicationMessage):
        return emit_publication(engine, message, MatchResult(), governed)
    effects: list[Effect] = []
    table: Any = engine.advertisements if message.type is MessageType.ADVERTISEMENT else engine.subscriptions
    entry = table.get(message.id)
    if isinstance(message.operation, Unadvertise | Unsubscribe):
        effects += [Send(hop.receiver or "", message.operation) for hop, _, _ in governed.filters]
    elif entry is not None:  # otherwise the filter was removed meanwhile
        effects += _forward_filter(
            engine, entry, governed, message.rulings(RuleOperation.FORWARD), set(entry.target_links)
        )
    return effects + report.report(engine, message, governed)


def emit_removal(engine: "Engine", message: Message, match_result: MatchResult, governed: GovernResult) -> list[Effect]:
    """Remove a filter from its table and withdraw it from the neighbours; forward what it covered.

    Args:
        engine: The broker.
        message: The removal.
        match_result: The rules on the removal.
        governed: What rules decided.
    """
    entry: FilterEntry[Any]
    if message.type is MessageType.UNADVERTISEMENT:
        entry = engine.advertisements[message.id]
    else:
        entry = engine.subscriptions[message.id]
    engine.remove_filter(entry)
    effects: list[Effect] = []
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in entry.target_links:
            effects += propagation.uncover(engine, entry, name)  # type: ignore[arg-type]
    for hop, _, _ in governed.filters:
        neighbour = hop.receiver or ""
        removed = msgspec.structs.replace(message.operation, way=_provenance(engine, entry, neighbour))
        effects.append(Send(neighbour, removed))
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in entry.sent_to:
            propagation.forget_context(engine, entry.owner, name)
    effects += engine.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    if message.type is MessageType.UNADVERTISEMENT and not entry.is_client:
        effects += _withdraw_unattracted_subscriptions(engine, entry.hop)
    return effects + report.report(engine, message, governed)


def _withdraw_unattracted_subscriptions(engine: "Engine", neighbour: str) -> list[Effect]:
    """Withdraw from a neighbour the subscriptions that only a removed or changed advertisement attracted there."""
    effects: list[Effect] = []
    for entry in [
        subscription
        for subscription in engine.subscriptions
        if neighbour in subscription.target_links and engine.is_current(subscription)
    ]:
        effects += propagation.propagate(engine, entry)
    return effects
