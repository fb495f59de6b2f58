"""Merging: replace several subscriptions on a link by one (paper 000, section 3.2).

Subscriptions of equal subject and structure whose contents use the same attributes form a group and are merged
perfectly: the merged subscription lets through exactly the events that its members let through together. It belongs to
the broker, and its id is a hash of its members' ids, so that brokers with the same members send the same.

Each change merges its group again, in time quadratic in the size of the group: a millisecond for ten members, a tenth
of a second for hundreds. Groups are small where filters use different attributes.
"""

from hashlib import blake2b
from typing import NamedTuple

from tidings.matching.covering import covers
from tidings.matching.merging import merge_with_sources
from tidings.model.filter import FilterValue
from tidings.model.schema import AttributeFilter
from tidings.model.subscription import Subscription

PREFIX = "$merged."
_ID_BYTES = 8


class _Group(NamedTuple):
    """What subscriptions that may be merged have in common."""

    subject: str | None
    structure: AttributeFilter | None
    names: frozenset[str]


class MergedSubscriptions:
    """The subscriptions to send on a link, before merging, and `sent`: the fewer, equivalent ones after merging."""

    def __init__(self, owner: str) -> None:
        self.sent: dict[str, Subscription] = {}
        self.owner = owner
        self._groups: dict[_Group, dict[str, Subscription]] = {}
        self._group_of: dict[str, _Group] = {}
        self._sent_of_group: dict[_Group, list[str]] = {}  # ids of the subscriptions sent for the group
        self._members: dict[str, set[str]] = {}  # by id of a sent subscription: ids of its members
        self._changed_groups: set[_Group] = set()
        self._before: dict[str, Subscription | None] = {}

    def put(self, subscription: Subscription, can_merge: bool) -> None:
        """Add a subscription, or replace the one with the same id; without `can_merge` it is sent unchanged."""
        self.remove(subscription.id)
        if not can_merge:
            self._send(subscription)
            return
        group = _Group(subscription.subject, subscription.structure, subscription.content.names)
        self._group_of[subscription.id] = group
        self._groups.setdefault(group, {})[subscription.id] = subscription
        self._mark_changed(group)

    def remove(self, name: str) -> None:
        """Remove a subscription by its id."""
        group = self._group_of.pop(name, None)
        if group is None:
            self._withdraw(name)
            return
        del self._groups[group][name]
        if not self._groups[group]:
            del self._groups[group]
        self._mark_changed(group)

    def settle(self) -> dict[str, Subscription | None]:
        """Merge the groups that changed since the last call.

        Returns, for each id that may have changed in `sent`, the subscription sent before, or None if there was none.
        """
        for group in self._changed_groups & self._groups.keys():
            self._merge(group)
        self._changed_groups = set()
        before, self._before = self._before, {}
        return before

    def members(self, name: str) -> set[str]:
        """Return the ids of the subscriptions that were merged into a sent subscription, or its own id."""
        return self._members.get(name, {name} & self.sent.keys())

    def _mark_changed(self, group: _Group) -> None:
        """Mark a group as changed, and withdraw what was sent for it."""
        self._changed_groups.add(group)
        for name in self._sent_of_group.pop(group, ()):
            del self._members[name]
            self._withdraw(name)

    def _merge(self, group: _Group) -> None:
        """Merge the subscriptions of a group and send the result.

        A subscription that merging found redundant is still sent if no result provably covers it.
        """
        by_content = {subscription.content: subscription for _, subscription in sorted(self._groups[group].items())}
        results: dict[str, Subscription] = {}
        unproved: dict[str, Subscription] = {}  # subscriptions that could not be proved redundant
        redundant = set(self._groups[group])
        for content, sources in merge_with_sources(by_content):
            ids = sorted(by_content[source].id for source in sources)
            result = by_content[content] if len(ids) == 1 else self._merged_subscription(group, content, ids)
            results[result.id], self._members[result.id] = result, set(ids)
            redundant -= self._members[result.id]
        for name in redundant:
            subscription = self._groups[group][name]
            covering_ids = [result.id for result in results.values() if covers(result.content, subscription.content)]
            for result_id in covering_ids:
                self._members[result_id].add(name)
            if not covering_ids:
                unproved[name], self._members[name] = subscription, {name}
        for sent in (*results.values(), *unproved.values()):
            self._send(sent)
        self._sent_of_group[group] = [*results, *unproved]

    def _merged_subscription(self, group: _Group, content: FilterValue, ids: list[str]) -> Subscription:
        """Return the broker's own subscription for several merged ones."""
        digest = blake2b("\0".join(ids).encode(), digest_size=_ID_BYTES).hexdigest()
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

    def _withdraw(self, name: str) -> None:
        if name in self.sent:
            self._before.setdefault(name, self.sent.pop(name))
