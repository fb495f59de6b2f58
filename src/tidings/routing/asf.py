"""Acyclic subscription forwarding (ASF), the first baseline of paper 004, section 4.

Subscriptions flood an acyclic overlay, reduced by covering, and events follow their reverse paths. Contexts are encoded
as in the paper's Table 1: a subscription contains its subscriber's context and is sent again when that changes; an
event contains its publisher's context. The last broker alone applies the publisher's filter over subscriber contexts.
"""

from tidings.routing.strategy import OverlayView, RoutedSubscription, Strategy, along


class AcyclicForwarding(Strategy):
    """The strategy `asf`: flood subscriptions over the shared tree."""

    name = "asf"
    covers = True
    binds = True

    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, bool]:
        """Return the neighbours in the shared tree, except the one that sent the subscription."""
        return along(overlay.topology.shared.neighbours(overlay.name), subscription)
