"""Emit: turn what was decided about a message into effects, and update the tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine import meta_events
from tidings.engine.effects import Deliver, Effect, LogMessage, PolicyWarning, Reject, Send, SubscriptionExpelled
from tidings.engine.headers import CopyChanges, ForwardingHeader, Provenance
from tidings.engine.message import Arrival, Message, PublicationMessage
from tidings.engine.operations import Advertise, Publish, Unadvertise, Unsubscribe
from tidings.engine.security import sealed_events
from tidings.engine.state import registration
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling, StaticProjection
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.links import is_current
from tidings.engine.state.registration import insert_filter, prospective_entry, target_links
from tidings.engine.steps import propagation, report
from tidings.engine.steps.decisions import final_attributes
from tidings.engine.steps.govern import Delivery, GovernResult, LinkCopy, govern_filter, is_blocked_for_neighbour
from tidings.engine.steps.match import MatchResult
from tidings.engine.steps.next_hops import hop_to, strip_unrequested_context
from tidings.engine.steps.report import suspicious
from tidings.engine.turn import Turn
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
    from tidings.security.gate import DeliveryGate


# Publications


def emit_unchanged(
    turn: Turn,
    message: PublicationMessage,
    wanted: list[FilterEntry[Subscription]],
    onward: Mapping[str, list[FilterEntry[Subscription]]],
) -> list[Effect]:
    """Emit a publication that no rule has to be evaluated for.

    Each subscription gets a notification with the event as published, or with the fixed projection of its only rule.
    Neighbours get the publication as it came.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The publication.
        wanted: The local subscriptions that get it.
        onward: The neighbours that get it, each with the matching subscriptions behind the link.
    """
    effects: list[Effect] = [*plain_deliveries(message.event, wanted, turn.gate)]
    if onward:
        publication = _unchanged_publication(message)
        for name, subscriptions in onward.items():
            effects.append(
                Send(name, strip_unrequested_context(turn.state, publication, name) if subscriptions else publication)
            )
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
    turn: Turn, message: PublicationMessage, match_result: MatchResult, governed: GovernResult
) -> list[Effect]:
    """Emit a governed publication: deliveries, copies for neighbours, waiting copies, and reports.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The publication.
        match_result: The rules for every copy.
        governed: What rules decided.
    """
    effects: list[Effect] = [governed_delivery(message.event, delivery, turn.gate) for delivery in governed.deliveries]
    effects += [Send(copy.hop.receiver or "", _link_publication(turn.state, message, copy)) for copy in governed.copies]
    effects += turn.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    return effects + report.report(turn, message, governed)


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


def _link_publication(state: BrokerState, message: PublicationMessage, copy: LinkCopy) -> Publish:
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
    publication = Publish(
        event, ForwardingHeader(policy, message.operation.journey.meta, common, own, message.routing.route)
    )
    return (
        strip_unrequested_context(state, publication, copy.hop.receiver or "")
        if copy.hop.subscriptions
        else publication
    )


def expel_subscriptions(turn: Turn, message: PublicationMessage) -> list[Effect]:
    """Expel the subscriptions without a token for a sealed event's topic, which came before their topic was known."""
    state = turn.state
    effects: list[Effect] = []
    if message.tokens is None:
        return effects
    entries, message.tokens.subscriptions_without_token = message.tokens.subscriptions_without_token, []
    for entry in entries:
        if state.filters.subscriptions.get(entry.id) is not entry:
            continue  # an earlier event of the same batch has expelled it
        reason = "it asks for a secure topic: subscribe again with a token for it"
        effects.append(SubscriptionExpelled(entry.owner, entry.id, reason))
        effects += turn.run(Unsubscribe(entry.owner, entry.id), entry.hop)
        effects += report.publish_meta_event(
            turn, meta_events.expelled(state.name, entry.owner, entry.id, reason), entry.id
        )
    return effects


