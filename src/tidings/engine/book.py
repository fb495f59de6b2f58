"""The book of a broker: the filters, contexts, schemas and answers that it knows, with short cuts to the rules."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tidings.engine import admission, meta
from tidings.engine.deciding import Conflict
from tidings.engine.directory import is_known_by_name
from tidings.engine.journey import Version, Way
from tidings.engine.matcher import FastMatcher, Matcher
from tidings.engine.message import Message
from tidings.engine.passages import Passages
from tidings.engine.ruled import Ruling
from tidings.engine.settings import Settings
from tidings.engine.tables import Filed, Relayed, Table, Tables
from tidings.engine.transit import Transit
from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Constant, In
from tidings.model.filter import Filter
from tidings.model.limits import MAX_TOLD_CONFLICTS
from tidings.model.subjects import Subjects
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy.application import CompiledPolicy
from tidings.policy.situation import Glance
from tidings.policy.statement import Matching, MessageType
from tidings.policy.statement import Operation as Step
from tidings.routing import strategy
from tidings.routing.announced import Announced
from tidings.routing.binding import bound
from tidings.routing.front import Front
from tidings.routing.identity import context_id
from tidings.routing.kinds import Kinds
from tidings.routing.offers import META, Offers

_NOWHERE = Context()
_FORWARD = Step.FORWARD


class Book:
    """State, and nothing that happens by itself; the engine is what writes in it."""

    def __init__(
        self, settings: Settings | None = None, matcher: Matcher | None = None, kinds: Kinds | None = None
    ) -> None:
        """Engines of one process may share what they know of `kinds`: which subscriptions may stand for others."""
        self.settings = settings or Settings()
        self.name = self.settings.name
        self.matcher: Matcher = FastMatcher() if matcher is None else matcher  # of the clients' subscriptions
        self.strategy = strategy(self.settings.strategy)
        self.transit = Transit(ignores_context=self.strategy.announces)  # of those that came from neighbours
        self.advertisements: Table[Advertisement] = Table()
        self.subscriptions: Table[Subscription] = Table()
        self.subjects = Subjects()
        self.neighbours: dict[str, None] = {}
        self.load = 0.0
        self.rules: set[tuple[str, str]] = set()  # the filters with rules on publications, by kind and id
        self.special: set[str] = set()  # subscriptions that get more than a copy each, by rules or by their own wish
        self.particular: set[str] = set()  # the same, without those that differ only in how they are told apart
        self.wardens: dict[str, Filed[Subscription]] = {}  # subscriptions whose rules on publications decide for others
        self.contexts: dict[str, Context] = {}  # of the clients of this broker
        self.context_versions: dict[str, Version] = {}
        self.contexts_sent: dict[str, set[str]] = {}  # client -> the neighbours that know its context
        self.publishing: dict[str, Context] = {}  # client -> the context that its last event had (spcf)
        self.arrivals: dict[str, int] = {}  # client -> the session in which it came here
        self.offers = Offers()  # the advertisements that came from neighbours
        self.announced = Announced()  # the contexts of clients, as their brokers announce them
        self.passages = Passages()
        self.came: dict[str, int] = {}  # durable subscriptions of clients here -> since when they have been here
        self._kinds = Kinds() if kinds is None else kinds
        self._fronts: dict[str, Front] = {}  # what is told over each link
        self._version = self.now = 0
        self.entrusted: dict[str, set[str]] = {}  # client -> others that may set its context
        self.trust: dict[tuple[str, str], tuple[bool, int]] = {}  # -> member, until when
        self._ruling: dict[MessageType, dict[str, Filed[Advertisement]]] = {one: {} for one in MessageType}
        self._ruling_on: dict[str, tuple[Filed[Advertisement], ...]] = {}  # by publisher: found before
        self._early: dict[MessageType, tuple[Ruling, ...]] = {}
        self.news: dict[tuple[str, str, str], None] = {}  # conflicts that were told, oldest first
        self.meta_told: dict[str, frozenset[str]] = {}  # neighbour -> the classes of meta-events that it knows of
        self._classes: Counter[str] = Counter()  # those that rules here can publish, and how many filters have such
        self._classes_of: dict[str, frozenset[str]] = {}  # by filter
        self.sequence = 0  # of the meta-events

    def enters(self, sender: str) -> bool:
        return sender not in self.neighbours or sender in self.settings.abroad

    def leaves(self, receiver: str) -> bool:
        return receiver in self.settings.abroad

    def governs(self, owner: str) -> bool:
        """By configuration, or as a broker: in whose name nobody else acts (see `admission.admit_from_broker`)."""
        return owner in self.settings.govern or owner == self.name or owner in self.neighbours

    def may_observe(self, filed: Filed[Subscription]) -> bool:
        """Whether a subscription may be told of meta-events."""
        observers = self.settings.observers
        return observers is None or filed.owner in observers or filed.governs or not filed.is_client

    def is_here(self, client: str) -> bool:
        """Whether it is a client of this broker."""
        filed: Iterable[Filed[Any]] = (*self.subscriptions.of(client), *self.advertisements.of(client))
        return client in self.arrivals or any(one.is_client for one in filed)

    def context(self, client: str) -> Context:
        return self.contexts.get(client, _NOWHERE)

    def context_of(self, filed: Filed[Subscription]) -> Context:
        """The context of a subscriber, here or elsewhere."""
        return self.context(filed.owner) if filed.is_client else self.transit.context(filed.owner)

    def version_of(self, client: str) -> Version:
        """Of what a client of this broker says now."""
        return self.arrivals.get(client, 0), self.version()

    def prospective(self, given: Advertisement | Subscription, hop: str, way: Way | None) -> Filed[Any]:
        """A filter as it would stand in a table."""
        filed = self.new_filed(given, hop, None)
        self.trace_back(filed, way)
        return filed

    def trace_back(self, filed: Filed[Any], way: Way | None) -> None:
        """Notes how a filter came: from a client here, which is bound to its context, or from another broker."""
        if way is None:
            filed.version = self.version_of(filed.owner)
        else:
            filed.version, filed.context = way.version, way.context
        if way is not None and isinstance(filed, Relayed):
            filed.scoped = way.scoped
            if not filed.is_local:
                filed.origin, filed.digest, filed.senders = way.origin, way.digest, frozenset({filed.hop})
        if filed.is_local and self.strategy.binds and isinstance(filed.value, Subscription):
            self.bind(filed)

    def rebind(self, filed: Filed[Subscription]) -> None:
        """The subscriber's context has changed: it is another version."""
        self._let_go(filed)
        self.bind(filed)
        self._follow(filed)
        filed.version = self.version_of(filed.owner)

    def _follow(self, filed: Filed[Subscription]) -> None:
        """Keeps up what the subscription's filter selects of what is announced."""
        if self.strategy.announces:
            filed.reach = self.announced.use(filed.bound, filed.id, passes=not filed.is_client)

    def _let_go(self, filed: Filed[Subscription]) -> None:
        if filed.reach is not None:
            self.announced.release(filed.reach, filed.id)

    def bind(self, filed: Filed[Subscription]) -> None:
        """Writes the subscriber's context into what is sent of a subscription that a client here has, or one of another
        sub-overlay: that one's may be unknown."""
        own = self.context_of(filed)
        wanted = filed.value.publishers
        if self.strategy.announces:
            filed.context = context_id(own) if filed.is_client or filed.scoped else b""
        filed.bound = None if wanted is None else bound(wanted, own)

    def forget_what_was_sent(self) -> None:
        """To neighbours of this sub-overlay, and what came from them: they are told everything anew."""
        abroad = frozenset(name for name in self.neighbours if self.leaves(name))
        for name in self._fronts.keys() - abroad:
            self._fronts.pop(name).clear()
        self.meta_told = {name: told for name, told in self.meta_told.items() if name in abroad}
        for known in self.contexts_sent.values():
            known &= abroad
        for broker in list(self.announced.brokers()):
            self.announced.forget(broker)
        self.offers.clear()
        for filed in self.filed():
            filed.sent, filed.flooded = filed.sent & abroad, filed.flooded & abroad
            filed.toward = {name: scoped for name, scoped in filed.toward.items() if name in abroad}
            if filed.is_local and not filed.is_client and isinstance(filed.value, Advertisement):
                self.offers.put(filed.hop, filed.value)

    def forget_what_was_sent_to(self, neighbour: str) -> None:
        if neighbour in self._fronts:
            self._fronts.pop(neighbour).clear()
        self.meta_told.pop(neighbour, None)
        for known in self.contexts_sent.values():
            known.discard(neighbour)
        for filed in self.filed():
            filed.sent, filed.flooded = filed.sent - {neighbour}, filed.flooded - {neighbour}
            filed.toward = {name: scoped for name, scoped in filed.toward.items() if name != neighbour}

    def version(self) -> int:
        """Of what happens now: higher than all before, also than those before a restart."""
        self._version = max(self.now, self._version + 1)
        return self._version

    def front(self, neighbour: str) -> Front | None:
        """What is told over a link, where one filter may stand for others."""
        if not self.strategy.covers and not self.leaves(neighbour):
            return None
        found = self._fronts.get(neighbour)
        if found is None:
            found = self._fronts[neighbour] = Front(self.settings.merging, self.name, self._kinds)
        return found

    def file(
        self, message: Message, given: Advertisement | Subscription, way: Way | None
    ) -> tuple[Filed[Any] | None, Filed[Any]]:
        """Puts a filter into its table, in the place of the one of its id, if there was one."""
        table: Table[Any] = self.advertisements if isinstance(given, Advertisement) else self.subscriptions
        before = table.get(given.id)
        if before is not None:
            self._take_out(before)
        filed = self.put_filed(given, message.sender, message.attached, way)
        if not filed.is_client:
            self.forget_former(given.id, filed.hop)  # its subscriber is there again
        self._note_coming(filed)
        if before is not None:
            self._forget_scope(before)
            self._keep_former(before, filed)
        if before is not None and not filed.is_local and before.context not in (b"", filed.context):
            # Events may be under way that were published when only the former context was known.
            until = self.now + self.settings.grace_microseconds
            filed.past = (*(one for one in before.past if one[1] > self.now), (before.context, until))
        if before is not None and before.operator_policy is not None:
            filed.govern(before.operator_policy, operator=True)
            self.note_rules(filed)
        return before, filed

    def _note_coming(self, filed: Filed[Any]) -> None:
        """What has not been here before gets what was published meanwhile; what stays, as another one, does not."""
        if filed.is_client and isinstance(filed.value, Subscription) and filed.value.durable is not None:
            self.came.setdefault(filed.id, self.now)
        else:
            self.came.pop(filed.id, None)

    def _keep_former(self, before: Filed[Any], filed: Filed[Any]) -> None:
        """A subscriber has moved. Where it was, its subscription may stand for others', which are told when it is taken
        back there: until then events go both ways."""
        has_moved = (
            not before.is_local and before.hop != filed.hop and (filed.is_local or before.digest == filed.digest)
        )
        if has_moved and self.strategy.covers and isinstance(before.value, Subscription) and before.policy is None:
            given = msgspec.structs.replace(before.value, id=_former(before.id, before.hop), publishers=before.bound)
            former = self._relayed(given, before.hop)  # also if the link is gone: until tables are made anew
            former.origin = before.origin
            self.subscriptions.put(former)
            self.transit.put(former)

    def forget_former(self, id: str, neighbour: str) -> None:  # noqa: A002
        former = self.subscriptions.get(_former(id, neighbour))
        if former is not None:
            self.unfile(former)

    def put_filed(
        self, given: Advertisement | Subscription, hop: str, policy: CompiledPolicy | None, way: Way | None = None
    ) -> Filed[Any]:
        filed = self.new_filed(given, hop, policy)
        self.trace_back(filed, way)
        if isinstance(given, Subscription):
            self.subscriptions.put(filed)
            if filed.is_client:
                self.matcher.put(given)
            else:
                self.transit.put(filed)
            self._follow(filed)
        else:
            self.advertisements.put(filed)
            if not filed.is_client:
                self.offers.put(hop, given)
        self.note_rules(filed)
        return filed

    def new_filed(self, given: Advertisement | Subscription, hop: str, policy: CompiledPolicy | None) -> Filed[Any]:
        """A filter with its rules, as it stands in a table."""
        filed: Filed[Any]
        if hop in self.neighbours:
            filed = self._relayed(given, hop)
        else:
            is_own, governs = self._rank(given)
            filed = Filed(given, hop, self.name, is_own=is_own, governs=governs)
        if policy is not None:
            filed.govern(policy)
        return filed

    def _relayed(self, given: Advertisement | Subscription, hop: str) -> Relayed[Any]:
        """A filter that came from a neighbour, which need not be linked any more."""
        is_own, governs = self._rank(given)
        return Relayed(given, hop, self.name, is_own=is_own, governs=governs, is_local=self.leaves(hop))

    def _rank(self, given: Advertisement | Subscription) -> tuple[bool, bool]:
        """Whether a filter is this broker's own, and whether its owner's rules may decide for others."""
        owner = given.publisher if isinstance(given, Advertisement) else given.subscriber
        return owner == self.name, self.governs(owner)

    def unfile(self, filed: Filed[Any]) -> None:
        """Takes a filter out of its table."""
        self._take_out(filed)
        self.came.pop(filed.id, None)
        self._forget_scope(filed)

    def _take_out(self, filed: Filed[Any]) -> None:
        if isinstance(filed.value, Advertisement):
            self.advertisements.remove(filed.id)
            self.offers.remove(filed.hop, filed.id)
        else:
            self.subscriptions.remove(filed.id)
            if filed.is_client:
                self.matcher.remove(filed.id)
            else:
                self.transit.remove(filed)
            self._let_go(filed)
        self.note_rules(filed, gone=True)

    def _forget_scope(self, filed: Filed[Any]) -> None:
        """The context of a client elsewhere is known here as long as a subscription is judged by it."""
        if filed.scoped and not any(one.scoped for one in self.subscriptions.of(filed.owner)):
            self.transit.forget_context(filed.owner, filed.senders | {filed.hop})

    def filed(self) -> Iterator[Filed[Advertisement] | Filed[Subscription]]:
        """Everything that is in the tables, advertisements first."""
        yield from self.advertisements
        yield from self.subscriptions

    def tables(self) -> Tables:
        """What the broker knows, as values that can be listed and compared."""
        return Tables(
            advertisements=[one.value for one in self.advertisements],
            subscriptions=[one.value for one in self.subscriptions],
            contexts={**self.transit.contexts(), **self.contexts},
            policies={one.id: str(one.policy.policy) for one in self.filed() if one.policy is not None},
            operator_policies={
                one.id: str(one.operator_policy.policy) for one in self.filed() if one.operator_policy is not None
            },
            schemas=list(self.subjects),
            hops={one.id: one.hop for one in self.filed()},
            sent={one.id: sorted(one.sent) for one in self.filed() if one.sent},
        )

    def note_rules(self, filed: Filed[Advertisement] | Filed[Subscription], *, gone: bool = False) -> None:
        """Keeps the short cuts to the filters that have rules."""
        is_advertisement = isinstance(filed.value, Advertisement)
        key = "advertisement" if is_advertisement else "subscription", filed.id
        if not gone and filed.concerns(MessageType.PUBLICATION):
            self.rules.add(key)
        else:
            self.rules.discard(key)
        if not is_advertisement:
            if gone or (filed.is_plain and is_known_by_name(filed.value)):  # type: ignore[arg-type]
                self.special.discard(filed.id)
            else:
                self.special.add(filed.id)
            if gone or filed.is_plain:
                self.particular.discard(filed.id)
            else:
                self.particular.add(filed.id)
        self.wardens.pop(filed.id, None)
        if key in self.rules and not is_advertisement and _may_govern(filed):
            self.wardens[filed.id] = filed  # type: ignore[assignment]
        self._note_classes(filed, gone=gone)
        if is_advertisement:
            self._ruling_on.clear()
            for message, found in self._ruling.items():
                if not gone and filed.concerns(message):
                    found[filed.id] = filed  # type: ignore[assignment]
                else:
                    found.pop(filed.id, None)
        if filed.is_own:
            own: list[Filed[Any]] = [*self.advertisements.of(self.name), *self.subscriptions.of(self.name)]
            for message in MessageType:
                rulings = [
                    ruling
                    for one in sorted(own, key=lambda one: one.id)
                    for ruling in one.rulings(_FORWARD, message, Matching.BEFORE)
                ]
                self._early[message] = tuple(rulings)

    def meta_classes(self, but: str) -> frozenset[str]:
        """The classes of meta-events that there may be here, and behind all links but one."""
        found = meta.BROKERS_OWN | self._classes.keys()
        for one in self.advertisements:
            if one.id.startswith(META) and one.hop != but:
                found |= _classes_in(one.value.content)
        return frozenset(found)

    def _note_classes(self, filed: Filed[Advertisement] | Filed[Subscription], *, gone: bool) -> None:
        """Keeps count of the classes of meta-events that there may be."""
        policies = () if gone else (filed.policy, filed.operator_policy)
        classes = frozenset[str]().union(*(admission.published_classes(one) for one in policies if one is not None))
        before = self._classes_of.pop(filed.id, frozenset())
        if classes:
            self._classes_of[filed.id] = classes
        for name in classes - before:
            self._classes[name] += 1
        for name in before - classes:
            self._classes[name] -= 1
            if not self._classes[name]:
                del self._classes[name]

    def early_rulings(self, message: MessageType) -> tuple[Ruling, ...]:
        """The rules before matching of the broker's own filters."""
        return self._early.get(message, ())

    def ruling_advertisements(self, message: MessageType) -> list[Filed[Advertisement]]:
        """The advertisements that have rules on such messages, by their ids."""
        found = self._ruling[message]
        return [found[name] for name in sorted(found)] if found else []

    def advertisements_on(self, publisher: str) -> tuple[Filed[Advertisement], ...]:
        """The advertisements whose rules may act on the events of a publisher: its own, and those that govern.

        Rules that go by the load alone are decided when the load changes, not when an event comes.
        """
        known = self._ruling_on.get(publisher)
        if known is None:
            if len(self._ruling_on) >= MAX_TOLD_CONFLICTS:
                self._ruling_on.clear()
            known = self._ruling_on[publisher] = tuple(
                one
                for one in self.ruling_advertisements(MessageType.PUBLICATION)
                if (one.owner == publisher or one.governs or one.operator_policy is not None) and not self._is_idle(one)
            )
        return known

    def _is_idle(self, filed: Filed[Advertisement]) -> bool:
        """Whether none of its rules on publications can apply as long as the load is what it is."""
        glance = Glance({}, self.load, float)
        return not filed.for_publications and all(
            rule.goes_by_load and not rule.may_apply(glance) for rule, _ in filed.on_publications
        )

    def set_load(self, load: float) -> None:
        self.load = min(1.0, max(0.0, load))
        self._ruling_on.clear()

    def met_by(self, subscription: Subscription) -> list[Filed[Advertisement]]:
        """The advertisements with rules on subscriptions that a subscription overlaps."""
        return [
            one
            for one in self.ruling_advertisements(MessageType.SUBSCRIPTION)
            if overlaps(one.value.content, subscription.content)
        ]

    def is_news(self, link: str, conflict: Conflict) -> bool:
        """Each pair that disagrees is told once per link, as long as it is remembered."""
        key = link, conflict.one, conflict.other
        if key in self.news:
            return False
        self.news[key] = None
        if len(self.news) > MAX_TOLD_CONFLICTS:
            del self.news[next(iter(self.news))]
        return True

    def forget_news(self, source: str) -> None:
        """Other rules may disagree anew."""
        for key in [key for key in self.news if source in key[1] or source in key[2]]:
            del self.news[key]

    def remember(self, conflicts: Iterable[tuple[str, str, str]]) -> None:
        """Conflicts that have been told, each with its link in front."""
        self.news = dict.fromkeys(conflicts)


def _may_govern(filed: Filed[Any]) -> bool:
    """Whether its rules may decide for others; by a token, of what is on the token's topic."""
    return filed.governs or filed.operator_policy is not None or filed.value.token is not None


def _former(id: str, neighbour: str) -> str:  # noqa: A002
    return f"$former.{neighbour}.{id}"


def _classes_in(content: Filter) -> frozenset[str]:
    """Those that a broker says there may be."""
    said = content.expression
    if not isinstance(said, In):
        return frozenset()
    values = (one.value for one in said.options if isinstance(one, Constant))
    return frozenset(one for one in values if isinstance(one, str))
