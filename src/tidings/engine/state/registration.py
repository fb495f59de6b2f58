"""Put filters into a broker's state and take them out, with what follows for its rules, contexts and links."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.engine.headers import Provenance
from tidings.engine.state.broker_state import BrokerState, governs
from tidings.engine.state.filters import FilterEntry, FilterTable, RemoteFilterEntry
from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.routing.advertisement import targets_of_advertisements
from tidings.routing.bloom import context_id
from tidings.routing.strategy import bound

# Entries


def new_entry(
    state: BrokerState, value: Advertisement | Subscription, hop: str, policy: CompiledPolicy | None
) -> FilterEntry[Any]:
    """Return a new entry for a filter, with its rules, without putting it into a table.

    Args:
        state: The state of the broker.
        value: The filter.
        hop: The client or neighbour that it came from.
        policy: Its owner's policy.
    """
    entry: FilterEntry[Any]
    if hop in state.links.neighbours:
        entry = _new_remote_entry(state, value, hop)
    else:
        is_own, may_govern = _rights_of(state, value)
        entry = FilterEntry(value, hop, state.name, is_own=is_own, governs=may_govern)
    if policy is not None:
        entry.govern(policy)
    return entry


def prospective_entry(
    state: BrokerState, value: Advertisement | Subscription, hop: str, provenance: Provenance | None, now: int
) -> FilterEntry[Any]:
    """Return the entry that a filter would have, without putting it into a table.

    Args:
        state: The state of the broker.
        value: The filter.
        hop: The client or neighbour that it came from.
        provenance: Its provenance, if it came from another broker.
        now: The time in microseconds.
    """
    entry = new_entry(state, value, hop, None)
    _set_provenance(state, entry, provenance, now)
    return entry


def _new_remote_entry(state: BrokerState, value: Advertisement | Subscription, hop: str) -> RemoteFilterEntry[Any]:
    """Return a new entry for a filter that came from a neighbour, linked or not."""
    is_own, may_govern = _rights_of(state, value)
    return RemoteFilterEntry(
        value, hop, state.name, is_own=is_own, governs=may_govern, is_local=state.links.is_external(hop)
    )


def _rights_of(state: BrokerState, value: Advertisement | Subscription) -> tuple[bool, bool]:
    """Return whether a filter is the broker's own, and whether its owner may govern."""
    owner = value.publisher if isinstance(value, Advertisement) else value.subscriber
    return owner == state.name, governs(state, owner)


def _set_provenance(state: BrokerState, entry: FilterEntry[Any], provenance: Provenance | None, now: int) -> None:
    """Note where a filter came from: from a local client, whose context is bound to it, or from another broker."""
    if provenance is None:
        entry.version = state.contexts.version_of(entry.owner, now)
    else:
        entry.version, entry.context = provenance.version, provenance.context
    if provenance is not None and isinstance(entry, RemoteFilterEntry):
        entry.scoped = provenance.scoped
        if not entry.is_local:
            entry.origin, entry.digest, entry.senders = provenance.origin, provenance.digest, frozenset({entry.hop})
    if entry.is_local and state.strategy.binds and isinstance(entry.value, Subscription):
        bind(state, entry)


# Into the tables


