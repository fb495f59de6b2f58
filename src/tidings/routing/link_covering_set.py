"""The subscriptions that a broker sends on one link, reduced by covering (paper 000, section 3.2; 001, section 4).

Rules:
1. Of the candidates (the subscriptions that brokers behind the link need), only maximal ones are sent: a candidate is
   not sent if a maximal one covers it.
2. The result depends on the set of candidates alone, not on the order of changes. Links with the same candidates carry
   the same subscriptions.
3. An update sends new subscriptions before it withdraws old ones, so that brokers behind the link miss no event.

Theory of operation: candidates are grouped by covering class (`covering_classes`), and the candidate with the smallest
id represents its class. A class is above another if it covers it; of two classes that cover each other, the class of
the smaller id is above. A class is maximal if no present class is above it. Every maximal class is sent, and also every
class that no maximal class covers directly: covering cannot always be decided for very long filters, so it is not
transitive. A change re-examines only the classes that it can affect (`_update_maximal`): the changed class, and the
classes that it covers. With merging, `merging.MergedSubscriptions` then replaces several of the subscriptions to send
by one.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

import msgspec

from tidings.model.subscription import Subscription
from tidings.routing.covering_classes import CoveringClasses, covering_class_of, numbers_in
from tidings.routing.merging import MergedSubscriptions


class LinkUpdate(msgspec.Struct, frozen=True):
    """What changes on a link: first send `sent`, then withdraw `withdrawn`, so that there is no gap."""

    sent: tuple[Subscription, ...] = ()
    withdrawn: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    subscription: Subscription
    class_number: int


_Before = dict[str, Subscription | None]  # by id: the subscription on the link before a change, None if there was none


class LinkCoveringSet:
    """The subscriptions that brokers behind one link need (candidates), and the subset of them that is sent.

    With `merging`, several sent subscriptions may be replaced by one of the broker `owner`. Covering sets that share
    `classes` compare their classes only once; call `clear` before dropping such an object, to release its classes.
    """

    def __init__(self, merging: bool = False, owner: str = "", classes: CoveringClasses | None = None) -> None:
        self._classes = CoveringClasses() if classes is None else classes
        self._candidates: dict[str, _Candidate] = {}
        self._members: dict[int, list[str]] = {}  # by class: ids of candidates, the smallest first
        self._present = self._maximal = self._represented = 0  # sets of classes: all, maximal, with a representative
        self._representatives: dict[int, str] = {}
        self._sent_for_classes: dict[str, Subscription] = {}  # the representatives of their classes, by id
        self._merged = MergedSubscriptions(owner) if merging else None

    @property
    def sent(self) -> dict[str, Subscription]:
        """The subscriptions that are on the link now, by id."""
        return dict(self._sent_for_classes if self._merged is None else self._merged.sent)

    def carries(self, id: str) -> bool:  # noqa: A002 - the subscription's own word
        """Return whether a candidate is on the link under its own id."""
        return id in (self._sent_for_classes if self._merged is None else self._merged.sent)

    def put(self, subscription: Subscription, scoped: bool = False) -> LinkUpdate:
        """Add a candidate, or replace the one with the same id; return what changes on the link.

        `scoped` says that brokers behind the link match it with its subscriber's context.
        """
        name = subscription.id
        former, number = self._candidates.get(name), self._classes.take(covering_class_of(subscription, scoped))
        before: _Before = {}
        if former is not None and former.class_number != number:
            self._leave(name, before)
        self._candidates[name] = _Candidate(subscription, number)
        if former is None or former.class_number != number:
            self._join(name, number, before)
        else:
            self._classes.give_back(number)  # the candidate has taken this class before
            if self._representatives.get(number) == name:
                self._send_for_class(number, name, before)
        return self._update(before)

    def remove(self, id: str) -> LinkUpdate:  # noqa: A002 - the subscription's own word
        """Remove a candidate and return what changes on the link; an unknown id changes nothing."""
        before: _Before = {}
        if id in self._candidates:
            self._leave(id, before)
        return self._update(before)

    def clear(self) -> None:
        """Remove all candidates without an update for the link."""
        for candidate in self._candidates.values():
            self._classes.give_back(candidate.class_number)
        self._candidates, self._members, self._representatives, self._sent_for_classes = {}, {}, {}, {}
        self._present = self._maximal = self._represented = 0
        if self._merged is not None:
            self._merged = MergedSubscriptions(self._merged.owner)

    def covered_by_sent(self, id: str) -> set[str]:  # noqa: A002
        """Return the ids of the candidates that a sent subscription covers, and its own; empty if it is not sent."""
        merged_ids = {id} if self._merged is None else self._merged.members(id)
        numbers = {self._candidates[name].class_number for name in merged_ids if name in self._sent_for_classes}
        return {
            member
            for number in numbers
            for other in (number, *numbers_in(self._classes.narrower[number] & self._present))
            for member in self._members[other]
        }

    def covering(self, id: str) -> list[str]:  # noqa: A002
        """Return the ids of the sent candidates that cover a candidate which is not sent.

        With merging, they are the candidates that were merged into what is sent.
        """
        number = self._candidates[id].class_number if id in self._candidates else None
        if number is None:
            return []
        above = (self._classes.wider[number] | 1 << number) & self._represented
        return sorted(name for other in numbers_in(above) if (name := self._representatives[other]) != id)

    def _join(self, name: str, number: int, before: _Before) -> None:
        """Add a candidate to its class, and decide again for the classes that this affects."""
        members = self._members.setdefault(number, [])
        insort(members, name)
        if len(members) == 1:
            self._present |= 1 << number
            self._update_maximal(1 << number | self._classes.narrower[number] & self._maximal, before)
        elif members[0] == name:
            self._update_maximal(1 << number | self._equals(number), before)

    def _leave(self, name: str, before: _Before) -> None:
        """Remove a candidate from its class, and decide again for the classes that this affects."""
        number = self._candidates[name].class_number
        members = self._members[number]
        index = bisect_left(members, name)
        del members[index]
        if not members:
            del self._members[number]
            self._present ^= 1 << number
            still_covered = self._below(self._classes.wider[number] & self._maximal)
            self._update_maximal(1 << number | self._classes.narrower[number] & self._present & ~still_covered, before)
        elif not index:
            self._update_maximal(1 << number | self._equals(number), before)
        del self._candidates[name]
        self._classes.give_back(number)

    def _equals(self, number: int) -> int:
        """Return the present classes that cover this class and are covered by it."""
        return self._classes.wider[number] & self._classes.narrower[number] & self._present

    def _above(self, number: int) -> int:
        """Return the present classes that rank above this one: wider ones, or equivalent ones with a smaller id."""
        above = self._classes.wider[number] & self._present
        for equal in numbers_in(above & self._classes.narrower[number]):
            if self._members[number][0] < self._members[equal][0]:
                above ^= 1 << equal
        return above

    def _update_maximal(self, affected: int, before: _Before) -> None:
        """Decide again which of the classes in `affected` are maximal, and which classes below them are sent."""
        maximal = 0
        for number in numbers_in(affected & self._present):
            if not self._above(number):
                maximal |= 1 << number
        gained, lost = maximal & ~self._maximal, self._maximal & affected & ~maximal
        self._maximal = self._maximal & ~affected | maximal
        covered = self._below(gained)
        for number in numbers_in(covered & self._represented):
            self._withdraw_for_class(number, before)
        for number in numbers_in((affected | self._below(lost)) & ~covered):
            if self._present >> number & 1 and not self._above(number) & self._maximal:
                self._send_for_class(number, self._members[number][0], before)
            elif number in self._representatives:
                self._withdraw_for_class(number, before)

    def _below(self, classes: int) -> int:
        """Return the present classes that some of these classes cover."""
        below = 0
        for number in numbers_in(classes):
            below |= self._classes.narrower[number]
        return below & self._present

    def _send_for_class(self, number: int, name: str, before: _Before) -> None:
        """Send a candidate for its class, in place of the one that was sent for it."""
        if self._representatives.get(number, name) != name:
            self._withdraw_for_class(number, before)
        before.setdefault(name, self._sent_for_classes.get(name))
        self._sent_for_classes[name] = self._candidates[name].subscription
        self._representatives[number] = name
        self._represented |= 1 << number

    def _withdraw_for_class(self, number: int, before: _Before) -> None:
        """Stop sending the candidate that was sent for a class."""
        name = self._representatives.pop(number)
        before.setdefault(name, self._sent_for_classes.pop(name))
        self._represented ^= 1 << number

    def _update(self, before: _Before) -> LinkUpdate:
        """Return the update for the link, from the state before and after a change."""
        merged = self._merged
        if merged is None:
            return _difference(before, self._sent_for_classes)
        for name in before:
            subscription = self._sent_for_classes.get(name)
            if subscription is None:
                merged.remove(name)
            else:
                merged.put(subscription, self._classes[self._candidates[name].class_number].can_merge)
        return _difference(merged.settle(), merged.sent)


def _difference(before: _Before, now: dict[str, Subscription]) -> LinkUpdate:
    """Return the update that leads from `before` to `now`; ids that are not in `before` have not changed."""
    return LinkUpdate(
        sent=tuple(now[name] for name in sorted(before) if name in now and now[name] != before[name]),
        withdrawn=tuple(name for name in sorted(before) if name not in now and before[name] is not None),
    )
