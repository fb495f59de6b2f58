"""The policy rules of a broker's filters: which filters have rules, and on which messages.

`update` is called after every change of a filter or its policies, so that a publication which no rule can touch is
routed without asking the filters.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from tidings.engine import meta_events
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filter_tables import FilterTables
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.recipients import is_known_by_name
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Constant, In
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_REPORTED_CONFLICTS
from tidings.model.subscription import Subscription
from tidings.policy.ast import Matching, MessageType, RuleOperation
from tidings.policy.evaluation.evaluation import SharedFacts
from tidings.routing.advertisement_table import META

_FORWARD = RuleOperation.FORWARD


class Conflict(NamedTuple):
    """Two rules that cannot both be obeyed, and what was done about it."""

    one: str
    other: str
    reason: str


class ReportedConflicts:
    """The reported conflicts, each preceded by its link. The oldest are forgotten first."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str, str], None] = {}

    def is_new(self, link: str, conflict: Conflict) -> bool:
        """Whether a conflict was not reported on this link yet; note it as reported."""
        key = link, conflict.one, conflict.other
        if key in self._reported:
            return False
        self._reported[key] = None
        if len(self._reported) > MAX_REPORTED_CONFLICTS:
            del self._reported[next(iter(self._reported))]
        return True

    def forget(self, source: str) -> None:
        """Forget the conflicts of a rule source whose policy has changed."""
        for key in [key for key in self._reported if source in key[1] or source in key[2]]:
            del self._reported[key]

    def reported(self) -> list[tuple[str, str, str]]:
        """Return the reported conflicts, the oldest first."""
        return list(self._reported)

    def restore(self, conflicts: Iterable[tuple[str, str, str]]) -> None:
        """Restore what `reported` returned."""
        self._reported = dict.fromkeys(conflicts)


class MetaEventState:
    """What a broker knows of its meta-events: the number of the last one, and which classes it can publish."""

    def __init__(self) -> None:
        self.sequence = 0  # of the last meta-event
        self._advertised: dict[str, frozenset[str]] = {}  # neighbour -> the classes of meta-events advertised to it
        self._counts: Counter[str] = Counter()  # class that rules here can publish -> how many filters can
        self._classes_of: dict[str, frozenset[str]] = {}  # filter -> classes its rules can publish

    def note_advertised(self, neighbour: str, classes: frozenset[str]) -> bool:
        """Note which classes are advertised to a neighbour; return False if all of them were before."""
        if classes <= self._advertised.get(neighbour, frozenset()):
            return False
        self._advertised[neighbour] = classes
        return True

    def keep_advertised(self, neighbours: Collection[str]) -> None:
        """Forget what was advertised to all other neighbours."""
        self._advertised = {name: classes for name, classes in self._advertised.items() if name in neighbours}

    def forget_advertised(self, neighbour: str) -> None:
        """Forget what was advertised to a neighbour."""
        self._advertised.pop(neighbour, None)

    def count_classes(self, entry: FilterEntry[Any], *, gone: bool) -> None:
        """Count which classes of meta-events the policies of a filter can publish; none if it is gone."""
        policies = () if gone else (entry.policy, entry.operator_policy)
        classes = frozenset[str]().union(
            *(meta_events.published_classes(policy) for policy in policies if policy is not None)
        )
        before = self._classes_of.pop(entry.id, frozenset())
        if classes:
            self._classes_of[entry.id] = classes
        for name in classes - before:
            self._counts[name] += 1
        for name in before - classes:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def classes(self, filters: FilterTables, but: str) -> frozenset[str]:
        """Return the classes of meta-events that can be published here or behind any link except that to `but`."""
        classes = meta_events.BROKERS_OWN | self._counts.keys()
        for entry in filters.advertisements:
            if entry.id.startswith(META) and entry.hop != but:
                classes |= _classes_in(entry.value.content)
        return frozenset(classes)


