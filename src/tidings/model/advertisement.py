"""An advertisement: what a publisher may publish, what context it offers, what context of subscribers it will use."""

import msgspec

from tidings.model.filter import ContextFilter, Filter

ContextOffer = tuple[str, ...] | ContextFilter


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    publisher: str
    content: Filter = Filter()
    publisher_context: ContextOffer = ()
    subscriber_context: ContextOffer = ()
    policy: str | None = None


def offered_names(offer: ContextOffer) -> frozenset[str]:
    """The context names that an offer speaks of, whether it is a list of names or a filter."""
    return offer.names if isinstance(offer, ContextFilter) else frozenset(offer)
