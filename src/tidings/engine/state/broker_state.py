"""The state of a broker: filters, contexts, schemas and cached trust answers, with shortcuts to the policy rules.

1. The tables `advertisements` and `subscriptions` hold every filter as a `FilterEntry`. Local clients' subscriptions
   are also in `matcher`, those of neighbours in `remote_subscriptions`, and advertisements of neighbours in `offers`.
   `insert_filter`, `insert_entry` and `remove_filter` keep these in step.
2. `update_rule_indexes` keeps the shortcuts to filters with rules (`rules`, `rule_bearing`, `non_trivial`,
   `governing_subscriptions`) up to date, so that a publication which no rule can touch is routed without asking them.
3. `FilterEntry.sent_to` and `FilterEntry.target_links` of every filter, the covering sets and `contexts_sent` say what
   each neighbour has from here. After a topology change they are cleared, and everything is sent again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tidings.engine import meta_events
from tidings.engine.headers import Provenance, Version
from tidings.engine.matcher import FastMatcher, Matcher
from tidings.engine.message import Message
from tidings.engine.settings import Settings
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import BrokerTables, FilterEntry, FilterTable, RemoteFilterEntry
from tidings.engine.state.recipients import is_known_by_name
from tidings.engine.state.remote_subscriptions import RemoteSubscriptions
from tidings.engine.state.seen_events import SeenEvents
from tidings.engine.steps import admit
from tidings.engine.steps.decisions import Conflict
from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Constant, In
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_REPORTED_CONFLICTS
from tidings.model.subjects import Subjects
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy.ast import Matching, MessageType, RuleOperation
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.evaluation.evaluation import SharedFacts
from tidings.routing import strategy
from tidings.routing.advertisement_table import META, AdvertisementTable
from tidings.routing.bloom import context_id
from tidings.routing.context_table import ContextTable
from tidings.routing.covering_classes import CoveringClasses
from tidings.routing.link_covering_set import LinkCoveringSet
from tidings.routing.strategy import bound

_NOWHERE = Context()
_FORWARD = RuleOperation.FORWARD


class BrokerState:
    """The tables of a broker and the functions that keep them consistent. The engine alone decides when they change.

    Args:
        settings: The broker's configuration.
        matcher: Finds the local subscriptions that an event matches; by default an index.
        kinds: A cache of covering decisions, which engines of one process may share.
    """

    def __init__(
        self, settings: Settings | None = None, matcher: Matcher | None = None, kinds: CoveringClasses | None = None
    ) -> None:
        """Create the empty state; see the class for the arguments."""
        self.settings = settings or Settings()
        self.name = self.settings.name
        self.matcher: Matcher = FastMatcher() if matcher is None else matcher  # of local clients' subscriptions
        self.strategy = strategy(self.settings.strategy)
        self.remote_subscriptions = RemoteSubscriptions(ignores_context=self.strategy.announces)
        self.advertisements: FilterTable[Advertisement] = FilterTable()
        self.subscriptions: FilterTable[Subscription] = FilterTable()
        self.subjects = Subjects()
        self.neighbours: dict[str, None] = {}
        self.load = 0.0
        self.rules: set[tuple[str, str]] = set()  # the filters with rules on publications, by kind and id
        # Subscriptions that are not plain, or whose delivery needs to know more than id and subscriber.
        self.non_trivial: set[str] = set()
        self.rule_bearing: set[str] = set()  # subscriptions that are not plain: see `FilterEntry.is_plain`
        # Subscriptions whose rules on publications may act on others' events.
        self.governing_subscriptions: dict[str, FilterEntry[Subscription]] = {}
        self.contexts: dict[str, Context] = {}  # local client -> its context
        self.context_versions: dict[str, Version] = {}
        self.contexts_sent: dict[str, set[str]] = {}  # client -> the neighbours that have its context
        self.publisher_contexts: dict[str, Context] = {}  # client -> the context that its last event had (spcf)
        self.arrivals: dict[str, int] = {}  # client -> the session in which it came here
        self.offers = AdvertisementTable()  # the advertisements that came from neighbours
        self.announced = ContextTable()  # the contexts of clients, as their brokers announce them
        self.seen_events = SeenEvents()
        self.durable_since: dict[
            str, int
        ] = {}  # durable subscriptions of clients here -> since when they have been here
        self._kinds = CoveringClasses() if kinds is None else kinds
        self._covering_sets: dict[str, LinkCoveringSet] = {}  # neighbour -> its covering set
        self._version = self.now = 0
        self.context_delegates: dict[str, set[str]] = {}  # client -> others that may set its context
        self.trust: dict[tuple[str, str], tuple[bool, int]] = {}  # party, group -> member, until when
        self._advertisements_with_rules: dict[MessageType, dict[str, FilterEntry[Advertisement]]] = {
            message_type: {} for message_type in MessageType
        }
        self._advertisements_by_publisher: dict[str, tuple[FilterEntry[Advertisement], ...]] = {}  # cache by publisher
        self._pre_match_rules: dict[MessageType, tuple[Ruling, ...]] = {}
        self.reported_conflicts: dict[tuple[str, str, str], None] = {}  # reported conflicts, oldest first
        self.meta_classes_sent: dict[
            str, frozenset[str]
        ] = {}  # neighbour -> the classes of meta-events advertised to it
        self._classes: Counter[str] = Counter()  # class that rules here can publish -> how many filters can
        self._classes_of: dict[str, frozenset[str]] = {}  # filter -> classes its rules can publish
        self.sequence = 0  # of the last meta-event

    def is_ingress(self, sender: str) -> bool:
        """Whether this broker is the ingress for a sender: a client, or a neighbour in another sub-overlay."""
        return sender not in self.neighbours or sender in self.settings.abroad

    def is_external(self, receiver: str) -> bool:
        """Whether a neighbour belongs to another sub-overlay."""
        return receiver in self.settings.abroad

    def governs(self, owner: str) -> bool:
        """Whether an owner's policies may act on others' events, by configuration or as a broker.

        No client can use the name of a broker: see `admit.admit_from_broker`.
        """
        return owner in self.settings.govern or owner == self.name or owner in self.neighbours

    def may_observe(self, entry: FilterEntry[Subscription]) -> bool:
        """Whether a subscription may get meta-events."""
        observers = self.settings.observers
        return observers is None or entry.owner in observers or entry.governs or not entry.is_client

    def is_here(self, client: str) -> bool:
        """Whether a client is connected to this broker or has filters at it."""
        entries: Iterable[FilterEntry[Any]] = (*self.subscriptions.of(client), *self.advertisements.of(client))
        return client in self.arrivals or any(subscription.is_client for subscription in entries)

    def context(self, client: str) -> Context:
        """Return the context of a local client."""
        return self.contexts.get(client, _NOWHERE)

    def context_of(self, entry: FilterEntry[Subscription]) -> Context:
        """Return the context of a subscriber, at this broker or another."""
        return self.context(entry.owner) if entry.is_client else self.remote_subscriptions.context(entry.owner)

    def version_of(self, client: str) -> Version:
        """Return a new version for what a local client changes now."""
        return self.arrivals.get(client, 0), self.version()

    def prospective_entry(
        self, given: Advertisement | Subscription, hop: str, provenance: Provenance | None
    ) -> FilterEntry[Any]:
        """Return the entry that a filter would have, without putting it into a table."""
        entry = self.new_entry(given, hop, None)
        self.set_provenance(entry, provenance)
        return entry

    def set_provenance(self, entry: FilterEntry[Any], provenance: Provenance | None) -> None:
        """Note where a filter came from: from a local client, whose context is bound to it, or from another broker."""
        if provenance is None:
            entry.version = self.version_of(entry.owner)
        else:
            entry.version, entry.context = provenance.version, provenance.context
        if provenance is not None and isinstance(entry, RemoteFilterEntry):
            entry.scoped = provenance.scoped
            if not entry.is_local:
                entry.origin, entry.digest, entry.senders = provenance.origin, provenance.digest, frozenset({entry.hop})
        if entry.is_local and self.strategy.binds and isinstance(entry.value, Subscription):
            self.bind(entry)

    def rebind(self, entry: FilterEntry[Subscription]) -> None:
        """Bind a subscription to its subscriber's changed context, as a new version."""
        self._untrack_selection(entry)
        self.bind(entry)
        self._track_selection(entry)
        entry.version = self.version_of(entry.owner)

    def _track_selection(self, entry: FilterEntry[Subscription]) -> None:
        """Start tracking which announced contexts the subscription's filter on publishers selects."""
        if self.strategy.announces:
            entry.selection = self.announced.use(entry.bound_publishers, entry.id, passes=not entry.is_client)

    def _untrack_selection(self, entry: FilterEntry[Subscription]) -> None:
        """Stop tracking which announced contexts the subscription selects."""
        if entry.selection is not None:
            self.announced.release(entry.selection, entry.id)

    def bind(self, entry: FilterEntry[Subscription]) -> None:
        """Bind a subscription to its subscriber's context: `this.` in the filter on publishers that is sent is
        replaced.

        The subscription is a local client's, or one of another sub-overlay; of the latter the context may be unknown.
        """
        own = self.context_of(entry)
        wanted = entry.value.publishers
        if self.strategy.announces:
            entry.context = context_id(own) if entry.is_client or entry.scoped else b""
        entry.bound_publishers = None if wanted is None else bound(wanted, own)

    def forget_sent_state(self) -> None:
        """Forget what was sent to and announced by brokers of this sub-overlay, before everything is sent again."""
        abroad = frozenset(name for name in self.neighbours if self.is_external(name))
        for name in self._covering_sets.keys() - abroad:
            self._covering_sets.pop(name).clear()
        self.meta_classes_sent = {name: told for name, told in self.meta_classes_sent.items() if name in abroad}
        for known in self.contexts_sent.values():
            known &= abroad
        for broker in list(self.announced.brokers()):
            self.announced.forget(broker)
        self.offers.clear()
        for entry in self.entries():
            entry.sent_to, entry.flooded = entry.sent_to & abroad, entry.flooded & abroad
            entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name in abroad}
            if entry.is_local and not entry.is_client and isinstance(entry.value, Advertisement):
                self.offers.put(entry.hop, entry.value)

    def forget_sent_state_of(self, neighbour: str) -> None:
        """Forget what was sent to one neighbour."""
        if neighbour in self._covering_sets:
            self._covering_sets.pop(neighbour).clear()
        self.meta_classes_sent.pop(neighbour, None)
        for known in self.contexts_sent.values():
            known.discard(neighbour)
        for entry in self.entries():
            entry.sent_to, entry.flooded = entry.sent_to - {neighbour}, entry.flooded - {neighbour}
            entry.target_links = {name: scoped for name, scoped in entry.target_links.items() if name != neighbour}

    def version(self) -> int:
        """Return a number higher than all before, also than those before a restart."""
        self._version = max(self.now, self._version + 1)
        return self._version

    def covering_set(self, neighbour: str) -> LinkCoveringSet | None:
        """Return the covering set of the link to a neighbour; None if filters do not cover others on that link."""
        if not self.strategy.covers and not self.is_external(neighbour):
            return None
        found = self._covering_sets.get(neighbour)
        if found is None:
            found = self._covering_sets[neighbour] = LinkCoveringSet(self.settings.merging, self.name, self._kinds)
        return found

    def insert_filter(
        self, message: Message, given: Advertisement | Subscription, provenance: Provenance | None
    ) -> tuple[FilterEntry[Any] | None, FilterEntry[Any]]:
        """Put a filter that came into its table, in place of the one with its id; return both entries.

        Args:
            message: The message that brought it.
            given: The filter, as rules have left it.
            provenance: Its provenance, if it came from another broker.

        Returns:
            The entry that was replaced, or None, and the new entry.
        """
        table: FilterTable[Any] = self.advertisements if isinstance(given, Advertisement) else self.subscriptions
        before = table.get(given.id)
        if before is not None:
            self._remove_from_tables(before)
        entry = self.insert_entry(given, message.sender, message.attached, provenance)
        if not entry.is_client:
            self.remove_former_subscription(given.id, entry.hop)  # its subscriber is behind that neighbour again
        self._update_durable_since(entry)
        if before is not None:
            self._forget_scope(before)
            self._keep_former(before, entry)
        if before is not None and not entry.is_local and before.context not in (b"", entry.context):
            # Events in flight may have been published when only the former context was known.
            until = self.now + self.settings.grace_microseconds
            entry.former_contexts = (
                *(context for context in before.former_contexts if context[1] > self.now),
                (before.context, until),
            )
        if before is not None and before.operator_policy is not None:
            entry.govern(before.operator_policy, operator=True)
            self.update_rule_indexes(entry)
        return before, entry

    def _update_durable_since(self, entry: FilterEntry[Any]) -> None:
        """Note since when a durable subscription has been here, which decides what redelivery gives it."""
        if entry.is_client and isinstance(entry.value, Subscription) and entry.value.durable is not None:
            self.durable_since.setdefault(entry.id, self.now)
        else:
            self.durable_since.pop(entry.id, None)

    def _keep_former(self, before: FilterEntry[Any], entry: FilterEntry[Any]) -> None:
        """Keep the former subscription of a subscriber that has moved, toward the broker that it has left.

        At that broker the subscription may cover others, which are sent when it is withdrawn there. Until then events
        go both ways.
        """
        has_moved = (
            not before.is_local and before.hop != entry.hop and (entry.is_local or before.digest == entry.digest)
        )
        if has_moved and self.strategy.covers and isinstance(before.value, Subscription) and before.policy is None:
            given = msgspec.structs.replace(
                before.value, id=_former_id(before.id, before.hop), publishers=before.bound_publishers
            )
            former = self._new_remote_entry(given, before.hop)  # even if the link is gone, until tables are rebuilt
            former.origin = before.origin
            self.subscriptions.put(former)
            self.remote_subscriptions.put(former)

    def remove_former_subscription(self, id: str, neighbour: str) -> None:  # noqa: A002
        """Drop the former subscription of a subscriber that has moved away from behind a neighbour."""
        former = self.subscriptions.get(_former_id(id, neighbour))
        if former is not None:
            self.remove_filter(former)

    def insert_entry(
        self,
        given: Advertisement | Subscription,
        hop: str,
        policy: CompiledPolicy | None,
        provenance: Provenance | None = None,
    ) -> FilterEntry[Any]:
        """Put a filter into its table and the matching structures; return its entry.

        Args:
            given: The filter.
            hop: The client or neighbour that it came from.
            policy: Its owner's policy.
            provenance: Its provenance, if it came from another broker.
        """
        entry = self.new_entry(given, hop, policy)
        self.set_provenance(entry, provenance)
        if isinstance(given, Subscription):
            self.subscriptions.put(entry)
            if entry.is_client:
                self.matcher.put(given)
            else:
                self.remote_subscriptions.put(entry)
            self._track_selection(entry)
        else:
            self.advertisements.put(entry)
            if not entry.is_client:
                self.offers.put(hop, given)
        self.update_rule_indexes(entry)
        return entry

    def new_entry(
        self, given: Advertisement | Subscription, hop: str, policy: CompiledPolicy | None
    ) -> FilterEntry[Any]:
        """Return a new entry for a filter, with its rules, without putting it into a table."""
        entry: FilterEntry[Any]
        if hop in self.neighbours:
            entry = self._new_remote_entry(given, hop)
        else:
            is_own, governs = self._rights_of(given)
            entry = FilterEntry(given, hop, self.name, is_own=is_own, governs=governs)
        if policy is not None:
            entry.govern(policy)
        return entry

    def _new_remote_entry(self, given: Advertisement | Subscription, hop: str) -> RemoteFilterEntry[Any]:
        """Return a new entry for a filter that came from a neighbour, linked or not."""
        is_own, governs = self._rights_of(given)
        return RemoteFilterEntry(given, hop, self.name, is_own=is_own, governs=governs, is_local=self.is_external(hop))

    def _rights_of(self, given: Advertisement | Subscription) -> tuple[bool, bool]:
        """Return whether a filter is the broker's own, and whether its owner may govern."""
        owner = given.publisher if isinstance(given, Advertisement) else given.subscriber
        return owner == self.name, self.governs(owner)

    def remove_filter(self, entry: FilterEntry[Any]) -> None:
        """Remove a filter from its table and the matching structures."""
        self._remove_from_tables(entry)
        self.durable_since.pop(entry.id, None)
        self._forget_scope(entry)

    def _remove_from_tables(self, entry: FilterEntry[Any]) -> None:
        if isinstance(entry.value, Advertisement):
            self.advertisements.remove(entry.id)
            self.offers.remove(entry.hop, entry.id)
        else:
            self.subscriptions.remove(entry.id)
            if entry.is_client:
                self.matcher.remove(entry.id)
            else:
                self.remote_subscriptions.remove(entry)
            self._untrack_selection(entry)
        self.update_rule_indexes(entry, gone=True)

    def _forget_scope(self, entry: FilterEntry[Any]) -> None:
        """Forget the context of another broker's client if none of its subscriptions is scoped here any more."""
        if entry.scoped and not any(subscription.scoped for subscription in self.subscriptions.of(entry.owner)):
            self.remote_subscriptions.forget_context(entry.owner, entry.senders | {entry.hop})

    def entries(self) -> Iterator[FilterEntry[Advertisement] | FilterEntry[Subscription]]:
        """Yield all entries, advertisements first."""
        yield from self.advertisements
        yield from self.subscriptions

    def tables(self) -> BrokerTables:
        """Return the broker's tables as values that can be listed and compared."""
        return BrokerTables(
            advertisements=[entry.value for entry in self.advertisements],
            subscriptions=[entry.value for entry in self.subscriptions],
            contexts={**self.remote_subscriptions.contexts(), **self.contexts},
            policies={entry.id: str(entry.policy.policy) for entry in self.entries() if entry.policy is not None},
            operator_policies={
                entry.id: str(entry.operator_policy.policy)
                for entry in self.entries()
                if entry.operator_policy is not None
            },
            schemas=list(self.subjects),
            hops={entry.id: entry.hop for entry in self.entries()},
            sent={entry.id: sorted(entry.sent_to) for entry in self.entries() if entry.sent_to},
        )

    def update_rule_indexes(
        self, entry: FilterEntry[Advertisement] | FilterEntry[Subscription], *, gone: bool = False
    ) -> None:
        """Update the shortcuts to filters with rules, after a filter or its policies changed or it was removed."""
        is_advertisement = isinstance(entry.value, Advertisement)
        key = "advertisement" if is_advertisement else "subscription", entry.id
        if not gone and entry.concerns(MessageType.PUBLICATION):
            self.rules.add(key)
        else:
            self.rules.discard(key)
        if not is_advertisement:
            if gone or (entry.is_plain and is_known_by_name(entry.value)):  # type: ignore[arg-type]
                self.non_trivial.discard(entry.id)
            else:
                self.non_trivial.add(entry.id)
            if gone or entry.is_plain:
                self.rule_bearing.discard(entry.id)
            else:
                self.rule_bearing.add(entry.id)
        self.governing_subscriptions.pop(entry.id, None)
        if key in self.rules and not is_advertisement and _may_govern(entry):
            self.governing_subscriptions[entry.id] = entry  # type: ignore[assignment]
        self._count_meta_classes(entry, gone=gone)
        if is_advertisement:
            self._advertisements_by_publisher.clear()
            for message, found in self._advertisements_with_rules.items():
                if not gone and entry.concerns(message):
                    found[entry.id] = entry  # type: ignore[assignment]
                else:
                    found.pop(entry.id, None)
        if entry.is_own:
            own: list[FilterEntry[Any]] = [*self.advertisements.of(self.name), *self.subscriptions.of(self.name)]
            for message in MessageType:
                rulings = [
                    ruling
                    for other_entry in sorted(own, key=lambda subscription: subscription.id)
                    for ruling in other_entry.rulings(_FORWARD, message, Matching.BEFORE)
                ]
                self._pre_match_rules[message] = tuple(rulings)

    def meta_classes(self, but: str) -> frozenset[str]:
        """Return the classes of meta-events that can be published here or behind any link except that to `but`."""
        found = meta_events.BROKERS_OWN | self._classes.keys()
        for entry in self.advertisements:
            if entry.id.startswith(META) and entry.hop != but:
                found |= _classes_in(entry.value.content)
        return frozenset(found)

    def _count_meta_classes(self, entry: FilterEntry[Advertisement] | FilterEntry[Subscription], *, gone: bool) -> None:
        """Count which classes of meta-events the filters' policies can publish."""
        policies = () if gone else (entry.policy, entry.operator_policy)
        classes = frozenset[str]().union(*(admit.published_classes(one) for one in policies if one is not None))
        before = self._classes_of.pop(entry.id, frozenset())
        if classes:
            self._classes_of[entry.id] = classes
        for name in classes - before:
            self._classes[name] += 1
        for name in before - classes:
            self._classes[name] -= 1
            if not self._classes[name]:
                del self._classes[name]

    def pre_match_rulings(self, message: MessageType) -> tuple[Ruling, ...]:
        """Return the rules before matching of the broker's own filters."""
        return self._pre_match_rules.get(message, ())

    def ruling_advertisements(self, message: MessageType) -> list[FilterEntry[Advertisement]]:
        """Return the advertisements with rules on messages of this type, by rising id."""
        found = self._advertisements_with_rules[message]
        return [found[name] for name in sorted(found)] if found else []

    def advertisements_on(self, publisher: str) -> tuple[FilterEntry[Advertisement], ...]:
        """Return the advertisements whose rules may act on a publisher's events: its own, and those that may govern.

        Rules that depend on the load alone are evaluated when the load changes, not per event.
        """
        known = self._advertisements_by_publisher.get(publisher)
        if known is None:
            if len(self._advertisements_by_publisher) >= MAX_REPORTED_CONFLICTS:
                self._advertisements_by_publisher.clear()
            known = self._advertisements_by_publisher[publisher] = tuple(
                message_type
                for message_type in self.ruling_advertisements(MessageType.PUBLICATION)
                if (message_type.owner == publisher or message_type.governs or message_type.operator_policy is not None)
                and not self._is_idle(message_type)
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

    def overlapping_advertisements(self, subscription: Subscription) -> list[FilterEntry[Advertisement]]:
        """Return the advertisements with rules on subscriptions whose filters overlap the subscription's."""
        return [
            message_type
            for message_type in self.ruling_advertisements(MessageType.SUBSCRIPTION)
            if overlaps(message_type.value.content, subscription.content)
        ]

    def is_new_conflict(self, link: str, conflict: Conflict) -> bool:
        """Whether a conflict was not reported on this link yet; note it as reported."""
        key = link, conflict.one, conflict.other
        if key in self.reported_conflicts:
            return False
        self.reported_conflicts[key] = None
        if len(self.reported_conflicts) > MAX_REPORTED_CONFLICTS:
            del self.reported_conflicts[next(iter(self.reported_conflicts))]
        return True

    def forget_conflicts(self, source: str) -> None:
        """Forget the reported conflicts of a rule source whose policy has changed."""
        for key in [key for key in self.reported_conflicts if source in key[1] or source in key[2]]:
            del self.reported_conflicts[key]

    def restore_conflicts(self, conflicts: Iterable[tuple[str, str, str]]) -> None:
        """Restore the reported conflicts, each preceded by its link."""
        self.reported_conflicts = dict.fromkeys(conflicts)


def _may_govern(entry: FilterEntry[Any]) -> bool:
    """Whether a filter's rules may act on others' events; with a token, on events of the token's topic."""
    return entry.governs or entry.operator_policy is not None or entry.value.token is not None


def _former_id(id: str, neighbour: str) -> str:  # noqa: A002
    """Return the id under which a moved subscriber's former subscription is stored."""
    return f"$former.{neighbour}.{id}"


def _classes_in(content: FilterValue) -> frozenset[str]:
    """Return the classes of meta-events that a broker's advertisement lists."""
    said = content.expression
    if not isinstance(said, In):
        return frozenset()
    values = (option.value for option in said.options if isinstance(option, Constant))
    return frozenset(option for option in values if isinstance(option, str))
