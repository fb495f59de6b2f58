"""Shortest path context forwarding (SPCF): paper 004, section 3, with corrections for concurrent changes.

Brokers announce the contexts of their clients along their shortest-path trees. A subscription is forwarded to D, the
set of brokers with a client whose context its filter selects, in the reverse direction of their trees. D_N is the part
of D that is reached through the neighbour N.

Each broker on the way is nearer to the announcing broker and knows at least as much of its contexts, so it computes D
again; a context that is announced while a subscription is on its way is not missed. D never contains the subscriber's
own broker.

An event follows the tree of the broker where it was published, toward the subscriptions that its publisher's context
attracted, if the event's Bloom filter of subscriber contexts may contain theirs. The last broker evaluates the exact
filter.
"""

from tidings.routing.context_table import Pair
from tidings.routing.strategy import OverlayView, RoutedSubscription, Strategy
from tidings.routing.topology import BrokerGraph


class ContextForwarding(Strategy):
    """The strategy `spcf`: forward subscriptions to brokers with matching publisher contexts."""

    name = "spcf"
    binds = True
    announces = True
    by_source = True

    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, bool]:
        """Return the neighbours that lead to brokers with a client whose context the subscription selects."""
        return dict.fromkeys(sorted(partition(overlay, subscription)), False)

    def next_hop(
        self, overlay: OverlayView, subscription: RoutedSubscription, topology: BrokerGraph, source: str
    ) -> str | None:
        """Return the neighbour toward the subscriber's broker in the tree of `source`, if that path passes this broker.

        Args:
            overlay: What the broker knows of the overlay.
            subscription: The subscription that the event matches.
            topology: The network in which the event is routed.
            source: The broker where the event was published.
        """
        return topology.tree(source).below(overlay.name, subscription.origin)


def destinations(overlay: OverlayView, subscription: RoutedSubscription) -> set[str]:
    """Return the part of D for which this broker forwards the subscription.

    These are the brokers whose trees reach the subscriber's broker through this broker.
    """
    selected = overlay.announced.selection(subscription.bound_publishers).brokers
    here = overlay.name
    return {
        broker
        for broker in selected
        if broker not in (here, subscription.origin)
        and broker in overlay.topology.brokers
        and (subscription.origin == here or overlay.topology.tree(broker).below(here, subscription.origin) is not None)
    }


def partition(overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, set[str]]:
    """Return D_N by neighbour N, where N is this broker's parent in the tree of the destination."""
    parts: dict[str, set[str]] = {}
    for broker in destinations(overlay, subscription):
        parent = overlay.topology.tree(broker).parent(overlay.name)
        if parent is not None:
            parts.setdefault(parent, set()).add(broker)
    return parts


def content_table(overlay: OverlayView, placed: list[RoutedSubscription]) -> dict[tuple[str, bytes, str], set[str]]:
    """Return the content table of the paper's Fig. 1: (broker, its context, neighbour) -> ids of subscriptions.

    The subscriptions are those behind the neighbour that select this context.
    """
    table: dict[tuple[str, bytes, str], set[str]] = {}
    for subscription in placed:
        pairs: set[Pair] = overlay.announced.selection(subscription.bound_publishers).pairs
        for broker, context in pairs:
            if subscription.origin in (overlay.name, broker) or broker not in overlay.topology.brokers:
                continue
            neighbour = overlay.topology.tree(broker).below(overlay.name, subscription.origin)
            if neighbour is not None:
                table.setdefault((broker, context, neighbour), set()).add(subscription.value.id)
    return table
