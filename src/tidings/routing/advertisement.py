"""Advertisement routing: advertisements flood, subscriptions follow them back, publications follow subscriptions.

Paper 000, section 3.2, and 001, section 4: a subscription goes toward an advertisement when their filters overlap and
the advertisement offers every context name that the subscription's `publishers` filter uses.
"""

from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement, offered_names
from tidings.model.subscription import Subscription


def attracts(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Whether the subscription should be where the advertised events are published."""
    wanted = subscription.publishers
    offered = offered_names(advertisement.publisher_context)
    return (wanted is None or wanted.names <= offered) and overlaps(advertisement.content, subscription.content)
