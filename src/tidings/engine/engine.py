"""The engine: a broker as a pure state machine. It reads no clock, draws nothing at random and does no I/O."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tidings.engine import admission, explaining, meta, pipeline, routes
from tidings.engine.compiling import compiled_rules
from tidings.engine.deciding import Conflict
from tidings.engine.effects import Effect, Reject, Send, Told
from tidings.engine.explaining import Explanation
from tidings.engine.held import Held
from tidings.engine.journey import META, NEW
from tidings.engine.matcher import FastMatcher, Matcher
from tidings.engine.message import Hop, Message, PublicationMessage
from tidings.engine.operations import (
    Advertise,
    Define,
    Disconnect,
    Entrust,
    Join,
    Leave,
    Lost,
    Operation,
    Publish,
    Receive,
    SetContext,
    SetLoad,
    SetPolicy,
    Subscribe,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.engine.refusal import Refused
from tidings.engine.settings import Settings
from tidings.engine.tables import Filed, Ruling, Table, Tables
from tidings.filters import Filter
from tidings.matching.covering import overlaps
from tidings.model.advertisement import Advertisement
from tidings.model.errors import SchemaError
from tidings.model.event import Event
from tidings.model.expression import Attribute, Constant, In
from tidings.model.limits import MAX_KNOWN_TRUST, MAX_POLICY_RULES, MAX_TOLD_CONFLICTS
from tidings.model.notification import Notification
from tidings.model.subjects import Subjects
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.policy.application import CompiledPolicy
from tidings.policy.placement import Where
from tidings.policy.situation import Facts, NeedsAnswer, Situation, Source
from tidings.policy.statement import Matching, MessageType
from tidings.policy.statement import Operation as Step

if TYPE_CHECKING:
    import pyarrow as pa

    from tidings.engine.batch import Batch

Trusts = Callable[[str, str], bool]
_NOWHERE = Context()
_FORWARD = Step.FORWARD


class Engine:
    """`handle` is the meaning: an operation goes in, effects come out. One thread at a time."""

    def __init__(self, settings: Settings | None = None, matcher: Matcher | None = None) -> None:
        self.settings = settings or Settings()
        self.name = self.settings.name
        self.matcher: Matcher = FastMatcher() if matcher is None else matcher
        self.advertisements: Table[Advertisement] = Table()
        self.subscriptions: Table[Subscription] = Table()
        self.subjects = Subjects()
        self.neighbours: dict[str, None] = {}
        self.held = Held(self)
        self.load = 0.0
        self.rules: set[tuple[str, str]] = set()  # the filters with rules on publications, by kind and id
        self.wardens: dict[str, Filed[Subscription]] = {}  # subscriptions whose rules on publications decide for others
        self.contexts: dict[str, Context] = {}
        self.contexts_sent: dict[str, set[str]] = {}  # client -> the neighbours that know its context
        self.entrusted: dict[str, set[str]] = {}  # client -> others that may set its context
        self.trust: dict[tuple[str, str], tuple[bool, int]] = {}  # -> member, until when
        self._ruling: dict[MessageType, dict[str, Filed[Advertisement]]] = {one: {} for one in MessageType}
        self._ruling_on: dict[str, tuple[Filed[Advertisement], ...]] = {}  # by publisher: found before
        self._early: dict[MessageType, tuple[Ruling, ...]] = {}
        self.news: dict[tuple[str, str, str], None] = {}  # conflicts that were told, oldest first
        self.meta_classes: frozenset[str] = frozenset()  # the classes of meta-events that neighbours know of
        self._classes: Counter[str] = Counter()  # those that rules here can publish, and how many filters have such
        self._classes_of: dict[str, frozenset[str]] = {}  # by filter
        self.sequence = 0
        self._now = 0
        self._answers: dict[tuple[str, str], bool] = {}
        self._handlers: dict[type, Callable[[Any, str], list[Effect]]] = {
            Publish: lambda operation, sender: pipeline.publish(self, operation, sender),
            Advertise: lambda operation, sender: pipeline.put(self, operation, sender),
            Subscribe: lambda operation, sender: pipeline.put(self, operation, sender),
            Unadvertise: lambda operation, sender: pipeline.remove(self, operation, sender),
            Unsubscribe: lambda operation, sender: pipeline.remove(self, operation, sender),
            SetContext: self._set_context,
            SetPolicy: self._set_policy,
            Define: self._define,
            Entrust: self._entrust,
        }

    # The one entrance

    def handle(self, operation: Operation, now: int) -> list[Effect]:
        """What follows from an operation at that time (microseconds). What is refused changes nothing."""
        self._now = now
        match operation:
            case Publish(event, journey):
                if journey is not NEW and journey != NEW:
                    return [Reject("admit", "only a broker says what happened to an event on its way")]
                return self._run_for(operation, event.publisher)
            case Receive(neighbour, received):
                if neighbour not in self.neighbours:
                    return [Reject("admit", f"{neighbour} is no neighbour of {self.name}")]
                return self.run(received, neighbour)
            case Advertise(advertisement):
                return self._run_for(operation, advertisement.publisher)
            case Subscribe(subscription):
                return self._run_for(operation, subscription.subscriber)
            case SetLoad(load):
                self.load = min(1.0, max(0.0, load))
                return []
            case Trust(party, group, member, until):
                self.trust.pop((party, group), None)
                if until > now:
                    self.trust[party, group] = member, until
                    if len(self.trust) > MAX_KNOWN_TRUST:
                        del self.trust[next(iter(self.trust))]
                return self.held.answered(party, group, member)
            case Join(neighbour):
                return self._join(neighbour)
            case Leave(neighbour):
                return self._leave(neighbour)
            case Disconnect(client):
                return self._disconnect(client)
            case Lost(client, subscription, count):
                return self.tell(meta.lost(self.name, client, subscription, count), subscription, str(now))
            case _:
                return self._run_for(operation, operation.client)

    def _run_for(self, operation: Travelling | Entrust, client: str) -> list[Effect]:
        """Of a client: what neighbours do comes over their links."""
        if client in self.neighbours:
            return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
        return self.run(operation, client)

    def batch(self, table: "pa.Table", now: int | None = None) -> "Batch":
        """What follows from a table of operations, in their order: the same as from `handle`, much faster.

        Publications have the columns that `engine.publications` lists. With the columns `kind` and `body` the table is
        one of journal rows, in which changes stand between publications. The time of an operation is its timestamp, or
        `now` if that is given. Only for an engine without neighbours; questions of trust are not waited for.
        """
        from tidings.engine import batch  # pyarrow is loaded by those who need it

        return batch.run(self, table, now)

    def at(self, now: int) -> None:
        """Another operation comes at that time: for those who lead it through the steps themselves."""
        self._now, self._answers = now, {}

    def run(
        self, operation: Travelling | Entrust, sender: str, answers: dict[tuple[str, str], bool] | None = None
    ) -> list[Effect]:
        """An operation of a sender; `answers` are those of the trust provider that were given for it alone."""
        if answers is None and self.held and self.held.holds_sender(sender):
            return self.held.park(sender, operation)
        self._answers = answers or {}
        try:
            return self._handlers[type(operation)](operation, sender)
        except Refused as refusal:
            return [Reject(refusal.step, refusal.reason)]
        except NeedsAnswer as question:
            return self.held.park(sender, operation, question, answers)

    # Questions that change nothing

    def explain(
        self,
        event: Event,
        *,
        subscription: str | None = None,
        client: str | None = None,
        viewer: str | None = None,
        trusts: Trusts | None = None,
    ) -> list[Explanation]:
        """Why one subscription, or all of a client's, would or would not get the event now.

        `viewer` is who asks; None is the operator. A subscription that does not exist gives nothing, and so does one
        that is none of the viewer's business. `trusts` is asked who belongs to which trust group, where that is not
        remembered.
        """
        if subscription is not None:
            found = self.subscriptions.get(subscription)
            filed = [] if found is None else [found]
        else:
            filed = self.subscriptions.of(client or "")
        allowed = [one for one in filed if viewer in (None, one.owner, event.publisher)]
        return [explaining.explain(self, event, one, viewer, trusts) for one in sorted(allowed, key=lambda one: one.id)]

    def preview(self, event: Event, subscription: str, now: int, trusts: Trusts | None = None) -> Notification | None:
        """What a subscription would get if the event came now."""
        self._now = now
        found = self.explain(event, subscription=subscription, trusts=trusts)
        return found[0].notification if found and found[0].delivered else None

    # What the steps of the pipeline ask

    @property
    def is_lone(self) -> bool:
        """No links to other brokers, and nothing that waits."""
        return not self.neighbours and not self.held

    def enters(self, sender: str) -> bool:
        return sender not in self.neighbours or sender in self.settings.abroad

    def leaves(self, receiver: str) -> bool:
        return receiver in self.settings.abroad

    def hop(self, message: Message, neighbour: str) -> Hop:
        return Hop(message, neighbour, leaves=self.leaves(neighbour))

    def others(self, message: Message, hops: list[Hop]) -> list[Hop]:
        """All neighbours but the previous hop and those that are among the hops already."""
        known = {message.sender, *(one.receiver for one in hops)}
        return [self.hop(message, name) for name in self.neighbours if name not in known]

    def situation(self, message: Message) -> Situation:
        large = self.settings.large_message_bytes
        facts = Facts(
            message.type,
            self.name,
            self.settings.host,
            self.load,
            message.sender,
            message.text,
            lambda: min(1.0, message.size() / large),
            self._trusts,
        )
        if isinstance(message, PublicationMessage):
            event = message.event
            facts.attributes, facts.payload = event.attributes, event.payload
            facts.subject, facts.publisher = event.subject, event.publisher
        if self._answers:
            facts.answers.update(self._answers)
        return Situation(facts)

    def context(self, client: str) -> Context:
        return self.contexts.get(client, _NOWHERE)

    def context_for(self, client: str, neighbour: str) -> Context | None:
        """The context that the neighbour does not know yet; None if there is nothing to tell."""
        known = self.contexts_sent.setdefault(client, set())
        if neighbour in known:
            return None
        known.add(neighbour)
        return self.contexts.get(client) or None

    def may_observe(self, filed: Filed[Subscription]) -> bool:
        """Whether a subscription may be told of meta-events."""
        observers = self.settings.observers
        return observers is None or filed.owner in observers or filed.source.governs or not filed.is_client

    def governs(self, owner: str) -> bool:
        """By configuration, or as a broker: in whose name nobody else acts (see `admission.admit_from_broker`)."""
        return owner in self.settings.govern or owner == self.name or owner in self.neighbours

    def early_rulings(self, message: MessageType) -> tuple[Ruling, ...]:
        """The rules before matching of the broker's own filters."""
        return self._early.get(message, ())

    def ruling_advertisements(self, message: MessageType) -> list[Filed[Advertisement]]:
        """The advertisements that have rules on such messages, by their ids."""
        found = self._ruling[message]
        return [found[name] for name in sorted(found)] if found else []

    def is_news(self, link: str, conflict: Conflict) -> bool:
        """Each pair that disagrees is told once per link, as long as it is remembered."""
        key = link, conflict.one, conflict.other
        if key in self.news:
            return False
        self.news[key] = None
        if len(self.news) > MAX_TOLD_CONFLICTS:
            del self.news[next(iter(self.news))]
        return True

    def _forget_news(self, source: str) -> None:
        """Other rules may disagree anew."""
        for key in [key for key in self.news if source in key[1] or source in key[2]]:
            del self.news[key]

    def tell(self, attributes: Attributes, *cause: str) -> list[Effect]:
        """Publishes an event of the broker's own; it causes no others."""
        event = self.meta_event(attributes, *cause)
        return [Told(event), *self.run(Publish(event, META), self.name)]

    def meta_event(self, attributes: Attributes, *cause: str) -> Event:
        """The next event of the broker's own."""
        self.sequence += 1
        return Event(
            id=meta.event_id(self._now, self.name, *cause, str(self.sequence)),
            publisher=self.name,
            timestamp=self._now,
            sequence=self.sequence,
            attributes=attributes,
        )

    # Tables

    def file(
        self, message: Message, given: Advertisement | Subscription
    ) -> tuple[set[str], Filed[Advertisement] | Filed[Subscription]]:
        """Puts a filter into its table, in the place of the one of its id; to whom that one had been sent."""
        table: Table[Any] = self.advertisements if isinstance(given, Advertisement) else self.subscriptions
        before = table.get(given.id)
        filed = self.put_filed(given, message.sender, message.attached)
        if before is not None and before.operator_policy is not None:
            filed.govern(before.operator_policy, operator=True)
            self.note_rules(filed)
        return (set() if before is None else before.sent), filed

    def put_filed(
        self, given: Advertisement | Subscription, hop: str, policy: CompiledPolicy | None
    ) -> Filed[Advertisement] | Filed[Subscription]:
        owner = given.publisher if isinstance(given, Advertisement) else given.subscriber
        is_own = owner == self.name
        kind = "broker" if is_own else "advertisement" if isinstance(given, Advertisement) else "subscription"
        names = given.content.names
        if isinstance(given, Subscription) and given.structure is not None:
            names = names.union(given.structure.names, given.structure.absent)
        source = Source(kind, given.id, owner, given.content, names, self.governs(owner))
        filed = Filed[Any](given, hop, source, is_client=hop not in self.neighbours, is_own=is_own)
        filed.govern(policy)
        if isinstance(given, Subscription):
            self.subscriptions.put(filed)
            self.matcher.put(given)
        else:
            self.advertisements.put(filed)
        self.note_rules(filed)
        return filed

    def filed(self) -> Iterator[Filed[Advertisement] | Filed[Subscription]]:
        """Everything that is in the tables, advertisements first."""
        yield from self.advertisements
        yield from self.subscriptions

    def tables(self) -> Tables:
        """What the broker knows, as values that can be listed and compared."""
        return Tables(
            advertisements=[one.value for one in self.advertisements],
            subscriptions=[one.value for one in self.subscriptions],
            contexts=dict(self.contexts),
            policies={one.id: str(one.policy.policy) for one in self.filed() if one.policy is not None},
            operator_policies={
                one.id: str(one.operator_policy.policy) for one in self.filed() if one.operator_policy is not None
            },
            schemas=list(self.subjects),
            hops={one.id: one.hop for one in self.filed()},
            sent={one.id: sorted(one.sent) for one in self.filed() if one.sent},
        )

    def save(self) -> bytes:
        """The whole state, for `restore`."""
        from tidings.engine import archive  # with it comes the journal, and with that Arrow

        return archive.saved(self)

    @classmethod
    def restore(cls, settings: Settings | None, data: bytes, matcher: Matcher | None = None) -> Self:
        """An engine in the state that was saved, or an `InvalidValueError`."""
        from tidings.engine import archive

        engine = cls(settings, matcher)
        archive.restore(engine, data)
        return engine

    def remember(self, conflicts: Iterable[tuple[str, str, str]]) -> None:
        """Conflicts that have been told, each with its link in front."""
        self.news = dict.fromkeys(conflicts)

    def note_rules(self, filed: Filed[Advertisement] | Filed[Subscription], *, gone: bool = False) -> None:
        """Keeps the short cuts to the filters that have rules."""
        is_advertisement = isinstance(filed.value, Advertisement)
        key = "advertisement" if is_advertisement else "subscription", filed.id
        if not gone and filed.concerns(MessageType.PUBLICATION):
            self.rules.add(key)
        else:
            self.rules.discard(key)
        self.wardens.pop(filed.id, None)
        if key in self.rules and not is_advertisement and (filed.source.governs or filed.operator_policy is not None):
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

    def unfile_subscription(self, id: str) -> Filed[Subscription]:  # noqa: A002
        filed = self.subscriptions.remove(id)
        self.matcher.remove(id)
        self.note_rules(filed, gone=True)
        return filed

    def unfile_advertisement(self, id: str) -> Filed[Advertisement]:  # noqa: A002
        filed = self.advertisements.remove(id)
        self.note_rules(filed, gone=True)
        return filed

    def subscription_again(self, filed: Filed[Subscription]) -> tuple[Message, tuple[Ruling, ...]]:
        """A subscription that is filed, as the message that it was, with the Forward rules that it meets."""
        message = Message(
            MessageType.SUBSCRIPTION,
            filed.id,
            Subscribe(filed.value),
            filed.hop,
            filed.owner,
            from_broker=not filed.is_client,
            enters=self.enters(filed.hop),
            attached=filed.policy,
            situation=self.situation,
            filter=filed.value.content,
        )
        met = self.met_by(filed.value)
        associated = (ruling for one in met for ruling in one.rulings(_FORWARD, MessageType.SUBSCRIPTION))
        return message, (*message.rulings(_FORWARD), *associated)

    def advertisement_again(self, filed: Filed[Advertisement]) -> Message:
        return Message(
            MessageType.ADVERTISEMENT,
            filed.id,
            Advertise(filed.value),
            filed.hop,
            filed.owner,
            from_broker=not filed.is_client,
            enters=self.enters(filed.hop),
            attached=filed.policy,
            situation=self.situation,
            filter=filed.value.content,
        )

    def met_by(self, subscription: Subscription) -> list[Filed[Advertisement]]:
        """The advertisements with rules on subscriptions that a subscription overlaps."""
        return [
            one
            for one in self.ruling_advertisements(MessageType.SUBSCRIPTION)
            if overlaps(one.value.content, subscription.content)
        ]

    def advertisements_on(self, publisher: str) -> tuple[Filed[Advertisement], ...]:
        """The advertisements whose rules may act on the events of a publisher: its own, and those that govern."""
        known = self._ruling_on.get(publisher)
        if known is None:
            if len(self._ruling_on) >= MAX_TOLD_CONFLICTS:
                self._ruling_on.clear()
            known = self._ruling_on[publisher] = tuple(
                one
                for one in self.ruling_advertisements(MessageType.PUBLICATION)
                if one.owner == publisher or one.source.governs or one.operator_policy is not None
            )
        return known

    # Operations that are no messages

    def _set_context(self, operation: SetContext, sender: str) -> list[Effect]:
        client = operation.client
        if sender in self.neighbours:
            admission.admit_from_broker(self, client, sender)
        else:
            admission.admit_client(self, client, self.name if client == self.name else client)
            by = operation.by
            if by is not None and by != client and by not in self.entrusted.get(client, ()):
                raise Refused("admit", f"{client} does not let {by} set its context")
        if self.contexts.get(client, _NOWHERE) == operation.context:
            return []  # an unchanged value sends nothing
        self.contexts[client] = operation.context
        self.matcher.set_context(client, operation.context)
        told = SetContext(client, operation.context)
        return [Send(name, told) for name in sorted(self.contexts_sent.get(client, ())) if name != sender]

    def _entrust(self, operation: Entrust, sender: str) -> list[Effect]:
        admission.admit_client(self, operation.client, sender)
        others = self.entrusted.setdefault(operation.client, set())
        (others.add if operation.entrusted else others.discard)(operation.other)
        if not others:
            del self.entrusted[operation.client]
        return []

    def _set_policy(self, operation: SetPolicy, sender: str) -> list[Effect]:
        """The owner's follows the path of its filter; the operator's stays here."""
        subscription, advertisement = self.subscriptions.get(operation.id), self.advertisements.get(operation.id)
        filed: Filed[Any] | None = subscription or advertisement
        operator = sender == self.name and (filed is None or not filed.is_own)
        if filed is None or (not operator and (filed.owner != operation.client or filed.hop != sender)):
            raise Refused("admit", f"{operation.client} has no subscription or advertisement {operation.id}")
        if filed.is_own or not (operator or filed.is_client):
            where = Where.BROKER_SUBSCRIPTION if subscription is not None else Where.BROKER_ADVERTISEMENT
        else:
            where = (
                Where.ASSOCIATED_WITH_SUBSCRIPTION if subscription is not None else Where.ASSOCIATED_WITH_ADVERTISEMENT
            )
        policy = admission.admit_policy(operation.policy, where)
        if not operator:
            policy = self._with_attached(filed, policy)
        filed.govern(policy, operator=operator)
        self._forget_news(str(filed.source))
        if not operator:
            text = None if policy is None else str(policy.policy)
            filed.value = msgspec.structs.replace(filed.value, policy=text)
        self.note_rules(filed)
        effects = routes.remarks(self, filed)
        if not operator:
            effects += [Send(name, operation) for name in sorted(filed.sent)]
        return effects + self.advertise_meta()

    @staticmethod
    def _with_attached(filed: Filed[Any], policy: CompiledPolicy | None) -> CompiledPolicy | None:
        """What is set takes the place of what is associated. Rules on the message itself are attached: they travel with
        it, however late (to a neighbour that joins), unless others of their kind are given."""
        is_advertisement = isinstance(filed.value, Advertisement)
        kind = MessageType.ADVERTISEMENT if is_advertisement else MessageType.SUBSCRIPTION
        given = () if policy is None else policy.policy.rules
        before = () if filed.policy is None else filed.policy.policy.rules
        attached = tuple(rule for rule in before if rule.message is kind)
        if not attached or any(rule.message is kind for rule in given):
            return policy
        if len(given) + len(attached) > MAX_POLICY_RULES:
            raise Refused("admit", f"policy: more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) with those attached")
        return compiled_rules((*given, *attached))

    def _define(self, operation: Define, sender: str) -> list[Effect]:
        known = self.subjects.find(operation.schema.subject)
        if known == operation.schema:
            return []
        try:
            self.subjects.define(operation.schema)
        except SchemaError as error:
            raise Refused("admit", str(error)) from None
        return [Send(name, operation) for name in self.neighbours if name != sender]

    def _disconnect(self, client: str) -> list[Effect]:
        if client in self.neighbours:
            return [Reject("admit", f"{client} is the name of a broker; a link that is gone is left")]
        self.held.forget(client)
        effects: list[Effect] = []
        for subscription in [one for one in self.subscriptions.of(client) if one.hop == client]:
            if subscription.value.durable is None:
                effects += self.run(Unsubscribe(client, subscription.id), client)
        for advertisement in [one for one in self.advertisements.of(client) if one.hop == client]:
            effects += self.run(Unadvertise(client, advertisement.id), client)
        if not self.subscriptions.of(client):
            effects += self._forget_context(client)
        return effects

    def _forget_context(self, client: str) -> list[Effect]:
        """Who comes back comes back without; brokers that knew it hear of that."""
        known = self.contexts_sent.pop(client, set())
        self.entrusted.pop(client, None)
        if not self.contexts.pop(client, None):
            return []
        self.matcher.set_context(client, _NOWHERE)
        return [Send(name, SetContext(client, _NOWHERE)) for name in sorted(known)]

    def _join(self, neighbour: str) -> list[Effect]:
        """A new neighbour learns of all advertisements; subscriptions follow when its own come."""
        if neighbour in self.neighbours:
            return []
        known: list[Filed[Any]] = [*self.advertisements.of(neighbour), *self.subscriptions.of(neighbour)]
        if known and known[0].hop in self.neighbours:
            reason = f"{neighbour} is reached by way of {known[0].hop} already; links between brokers form no ring"
            return [Reject("admit", reason)]
        if neighbour == self.name or known:
            return [Reject("admit", f"{neighbour} is the name of this broker or of a client")]
        self.neighbours[neighbour] = None
        effects: list[Effect] = []
        for filed in list(self.advertisements):
            effects += routes.forward_advertisement(self, filed, neighbour)
        return effects + self.advertise_meta()

    def _leave(self, neighbour: str) -> list[Effect]:
        if neighbour not in self.neighbours:
            return []
        self.held.forget(neighbour)
        effects: list[Effect] = []
        for subscription in [one for one in self.subscriptions if one.hop == neighbour]:
            effects += self.run(Unsubscribe(subscription.owner, subscription.id), neighbour)
        for advertisement in [one for one in self.advertisements if one.hop == neighbour]:
            effects += self.run(Unadvertise(advertisement.owner, advertisement.id), neighbour)
        del self.neighbours[neighbour]
        self.held.forget(neighbour)
        for subscription in [one for one in self.subscriptions if one.hop == neighbour]:
            self.unfile_subscription(subscription.id)  # a rule on its removal waits for an answer: the link is gone
        for advertisement in [one for one in self.advertisements if one.hop == neighbour]:
            self.unfile_advertisement(advertisement.id)
        for table in (self.subscriptions, self.advertisements):
            for filed in table:
                filed.sent.discard(neighbour)
        for known in self.contexts_sent.values():
            known.discard(neighbour)
        return [one for one in effects if not (isinstance(one, Send) and one.neighbour == neighbour)]

    def advertise_meta(self) -> list[Effect]:
        """Neighbours learn which meta-events there may be here, so that subscriptions to them find their way."""
        if not self.neighbours:
            return []
        classes = meta.BROKERS_OWN | self._classes.keys()
        if classes <= self.meta_classes:
            return []
        self.meta_classes = classes
        said = In(Attribute("class"), tuple(Constant(one) for one in sorted(self.meta_classes)))
        advertisement = Advertisement(id=f"$meta.{self.name}", publisher=self.name, content=Filter(said))
        return self.run(Advertise(advertisement), self.name)

    def _trusts(self, party: str, group: str) -> bool | None:
        known = self.trust.get((party, group))
        if known is None:
            return None
        member, until = known
        if until <= self._now:
            del self.trust[party, group]
            return None
        return member
