"""Advertisement routing: advertisements flood, subscriptions follow them back, publications follow subscriptions.

Paper 000, section 3.2, and 001, section 4: a subscription goes toward an advertisement when their filters overlap and
the advertisement offers every context name that the subscription's `publishers` filter uses.
"""

from collections.abc import Iterable

from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement, offered_names
from tidings.model.expression import PUBLISHER, Attribute, Comparison, Constant, all_of
from tidings.model.filter import Filter
from tidings.model.subscription import Subscription


def attracts(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Whether the subscription should be where the advertised events are published."""
    wanted = subscription.publishers
    offered = offered_names(advertisement.publisher_context)
    return (wanted is None or wanted.names <= offered) and overlaps(_published(advertisement), subscription.content)


def without_publishers(content: Filter, publishers: Iterable[str]) -> Filter:
    """The filter for all events but those of some publishers."""
    others = (Comparison(Attribute(PUBLISHER), "!=", Constant(one)) for one in sorted(publishers))
    return type(content)(all_of([content.expression, *others]))


def _published(advertisement: Advertisement) -> Filter:
    """What the advertisement announces: by content, and by who will publish it."""
    own = Comparison(Attribute(PUBLISHER), "=", Constant(advertisement.publisher))
    return Filter(all_of([advertisement.content.expression, own]))
