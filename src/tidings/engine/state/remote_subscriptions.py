"""Subscriptions that came from neighbours: which of them an event matches.

A broker on the way may match too often, never too rarely: the subscriber's own broker makes the final decision. Up to
16 subscriptions are matched one by one, more by an index.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from tidings.engine.headers import Version
from tidings.engine.matcher import FastMatcher, Matcher, NaiveMatcher
from tidings.engine.state.filters import FilterEntry
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.model.values import Context

_FEW = 16
_NOWHERE = Context()


class RemoteSubscriptions:
    """Matches the subscriptions behind links, and knows their subscribers' contexts where they were sent.

    With `ignores_context`, filters on publishers are not evaluated, because the routing strategy does that.
    """

    def __init__(self, *, ignores_context: bool) -> None:
        self._ignores_context = ignores_context  # whether filters on publishers are not evaluated here
        self._subscriptions: dict[str, Subscription] = {}
        self._contexts: dict[str, Context] = {}
        self.versions: dict[str, Version] = {}  # client -> version of its context
        self._context_senders: dict[str, str] = {}  # client -> the neighbour that sent its context
        self._matcher: Matcher = NaiveMatcher()
        # By neighbour: the names of publishers' contexts and the attributes that filters use, with counts.
        self._requested_names: dict[str, Counter[str]] = {}
        self._attribute_names: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def put(self, entry: FilterEntry[Subscription]) -> None:
        """Add a subscription that came from a neighbour."""
        judged = entry.value
        self._attribute_names.setdefault(entry.hop, Counter()).update(entry.names)
        if judged.publishers is not None:
            self._requested_names.setdefault(entry.hop, Counter()).update(judged.publishers.names)
        if self._ignores_context and judged.publishers is not None:
            judged = msgspec.structs.replace(judged, publishers=None)
        self._subscriptions[entry.id] = judged
        if len(self._subscriptions) > _FEW and isinstance(self._matcher, NaiveMatcher):
            self._matcher = FastMatcher()
            for client, context in self._contexts.items():
                self._matcher.set_context(client, context)
            for subscription in self._subscriptions.values():
                self._matcher.put(subscription)
        else:
            self._matcher.put(judged)

    def remove(self, entry: FilterEntry[Subscription]) -> None:
        """Remove a subscription that came from a neighbour."""
        del self._subscriptions[entry.id]
        self._matcher.remove(entry.id)
        self._attribute_names[entry.hop] -= Counter(entry.names)
        if entry.value.publishers is not None and entry.hop in self._requested_names:
            self._requested_names[entry.hop] -= Counter(entry.value.publishers.names)
            if not self._requested_names[entry.hop]:
                del self._requested_names[entry.hop]

    def attributes_behind(self, neighbour: str) -> Collection[str]:
        """Return the attributes that filters behind a link use."""
        return self._attribute_names.get(neighbour, {}).keys()

    def attributes(self) -> Collection[str]:
        """Return the attributes that filters behind any link use."""
        return frozenset[str]().union(*self._attribute_names.values())

    def context_names_behind(self, neighbour: str) -> Collection[str]:
        """Return the names of publishers' contexts that filters behind a link use."""
        return self._requested_names.get(neighbour, {}).keys()

    def context(self, client: str) -> Context:
        """Return a subscriber's context; empty if it is not known."""
        return self._contexts.get(client, _NOWHERE)

    def contexts(self) -> dict[str, Context]:
        """Return the known contexts by subscriber."""
        return dict(self._contexts)

    def set_context(self, client: str, context: Context, version: Version, teller: str) -> None:
        """Store a subscriber's context.

        Args:
            client: The subscriber.
            context: Its context.
            version: The version; a caller must not pass an older one than before.
            teller: The neighbour that sent it.
        """
        self._contexts[client], self.versions[client], self._context_senders[client] = context, version, teller
        self._matcher.set_context(client, context)

    def forget_context(self, client: str, tellers: Collection[str] | None = None) -> None:
        """Forget a subscriber's context, if one of `tellers` sent it (None: whoever did).

        A context from another neighbour stays: it was sent ahead of a subscription that is about to come.
        """
        if client in self._contexts and (tellers is None or self._context_senders[client] in tellers):
            del self._contexts[client], self.versions[client], self._context_senders[client]
            self._matcher.set_context(client, _NOWHERE)

    def match_event(self, event: Event) -> Iterable[str]:
        """Return the ids of the subscriptions that an event matches, whichever subscribers it is addressed to."""
        if not self._subscriptions:
            return ()
        if event.subscribers is not None:
            event = msgspec.structs.replace(event, subscribers=None)
        return self._matcher.match_event(event)

    @property
    def is_untidy(self) -> bool:
        """Whether calling `tidy` would make matching faster."""
        return self._matcher.is_untidy

    def tidy(self) -> None:
        """Compact the index."""
        self._matcher.tidy()
