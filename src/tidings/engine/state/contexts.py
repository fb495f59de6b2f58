"""The contexts of clients: those of this broker's clients, and those that other brokers announce (strategy spcf).

Only the functions of this module change `ClientContexts`; others see its tables as mappings.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from tidings.engine.headers import Version
from tidings.engine.state.filter_tables import FilterTables
from tidings.engine.state.filters import FilterEntry
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.context_table import ContextTable

_NOWHERE = Context()


class SentContexts:
    """Which neighbours have the contexts of which clients."""

    def __init__(self) -> None:
        self._neighbours: dict[str, set[str]] = {}  # by client

    def neighbours(self, client: str) -> Collection[str]:
        """Return the neighbours that have a client's context."""
        return self._neighbours.get(client, ())

    def add(self, client: str, neighbour: str) -> bool:
        """Note that a neighbour gets a client's context; return False if it had the context already."""
        neighbours = self._neighbours.setdefault(client, set())
        if neighbour in neighbours:
            return False
        neighbours.add(neighbour)
        return True

    def discard(self, client: str, neighbour: str) -> None:
        """Note that a neighbour needs a client's context no more."""
        self._neighbours.get(client, set()).discard(neighbour)

    def forget_client(self, client: str) -> None:
        """Forget which neighbours have a client's context."""
        self._neighbours.pop(client, None)

    def keep_only(self, neighbours: Set[str]) -> None:
        """Forget what all other neighbours have."""
        for of_client in self._neighbours.values():
            of_client &= neighbours

    def forget_neighbour(self, neighbour: str) -> None:
        """Forget what a neighbour has."""
        for of_client in self._neighbours.values():
            of_client.discard(neighbour)


class ClientContexts:
    """The contexts of clients, the sessions in which they came, and which neighbours have the contexts.

    Args:
        filters: The filters of the broker, which know the contexts of its neighbours' subscribers.
    """

    def __init__(self, filters: FilterTables) -> None:
        self._filters = filters
        self._local: dict[str, Context] = {}
        self._versions: dict[str, Version] = {}
        self._arrivals: dict[str, int] = {}
        self._delegates: dict[str, set[str]] = {}
        self._published: dict[str, Context] = {}  # client -> the context that its last event had (spcf)
        self._version = 0
        self.local: Mapping[str, Context] = self._local  # local client -> its context
        self.arrivals: Mapping[str, int] = self._arrivals  # client -> the session in which it came here
        self.delegates: Mapping[str, Set[str]] = self._delegates  # client -> others that may set its context
        self.sent = SentContexts()
        self.announced = ContextTable()  # the contexts of clients, as their brokers announce them

    def context(self, client: str) -> Context:
        """Return the context of a local client."""
        return self._local.get(client, _NOWHERE)

    def of(self, entry: FilterEntry[Subscription]) -> Context:
        """Return the context of a subscriber, at this broker or another."""
        return self.context(entry.owner) if entry.is_client else self._filters.remote_subscriptions.context(entry.owner)

    def published(self, client: str, default: Context) -> Context:
        """Return the context that a client's last event had, if it differed from the client's own."""
        return self._published.get(client, default)

    def is_here(self, client: str) -> bool:
        """Whether a client is connected to this broker or has filters at it."""
        filters = self._filters
        entries: Iterable[FilterEntry[Any]] = (*filters.subscriptions.of(client), *filters.advertisements.of(client))
        return client in self._arrivals or any(entry.is_client for entry in entries)

    def stored_version(self, client: str) -> Version:
        """Return the version of a local client's context.

        A client that has set no context in this session has the empty one, newer than that of a former session.
        """
        return self._versions.get(client, (self._arrivals.get(client, 0), 0))

    def new_version(self, now: int) -> int:
        """Return a number higher than all before, also than those before a restart."""
        self._version = max(now, self._version + 1)
        return self._version

    def version_of(self, client: str, now: int) -> Version:
        """Return a new version for what a local client changes now."""
        return self._arrivals.get(client, 0), self.new_version(now)


def set_context(contexts: ClientContexts, client: str, context: Context, now: int) -> None:
    """Set the context of a local client, as a new version.

    Args:
        contexts: The contexts of clients.
        client: The client.
        context: Its context.
        now: The time in microseconds.
    """
    restore_context(contexts, client, context)
    contexts._published.pop(client, None)
    renew_version(contexts, client, now)


def restore_context(contexts: ClientContexts, client: str, context: Context) -> None:
    """Set the context of a local client that set it before a restart."""
    contexts._local[client] = context
    contexts._filters.matcher.set_context(client, context)


def store_contexts(contexts: ClientContexts, local: Iterable[tuple[str, Context]]) -> None:
    """Set the contexts of local clients that the matcher has already."""
    contexts._local.update(local)


def renew_version(contexts: ClientContexts, client: str, now: int) -> None:
    """Give a local client's context a new version."""
    contexts._versions[client] = contexts.version_of(client, now)


def note_published(contexts: ClientContexts, client: str, context: Context) -> bool:
    """Note the context that an event of a client has; return whether its last event had another."""
    if contexts._published.get(client) == context:
        return False
    contexts._published[client] = context
    return True


def note_arrival(contexts: ClientContexts, client: str, session: int) -> None:
    """Note that a client is here in this session; the client itself sets its context from now on."""
    contexts._arrivals[client] = session
    contexts._filters.remote_subscriptions.forget_context(client)


def restore_arrivals(contexts: ClientContexts, arrivals: Mapping[str, int]) -> None:
    """Note the sessions in which clients were here before a restart."""
    contexts._arrivals.update(arrivals)


def begin_leaving(contexts: ClientContexts, client: str, now: int) -> bool:
    """Forget a local client's context; return whether neighbours have to be told of its new, empty one."""
    contexts._delegates.pop(client, None)
    contexts._published.pop(client, None)
    session = contexts._arrivals.pop(client, 0)
    if not contexts._local.pop(client, None):
        return False
    contexts._filters.matcher.set_context(client, _NOWHERE)
    contexts._versions[client] = session, contexts.new_version(now)
    return True


def finish_leaving(contexts: ClientContexts, client: str) -> None:
    """Forget the version of a client's context, and who has it, after the neighbours were told."""
    contexts.sent.forget_client(client)
    contexts._versions.pop(client, None)


def delegate(contexts: ClientContexts, client: str, other: str, *, is_entrusted: bool = True) -> None:
    """Let another client set a client's context, or end that.

    Args:
        contexts: The contexts of clients.
        client: The client.
        other: The other client.
        is_entrusted: Whether the other client may set the context from now on.
    """
    others = contexts._delegates.setdefault(client, set())
    (others.add if is_entrusted else others.discard)(other)
    if not others:
        del contexts._delegates[client]
