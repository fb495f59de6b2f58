"""Propagate subscriptions to neighbours, and update the neighbours when subscriptions or contexts change.

1. The routing strategy says which neighbours should have a subscription (`FilterEntry.target_links`);
   `FilterEntry.sent_to` are those that have been sent it.
2. On a link with a covering set (`tidings.routing.link_covering_set`) only the maximal subscriptions are sent; others
   are covered. A subscription with a policy, or with rules acting on it, neither covers nor is covered.
3. New subscriptions are sent before others are withdrawn, so that no event is missed in between.
"""

import msgspec

from tidings.engine.effects import Effect, Send
from tidings.engine.headers import Provenance
from tidings.engine.message import Arrival, Message
from tidings.engine.operations import Advertise, SetContext, Subscribe, Unsubscribe
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.registration import target_links
from tidings.engine.steps import report
from tidings.engine.steps.govern import GovernResult, govern_filter
from tidings.engine.steps.match import overlapping_advertisements
from tidings.engine.steps.next_hops import hop_to
from tidings.engine.turn import Turn
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Attribute, Constant, In
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType, RuleOperation
from tidings.policy.evaluation.actions import without_attributes
from tidings.routing.advertisement_table import META
from tidings.routing.link_covering_set import LinkUpdate


def propagate(turn: Turn, entry: FilterEntry[Subscription]) -> list[Effect]:
    """Send a subscription to the neighbours that should have it and lack it, then withdraw it from the others."""
    wanted = target_links(turn.state, entry)
    effects: list[Effect] = []
    for name, scoped in wanted.items():
        if entry.target_links.get(name) is not scoped:
            effects += _forward_under_rules(turn, entry, name, scoped)
    for name in [name for name in entry.target_links if name not in wanted and name not in entry.flooded]:
        effects += withdraw(turn, entry, name)
    return effects


def repropagate(turn: Turn, entry: FilterEntry[Subscription]) -> list[Effect]:
    """Send a changed subscription again to all neighbours that should have it, then withdraw it from the others."""
    wanted = target_links(turn.state, entry)
    effects: list[Effect] = []
    for name in [*wanted, *sorted(entry.flooded - wanted.keys())]:
        effects += _forward_under_rules(turn, entry, name, wanted.get(name, False))
    for name in [name for name in entry.target_links if name not in wanted and name not in entry.flooded]:
        effects += withdraw(turn, entry, name)
    return effects


def _forward_under_rules(turn: Turn, entry: FilterEntry[Subscription], neighbour: str, scoped: bool) -> list[Effect]:
    """Send a subscription to a neighbour, applying the Forward rules of overlapping advertisements and its own."""
    message, rulings = rebuild_subscription_message(turn, entry)
    if not rulings:
        return put_on_link(turn, entry, neighbour, scoped)
    governed = GovernResult()
    govern_filter(message, rulings, hop_to(turn.state, message, neighbour), governed)
    effects: list[Effect] = []
    for _, kept, removed in governed.filters:
        effects += put_on_link(turn, entry, neighbour, scoped, kept, removed, rulings)
    return (
        effects
        + turn.deferred.enqueue_copies(message, rulings, governed.waiting)
        + report.report(turn, message, governed)
    )


def put_on_link(
    turn: Turn,
    entry: FilterEntry[Subscription],
    neighbour: str,
    scoped: bool,
    kept: frozenset[str] | None = None,
    removed: frozenset[str] = frozenset(),
    rulings: tuple[Ruling, ...] = (),
    *,
    is_new_session: bool = False,
) -> list[Effect]:
    """Note that a neighbour should have a subscription, and send it if no other subscription on the link covers it.

    Args:
        turn: The state of the broker, and the operation at hand.
        entry: The subscription.
        neighbour: The neighbour.
        scoped: Whether the neighbour matches it with its subscriber's context.
        kept: The attributes whose predicates rules keep; None: all.
        removed: The attributes whose predicates rules remove.
        rulings: The rules that act on forwarding it; with any, it takes no part in covering.
        is_new_session: Send it even if the neighbour has it.
    """
    state = turn.state
    before = entry.target_links.get(neighbour, scoped)
    entry.target_links = {**entry.target_links, neighbour: scoped}
    subscription = _bound_subscription(entry)
    removed_names = removed if kept is None else removed | (subscription.content.names - kept)
    if removed_names:
        subscription = msgspec.structs.replace(
            subscription, content=without_attributes(subscription.content, removed_names)
        )
    covering_set = state.links.covering_set(neighbour)
    if covering_set is None:
        return _send_subscription(state, entry, subscription, neighbour, scoped)
    if rulings or entry.value.policy is not None:
        change = covering_set.remove(entry.id)
        effects = _send_subscription(state, entry, subscription, neighbour, scoped)
        return effects + _apply_link_update(turn, neighbour, change, excluded_id=entry.id)
    change = covering_set.put(subscription, scoped)
    effects = _apply_link_update(turn, neighbour, change)
    if neighbour not in entry.sent_to or subscription in change.sent:
        return effects
    if not covering_set.carries(entry.id):
        return effects + _send_withdrawal(state, entry, neighbour)  # it was sent itself, and is covered now
    if is_new_session or before is not scoped:
        # The same filter, in another scope or version.
        return _send_subscription(state, entry, subscription, neighbour, scoped) + effects
    return effects


