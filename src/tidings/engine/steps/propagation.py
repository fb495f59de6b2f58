"""Propagate subscriptions to neighbours, and update the neighbours when subscriptions or contexts change.

1. The routing strategy says which neighbours should have a subscription (`FilterEntry.target_links`);
   `FilterEntry.sent_to` are those that have been sent it.
2. On a link with a covering set (`tidings.routing.link_covering_set`) only the maximal subscriptions are sent; others
   are covered. A subscription with a policy, or with rules acting on it, neither covers nor is covered.
3. New subscriptions are sent before others are withdrawn, so that no event is missed in between.
"""

from typing import TYPE_CHECKING

import msgspec

from tidings.engine.effects import Effect, Send
from tidings.engine.headers import Provenance
from tidings.engine.operations import SetContext, Subscribe, Unsubscribe
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import report
from tidings.engine.steps.govern import GovernResult, govern_filter
from tidings.model.subscription import Subscription
from tidings.policy.evaluation.actions import without_attributes
from tidings.routing.link_covering_set import LinkUpdate

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def propagate(engine: "Engine", entry: FilterEntry[Subscription]) -> list[Effect]:
    """Send a subscription to the neighbours that should have it and lack it, then withdraw it from the others."""
    wanted = engine.propagation_targets(entry)
    effects: list[Effect] = []
    for name, scoped in wanted.items():
        if entry.target_links.get(name) is not scoped:
            effects += _forward_under_rules(engine, entry, name, scoped)
    for name in [name for name in entry.target_links if name not in wanted and name not in entry.flooded]:
        effects += withdraw(engine, entry, name)
    return effects


def repropagate(engine: "Engine", entry: FilterEntry[Subscription]) -> list[Effect]:
    """Send a changed subscription again to all neighbours that should have it, then withdraw it from the others."""
    wanted = engine.propagation_targets(entry)
    effects: list[Effect] = []
    for name in [*wanted, *sorted(entry.flooded - wanted.keys())]:
        effects += _forward_under_rules(engine, entry, name, wanted.get(name, False))
    for name in [name for name in entry.target_links if name not in wanted and name not in entry.flooded]:
        effects += withdraw(engine, entry, name)
    return effects


def _forward_under_rules(
    engine: "Engine", entry: FilterEntry[Subscription], neighbour: str, scoped: bool
) -> list[Effect]:
    """Send a subscription to a neighbour, applying the Forward rules of overlapping advertisements and its own."""
    message, rulings = engine.rebuild_subscription_message(entry)
    if not rulings:
        return put_on_link(engine, entry, neighbour, scoped)
    governed = GovernResult()
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    effects: list[Effect] = []
    for _, kept, removed in governed.filters:
        effects += put_on_link(engine, entry, neighbour, scoped, kept, removed, rulings)
    return (
        effects
        + engine.deferred.enqueue_copies(message, rulings, governed.waiting)
        + report.report(engine, message, governed)
    )


def put_on_link(
    engine: "Engine",
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
        engine: The broker.
        entry: The subscription.
        neighbour: The neighbour.
        scoped: Whether the neighbour matches it with its subscriber's context.
        kept: The attributes whose predicates rules keep; None: all.
        removed: The attributes whose predicates rules remove.
        rulings: The rules that act on forwarding it; with any, it takes no part in covering.
        is_new_session: Send it even if the neighbour has it.
    """
    before = entry.target_links.get(neighbour, scoped)
    entry.target_links = {**entry.target_links, neighbour: scoped}
    subscription = _bound_subscription(entry)
    removed_names = removed if kept is None else removed | (subscription.content.names - kept)
    if removed_names:
        subscription = msgspec.structs.replace(
            subscription, content=without_attributes(subscription.content, removed_names)
        )
    covering_set = engine.covering_set(neighbour)
    if covering_set is None:
        return _send_subscription(engine, entry, subscription, neighbour, scoped)
    if rulings or entry.value.policy is not None:
        change = covering_set.remove(entry.id)
        effects = _send_subscription(engine, entry, subscription, neighbour, scoped)
        return effects + _apply_link_update(engine, neighbour, change, excluded_id=entry.id)
    change = covering_set.put(subscription, scoped)
    effects = _apply_link_update(engine, neighbour, change)
    if neighbour not in entry.sent_to or subscription in change.sent:
        return effects
    if not covering_set.carries(entry.id):
        return effects + _send_withdrawal(engine, entry, neighbour)  # it was sent itself, and is covered now
    if is_new_session or before is not scoped:
        # The same filter, in another scope or version.
        return _send_subscription(engine, entry, subscription, neighbour, scoped) + effects
    return effects


def withdraw(engine: "Engine", entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Withdraw a subscription from a neighbour, after sending those that it covered."""
    entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name != neighbour}
    entry.flooded -= {neighbour}
    effects = uncover(engine, entry, neighbour)
    if neighbour in entry.sent_to:
        effects += _send_withdrawal(engine, entry, neighbour)
    return effects


