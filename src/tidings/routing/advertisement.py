"""Advertisement routing, the default: paper 000, section 3.2, with the explicit contexts of paper 001, sections 4 to
7.

Advertisements flood an acyclic overlay; a subscription follows the reverse paths of those that attract it; events
follow subscriptions. A subscriber's context goes where one of its subscriptions went that uses it, and where an
advertisement says that it will be used; a publisher's context travels with its events, as far as some subscription
behind a link asks for it.
"""

from collections.abc import Iterable

from tidings.model.expression import PUBLISHER, Attribute, Comparison, Constant, all_of
from tidings.model.filter import Filter
from tidings.routing.offers import Offers
from tidings.routing.strategy import Around, Placed, Strategy


class AdvertisementRouting(Strategy):
    name = "advertisement"
    phases = 2  # advertisements, then the subscriptions that they attract
    covers = True
    spares_context = True

    def toward(self, around: Around, one: Placed) -> dict[str, bool]:
        return toward_offers(around.offers, one)


def toward_offers(offers: Offers, one: Placed, hops: Iterable[str] | None = None) -> dict[str, bool]:
    """The neighbours from which advertisements came that attract the subscription, but not where it came from."""
    wanted = one.value.publishers
    found = {}
    for hop in offers.hops() if hops is None else hops:
        if hop != one.hop:
            asked = offers.attracting(hop, one.value)
            if asked is not None:
                found[hop] = asked or (wanted is not None and bool(wanted.own_names))
    return found


def without_publishers(content: Filter, publishers: Iterable[str]) -> Filter:
    """The filter for all events but those of some publishers."""
    others = (Comparison(Attribute(PUBLISHER), "!=", Constant(one)) for one in sorted(publishers))
    return type(content)(all_of([content.expression, *others]))
