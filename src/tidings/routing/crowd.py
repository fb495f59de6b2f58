"""Many contexts at once: which of them does a filter select? Few are judged one by one, many by an index."""

from collections import Counter

from tidings.matching.index import Index
from tidings.matching.reference import matches_context
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Context

_FEW = 16
_NOTHING = Context()


class Crowd:
    """Contexts by their ids, as long as somebody has them."""

    def __init__(self) -> None:
        self._contexts: dict[bytes, Context] = {}
        self._holders: Counter[bytes] = Counter()
        self._index: Index | None = None

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

    def selected(self, wanted: ContextFilter) -> set[bytes]:
        if self._index is None and len(self._contexts) > _FEW:
            self._index = Index()
            for name, context in self._contexts.items():
                self._enter(self._index, name, context)
        if self._index is None:
            return {name for name, one in self._contexts.items() if matches_context(wanted, one, _NOTHING)}
        return {bytes.fromhex(name) for name in self._index.match({}, subscribers=wanted)}

    @staticmethod
    def _enter(index: Index, name: bytes, context: Context) -> None:
        """As that of a subscriber who wants everything: whom it is for is all that is left to decide."""
        index.put(Subscription(id=name.hex(), subscriber=name.hex()))
        index.set_context(name.hex(), context)
