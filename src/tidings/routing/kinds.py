"""Kinds of subscriptions, and which may stand for which on a link (000, section 3.2: covering).

Subscriptions of one kind ask for the same: one of them does for all. A kind may stand for another when it lets
everything through that the other does, and what the other needs to know of contexts is known as far upstream: so
their `publishers` filters are equal, and where the subscriber's own context decides, the subscriber is the same.
One with a token stands for itself alone: brokers on the way judge it, and may refuse what they let pass of another.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

from tidings.matching.index import Index
from tidings.model.filter import ContextFilter, Filter
from tidings.model.schema import AttributeFilter
from tidings.model.subscription import Subscription

_NOBODY = "nobody"  # only contents are compared


class Kind(msgspec.Struct, frozen=True):
    """What a subscription asks for, without who it is."""

    content: Filter
    subject: str | None
    structure: AttributeFilter | None
    publishers: ContextFilter | None
    whose: str | None  # the subscriber whose context decides; None where no subscriber's does
    alone: str | None  # the id of a subscription with a policy or a token of its own, so that nothing replaces it

    @property
    def can_merge(self) -> bool:
        """Whether nothing but subject, structure and content decides."""
        return self.publishers is None and self.whose is None and self.alone is None


def kind_of(subscription: Subscription, scoped: bool) -> Kind:
    """Scoped subscriptions are judged upstream by their subscriber's context."""
    publishers = subscription.publishers
    is_personal = scoped or (publishers is not None and bool(publishers.own_names))
    return Kind(
        content=subscription.content,
        subject=subscription.subject,
        structure=subscription.structure,
        publishers=publishers,
        whose=subscription.subscriber if is_personal else None,
        alone=None if subscription.policy is None and subscription.token is None else subscription.id,
    )


class Kinds:
    """The kinds in use, numbered. Many links may share it, so that two kinds are compared once for all of them.

    Sets of kinds are integers, a bit each: a few hundred bytes for thousands of kinds, and quickly cut with another.
    """

    def __init__(self) -> None:
        self.wider: dict[int, int] = {}  # by number: the set of those that may stand for it
        self.narrower: dict[int, int] = {}  # and of those that it may stand for
        self._numbers: dict[Kind, int] = {}
        self._kinds: dict[int, Kind] = {}
        self._uses: dict[int, int] = {}
        self._free: list[int] = []  # a heap: small numbers make small sets
        self._contents: dict[tuple[ContextFilter | None, str | None], Index] = {}  # of kinds that can be compared

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, number: int) -> Kind:
        return self._kinds[number]

    def take(self, kind: Kind) -> int:
        """The number of the kind, which it keeps until it was given back as often as it was taken."""
        number = self._numbers.get(kind)
        if number is None:
            number = heappop(self._free) if self._free else len(self._kinds)
            self._numbers[kind], self._kinds[number], self._uses[number] = number, kind, 0
            self._compare(number, kind)
        self._uses[number] += 1
        return number

    def give_back(self, number: int) -> None:
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._uses[number]
        kind = self._kinds.pop(number)
        del self._numbers[kind]
        for other in numbers_in(self.wider.pop(number)):
            self.narrower[other] ^= 1 << number
        for other in numbers_in(self.narrower.pop(number)):
            self.wider[other] ^= 1 << number
        heappush(self._free, number)
        self._forget(number, kind)

    def _compare(self, number: int, kind: Kind) -> None:
        self.wider[number] = self.narrower[number] = 0
        if kind.alone is not None:
            return
        comparable = kind.publishers, kind.whose
        contents = self._contents.get(comparable)
        if contents is None:
            contents = self._contents[comparable] = Index()
        for other in map(int, contents.covering(kind.content)):
            if _frames(self._kinds[other], kind):
                self.wider[number] |= 1 << other
                self.narrower[other] |= 1 << number
        for other in map(int, contents.covered_by(kind.content)):
            if _frames(kind, self._kinds[other]):
                self.narrower[number] |= 1 << other
                self.wider[other] |= 1 << number
        contents.put(Subscription(id=str(number), subscriber=_NOBODY, content=kind.content))

    def _forget(self, number: int, kind: Kind) -> None:
        if kind.alone is None:
            comparable = kind.publishers, kind.whose
            self._contents[comparable].remove(str(number))
            if not len(self._contents[comparable]):
                del self._contents[comparable]


def _frames(outer: Kind, inner: Kind) -> bool:
    """Whether what is filtered before the content lets pass what the other lets pass."""
    return outer.subject in (None, inner.subject) and outer.structure in (None, inner.structure)


def numbers_in(kinds: int) -> Iterator[int]:
    while kinds:
        lowest = kinds & -kinds
        yield lowest.bit_length() - 1
        kinds ^= lowest
