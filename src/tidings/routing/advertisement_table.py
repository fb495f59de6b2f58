"""The advertisements that neighbours have sent to a broker, and which subscriptions they attract.

A subscription is forwarded toward an advertisement if their filters overlap and the advertisement offers every context
name in the subscription's `publishers` filter (papers 000, section 3.2, and 001, section 4).
"""

from collections.abc import Iterator
from functools import lru_cache

from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement, offered_names, unoffered_names
from tidings.model.expression import PUBLISHER, Attribute, Comparison, Constant, all_of
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_CACHED_OVERLAPS
from tidings.model.subscription import Subscription

META = "$meta."  # prefix of the ids under which brokers advertise the meta-events behind a link


def attracts(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Return whether the subscription must be forwarded toward the publisher of the advertisement.

    An advertisement of meta-events attracts only subscriptions whose content names `class`; otherwise every
    subscription would go to every broker.
    """
    if advertisement.id.startswith(META) and "class" not in subscription.content.names:
        return False
    return not unoffered(advertisement, subscription) and overlaps_content(advertisement, subscription)


def unoffered(advertisement: Advertisement, subscription: Subscription) -> frozenset[str]:
    """Return the context names that the subscription's `publishers` filter needs and the advertisement lacks."""
    publishers = subscription.publishers
    return frozenset() if publishers is None else unoffered_names(advertisement, publishers.names)


def overlaps_content(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Return whether some event can match both the advertisement and the subscription's content."""
    return _overlap(_published_events(advertisement), subscription.content)


class AdvertisementTable:
    """The advertisements of a broker's neighbours, by the neighbour that sent them."""

    def __init__(self) -> None:
        self._by_hop: dict[str, dict[str, Advertisement]] = {}

    def put(self, hop: str, advertisement: Advertisement) -> None:
        """Add an advertisement from a neighbour, or replace the one with the same id."""
        self._by_hop.setdefault(hop, {})[advertisement.id] = advertisement

    def remove(self, hop: str, id: str) -> None:  # noqa: A002 - the advertisement's own word
        """Remove an advertisement from a neighbour, if there is one with this id."""
        self._by_hop.get(hop, {}).pop(id, None)

    def clear(self) -> None:
        """Remove all advertisements."""
        self._by_hop.clear()

    def hops(self) -> Iterator[str]:
        """Return the neighbours with at least one advertisement, in alphabetical order."""
        return iter(sorted(hop for hop, offers in self._by_hop.items() if offers))

    def attracting(self, hop: str, subscription: Subscription) -> bool | None:
        """Return whether publishers behind `hop` that attract the subscription use subscriber contexts, or None.

        True: an advertisement from there attracts the subscription and announces that its publisher uses subscribers'
        contexts. False: the attracting advertisements do not. None: no advertisement from there attracts the
        subscription.
        """
        uses_context = None
        for advertisement in self._by_hop.get(hop, {}).values():
            if not (uses_context or advertisement.subscriber_context) and uses_context is not None:
                continue  # this advertisement cannot change the result
            if attracts(advertisement, subscription):
                uses_context = bool(uses_context or offered_names(advertisement.subscriber_context))
                if uses_context:
                    return True
        return uses_context


@lru_cache(MAX_CACHED_OVERLAPS)
def _overlap(one: FilterValue, other: FilterValue) -> bool:
    return overlaps(one, other)


@lru_cache(MAX_CACHED_OVERLAPS)
def _published_events(advertisement: Advertisement) -> FilterValue:
    """Return the filter for all events of the advertisement: its content, and the publisher's name."""
    if advertisement.id.startswith(META):
        return advertisement.content  # published by many brokers
    own = Comparison(Attribute(PUBLISHER), "=", Constant(advertisement.publisher))
    return FilterValue(all_of([advertisement.content.expression, own]))