class RuleIndex:
    """The filters with rules, by what their rules act on.

    Args:
        name: The broker's name; the rules of its own filters act on every message.
        filters: The filters of the broker.
    """

    def __init__(self, name: str, filters: FilterTables) -> None:
        self._name, self._filters = name, filters
        self.load = 0.0
        self.on_publications: set[tuple[str, str]] = set()  # the filters with rules on publications, by kind and id
        # Subscriptions that are not plain, or whose delivery needs to know more than id and subscriber.
        self.non_trivial: set[str] = set()
        self.rule_bearing: set[str] = set()  # subscriptions that are not plain: see `FilterEntry.is_plain`
        # Subscriptions whose rules on publications may act on others' events.
        self.governing_subscriptions: dict[str, FilterEntry[Subscription]] = {}
        self.conflicts = ReportedConflicts()
        self.meta_events = MetaEventState()
        self._advertisements: dict[MessageType, dict[str, FilterEntry[Advertisement]]] = {
            message_type: {} for message_type in MessageType
        }
        self._advertisements_by_publisher: dict[str, tuple[FilterEntry[Advertisement], ...]] = {}  # a cache
        self._pre_match_rules: dict[MessageType, tuple[Ruling, ...]] = {}

    def update(self, entry: FilterEntry[Any], *, gone: bool = False) -> None:
        """Update the index after a filter or its policies changed or it was removed."""
        is_advertisement = isinstance(entry.value, Advertisement)
        key = "advertisement" if is_advertisement else "subscription", entry.id
        if not gone and entry.concerns(MessageType.PUBLICATION):
            self.on_publications.add(key)
        else:
            self.on_publications.discard(key)
        if not is_advertisement:
            if gone or (entry.is_plain and is_known_by_name(entry.value)):
                self.non_trivial.discard(entry.id)
            else:
                self.non_trivial.add(entry.id)
            if gone or entry.is_plain:
                self.rule_bearing.discard(entry.id)
            else:
                self.rule_bearing.add(entry.id)
        self.governing_subscriptions.pop(entry.id, None)
        if key in self.on_publications and not is_advertisement and _may_govern(entry):
            self.governing_subscriptions[entry.id] = entry
        self.meta_events.count_classes(entry, gone=gone)
        if is_advertisement:
            self._advertisements_by_publisher.clear()
            for message_type, entries in self._advertisements.items():
                if not gone and entry.concerns(message_type):
                    entries[entry.id] = entry
                else:
                    entries.pop(entry.id, None)
        if entry.is_own:
            self._update_pre_match_rules()

    def _update_pre_match_rules(self) -> None:
        own: list[FilterEntry[Any]] = [
            *self._filters.advertisements.of(self._name),
            *self._filters.subscriptions.of(self._name),
        ]
        own.sort(key=lambda entry: entry.id)
        for message_type in MessageType:
            self._pre_match_rules[message_type] = tuple(
                ruling for entry in own for ruling in entry.rulings(_FORWARD, message_type, Matching.BEFORE)
            )

    def pre_match_rulings(self, message_type: MessageType) -> tuple[Ruling, ...]:
        """Return the rules before matching of the broker's own filters."""
        return self._pre_match_rules.get(message_type, ())

    def advertisements_with_rules(self, message_type: MessageType) -> list[FilterEntry[Advertisement]]:
        """Return the advertisements with rules on messages of this type, by rising id."""
        entries = self._advertisements[message_type]
        return [entries[name] for name in sorted(entries)] if entries else []

    def advertisements_acting_on(self, publisher: str) -> tuple[FilterEntry[Advertisement], ...]:
        """Return the advertisements whose rules may act on a publisher's events: its own, and those that may govern.

        Rules that depend on the load alone are evaluated when the load changes, not per event.
        """
        known = self._advertisements_by_publisher.get(publisher)
        if known is None:
            if len(self._advertisements_by_publisher) >= MAX_REPORTED_CONFLICTS:
                self._advertisements_by_publisher.clear()
            known = self._advertisements_by_publisher[publisher] = tuple(
                entry
                for entry in self.advertisements_with_rules(MessageType.PUBLICATION)
                if (entry.owner == publisher or entry.governs or entry.operator_policy is not None)
                and not self._is_idle(entry)
            )
        return known

    def _is_idle(self, entry: FilterEntry[Advertisement]) -> bool:
        """Whether none of an advertisement's rules on publications can apply at the present load."""
        glance = SharedFacts({}, self.load, float)
        return not entry.for_publications and all(
            rule.goes_by_load and not rule.may_apply(glance) for rule, _ in entry.on_publications
        )

    def set_load(self, load: float) -> None:
        """Set how busy the broker is, limited to 0 to 1."""
        self.load = min(1.0, max(0.0, load))
        self._advertisements_by_publisher.clear()


def _may_govern(entry: FilterEntry[Any]) -> bool:
    """Whether a filter's rules may act on others' events; with a token, on events of the token's topic."""
    return entry.governs or entry.operator_policy is not None or entry.value.token is not None


def _classes_in(content: FilterValue) -> frozenset[str]:
    """Return the classes of meta-events that a broker's advertisement lists."""
    expression = content.expression
    if not isinstance(expression, In):
        return frozenset()
    values = (option.value for option in expression.options if isinstance(option, Constant))
    return frozenset(value for value in values if isinstance(value, str))
