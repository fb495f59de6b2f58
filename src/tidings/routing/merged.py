"""Several subscriptions as one, on a link (000, section 3.2: merging).

Subscriptions of equal subject and structure whose contents speak of the same attributes are merged perfectly: the
merged one lets through what they let through together, nothing else. It is the broker's own, and its id comes from
the ids of its members, so that brokers with the same members send the same.

Each change merges its group anew, which takes time that grows with the square of the group: a millisecond for ten
members, a tenth of a second for hundreds. Groups are small where filters speak of different attributes.
"""

from hashlib import blake2b
from typing import NamedTuple

from tidings.matching.covering import covers
from tidings.matching.merging import merge_with_sources
from tidings.model.filter import Filter
from tidings.model.schema import AttributeFilter
from tidings.model.subscription import Subscription

PREFIX = "$merged."
_ID_BYTES = 8


class _Group(NamedTuple):
    """What those that may be merged have in common."""

    subject: str | None
    structure: AttributeFilter | None
    names: frozenset[str]


class Merged:
    """Subscriptions as they are given, and `sent`: as few as say the same."""

    def __init__(self, owner: str) -> None:
        self.sent: dict[str, Subscription] = {}
        self.owner = owner
        self._groups: dict[_Group, dict[str, Subscription]] = {}
        self._group_of: dict[str, _Group] = {}
        self._outcomes: dict[_Group, list[str]] = {}  # the ids of what is sent for the group
        self._members: dict[str, set[str]] = {}  # by id of what is sent for a group: the ids that it stands for
        self._stale: set[_Group] = set()
        self._before: dict[str, Subscription | None] = {}

    def put(self, subscription: Subscription, can_merge: bool) -> None:
        self.remove(subscription.id)
        if not can_merge:
            self._send(subscription)
            return
        group = _Group(subscription.subject, subscription.structure, subscription.content.names)
        self._group_of[subscription.id] = group
        self._groups.setdefault(group, {})[subscription.id] = subscription
        self._spoil(group)

    def remove(self, name: str) -> None:
        group = self._group_of.pop(name, None)
        if group is None:
            self._take_back(name)
            return
        del self._groups[group][name]
        if not self._groups[group]:
            del self._groups[group]
        self._spoil(group)

    def settle(self) -> dict[str, Subscription | None]:
        """Merges what has changed. By id: what was sent before, None if nothing was; of all that may differ now."""
        for group in self._stale & self._groups.keys():
            self._merge(group)
        self._stale = set()
        before, self._before = self._before, {}
        return before

    def members(self, name: str) -> set[str]:
        """The given ones that one which is sent stands for."""
        return self._members.get(name, {name} & self.sent.keys())

    def _spoil(self, group: _Group) -> None:
        self._stale.add(group)
        for name in self._outcomes.pop(group, ()):
            del self._members[name]
            self._take_back(name)

    def _merge(self, group: _Group) -> None:
        given = {one.content: one for _, one in sorted(self._groups[group].items())}
        made: dict[str, Subscription] = {}
        kept: dict[str, Subscription] = {}  # of which it could not be shown that they are needless
        needless = set(self._groups[group])
        for content, sources in merge_with_sources(given):
            names = sorted(given[source].id for source in sources)
            one = given[content] if len(names) == 1 else self._made(group, content, names)
            made[one.id], self._members[one.id] = one, set(names)
            needless -= self._members[one.id]
        for name in needless:
            left = self._groups[group][name]
            standing = [one.id for one in made.values() if covers(one.content, left.content)]
            for one_id in standing:
                self._members[one_id].add(name)
            if not standing:
                kept[name], self._members[name] = left, {name}
        for one in (*made.values(), *kept.values()):
            self._send(one)
        self._outcomes[group] = [*made, *kept]

    def _made(self, group: _Group, content: Filter, names: list[str]) -> Subscription:
        digest = blake2b("\0".join(names).encode(), digest_size=_ID_BYTES).hexdigest()
        return Subscription(
            id=PREFIX + digest,
            subscriber=self.owner,
            subject=group.subject,
            structure=group.structure,
            content=content,
        )

    def _send(self, subscription: Subscription) -> None:
        self._before.setdefault(subscription.id, self.sent.get(subscription.id))
        self.sent[subscription.id] = subscription

    def _take_back(self, name: str) -> None:
        if name in self.sent:
            self._before.setdefault(name, self.sent.pop(name))
