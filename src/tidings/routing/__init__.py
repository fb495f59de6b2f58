"""Which neighbour next: where advertisements, subscriptions and publications go in an overlay."""

from tidings.model.errors import InvalidValueError
from tidings.routing.advertisement import AdvertisementRouting
from tidings.routing.asf import AcyclicForwarding
from tidings.routing.gsf import GraphForwarding
from tidings.routing.spcf import ContextForwarding
from tidings.routing.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {
    one.name: one for one in (AdvertisementRouting, AcyclicForwarding, GraphForwarding, ContextForwarding)
}


def strategy(name: str) -> Strategy:
    """The routing strategy of that name."""
    try:
        return STRATEGIES[name]()
    except KeyError:
        raise InvalidValueError(f"strategy: {name!r} is none of {', '.join(STRATEGIES)}") from None
