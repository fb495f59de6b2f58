"""The filters of a broker: every advertisement and subscription, and the structures that match them.

The tables `advertisements` and `subscriptions` hold every filter as a `FilterEntry`. Local clients' subscriptions are
also in `matcher`, those of neighbours in `remote_subscriptions`, and advertisements of neighbours in `offers`. `put`
and `remove` keep these in step.
"""

from collections.abc import Iterator
from typing import Any

from tidings.engine.matcher import FastMatcher, Matcher
from tidings.engine.state.filters import FilterEntry, FilterTable
from tidings.engine.state.remote_subscriptions import RemoteSubscriptions
from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.routing.advertisement_table import AdvertisementTable


class FilterTables:
    """The filters of a broker.

    Args:
        matcher: Finds the local subscriptions that an event matches; by default an index.
        ignores_context: Whether filters on publishers are not evaluated for subscriptions of neighbours.
    """

    def __init__(self, matcher: Matcher | None, *, ignores_context: bool) -> None:
        self.matcher: Matcher = FastMatcher() if matcher is None else matcher  # of local clients' subscriptions
        self.advertisements: FilterTable[Advertisement] = FilterTable()
        self.subscriptions: FilterTable[Subscription] = FilterTable()
        self.remote_subscriptions = RemoteSubscriptions(ignores_context=ignores_context)
        self.offers = AdvertisementTable()  # the advertisements that came from neighbours
        # Durable subscriptions of clients here -> since when they have been here.
        self.durable_since: dict[str, int] = {}

    def entries(self) -> Iterator[FilterEntry[Advertisement] | FilterEntry[Subscription]]:
        """Yield all entries, advertisements first."""
        yield from self.advertisements
        yield from self.subscriptions

    def put(self, entry: FilterEntry[Any]) -> None:
        """Put an entry into its table and the matching structures, in place of the one with its id."""
        if isinstance(entry.value, Subscription):
            self.subscriptions.put(entry)
            if entry.is_client:
                self.matcher.put(entry.value)
            else:
                self.remote_subscriptions.put(entry)
        else:
            self.advertisements.put(entry)
            if not entry.is_client:
                self.offers.put(entry.hop, entry.value)

    def remove(self, entry: FilterEntry[Any]) -> None:
        """Remove an entry from its table and the matching structures."""
        if isinstance(entry.value, Advertisement):
            self.advertisements.remove(entry.id)
            self.offers.remove(entry.hop, entry.id)
            return
        self.subscriptions.remove(entry.id)
        if entry.is_client:
            self.matcher.remove(entry.id)
        else:
            self.remote_subscriptions.remove(entry)

    def note_durable(self, entry: FilterEntry[Any], now: int) -> None:
        """Note since when a durable subscription has been here, which decides what redelivery gives it."""
        if entry.is_client and isinstance(entry.value, Subscription) and entry.value.durable is not None:
            self.durable_since.setdefault(entry.id, now)
        else:
            self.durable_since.pop(entry.id, None)

    def is_left_to(self, entry: FilterEntry[Subscription], sender: str) -> bool:
        """Note that `sender` withdraws a subscription; return whether another neighbour that sent it still has it.

        If the withdrawing neighbour was the subscription's hop, another sender becomes its hop.
        """
        if entry.is_local or not entry.senders - {sender}:
            return False
        entry.senders -= {sender}
        if entry.hop == sender:
            self.remote_subscriptions.remove(entry)
            entry.hop = min(entry.senders)
            self.remote_subscriptions.put(entry)
        return True
