"""An advertisement: what a publisher may publish, what context it offers, what context of subscribers it will use."""

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client, checked_policy
from tidings.model.filter import ContextFilter, Filter
from tidings.model.values import checked_name

ContextOffer = tuple[str, ...] | ContextFilter


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """Trusted once made; `Advertisement.of` is the door that checks."""

    id: str
    publisher: str
    content: Filter = Filter()
    publisher_context: ContextOffer | None = None  # None: all names; an empty list: none
    subscriber_context: ContextOffer = ()
    policy: str | None = None

    @classmethod
    def of(
        cls,
        content: Filter,
        *,
        id: str,  # noqa: A002 - the field's own name
        publisher: str,
        publisher_context: Iterable[str] | ContextFilter | None = None,
        subscriber_context: Iterable[str] | ContextFilter = (),
        policy: str | None = None,
    ) -> Self:
        """A checked advertisement, or an `InvalidValueError` that names what is wrong."""
        return cls(
            id=checked_id(id),
            publisher=checked_client(publisher),
            content=checked_content(content),
            publisher_context=None
            if publisher_context is None
            else _checked_offer(publisher_context, "publisher_context"),
            subscriber_context=_checked_offer(subscriber_context, "subscriber_context"),
            policy=checked_policy(policy),
        )


def offered_names(offer: ContextOffer) -> frozenset[str]:
    """The context names that an offer speaks of, whether it is a list of names or a filter."""
    return offer.names if isinstance(offer, ContextFilter) else frozenset(offer)


def listed_offer(advertisement: Advertisement) -> ContextOffer:
    """The offer for readers that do not know `publisher_context_all`: no names where all are offered, so that these
    readers reveal nothing."""
    offer = advertisement.publisher_context
    return () if offer is None else offer


def unoffered_names(advertisement: Advertisement, names: frozenset[str]) -> frozenset[str]:
    """Those of `names` that the advertisement does not offer of its publisher's context."""
    offer = advertisement.publisher_context
    return frozenset() if offer is None else names - offered_names(offer)


def checked_id(id: Any) -> str:  # noqa: A002
    """The id of an advertisement or a subscription: the same rules as for a client's name."""
    try:
        return checked_client(id)
    except InvalidValueError as error:
        raise InvalidValueError(str(error).replace("a client's name", "an id")) from None


def checked_content(content: Any) -> Filter:
    if not isinstance(content, Filter):
        raise InvalidValueError("content: must be a Filter; Filter.parse reads one from text")
    return content


def _checked_offer(offer: Any, name: str) -> ContextOffer:
    if isinstance(offer, ContextFilter):
        return offer
    if isinstance(offer, str) or not isinstance(offer, Iterable):
        raise InvalidValueError(f"{name}: must be a list of names or a ContextFilter")
    return tuple(checked_name(one) for one in offer)
