"""Covering classes: equivalent subscriptions on a link, and which class covers which (paper 000, section 3.2).

Subscriptions of one class ask for the same events, so sending one of them is enough. A class covers another if it lets
through every event that the other does, and brokers upstream need the same contexts for both: their `publishers`
filters are equal, and if the subscriber's own context matters, the subscriber is the same. A subscription with a policy
or a token is a class of its own, which neither covers nor is covered: brokers on the way judge it, and may refuse it an
event that they let pass for another.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

from tidings.matching.index.index import SubscriptionIndex
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.schema import AttributeFilter
from tidings.model.subscription import Subscription

_NOBODY = "nobody"  # a placeholder: this index compares contents only


class CoveringClass(msgspec.Struct, frozen=True):
    """What a subscription asks for, without the identity of its subscriber; equal for equivalent subscriptions."""

    content: FilterValue
    subject: str | None
    structure: AttributeFilter | None
    publishers: ContextFilterValue | None
    subscriber: str | None  # the subscriber, if its own context matters; otherwise None
    unique_id: str | None  # the id of a subscription with a policy or a token, which nothing covers; otherwise None

    @property
    def can_merge(self) -> bool:
        """Whether subject, structure and content alone decide, so that the subscription may be merged with others."""
        return self.publishers is None and self.subscriber is None and self.unique_id is None


def covering_class_of(subscription: Subscription, scoped: bool) -> CoveringClass:
    """Return the covering class of a subscription.

    `scoped` says that brokers upstream match the subscription with its subscriber's context.
    """
    publishers = subscription.publishers
    is_personal = scoped or (publishers is not None and bool(publishers.own_names))
    return CoveringClass(
        content=subscription.content,
        subject=subscription.subject,
        structure=subscription.structure,
        publishers=publishers,
        subscriber=subscription.subscriber if is_personal else None,
        unique_id=None if subscription.policy is None and subscription.token is None else subscription.id,
    )


class CoveringClasses:
    """The covering classes in use, numbered, with the covering relation between them.

    Links may share one object, so that each pair of classes is compared once for all links. A set of classes is an int
    with one bit for each class: compact, and fast to intersect.
    """

    def __init__(self) -> None:
        self.wider: dict[int, int] = {}  # by number: the set of classes that cover it
        self.narrower: dict[int, int] = {}  # by number: the set of classes that it covers
        self._numbers: dict[CoveringClass, int] = {}
        self._classes: dict[int, CoveringClass] = {}
        self._uses: dict[int, int] = {}
        self._free: list[int] = []  # a heap: small numbers keep the sets small
        self._contents: dict[
            tuple[ContextFilterValue | None, str | None], SubscriptionIndex
        ] = {}  # one index for classes that are comparable

    def __len__(self) -> int:
        return len(self._classes)

    def __getitem__(self, number: int) -> CoveringClass:
        return self._classes[number]

    def take(self, covering_class: CoveringClass) -> int:
        """Return the number of a class, valid until `give_back` was called once for every `take`."""
        number = self._numbers.get(covering_class)
        if number is None:
            number = heappop(self._free) if self._free else len(self._classes)
            self._numbers[covering_class], self._classes[number], self._uses[number] = number, covering_class, 0
            self._compare(number, covering_class)
        self._uses[number] += 1
        return number

    def give_back(self, number: int) -> None:
        """Count one use fewer; with the last one, remove the class and free its number."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._uses[number]
        covering_class = self._classes.pop(number)
        del self._numbers[covering_class]
        for other in numbers_in(self.wider.pop(number)):
            self.narrower[other] ^= 1 << number
        for other in numbers_in(self.narrower.pop(number)):
            self.wider[other] ^= 1 << number
        heappush(self._free, number)
        self._forget(number, covering_class)

    def _compare(self, number: int, covering_class: CoveringClass) -> None:
        """Record which classes cover a new class and which it covers."""
        self.wider[number] = self.narrower[number] = 0
        if covering_class.unique_id is not None:
            return
        comparable = covering_class.publishers, covering_class.subscriber
        contents = self._contents.get(comparable)
        if contents is None:
            contents = self._contents[comparable] = SubscriptionIndex()
        for other in map(int, contents.covering(covering_class.content)):
            if _pre_content_tests_cover(self._classes[other], covering_class):
                self.wider[number] |= 1 << other
                self.narrower[other] |= 1 << number
        for other in map(int, contents.covered_by(covering_class.content)):
            if _pre_content_tests_cover(covering_class, self._classes[other]):
                self.narrower[number] |= 1 << other
                self.wider[other] |= 1 << number
        contents.put(Subscription(id=str(number), subscriber=_NOBODY, content=covering_class.content))

    def _forget(self, number: int, covering_class: CoveringClass) -> None:
        if covering_class.unique_id is None:
            comparable = covering_class.publishers, covering_class.subscriber
            self._contents[comparable].remove(str(number))
            if not len(self._contents[comparable]):
                del self._contents[comparable]


def _pre_content_tests_cover(outer: CoveringClass, inner: CoveringClass) -> bool:
    """Return whether the outer class's tests of subject and structure let pass what the inner class's let pass."""
    return outer.subject in (None, inner.subject) and outer.structure in (None, inner.structure)


def numbers_in(classes: int) -> Iterator[int]:
    """Yield the numbers in a set of classes, from the smallest."""
    while classes:
        lowest = classes & -classes
        yield lowest.bit_length() - 1
        classes ^= lowest
