"""Advertisement routing, the default strategy (paper 000, section 3.2; contexts as in paper 001, sections 4 to 7).

Advertisements flood an acyclic overlay. A subscription follows the reverse paths of the advertisements that attract it,
and events follow the reverse paths of subscriptions. A subscriber's context is sent to a neighbour if a subscription
sent there uses it, or an advertisement from there says that it will use it. A publisher's context travels with its
events as far as some subscription behind the link needs it.
"""

from collections.abc import Iterable

from tidings.model.expression import PUBLISHER, Attribute, Comparison, Constant, all_of
from tidings.model.filter import FilterValue
from tidings.routing.advertisement_table import AdvertisementTable
from tidings.routing.strategy import OverlayView, RoutedSubscription, Strategy


class AdvertisementRouting(Strategy):
    """The strategy `advertisement`: forward subscriptions toward the advertisements that attract them."""

    name = "advertisement"
    phases = 2  # phase 1: advertisements; phase 2: the subscriptions that they attract
    covers = True
    prunes_context = True

    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> dict[str, bool]:
        """Return the neighbours whose advertisements attract the subscription."""
        return targets_of_advertisements(overlay.offers, subscription)


def targets_of_advertisements(
    offers: AdvertisementTable, subscription: RoutedSubscription, hops: Iterable[str] | None = None
) -> dict[str, bool]:
    """Return the neighbours whose advertisements attract the subscription, except the neighbour that sent it.

    The value for a neighbour says whether the brokers there match the subscription with its subscriber's context (it is
    *scoped*). `hops` limits the search to some neighbours.
    """
    publishers = subscription.value.publishers
    targets = {}
    for hop in offers.hops() if hops is None else hops:
        if hop != subscription.hop:
            scoped = offers.attracting(hop, subscription.value)
            if scoped is not None:
                targets[hop] = scoped or (publishers is not None and bool(publishers.own_names))
    return targets


def without_publishers(content: FilterValue, publishers: Iterable[str]) -> FilterValue:
    """Return the filter, narrowed to events of other publishers than these."""
    others = (Comparison(Attribute(PUBLISHER), "!=", Constant(publisher)) for publisher in sorted(publishers))
    return type(content)(all_of([content.expression, *others]))