def insert_filter(
    state: BrokerState,
    value: Advertisement | Subscription,
    hop: str,
    policy: CompiledPolicy | None,
    provenance: Provenance | None,
    now: int,
) -> tuple[FilterEntry[Any] | None, FilterEntry[Any]]:
    """Put a filter that came into its table, in place of the one with its id; return both entries.

    Args:
        state: The state of the broker.
        value: The filter, as rules have left it.
        hop: The client or neighbour that it came from.
        policy: The policy attached to it.
        provenance: Its provenance, if it came from another broker.
        now: The time in microseconds.

    Returns:
        The entry that was replaced, or None, and the new entry.
    """
    table: FilterTable[Any] = _table_of(state, value)
    before = table.get(value.id)
    if before is not None:
        _remove_from_tables(state, before)
    entry = insert_entry(state, value, hop, policy, provenance, now)
    if not entry.is_client:
        remove_former_subscription(state, value.id, entry.hop)  # its subscriber is behind that neighbour again
    state.filters.note_durable(entry, now)
    if before is not None:
        _forget_scope(state, before)
        _keep_former(state, before, entry)
    if before is not None and not entry.is_local and before.context not in (b"", entry.context):
        # Events in flight may have been published when only the former context was known.
        until = now + state.settings.grace_microseconds
        entry.former_contexts = (
            *(context for context in before.former_contexts if context[1] > now),
            (before.context, until),
        )
    if before is not None and before.operator_policy is not None:
        entry.govern(before.operator_policy, operator=True)
        state.rules.update(entry)
    return before, entry


def _table_of(state: BrokerState, value: Advertisement | Subscription) -> FilterTable[Any]:
    return state.filters.advertisements if isinstance(value, Advertisement) else state.filters.subscriptions


def insert_entry(
    state: BrokerState,
    value: Advertisement | Subscription,
    hop: str,
    policy: CompiledPolicy | None,
    provenance: Provenance | None,
    now: int,
) -> FilterEntry[Any]:
    """Put a filter into its table and the matching structures; return its entry. See `insert_filter`.

    Args:
        state: The state of the broker.
        value: The filter.
        hop: The client or neighbour that it came from.
        policy: Its owner's policy.
        provenance: Its provenance, if it came from another broker.
        now: The time in microseconds.
    """
    entry = new_entry(state, value, hop, policy)
    _set_provenance(state, entry, provenance, now)
    state.filters.put(entry)
    if isinstance(value, Subscription):
        _track_selection(state, entry)
    state.rules.update(entry)
    return entry


def _keep_former(state: BrokerState, before: FilterEntry[Any], entry: FilterEntry[Any]) -> None:
    """Keep the former subscription of a subscriber that has moved, toward the broker that it has left.

    At that broker the subscription may cover others, which are sent when it is withdrawn there. Until then events go
    both ways.
    """
    has_moved = not before.is_local and before.hop != entry.hop and (entry.is_local or before.digest == entry.digest)
    if has_moved and state.strategy.covers and isinstance(before.value, Subscription) and before.policy is None:
        value = msgspec.structs.replace(
            before.value, id=_former_id(before.id, before.hop), publishers=before.bound_publishers
        )
        former = _new_remote_entry(state, value, before.hop)  # even if the link is gone, until tables are rebuilt
        former.origin = before.origin
        state.filters.subscriptions.put(former)
        state.filters.remote_subscriptions.put(former)


def _former_id(id: str, neighbour: str) -> str:  # noqa: A002
    """Return the id under which a moved subscriber's former subscription is stored."""
    return f"$former.{neighbour}.{id}"


# Out of the tables


def remove_filter(state: BrokerState, entry: FilterEntry[Any]) -> None:
    """Remove a filter from its table and the matching structures."""
    _remove_from_tables(state, entry)
    state.filters.durable_since.pop(entry.id, None)
    _forget_scope(state, entry)


def remove_former_subscription(state: BrokerState, id: str, neighbour: str) -> None:  # noqa: A002
    """Drop the former subscription of a subscriber that has moved away from behind a neighbour."""
    former = state.filters.subscriptions.get(_former_id(id, neighbour))
    if former is not None:
        remove_filter(state, former)


def _remove_from_tables(state: BrokerState, entry: FilterEntry[Any]) -> None:
    state.filters.remove(entry)
    if isinstance(entry.value, Subscription):
        _untrack_selection(state, entry)
    state.rules.update(entry, gone=True)


def _forget_scope(state: BrokerState, entry: FilterEntry[Any]) -> None:
    """Forget the context of another broker's client if none of its subscriptions is scoped here any more."""
    filters = state.filters
    if entry.scoped and not any(subscription.scoped for subscription in filters.subscriptions.of(entry.owner)):
        filters.remote_subscriptions.forget_context(entry.owner, entry.senders | {entry.hop})


