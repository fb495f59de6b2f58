"""Routing strategies: to which neighbours a broker forwards advertisements, subscriptions and publications."""

from tidings.model.errors import InvalidValueError
from tidings.routing.advertisement import AdvertisementRouting
from tidings.routing.flood import AcyclicForwarding, GraphForwarding
from tidings.routing.spcf import ContextForwarding
from tidings.routing.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {
    strategy_class.name: strategy_class
    for strategy_class in (AdvertisementRouting, AcyclicForwarding, GraphForwarding, ContextForwarding)
}


def strategy(name: str) -> Strategy:
    """Return a new routing strategy by its name; raise an `InvalidValueError` for an unknown name."""
    try:
        return STRATEGIES[name]()
    except KeyError:
        raise InvalidValueError(f"strategy: {name!r} is none of {', '.join(STRATEGIES)}") from None