def emit_unmatched_with_reports(turn: Turn, message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a message that rules before matching refused or sent on, with its reports."""
    return emit_unmatched(turn, message, governed) + report.report(turn, message, governed)


def emit_unmatched(turn: Turn, message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a message that rules before matching refused or sent on, without its reports."""
    state = turn.state
    if governed.refused is not None:
        return [Reject("govern", f"blocked before matching by {governed.refused}")]
    effects: list[Effect] = []
    for name in dict.fromkeys(governed.forwards_to):
        if name not in state.links.neighbours:
            effects.append(LogMessage(f"ForwardTo: {name} is no neighbour of {state.name}"))
        elif name != message.arrival.sender and not is_blocked_for_neighbour(state, message, name, governed):
            if turn.deferred.has_waiting_copies(name) and isinstance(message, PublicationMessage):
                effects += turn.deferred.enqueue_copies(message, (), [(hop_to(state, message, name), None)])
            elif isinstance(message, PublicationMessage):
                effects.append(Send(name, _unchanged_publication(message)))
            else:
                effects.append(Send(name, message.operation))
    return effects


def _unchanged_publication(message: PublicationMessage) -> Publish:
    """Return a publication unchanged, with its current route."""
    operation = message.operation
    if isinstance(operation, Publish) and operation.journey.route is message.routing.route:
        return operation
    return Publish(message.event, msgspec.structs.replace(message.operation.journey, route=message.routing.route))


# Filters


def emit_filter(turn: Turn, message: Message, match_result: MatchResult, governed: GovernResult) -> list[Effect]:
    """Insert a governed filter into its table and forward it; forward or withdraw others that this affects.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The subscription or advertisement.
        match_result: The neighbours it was matched to, and its rules.
        governed: What rules decided.
    """
    state = turn.state
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
        before, entry = insert_filter(state, value, message.arrival.sender, message.attached, provenance, turn.now)
        effects += policy_warnings(state, entry)
    else:
        effects.append(Reject("govern", f"kept out of the tables by {governed.uninserted}"))
    current_entry = entry or prospective_entry(state, value, message.arrival.sender, provenance, turn.now)
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
        turn, current_entry, governed, match_result.rulings, matched_neighbours, is_new_session=is_new_session
    )
    if before is not None:
        effects += _withdraw_from_others(turn, current_entry, {hop.receiver or "" for hop, _, _ in governed.filters})
    effects += turn.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    if isinstance(value, Advertisement) and entry is not None:
        effects += _forward_attracted_subscriptions(turn, entry)
        if before is not None and not before.is_client:
            effects += _withdraw_unattracted_subscriptions(
                turn, before.hop
            )  # the advertisement may offer less, or its publisher has moved
    effects += report.report(turn, message, governed)
    return (
        effects
        if message.attached is None and not value.id.startswith(META)
        else effects + propagation.advertise_meta(turn)
    )


def _forward_filter(
    turn: Turn,
    entry: FilterEntry[Any],
    governed: GovernResult,
    rulings: tuple[Ruling, ...],
    matched_neighbours: set[str],
    *,
    is_new_session: bool = False,
) -> list[Effect]:
    """Send a filter to the neighbours that rules allow; record as flooded those that get it only because of a rule."""
    state = turn.state
    effects: list[Effect] = []
    wanted = {} if isinstance(entry.value, Advertisement) else target_links(state, entry)
    for hop, kept, removed in governed.filters:
        neighbour = hop.receiver or ""
        if isinstance(entry.value, Advertisement):
            effects.append(_send_advertisement(state, entry, neighbour, kept, removed))
        else:
            scoped = wanted.get(neighbour, False)
            effects += propagation.put_on_link(
                turn, entry, neighbour, scoped, kept, removed, rulings, is_new_session=is_new_session
            )
        if neighbour not in matched_neighbours:
            entry.flooded |= {neighbour}
    return effects


def _withdraw_from_others(turn: Turn, entry: FilterEntry[Any], informed_neighbours: set[str]) -> list[Effect]:
    """Withdraw a replaced filter from the neighbours that had it and are not in `informed_neighbours`."""
    return _withdraw_filter_from(turn, entry, sorted((entry.sent_to | entry.target_links.keys()) - informed_neighbours))


def withdraw_filter(turn: Turn, entry: FilterEntry[Any]) -> list[Effect]:
    """Withdraw a filter from all neighbours that have it."""
    return _withdraw_filter_from(turn, entry, sorted(entry.sent_to))


def _withdraw_filter_from(turn: Turn, entry: FilterEntry[Any], neighbours: list[str]) -> list[Effect]:
    effects: list[Effect] = []
    for name in neighbours:
        if isinstance(entry.value, Advertisement):
            entry.sent_to -= {name}
            effects.append(Send(name, Unadvertise(entry.owner, entry.id, way=_provenance(turn.state, entry, name))))
        else:
            effects += propagation.withdraw(turn, entry, name)
    return effects


def policy_warnings(state: BrokerState, entry: FilterEntry[Advertisement] | FilterEntry[Subscription]) -> list[Effect]:
    """Return warnings about what looks suspicious in a filter's policies, at the broker where they were set."""
    if not entry.is_client and entry.operator_policy is None:
        return []
    return [PolicyWarning(entry.id, finding) for finding in suspicious(entry, lone=not state.links.neighbours)]