def withdraw(turn: Turn, entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Withdraw a subscription from a neighbour, after sending those that it covered."""
    entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name != neighbour}
    entry.flooded -= {neighbour}
    effects = uncover(turn, entry, neighbour)
    if neighbour in entry.sent_to:
        effects += _send_withdrawal(turn.state, entry, neighbour)
    return effects


def uncover(turn: Turn, entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Remove a subscription from a link's covering set, and send those that it covered."""
    covering_set = turn.state.links.covering_set(neighbour)
    return (
        []
        if covering_set is None
        else _apply_link_update(turn, neighbour, covering_set.remove(entry.id), excluded_id=entry.id)
    )


def repropagate_for_policy(turn: Turn, entry: FilterEntry[Subscription]) -> list[Effect]:
    """Update covering on all links after a subscription's policy changed: with a policy it is never covered."""
    state = turn.state
    effects: list[Effect] = []
    for name, scoped in entry.target_links.items():
        covering_set = state.links.covering_set(name)
        if covering_set is None:
            continue
        if entry.value.policy is None:
            effects += _apply_link_update(turn, name, covering_set.put(_bound_subscription(entry), scoped))
            continue
        effects += _apply_link_update(turn, name, covering_set.remove(entry.id), excluded_id=entry.id)
        if name not in entry.sent_to:
            effects += _send_subscription(state, entry, _bound_subscription(entry), name, scoped)
    return effects


def _apply_link_update(turn: Turn, neighbour: str, change: LinkUpdate, excluded_id: str = "") -> list[Effect]:
    """Send and withdraw what a change of a link's covering set requires, except the withdrawal of `excluded_id`."""
    state = turn.state
    effects: list[Effect] = []
    for subscription in change.sent:
        entry = state.filters.subscriptions.get(subscription.id)
        if entry is None:
            provenance = Provenance(
                state.name, (0, state.contexts.new_version(turn.now)), state.links.digest_for(neighbour)
            )
            effects.append(
                Send(neighbour, Subscribe(subscription, provenance))
            )  # several subscriptions that this broker has merged
        else:
            effects += _send_subscription(
                state, entry, subscription, neighbour, entry.target_links.get(neighbour, False)
            )
    for name in change.withdrawn:
        if name == excluded_id:
            continue
        entry = state.filters.subscriptions.get(name)
        if entry is not None:
            effects += _send_withdrawal(state, entry, neighbour)
        else:
            provenance = Provenance(
                state.name, (0, state.contexts.new_version(turn.now)), state.links.digest_for(neighbour)
            )
            effects.append(Send(neighbour, Unsubscribe(state.name, name, way=provenance)))
    return effects


def _send_subscription(
    state: BrokerState, entry: FilterEntry[Subscription], subscription: Subscription, neighbour: str, scoped: bool
) -> list[Effect]:
    """Send a subscription to a neighbour; if it is scoped, send its subscriber's context first."""
    effects: list[Effect] = []
    if scoped:
        effects = _send_context_first(state, entry, neighbour)
    else:
        forget_context(state, entry.owner, neighbour)
    entry.sent_to |= {neighbour}
    return [*effects, Send(neighbour, Subscribe(subscription, provenance_for(state, entry, neighbour, scoped)))]


def _send_withdrawal(state: BrokerState, entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Send the withdrawal of a subscription to a neighbour."""
    entry.sent_to -= {neighbour}
    forget_context(state, entry.owner, neighbour)
    return [Send(neighbour, Unsubscribe(entry.owner, entry.id, way=provenance_for(state, entry, neighbour)))]


def forget_context(state: BrokerState, client: str, neighbour: str) -> None:
    """Note that a neighbour needs a client's context no more, if no scoped subscription of the client is left there."""
    if not any(
        neighbour in entry.sent_to and entry.target_links.get(neighbour)
        for entry in state.filters.subscriptions.of(client)
    ):
        state.contexts.sent.discard(client, neighbour)


def _send_context_first(state: BrokerState, entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Send a subscriber's context to a neighbour, unless the neighbour has it."""
    if not state.contexts.sent.add(entry.owner, neighbour):
        return []
    return [Send(neighbour, context_message(state, entry.owner, neighbour, is_here=entry.is_client))]


def context_message(state: BrokerState, client: str, neighbour: str, *, is_here: bool) -> SetContext:
    """Return the operation that sends a client's context to a neighbour.

    Args:
        state: The state of the broker.
        client: The client.
        neighbour: The neighbour, which determines the topology digest.
        is_here: Whether it is a client of this broker.
    """
    if is_here:
        version = state.contexts.stored_version(client)
        context = state.contexts.context(client)
    else:
        context, version = (
            state.filters.remote_subscriptions.context(client),
            state.filters.remote_subscriptions.versions.get(client, (0, 0)),
        )
    return SetContext(client, context, way=Provenance(state.name, version, state.links.digest_for(neighbour)))


def provenance_for(
    state: BrokerState, entry: FilterEntry[Subscription], neighbour: str, scoped: bool = False
) -> Provenance:
    """Return the provenance that a subscription is sent with to a neighbour.

    Args:
        state: The state of the broker.
        entry: The subscription.
        neighbour: The neighbour, which determines the topology digest.
        scoped: Whether the neighbour matches it with its subscriber's context.
    """
    return Provenance(entry.origin, entry.version, state.links.digest_for(neighbour), scoped, entry.context)


def _bound_subscription(entry: FilterEntry[Subscription]) -> Subscription:
    """Return a subscription as it is sent: with the subscriber's context in place of `this.`, where that was bound."""
    if entry.bound_publishers is entry.value.publishers:
        return entry.value
    return msgspec.structs.replace(entry.value, publishers=entry.bound_publishers)


def rebuild_subscription_message(turn: Turn, entry: FilterEntry[Subscription]) -> tuple[Message, tuple[Ruling, ...]]:
    """Return a stored subscription as the message it came in, with the Forward rules that act on forwarding it."""
    state = turn.state
    message = Message(
        MessageType.SUBSCRIPTION,
        entry.id,
        Subscribe(entry.value),
        Arrival(entry.hop, not entry.is_client, state.links.is_ingress(entry.hop)),
        entry.owner,
        attached=entry.policy,
        rule_context=turn.rule_context,
        filter=entry.value.content,
    )
    advertisements = overlapping_advertisements(state, entry.value)
    associated = (
        ruling
        for advertisement in advertisements
        for ruling in advertisement.rulings(RuleOperation.FORWARD, MessageType.SUBSCRIPTION)
    )
    return message, (*message.rulings(RuleOperation.FORWARD), *associated)


def advertise_meta(turn: Turn) -> list[Effect]:
    """Advertise to each tree neighbour which meta-events can be published here and behind the other links.

    Subscriptions to meta-events follow these advertisements.
    """
    state = turn.state
    effects: list[Effect] = []
    for neighbour in state.links.tree_neighbours():
        classes = state.rules.meta_events.classes(state.filters, but=neighbour)
        if not state.rules.meta_events.note_advertised(neighbour, classes):
            continue
        condition = In(Attribute("class"), tuple(Constant(class_name) for class_name in sorted(classes)))
        advertisement = Advertisement(
            id=f"{META}{state.name}", publisher=state.name, content=Filter(condition), publisher_context=()
        )
        provenance = Provenance(
            state.name, (0, state.contexts.new_version(turn.now)), state.links.digest_for(neighbour)
        )
        effects.append(Send(neighbour, Advertise(advertisement, provenance)))
    return effects
