"""The advertisements that came from neighbours, and which subscriptions they attract.

Papers 000, section 3.2, and 001, section 4: a subscription goes toward an advertisement when their filters overlap
and the advertisement offers every context name that the subscription's `publishers` filter uses.
"""

from collections.abc import Iterator
from functools import lru_cache

from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement, offered_names, unoffered_names
from tidings.model.expression import PUBLISHER, Attribute, Comparison, Constant, all_of
from tidings.model.filter import Filter
from tidings.model.limits import MAX_CACHED_OVERLAPS
from tidings.model.subscription import Subscription

META = "$meta."  # the ids of the advertisements in which brokers say what meta-events there may be behind a link


def attracts(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Whether the subscription should be where the advertised events are published.

    Meta-events attract only those who ask for a class of events: else every subscription would go everywhere.
    """
    if advertisement.id.startswith(META) and "class" not in subscription.content.names:
        return False
    return not unoffered(advertisement, subscription) and overlaps_content(advertisement, subscription)


def unoffered(advertisement: Advertisement, subscription: Subscription) -> frozenset[str]:
    """The context names that the subscription's `publishers` filter uses and the advertisement does not offer."""
    wanted = subscription.publishers
    return frozenset() if wanted is None else unoffered_names(advertisement, wanted.names)


def overlaps_content(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Whether an event can match both the advertisement and the subscription's content."""
    return _overlap(_published(advertisement), subscription.content)


class Offers:
    """Advertisements by the neighbour that they came from."""

    def __init__(self) -> None:
        self._by_hop: dict[str, dict[str, Advertisement]] = {}

    def put(self, hop: str, advertisement: Advertisement) -> None:
        self._by_hop.setdefault(hop, {})[advertisement.id] = advertisement

    def remove(self, hop: str, id: str) -> None:  # noqa: A002 - the advertisement's own word
        self._by_hop.get(hop, {}).pop(id, None)

    def clear(self) -> None:
        self._by_hop.clear()

    def hops(self) -> Iterator[str]:
        return iter(sorted(hop for hop, offers in self._by_hop.items() if offers))

    def attracting(self, hop: str, subscription: Subscription) -> bool | None:
        """None if nothing from there attracts the subscription; else whether a publisher there will ask for the
        subscriber's context."""
        found = None
        for one in self._by_hop.get(hop, {}).values():
            if not (found or one.subscriber_context) and found is not None:
                continue  # it could change nothing
            if attracts(one, subscription):
                found = bool(found or offered_names(one.subscriber_context))
                if found:
                    return True
        return found


@lru_cache(MAX_CACHED_OVERLAPS)
def _overlap(one: Filter, other: Filter) -> bool:
    return overlaps(one, other)


@lru_cache(MAX_CACHED_OVERLAPS)
def _published(advertisement: Advertisement) -> Filter:
    """What the advertisement announces: by content, and by who will publish it."""
    if advertisement.id.startswith(META):
        return advertisement.content  # of many brokers
    own = Comparison(Attribute(PUBLISHER), "=", Constant(advertisement.publisher))
    return Filter(all_of([advertisement.content.expression, own]))