def _send_advertisement(
    state: BrokerState,
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
    return Send(neighbour, Advertise(value, _provenance(state, entry, neighbour)))


def _provenance(state: BrokerState, entry: FilterEntry[Any], neighbour: str) -> Provenance:
    return Provenance(entry.origin, entry.version, state.links.digest_for(neighbour))


def _forward_attracted_subscriptions(turn: Turn, advertisement: FilterEntry[Advertisement]) -> list[Effect]:
    """Forward stored subscriptions toward a new advertisement that came from a neighbour."""
    state = turn.state
    if advertisement.is_client:
        return []
    effects: list[Effect] = []
    for entry in [
        subscription
        for subscription in state.filters.subscriptions
        if subscription.hop != advertisement.hop and is_current(state.links, subscription)
    ]:
        if entry.target_links.get(advertisement.hop) is not True and attracts(advertisement.value, entry.value):
            effects += propagation.propagate(turn, entry)
    return effects


def forward_advertisement(turn: Turn, entry: FilterEntry[Advertisement], neighbour: str) -> list[Effect]:
    """Send a stored advertisement to one more neighbour, applying the Forward rules of its own policy."""
    state = turn.state
    if entry.hop == neighbour or neighbour in entry.sent_to:
        return []
    message = rebuild_advertisement_message(turn, entry)
    governed = GovernResult()
    rulings = message.rulings(RuleOperation.FORWARD)
    govern_filter(message, rulings, hop_to(state, message, neighbour), governed)
    effects: list[Effect] = [
        _send_advertisement(state, entry, neighbour, kept, removed) for _, kept, removed in governed.filters
    ]
    return (
        effects
        + turn.deferred.enqueue_copies(message, rulings, governed.waiting)
        + report.report(turn, message, governed)
    )


def rebuild_advertisement_message(turn: Turn, entry: FilterEntry[Advertisement]) -> Message:
    """Return a stored advertisement as the message it came in."""
    return Message(
        MessageType.ADVERTISEMENT,
        entry.id,
        Advertise(entry.value),
        Arrival(entry.hop, not entry.is_client, turn.state.links.is_ingress(entry.hop)),
        entry.owner,
        attached=entry.policy,
        rule_context=turn.rule_context,
        filter=entry.value.content,
    )


def emit_deferred(turn: Turn, message: Message, governed: GovernResult) -> list[Effect]:
    """Emit a copy that had to wait for an answer of the trust provider."""
    state = turn.state
    if isinstance(message, PublicationMessage):
        return emit_publication(turn, message, MatchResult(), governed)
    effects: list[Effect] = []
    table: Any = (
        state.filters.advertisements if message.type is MessageType.ADVERTISEMENT else state.filters.subscriptions
    )
    entry = table.get(message.id)
    if isinstance(message.operation, Unadvertise | Unsubscribe):
        effects += [Send(hop.receiver or "", message.operation) for hop, _, _ in governed.filters]
    elif entry is not None:  # otherwise the filter was removed meanwhile
        effects += _forward_filter(
            turn, entry, governed, message.rulings(RuleOperation.FORWARD), set(entry.target_links)
        )
    return effects + report.report(turn, message, governed)


def emit_removal(turn: Turn, message: Message, match_result: MatchResult, governed: GovernResult) -> list[Effect]:
    """Remove a filter from its table and withdraw it from the neighbours; forward what it covered.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The removal.
        match_result: The rules on the removal.
        governed: What rules decided.
    """
    state = turn.state
    entry: FilterEntry[Any]
    if message.type is MessageType.UNADVERTISEMENT:
        entry = state.filters.advertisements[message.id]
    else:
        entry = state.filters.subscriptions[message.id]
    registration.remove_filter(state, entry)
    effects: list[Effect] = []
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in entry.target_links:
            effects += propagation.uncover(turn, entry, name)  # type: ignore[arg-type]
    for hop, _, _ in governed.filters:
        neighbour = hop.receiver or ""
        removed = msgspec.structs.replace(message.operation, way=_provenance(state, entry, neighbour))
        effects.append(Send(neighbour, removed))
    if message.type is MessageType.UNSUBSCRIPTION:
        for name in entry.sent_to:
            propagation.forget_context(state, entry.owner, name)
    effects += turn.deferred.enqueue_copies(message, match_result.rulings, governed.waiting)
    if message.type is MessageType.UNADVERTISEMENT and not entry.is_client:
        effects += _withdraw_unattracted_subscriptions(turn, entry.hop)
    return effects + report.report(turn, message, governed)


def _withdraw_unattracted_subscriptions(turn: Turn, neighbour: str) -> list[Effect]:
    """Withdraw from a neighbour the subscriptions that only a removed or changed advertisement attracted there."""
    state = turn.state
    effects: list[Effect] = []
    for entry in [
        subscription
        for subscription in state.filters.subscriptions
        if neighbour in subscription.target_links and is_current(state.links, subscription)
    ]:
        effects += propagation.propagate(turn, entry)
    return effects
