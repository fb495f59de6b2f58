"""Graph subscription forwarding (GSF), the second baseline of paper 004, section 4.

Every broker knows every subscription, and an event follows the shortest-path tree of the broker where it was published,
pruned by subscriptions. Subscriptions flood the shared tree and name the broker of their subscriber; each broker
computes from that on which branch of which tree the subscriber is. Contexts are encoded as in `asf`.
"""

from tidings.routing.strategy import OverlayView, RoutedSubscription, Strategy, along
from tidings.routing.topology import BrokerGraph


class GraphForwarding(Strategy):
    """The strategy `gsf`: flood subscriptions, and route events on the tree of their source broker."""

    name = "gsf"
    binds = True
    by_source = True

    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, bool]:
        """Return the neighbours in the shared tree, except the one that sent the subscription."""
        return along(overlay.topology.shared.neighbours(overlay.name), subscription)

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
