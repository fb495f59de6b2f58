"""Many contexts at once: which of them does a filter select? Few are judged one by one, many by an index."""

from collections import Counter

import numpy as np

from tidings.matching.index import Index
from tidings.matching.reference import matches_context
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.bloom import Bloom, halves_of

_FEW = 16
_NOTHING = Context()


class Crowd:
    """Contexts by their ids, as long as somebody has them."""

    def __init__(self) -> None:
        self._contexts: dict[bytes, Context] = {}
        self._holders: Counter[bytes] = Counter()
        self._index: Index | None = None
        self._halves = np.zeros((0, 2), np.uint64)  # of the ids, by position in the index

    def join(self, name: bytes, context: Context) -> None:
        self._holders[name] += 1
        if name not in self._contexts:
            self._contexts[name] = context
            if self._index is not None:
                self._enter(self._index, name, context)

    def leave(self, name: bytes) -> None:
        self._holders[name] -= 1
        if not self._holders[name]:
            del self._holders[name], self._contexts[name]
            if self._index is not None:
                self._index.remove(name.hex())

    def audience(self, wanted: ContextFilter) -> Bloom:
        """Those that a publisher's filter selects."""
        if self._index is None and len(self._contexts) > _FEW:
            self._index = Index()
            for name, context in self._contexts.items():
                self._enter(self._index, name, context)
        if self._index is None:
            return Bloom.of(name for name, one in self._contexts.items() if matches_context(wanted, one, _NOTHING))
        return Bloom.of_halves(self._halves[self._index.match_positions({}, subscribers=wanted)])

    def _enter(self, index: Index, name: bytes, context: Context) -> None:
        """As that of a subscriber who wants everything: whom it is for is all that is left to decide."""
        position = index.put(Subscription(id=name.hex(), subscriber=name.hex()))
        index.set_context(name.hex(), context)
        if position >= len(self._halves):
            self._halves = np.resize(self._halves, (2 * position + _FEW, 2))
        self._halves[position] = halves_of([name])[0]
