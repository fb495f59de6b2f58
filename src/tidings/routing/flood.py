"""The strategies that flood subscriptions: `asf` and `gsf`, the two baselines of paper 004, section 4.

Contexts are encoded as in the paper's Table 1: a subscription contains its subscriber's context and is sent again when
that changes; an event contains its publisher's context. The last broker alone applies the publisher's filter over
subscriber contexts.
"""

from tidings.routing.strategy import OverlayView, RoutedSubscription, Strategy, along
from tidings.routing.topology import BrokerGraph


class AcyclicForwarding(Strategy):
    """The strategy `asf`, acyclic subscription forwarding: flood subscriptions over the shared tree.

    Subscriptions are reduced by covering, and events follow their reverse paths.
    """

    name = "asf"
    covers = True
    binds = True

    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, bool]:
        """Return the neighbours in the shared tree, except the one that sent the subscription."""
        return along(overlay.topology.shared.neighbours(overlay.name), subscription)


class GraphForwarding(Strategy):
    """The strategy `gsf`, graph subscription forwarding: flood subscriptions, and route events on the tree of their
    source broker.

    Every broker knows every subscription. Subscriptions name the broker of their subscriber; each broker computes from
    that on which branch of which tree the subscriber is.
    """

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
