"""Transit: the subscriptions that came from neighbours, and which of them an event concerns.

Brokers on the way may only say yes too often: who an event is for is decided where the subscriber is. Few subscriptions
are judged one by one, many by an index.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from tidings.engine.journey import Version
from tidings.engine.matcher import FastMatcher, Matcher, NaiveMatcher
from tidings.engine.tables import Filed
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.model.values import Context

_FEW = 16
_NOWHERE = Context()


class Transit:
    def __init__(self, *, ignores_context: bool) -> None:
        self._ignores_context = ignores_context  # of publishers: then the strategy knows whom it attracts
        self._judged: dict[str, Subscription] = {}
        self._contexts: dict[str, Context] = {}
        self.versions: dict[str, Version] = {}  # of these contexts
        self._tellers: dict[str, str] = {}  # the neighbours that told them
        self._matcher: Matcher = NaiveMatcher()
        # By neighbour: the names of publishers' contexts that filters ask for, and the attributes that they speak of.
        self._asked: dict[str, Counter[str]] = {}
        self._named: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._judged)

    def put(self, filed: Filed[Subscription]) -> None:
        judged = filed.value
        self._named.setdefault(filed.hop, Counter()).update(filed.names)
        if judged.publishers is not None:
            self._asked.setdefault(filed.hop, Counter()).update(judged.publishers.names)
        if self._ignores_context and judged.publishers is not None:
            judged = msgspec.structs.replace(judged, publishers=None)
        self._judged[filed.id] = judged
        if len(self._judged) > _FEW and isinstance(self._matcher, NaiveMatcher):
            self._matcher = FastMatcher()
            for client, context in self._contexts.items():
                self._matcher.set_context(client, context)
            for one in self._judged.values():
                self._matcher.put(one)
        else:
            self._matcher.put(judged)

    def remove(self, filed: Filed[Subscription]) -> None:
        del self._judged[filed.id]
        self._matcher.remove(filed.id)
        self._named[filed.hop] -= Counter(filed.names)
        if filed.value.publishers is not None and filed.hop in self._asked:
            self._asked[filed.hop] -= Counter(filed.value.publishers.names)
            if not self._asked[filed.hop]:
                del self._asked[filed.hop]

    def named_behind(self, neighbour: str) -> Collection[str]:
        """The attributes that filters behind a link speak of."""
        return self._named.get(neighbour, {}).keys()

    def named(self) -> Collection[str]:
        """Those that any filter speaks of."""
        return frozenset[str]().union(*self._named.values())

    def asked_behind(self, neighbour: str) -> Collection[str]:
        """The names of a publisher's context that some filter behind a link asks for."""
        return self._asked.get(neighbour, {}).keys()

    def context(self, client: str) -> Context:
        return self._contexts.get(client, _NOWHERE)

    def contexts(self) -> dict[str, Context]:
        return dict(self._contexts)

    def set_context(self, client: str, context: Context, version: Version, teller: str) -> None:
        """The context of a subscriber."""
        self._contexts[client], self.versions[client], self._tellers[client] = context, version, teller
        self._matcher.set_context(client, context)

    def forget_context(self, client: str, tellers: Collection[str] | None = None) -> None:
        """If it was one of these that told it: another one has told it for a subscription that is about to come."""
        if client in self._contexts and (tellers is None or self._tellers[client] in tellers):
            del self._contexts[client], self.versions[client], self._tellers[client]
            self._matcher.set_context(client, _NOWHERE)

    def concerned(self, event: Event) -> Iterable[str]:
        """By content and by the publisher's context; whom the publisher has in mind is another question."""
        if not self._judged:
            return ()
        if event.subscribers is not None:
            event = msgspec.structs.replace(event, subscribers=None)
        return self._matcher.concerned(event)

    @property
    def is_untidy(self) -> bool:
        return self._matcher.is_untidy

    def tidy(self) -> None:
        self._matcher.tidy()