# Contexts that are bound into subscriptions


def rebind(state: BrokerState, entry: FilterEntry[Subscription], now: int) -> None:
    """Bind a subscription to its subscriber's changed context, as a new version."""
    _untrack_selection(state, entry)
    bind(state, entry)
    _track_selection(state, entry)
    entry.version = state.contexts.version_of(entry.owner, now)


def bind(state: BrokerState, entry: FilterEntry[Subscription]) -> None:
    """Bind a subscription to its subscriber's context: `this.` in the filter on publishers that is sent is replaced.

    The subscription is a local client's, or one of another sub-overlay; of the latter the context may be unknown.
    """
    own = state.contexts.of(entry)
    publishers = entry.value.publishers
    if state.strategy.announces:
        entry.context = context_id(own) if entry.is_client or entry.scoped else b""
    entry.bound_publishers = None if publishers is None else bound(publishers, own)


def _track_selection(state: BrokerState, entry: FilterEntry[Subscription]) -> None:
    """Start tracking which announced contexts the subscription's filter on publishers selects."""
    if state.strategy.announces:
        announced = state.contexts.announced
        entry.selection = announced.use(entry.bound_publishers, entry.id, passes=not entry.is_client)


def _untrack_selection(state: BrokerState, entry: FilterEntry[Subscription]) -> None:
    """Stop tracking which announced contexts the subscription selects."""
    if entry.selection is not None:
        state.contexts.announced.release(entry.selection, entry.id)


# What neighbours have from here


def target_links(state: BrokerState, entry: FilterEntry[Subscription]) -> Mapping[str, bool]:
    """Return the neighbours that should have a subscription, and for each whether the subscription is scoped there.

    A scoped subscription is matched at the neighbour with its subscriber's context. The routing strategy decides for
    the neighbours of this sub-overlay, overlapping advertisements decide for other sub-overlays.
    """
    links = state.links
    if not links.neighbours:
        return {}
    targets = {
        name: scoped
        for name, scoped in state.strategy.subscription_targets(state.overlay, entry).items()
        if name in links.neighbours
    }
    abroad = [name for name in links.neighbours if links.is_external(name)]
    if abroad:
        targets |= targets_of_advertisements(state.filters.offers, entry, abroad)
    is_context_known = entry.is_client or entry.scoped  # otherwise this broker does not know the subscriber's context
    return {name: scoped and is_context_known for name, scoped in targets.items()}


def forget_sent_state(state: BrokerState) -> None:
    """Forget what was sent to and announced by brokers of this sub-overlay, before everything is sent again."""
    links, filters, contexts = state.links, state.filters, state.contexts
    abroad = frozenset(name for name in links.neighbours if links.is_external(name))
    links.forget_covering_sets(but=abroad)
    state.rules.meta_events.keep_advertised(abroad)
    contexts.sent.keep_only(abroad)
    for broker in list(contexts.announced.brokers()):
        contexts.announced.forget(broker)
    filters.offers.clear()
    for entry in filters.entries():
        entry.sent_to, entry.flooded = entry.sent_to & abroad, entry.flooded & abroad
        entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name in abroad}
        if entry.is_local and not entry.is_client and isinstance(entry.value, Advertisement):
            filters.offers.put(entry.hop, entry.value)


def forget_sent_state_of(state: BrokerState, neighbour: str) -> None:
    """Forget what was sent to one neighbour."""
    state.links.forget_covering_sets(neighbour=neighbour)
    state.rules.meta_events.forget_advertised(neighbour)
    state.contexts.sent.forget_neighbour(neighbour)
    for entry in state.filters.entries():
        entry.sent_to, entry.flooded = entry.sent_to - {neighbour}, entry.flooded - {neighbour}
        entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name != neighbour}
