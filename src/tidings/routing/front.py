"""What is told on one link so that tables stay small (000, section 3.2; 001, section 4).

Of the subscriptions that should be known behind a link only the maximal ones are sent: those that no other may stand
for. Which these are depends on the subscriptions alone, not on the order in which they came and went: links that serve
the same subscriptions carry the same, whatever happened to them.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

import msgspec

from tidings.model.subscription import Subscription
from tidings.routing.kinds import Kinds, kind_of, numbers_in
from tidings.routing.merged import Merged


class Change(msgspec.Struct, frozen=True):
    """What to tell on the link: first what is sent, then what is withdrawn, so that there is never a gap."""

    sent: tuple[Subscription, ...] = ()
    withdrawn: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    subscription: Subscription
    kind: int


_Before = dict[str, Subscription | None]  # by id: what of it was on the link before the change; None if nothing was


class Front:
    """The subscriptions that should be known behind a link, and those of them that are sent.

    Of one kind the smallest id speaks. A kind is maximal if none stands for it but those that it stands for itself
    and whose smallest id is greater. Sent are the maximal ones, and whatever no maximal one stands for directly: for
    filters so long that covering could not always be decided, standing for another need not carry on from one to the
    next. With `merging`, maximal ones become fewer still (`merged.py`), in the name of the `owner`.

    Fronts that share their `kinds` compare them only once; whoever drops one of these clears it first.
    """

    def __init__(self, merging: bool = False, owner: str = "", kinds: Kinds | None = None) -> None:
        self._kinds = Kinds() if kinds is None else kinds
        self._candidates: dict[str, _Candidate] = {}
        self._members: dict[int, list[str]] = {}  # by kind: ids, the smallest first
        self._here = self._maximal = self._spoken_for = 0  # sets of kinds: all, the maximal ones, those with a speaker
        self._speakers: dict[int, str] = {}
        self._chosen: dict[str, Subscription] = {}  # those who speak for their kind
        self._merged = Merged(owner) if merging else None

    @property
    def sent(self) -> dict[str, Subscription]:
        """What is on the link now, by id."""
        return dict(self._chosen if self._merged is None else self._merged.sent)

    def carries(self, id: str) -> bool:  # noqa: A002 - the subscription's own word
        """Whether a candidate is on the link under its own id."""
        return id in (self._chosen if self._merged is None else self._merged.sent)

    def put(self, subscription: Subscription, scoped: bool = False) -> Change:
        """Adds a candidate, or replaces the one of the same id."""
        name = subscription.id
        known, number = self._candidates.get(name), self._kinds.take(kind_of(subscription, scoped))
        before: _Before = {}
        if known is not None and known.kind != number:
            self._leave(name, before)
        self._candidates[name] = _Candidate(subscription, number)
        if known is None or known.kind != number:
            self._join(name, number, before)
        else:
            self._kinds.give_back(number)  # it was taken already
            if self._speakers.get(number) == name:
                self._appoint(number, name, before)
        return self._told(before)

    def remove(self, id: str) -> Change:  # noqa: A002 - the subscription's own word
        """Takes a candidate away; one that is not known changes nothing."""
        before: _Before = {}
        if id in self._candidates:
            self._leave(id, before)
        return self._told(before)

    def clear(self) -> None:
        """Forgets everything, without a word on the link."""
        for candidate in self._candidates.values():
            self._kinds.give_back(candidate.kind)
        self._candidates, self._members, self._speakers, self._chosen = {}, {}, {}, {}
        self._here = self._maximal = self._spoken_for = 0
        if self._merged is not None:
            self._merged = Merged(self._merged.owner)

    def stands_for(self, id: str) -> set[str]:  # noqa: A002
        """The candidates that one which is sent stands for, itself among them; none for one that is not sent."""
        chosen = {id} if self._merged is None else self._merged.members(id)
        numbers = {self._candidates[one].kind for one in chosen if one in self._chosen}
        return {
            member
            for number in numbers
            for other in (number, *numbers_in(self._kinds.narrower[number] & self._here))
            for member in self._members[other]
        }

    def covering(self, id: str) -> list[str]:  # noqa: A002
        """The candidates that are sent and stand for another one, which is not; where several were merged into one,
        those that were."""
        number = self._candidates[id].kind if id in self._candidates else None
        if number is None:
            return []
        above = (self._kinds.wider[number] | 1 << number) & self._spoken_for
        return sorted(self._speakers[one] for one in numbers_in(above) if self._speakers[one] != id)

    def _join(self, name: str, number: int, before: _Before) -> None:
        members = self._members.setdefault(number, [])
        insort(members, name)
        if len(members) == 1:
            self._here |= 1 << number
            self._settle(1 << number | self._kinds.narrower[number] & self._maximal, before)
        elif members[0] == name:
            self._settle(1 << number | self._equals(number), before)

    def _leave(self, name: str, before: _Before) -> None:
        number = self._candidates[name].kind
        members = self._members[number]
        place = bisect_left(members, name)
        del members[place]
        if not members:
            del self._members[number]
            self._here ^= 1 << number
            still_covered = self._below(self._kinds.wider[number] & self._maximal)
            self._settle(1 << number | self._kinds.narrower[number] & self._here & ~still_covered, before)
        elif not place:
            self._settle(1 << number | self._equals(number), before)
        del self._candidates[name]
        self._kinds.give_back(number)

    def _equals(self, number: int) -> int:
        """Kinds that say the same in other words."""
        return self._kinds.wider[number] & self._kinds.narrower[number] & self._here

    def _above(self, number: int) -> int:
        """Kinds that stand for this one; of two that stand for each other the one with the smaller id does."""
        above = self._kinds.wider[number] & self._here
        for equal in numbers_in(above & self._kinds.narrower[number]):
            if self._members[number][0] < self._members[equal][0]:
                above ^= 1 << equal
        return above

    def _settle(self, questioned: int, before: _Before) -> None:
        """Decides anew for kinds that may have become maximal, or ceased to be, and for those below them."""
        now = 0
        for number in numbers_in(questioned & self._here):
            if not self._above(number):
                now |= 1 << number
        gained, lost = now & ~self._maximal, self._maximal & questioned & ~now
        self._maximal = self._maximal & ~questioned | now
        covered = self._below(gained)
        for number in numbers_in(covered & self._spoken_for):
            self._dismiss(number, before)
        for number in numbers_in((questioned | self._below(lost)) & ~covered):
            if self._here >> number & 1 and not self._above(number) & self._maximal:
                self._appoint(number, self._members[number][0], before)
            elif number in self._speakers:
                self._dismiss(number, before)

    def _below(self, kinds: int) -> int:
        below = 0
        for number in numbers_in(kinds):
            below |= self._kinds.narrower[number]
        return below & self._here

    def _appoint(self, number: int, name: str, before: _Before) -> None:
        if self._speakers.get(number, name) != name:
            self._dismiss(number, before)
        before.setdefault(name, self._chosen.get(name))
        self._chosen[name] = self._candidates[name].subscription
        self._speakers[number] = name
        self._spoken_for |= 1 << number

    def _dismiss(self, number: int, before: _Before) -> None:
        name = self._speakers.pop(number)
        before.setdefault(name, self._chosen.pop(name))
        self._spoken_for ^= 1 << number

    def _told(self, before: _Before) -> Change:
        """What is different on the link now."""
        merged = self._merged
        if merged is None:
            return _difference(before, self._chosen)
        for name in before:
            one = self._chosen.get(name)
            if one is None:
                merged.remove(name)
            else:
                merged.put(one, self._kinds[self._candidates[name].kind].can_merge)
        return _difference(merged.settle(), merged.sent)


def _difference(before: _Before, now: dict[str, Subscription]) -> Change:
    return Change(
        sent=tuple(now[name] for name in sorted(before) if name in now and now[name] != before[name]),
        withdrawn=tuple(name for name in sorted(before) if name not in now and before[name] is not None),
    )
