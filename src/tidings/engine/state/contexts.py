"""The contexts of clients: those of this broker's clients, and those that other brokers announce (strategy spcf)."""

from collections.abc import Iterable
from typing import Any

from tidings.engine.headers import Version
from tidings.engine.state.filter_tables import FilterTables
from tidings.engine.state.filters import FilterEntry
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.context_table import ContextTable

_NOWHERE = Context()


class ClientContexts:
    """The contexts of clients, the sessions in which they came, and which neighbours have the contexts.

    Args:
        filters: The filters of the broker, which knows the contexts of its neighbours' subscribers.
    """

    def __init__(self, filters: FilterTables) -> None:
        self._filters = filters
        self.local: dict[str, Context] = {}  # local client -> its context
        self.versions: dict[str, Version] = {}
        self.arrivals: dict[str, int] = {}  # client -> the session in which it came here
        self.delegates: dict[str, set[str]] = {}  # client -> others that may set its context
        self.sent: dict[str, set[str]] = {}  # client -> the neighbours that have its context
        self.published: dict[str, Context] = {}  # client -> the context that its last event had (spcf)
        self.announced = ContextTable()  # the contexts of clients, as their brokers announce them
        self._version = 0

    def context(self, client: str) -> Context:
        """Return the context of a local client."""
        return self.local.get(client, _NOWHERE)

    def of(self, entry: FilterEntry[Subscription]) -> Context:
        """Return the context of a subscriber, at this broker or another."""
        return self.context(entry.owner) if entry.is_client else self._filters.remote_subscriptions.context(entry.owner)

    def is_here(self, client: str) -> bool:
        """Whether a client is connected to this broker or has filters at it."""
        filters = self._filters
        entries: Iterable[FilterEntry[Any]] = (*filters.subscriptions.of(client), *filters.advertisements.of(client))
        return client in self.arrivals or any(entry.is_client for entry in entries)

    def new_version(self, now: int) -> int:
        """Return a number higher than all before, also than those before a restart."""
        self._version = max(now, self._version + 1)
        return self._version

    def version_of(self, client: str, now: int) -> Version:
        """Return a new version for what a local client changes now."""
        return self.arrivals.get(client, 0), self.new_version(now)
