"""Explain why a subscription was or was not forwarded toward a publisher at another broker.

This changes no state. The answer is that of one broker: it knows the advertisements that have reached it, its own links
and the rules in its tables, but not what brokers farther along have decided.
"""

from collections.abc import Collection
from typing import NamedTuple

from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.registration import target_links
from tidings.engine.steps.decisions import Decision
from tidings.engine.steps.govern import GovernResult, govern_filter
from tidings.engine.steps.next_hops import hop_to
from tidings.engine.steps.propagation import rebuild_subscription_message
from tidings.engine.turn import Turn
from tidings.matching.reference import matches
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.routing.advertisement_table import overlaps_content, unoffered


class Forwarding(NamedTuple):
    """Whether a subscription was forwarded and why; `decision` is that of the policy rule which blocked it."""

    succeeded: bool
    reason: str
    decision: Decision | None = None


def forwarding(
    turn: Turn, event: Event, subscription: FilterEntry[Subscription], links_down: Collection[str] = ()
) -> Forwarding | None:
    """Explain whether a subscription was forwarded toward the publisher of an event.

    Args:
        turn: The state of the broker, and the operation at hand.
        event: The event whose publisher may be at another broker.
        subscription: A subscription in the broker's table.
        links_down: The neighbours whose links are configured and down.

    Returns:
        The explanation; None if the publisher is a client of this broker or the broker has no links.
    """
    state = turn.state
    publisher = event.publisher
    if publisher == state.name or state.contexts.is_here(publisher) or not (state.links.neighbours or links_down):
        return None
    advertisements = [entry for entry in state.filters.advertisements.of(publisher) if not entry.is_client]
    if state.strategy.name != "advertisement" and not any(
        state.links.is_external(entry.hop) for entry in advertisements
    ):
        return _by_announcements(state, subscription)
    if not advertisements:
        return Forwarding(False, _no_advertisement(turn, publisher, links_down))
    results = [_by_advertisement(turn, event, entry, subscription) for entry in advertisements]
    chosen = next((result for result in results if result.succeeded), None) or next(
        (result for result in results if result.decision), None
    )
    return chosen or Forwarding(False, "; ".join(result.reason for result in results))


def _by_announcements(state: BrokerState, subscription: FilterEntry[Subscription]) -> Forwarding | None:
    """Explain forwarding under a strategy without advertisements.

    Such strategies forward a subscription to every broker, or to the brokers that have announced a context which its
    filter of publishers selects.
    """
    if not state.strategy.announces or target_links(state, subscription):
        return None
    return Forwarding(False, "no other broker has announced a context that the filter of publishers selects")


def _no_advertisement(turn: Turn, publisher: str, links_down: Collection[str]) -> str:
    reasons = [f"{turn.state.name} knows no advertisement of {publisher}"]
    reasons += (f"the link to {name} is down" for name in sorted(links_down))
    if not turn.convergence.is_settled:
        reasons.append("the routing tables are not complete yet")
    return "; ".join(reasons)


def _by_advertisement(
    turn: Turn, event: Event, advertisement: FilterEntry[Advertisement], subscription: FilterEntry[Subscription]
) -> Forwarding:
    name = f"the advertisement {advertisement.id} of {advertisement.owner}"
    if not matches(advertisement.value.content, event):
        return Forwarding(False, f"{name} does not announce such an event")
    if not overlaps_content(advertisement.value, subscription.value):
        return Forwarding(False, f"{name} does not overlap the subscription")
    missing = unoffered(advertisement.value, subscription.value)
    if missing:
        return Forwarding(False, f"{name} does not offer {', '.join(sorted(missing))} of its publisher's context")
    return _on_link(turn, advertisement.hop, subscription)


def _on_link(turn: Turn, neighbour: str, subscription: FilterEntry[Subscription]) -> Forwarding:
    """Explain whether the subscription was forwarded to a neighbour that sent an advertisement which attracts it."""
    state = turn.state
    if neighbour == subscription.hop:
        return Forwarding(True, f"came from {neighbour}, as the advertisement did")
    if neighbour in subscription.sent_to:
        return Forwarding(True, f"forwarded to {neighbour}")
    if neighbour in subscription.target_links:
        covering_set = state.links.covering_set(neighbour)
        covering = "" if covering_set is None else ", ".join(covering_set.covering(subscription.id))
        return Forwarding(True, f"covered on the link to {neighbour}" + (f": by {covering}" if covering else ""))
    message, rulings = rebuild_subscription_message(turn, subscription)
    governed = GovernResult()
    govern_filter(message, rulings, hop_to(state, message, neighbour), governed)
    for _, decision in governed.stopped:
        return Forwarding(False, f"the subscription is blocked on the way to {neighbour}", decision)
    for _, question in governed.waiting:
        return Forwarding(False, f"waits for an answer before it is forwarded to {neighbour}: {question}")
    return Forwarding(False, f"not forwarded to {neighbour} yet: the routing tables are not complete")