def uncover(engine: "Engine", entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Remove a subscription from a link's covering set, and send those that it covered."""
    covering_set = engine.covering_set(neighbour)
    return (
        []
        if covering_set is None
        else _apply_link_update(engine, neighbour, covering_set.remove(entry.id), excluded_id=entry.id)
    )


def repropagate_for_policy(engine: "Engine", entry: FilterEntry[Subscription]) -> list[Effect]:
    """Update covering on all links after a subscription's policy changed: with a policy it is never covered."""
    effects: list[Effect] = []
    for name, scoped in entry.target_links.items():
        covering_set = engine.covering_set(name)
        if covering_set is None:
            continue
        if entry.value.policy is None:
            effects += _apply_link_update(engine, name, covering_set.put(_bound_subscription(entry), scoped))
            continue
        effects += _apply_link_update(engine, name, covering_set.remove(entry.id), excluded_id=entry.id)
        if name not in entry.sent_to:
            effects += _send_subscription(engine, entry, _bound_subscription(entry), name, scoped)
    return effects


def _apply_link_update(engine: "Engine", neighbour: str, change: LinkUpdate, excluded_id: str = "") -> list[Effect]:
    """Send and withdraw what a change of a link's covering set requires, except the withdrawal of `excluded_id`."""
    effects: list[Effect] = []
    for subscription in change.sent:
        entry = engine.subscriptions.get(subscription.id)
        if entry is None:
            provenance = Provenance(engine.name, (0, engine.version()), engine.digest_for(neighbour))
            effects.append(
                Send(neighbour, Subscribe(subscription, provenance))
            )  # several subscriptions that this broker has merged
        else:
            effects += _send_subscription(
                engine, entry, subscription, neighbour, entry.target_links.get(neighbour, False)
            )
    for name in change.withdrawn:
        if name == excluded_id:
            continue
        entry = engine.subscriptions.get(name)
        if entry is not None:
            effects += _send_withdrawal(engine, entry, neighbour)
        else:
            provenance = Provenance(engine.name, (0, engine.version()), engine.digest_for(neighbour))
            effects.append(Send(neighbour, Unsubscribe(engine.name, name, way=provenance)))
    return effects


def _send_subscription(
    engine: "Engine", entry: FilterEntry[Subscription], subscription: Subscription, neighbour: str, scoped: bool
) -> list[Effect]:
    """Send a subscription to a neighbour; if it is scoped, send its subscriber's context first."""
    effects: list[Effect] = []
    if scoped:
        effects = _send_context_first(engine, entry, neighbour)
    else:
        forget_context(engine, entry.owner, neighbour)
    entry.sent_to |= {neighbour}
    return [*effects, Send(neighbour, Subscribe(subscription, provenance_for(engine, entry, neighbour, scoped)))]


def _send_withdrawal(engine: "Engine", entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Send the withdrawal of a subscription to a neighbour."""
    entry.sent_to -= {neighbour}
    forget_context(engine, entry.owner, neighbour)
    return [Send(neighbour, Unsubscribe(entry.owner, entry.id, way=provenance_for(engine, entry, neighbour)))]


def forget_context(engine: "Engine", client: str, neighbour: str) -> None:
    """Note that a neighbour needs a client's context no more, if no scoped subscription of the client is left there."""
    if not any(
        neighbour in entry.sent_to and entry.target_links.get(neighbour) for entry in engine.subscriptions.of(client)
    ):
        engine.contexts_sent.get(client, set()).discard(neighbour)


def _send_context_first(engine: "Engine", entry: FilterEntry[Subscription], neighbour: str) -> list[Effect]:
    """Send a subscriber's context to a neighbour, unless the neighbour has it."""
    neighbours = engine.contexts_sent.setdefault(entry.owner, set())
    if neighbour in neighbours:
        return []
    neighbours.add(neighbour)
    return [Send(neighbour, context_message(engine, entry.owner, neighbour, is_here=entry.is_client))]


def context_message(engine: "Engine", client: str, neighbour: str, *, is_here: bool) -> SetContext:
    """Return the operation that sends a client's context to a neighbour.

    Args:
        engine: The broker.
        client: The client.
        neighbour: The neighbour, which determines the topology digest.
        is_here: Whether it is a client of this broker.
    """
    if is_here:
        # A client that has set no context in this session has the empty one, newer than that of a former session.
        version = engine.context_versions.get(client, (engine.arrivals.get(client, 0), 0))
        context = engine.context(client)
    else:
        context, version = (
            engine.remote_subscriptions.context(client),
            engine.remote_subscriptions.versions.get(client, (0, 0)),
        )
    return SetContext(client, context, way=Provenance(engine.name, version, engine.digest_for(neighbour)))


def provenance_for(
    engine: "Engine", entry: FilterEntry[Subscription], neighbour: str, scoped: bool = False
) -> Provenance:
    """Return the provenance that a subscription is sent with to a neighbour.

    Args:
        engine: The broker.
        entry: The subscription.
        neighbour: The neighbour, which determines the topology digest.
        scoped: Whether the neighbour matches it with its subscriber's context.
    """
    return Provenance(entry.origin, entry.version, engine.digest_for(neighbour), scoped, entry.context)


def _bound_subscription(entry: FilterEntry[Subscription]) -> Subscription:
    """Return a subscription as it is sent: with the subscriber's context in place of `this.`, where that was bound."""
    if entry.bound_publishers is entry.value.publishers:
        return entry.value
    return msgspec.structs.replace(entry.value, publishers=entry.bound_publishers)
