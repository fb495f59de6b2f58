"""The advertisement: which events a publisher may publish, and which context names it offers and will use."""

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client, checked_policy
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.values import checked_name

ContextOffer = tuple[str, ...] | ContextFilterValue


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher's declaration of the events that it may publish and the context that it offers and uses.

    `Advertisement.of` checks every field; the plain constructor checks nothing.
    """

    id: str
    publisher: str
    content: FilterValue = FilterValue()
    publisher_context: ContextOffer | None = None  # None offers all names, an empty list none
    subscriber_context: ContextOffer = ()
    policy: str | None = None

    @classmethod
    def of(
        cls,
        content: FilterValue,
        *,
        id: str,  # noqa: A002 - the field's own name
        publisher: str,
        publisher_context: Iterable[str] | ContextFilterValue | None = None,
        subscriber_context: Iterable[str] | ContextFilterValue = (),
        policy: str | None = None,
    ) -> Self:
        """Return a checked advertisement.

        Args:
            content: The filter that every event of this advertisement matches.
            id: The id of the advertisement.
            publisher: The client that advertises.
            publisher_context: The names (or a filter over the names) of the publisher's own context that subscriptions
                may use. None offers all names, an empty list offers none.
            subscriber_context: The names of subscribers' context that the publisher's events will use.
            policy: The text of the policy that is stored with the advertisement.

        Raises:
            InvalidValueError: A field is not acceptable; the message names it.
        """
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
    """Return the context names in an offer, which is a list of names or a filter over them."""
    return offer.names if isinstance(offer, ContextFilterValue) else frozenset(offer)


def listed_offer(advertisement: Advertisement) -> ContextOffer:
    """Return the context names that the advertisement offers, in the old wire format: all names (None) become an empty
    offer there.

    Readers of that format do not know the field `publisher_context_all`; with an empty offer they reveal nothing.
    """
    offer = advertisement.publisher_context
    return () if offer is None else offer


def unoffered_names(advertisement: Advertisement, names: frozenset[str]) -> frozenset[str]:
    """Return the names among `names` that the advertisement does not offer from its publisher's context."""
    offer = advertisement.publisher_context
    return frozenset() if offer is None else names - offered_names(offer)


def checked_id(id: Any) -> str:  # noqa: A002
    """Return the id of an advertisement or a subscription, checked by the same rules as the name of a client."""
    try:
        return checked_client(id)
    except InvalidValueError as error:
        raise InvalidValueError(str(error).replace("a client's name", "an id")) from None


def checked_content(content: Any) -> FilterValue:
    """Return `content` if it is a `FilterValue`; otherwise raise an `InvalidValueError`."""
    if not isinstance(content, FilterValue):
        raise InvalidValueError("content: must be a Filter; Filter.parse reads one from text")
    return content


def _checked_offer(offer: Any, name: str) -> ContextOffer:
    if isinstance(offer, ContextFilterValue):
        return offer
    if isinstance(offer, str) or not isinstance(offer, Iterable):
        raise InvalidValueError(f"{name}: must be a list of names or a ContextFilter")
    return tuple(checked_name(name) for name in offer)
