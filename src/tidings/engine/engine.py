"""The engine: a broker as a pure state machine. It reads no clock, draws nothing at random and does no I/O."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidings.engine import associating, explaining, membership, meta, pipeline, plain, routes, sealed, situations
from tidings.engine.book import Book
from tidings.engine.effects import Effect, Reject, Send, Told
from tidings.engine.held import Held
from tidings.engine.journey import META, NEW, Journey, Route
from tidings.engine.matcher import Matcher
from tidings.engine.message import Hop, Message, PublicationMessage
from tidings.engine.operations import (
    Acknowledge,
    Advertise,
    Announce,
    AskRevocations,
    Carried,
    Carry,
    Complete,
    Connect,
    Define,
    Disconnect,
    Done,
    Entrust,
    Heed,
    Join,
    Judge,
    Lag,
    Learn,
    Leave,
    Lost,
    Operation,
    Publish,
    Receive,
    Republish,
    Reside,
    Revoke,
    SetContext,
    SetLoad,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TellNotices,
    TellRevocations,
    TellTopics,
    Tick,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
    digest_of,
)
from tidings.engine.overlay import Overlay
from tidings.engine.refusal import Outdated, Refused
from tidings.engine.ruled import Ruling
from tidings.engine.settings import Settings
from tidings.engine.settling import Settling
from tidings.engine.tables import Filed
from tidings.model.advertisement import Advertisement
from tidings.model.errors import SchemaError
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.limits import MAX_KNOWN_TRUST
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.situation import Facts, NeedsAnswer, Situation
from tidings.policy.statement import MessageType
from tidings.policy.statement import Operation as Step
from tidings.routing.advertisement import toward_offers
from tidings.routing.kinds import Kinds
from tidings.routing.topology import Topology

if TYPE_CHECKING:
    import pyarrow as pa

    from tidings.engine import assurance
    from tidings.engine.batch import Batch
    from tidings.security.gate import Gate

Trusts = Callable[[str, str], bool]
_FORWARD = Step.FORWARD
_ONLY_BROKERS: list[Effect] = [Reject("admit", "only brokers tell of the overlay, over their links")]


class Engine(Book):
    """`handle` is the meaning: an operation goes in, effects come out. One thread at a time.

    `gate`: what checks sealed events, tokens and all that is told of secure topics; without one, nothing is checked.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        matcher: Matcher | None = None,
        kinds: Kinds | None = None,
        gate: "Gate | None" = None,
    ) -> None:
        super().__init__(settings, matcher, kinds)
        self.gate = gate
        self.assurance: assurance.Assurance | None = None
        self.unread_assurance = b""  # what a saved state says of secure topics, where there is no gate to know of it
        self.is_recalling = False  # whether it is told what was accepted before a restart: that is not checked again
        self.held = Held(self)
        self.overlay = Overlay(self)
        self.settling = Settling(self)
        self._answers: dict[tuple[str, str], bool] = {}
        self._handlers: dict[type, Callable[[Any, str], list[Effect]]] = {
            Publish: lambda operation, sender: pipeline.publish(self, operation, sender),
            Advertise: lambda operation, sender: pipeline.put(self, operation, sender),
            Subscribe: lambda operation, sender: pipeline.put(self, operation, sender),
            Unadvertise: lambda operation, sender: pipeline.remove(self, operation, sender),
            Unsubscribe: lambda operation, sender: pipeline.remove(self, operation, sender),
            SetContext: lambda operation, sender: situations.set_context(self, operation, sender),
            SetPolicy: lambda operation, sender: associating.set_policy(self, operation, sender),
            Define: self._define,
            Entrust: lambda operation, sender: situations.entrust(self, operation, sender),
            TellLinks: lambda operation, sender: self.overlay.take_links(operation, sender, self.now),
            Done: self.overlay.take_done,
            Complete: self.overlay.take_complete,
            Announce: self.overlay.announcer.take,
            Acknowledge: self.overlay.announcer.take_acknowledgement,
            Reside: self.overlay.take_residents,
            Carry: lambda operation, _: self.overlay.carry(operation),
            Carried: lambda operation, _: self.overlay.take_carried(operation),
            Settle: self.settling.take,
            TellTopics: _unheard,
            TellNotices: _unheard,
            AskRevocations: _unheard,
            TellRevocations: _unheard,
        }
        if gate is not None:
            from tidings.engine.assurance import Assurance  # with it come ciphers

            self.assurance = Assurance(self, gate)
            self._handlers |= {
                TellTopics: self.assurance.take_topics,
                TellNotices: self.assurance.take_notices,
                AskRevocations: self.assurance.take_question,
                TellRevocations: self.assurance.take_revocations,
            }

    # The one entrance

    def handle(self, operation: Operation, now: int) -> list[Effect]:
        """What follows from an operation at that time (microseconds). What is refused changes nothing."""
        self.now = now
        match operation:
            case Publish(event, journey):
                if journey is not NEW and journey != NEW:
                    return [Reject("admit", "only a broker says what happened to an event on its way")]
                if self.assurance is not None:
                    return sealed.publish(self, operation) + self.assurance.news()
                short = plain.publish(self, event) if plain.is_open(self, event.publisher) else None
                return self.run_for(operation, event.publisher) if short is None else [*short]
            case Receive(neighbour, received):
                effects = self._receive(received, neighbour)
                return effects if self.assurance is None else effects + self.assurance.news(neighbour)
            case Advertise(advertisement):
                return self.run_for(operation, advertisement.publisher)
            case Subscribe(subscription):
                effects = self.run_for(operation, subscription.subscriber)
                return effects if self.assurance is None else effects + self.assurance.news()
            case Republish(event, round, only, whose):
                refused = sealed.withheld(self, operation)
                if refused is not None:
                    return refused
                again = Journey(route=Route(round=round, only=only, whose=whose))
                return self.run(Publish(event, again), event.publisher)
            case Judge(event, _, _, _, sender, proved):
                self._answers = {(sender or event.publisher, group): member for group, member in proved}
                return pipeline.judge(self, operation)
            case Lag(brokers):
                self.overlay.lagging = brokers
                return []
            case SetLoad(load):
                self.set_load(load)
                return []
            case Trust(party, group, member, until):
                self.trust.pop((party, group), None)
                if until > now:
                    self.trust[party, group] = member, until
                    if len(self.trust) > MAX_KNOWN_TRUST:
                        del self.trust[next(iter(self.trust))]
                return self.held.answered(party, group, member)
            case Tick():
                return self.settling.tick() + self.overlay.tick(now)
            case Join(neighbour):
                was_there = neighbour in self.neighbours
                effects = membership.join(self, operation)
                if self.assurance is not None and neighbour in self.neighbours and not was_there:
                    return self.assurance.joined(neighbour) + effects
                return effects
            case Leave(neighbour):
                if self.assurance is not None:
                    self.assurance.left(neighbour)
                return membership.leave(self, neighbour)
            case Learn() | Heed() | Revoke():
                return self._assured(operation)
            case Connect():
                return membership.connect(self, operation)
            case Disconnect(client):
                return membership.disconnect(self, client)
            case Carry():
                return self.overlay.carry(operation)
            case TellLinks() | Done() | Complete() | Announce() | Acknowledge() | Reside() | Carried() | Settle():
                return _ONLY_BROKERS.copy()
            case TellTopics() | TellNotices() | AskRevocations() | TellRevocations():
                return _ONLY_BROKERS.copy()
            case Lost(client, subscription, count):
                return self.tell(meta.lost(self.name, client, subscription, count), subscription, str(now))
            case _:
                return self.run_for(operation, operation.client)

    def _assured(self, operation: Learn | Heed | Revoke) -> list[Effect]:
        """What the driver says of secure topics."""
        assurance = self.assurance
        if assurance is None:
            return [Reject("admit", f"{self.name} has no gate, and knows of no secure topics: give it one")]
        if self.is_recalling:
            assurance.recall(operation)
            return []
        match operation:
            case Learn():
                return assurance.learn(operation)
            case Heed():
                return assurance.heed(operation)
            case Revoke():
                return assurance.revoke(operation)

    def run_for(self, operation: Travelling | Entrust, client: str) -> list[Effect]:
        """Of a client: what neighbours do comes over their links."""
        if client in self.neighbours:
            return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
        if getattr(operation, "way", None) is not None:
            return [Reject("admit", "only a broker says which way something came")]
        if not self.strategy.announces:
            return self.run(operation, client)
        ahead = [] if client in self.arrivals else situations.arrived(self, client)
        if isinstance(operation, Publish):
            ahead += situations.published_from(self, client, operation.event.context)
        return ahead + self.run(operation, client)

    def _receive(self, operation: Travelling, neighbour: str) -> list[Effect]:
        if neighbour not in self.neighbours:
            return [Reject("admit", f"{neighbour} is no neighbour of {self.name}")]
        if self.gate is not None and isinstance(operation, Publish):
            refused = sealed.refused_on_the_way(self, operation, neighbour)
            if refused is not None:
                return refused
        digest = digest_of(operation)
        if digest is None or self.leaves(neighbour):
            return self.run(operation, neighbour)
        counts, effects = self.overlay.takes(digest)
        return effects + self.run(operation, neighbour) if counts else effects

    def batch(self, table: "pa.Table", now: int | None = None) -> "Batch":
        """What follows from a table of operations, in their order: the same as from `handle`, much faster.

        Publications have the columns that `engine.batch.publications` lists. With the columns `kind` and `body` the
        table is one of journal rows, in which changes stand between publications; a context that is set may stand in
        the column `context` instead of the body. What is fast together are publications with contexts that change
        between them, and subscriptions one after the other. The time of an operation is its timestamp, or `now` if that
        is given. Only for an engine without neighbours; questions of trust are not waited for.
        """
        from tidings.engine import batch  # pyarrow is loaded by those who need it

        return batch.run(self, table, now)

    @property
    def is_untidy(self) -> bool:
        """Whether it would pay to `tidy`."""
        return self.matcher.is_untidy or self.transit.is_untidy

    def tidy(self) -> None:
        """Puts in order what events look through. It changes nothing but how long they take, and may be done by a
        thread of its own meanwhile."""
        for matcher in (self.matcher, self.transit):
            if matcher.is_untidy:
                matcher.tidy()

    def foresee(self, events: list[Event]) -> None:
        """Publications of these events will be handled, one after the other. It changes nothing but how long they take,
        whether or not they are."""
        if len(self.subscriptions) > len(self.transit):
            self.matcher.foresee(events)

    def at(self, now: int) -> None:
        """Another operation comes at that time: for those who lead it through the steps themselves."""
        self.now, self._answers = now, {}

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
        except Outdated:
            return []
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
        accepted: bool = False,
        links_down: Collection[str] = (),
    ) -> list[Explanation]:
        """Why one subscription, or all of a client's, would or would not get the event now.

        `viewer` is who asks; None is the operator. A subscription that does not exist gives nothing, and so does one
        that is none of the viewer's business. `trusts` is asked who belongs to which trust group, where that is not
        remembered. An event that was `accepted` in the past may be published, whatever is advertised now. `links_down`
        are the neighbours whose links are configured and down.
        """
        if subscription is not None:
            found = self.subscriptions.get(subscription)
            filed = [] if found is None else [found]
        else:
            filed = self.subscriptions.of(client or "")
        # Who publishes could find out a subscriber's situation by asking again and again.
        allowed = [one for one in filed if viewer in (None, one.owner) or self.governs(viewer)]
        chosen = sorted(allowed, key=lambda one: one.id)
        return [
            explaining.explain(self, event, one, viewer, trusts, accepted=accepted, links_down=links_down)
            for one in chosen
        ]

    def preview(self, event: Event, subscription: str, now: int, trusts: Trusts | None = None) -> Notification | None:
        """What a subscription would get if an event that was accepted came now."""
        self.now = now
        found = self.explain(event, subscription=subscription, trusts=trusts, accepted=True)
        return found[0].notification if found and found[0].delivered else None

    # What the steps of the pipeline ask

    @property
    def is_lone(self) -> bool:
        """No links to other brokers, and nothing that waits."""
        return not self.neighbours and not self.held

    @property
    def topology(self) -> Topology:
        return self.overlay.topology

    @property
    def digest(self) -> str:
        return self.overlay.digest

    @property
    def is_settled(self) -> bool:
        """Whether tables are complete, as far as this broker knows, and nothing waits for an answer."""
        return self.overlay.is_settled and self.settling.is_told and not self.held

    @property
    def advertisements_required(self) -> bool:
        """Whether one may publish only what one has advertised."""
        asked = self.settings.advertisements_required
        return bool(self.neighbours) and self.strategy.name == "advertisement" if asked is None else asked

    def toward(self, filed: Filed[Subscription]) -> dict[str, bool]:
        """The neighbours that should have a subscription, and whether it is scoped there: the strategy's answer. Other
        sub-overlays go by advertisements."""
        if not self.neighbours:
            return {}
        found = {name: one for name, one in self.strategy.toward(self, filed).items() if name in self.neighbours}
        abroad = [name for name in self.neighbours if self.leaves(name)]
        if abroad:
            found |= toward_offers(self.offers, filed, abroad)
        known = filed.is_client or filed.scoped  # else the subscriber's context is not known here
        return {name: scoped and known for name, scoped in found.items()}

    def digest_for(self, neighbour: str) -> str:
        return "" if self.leaves(neighbour) else self.overlay.digest

    def is_current(self, filed: Filed[Any]) -> bool:
        """Whether it was told in the network as it is."""
        return filed.is_local or filed.digest == self.overlay.digest

    def beside(self) -> list[str]:
        """The neighbours that are told what all are told: those in the shared tree, and other sub-overlays."""
        shared = self.topology.shared.neighbours(self.name)
        return [name for name in self.neighbours if name in shared or self.leaves(name)]

    def is_kept_by_others(self, id: str, sender: str) -> bool:  # noqa: A002
        """Takes a subscription back that came over several links; whether another one has it still."""
        filed = self.subscriptions.get(id)
        if filed is None or filed.is_local or not filed.senders - {sender}:
            return False
        filed.senders -= {sender}
        if filed.hop == sender:
            self.transit.remove(filed)
            filed.hop = min(filed.senders)
            self.transit.put(filed)
        return True

    def sweep(self) -> list[Effect]:
        """All has been told anew: what has not, is gone; other sub-overlays hear of that."""
        effects: list[Effect] = []
        for filed in [one for one in self.filed() if not self.is_current(one)]:
            effects += routes.taken_back(self, filed)
            self.unfile(filed)
        for client in self.transit.contexts():
            if not any(one.scoped for one in self.subscriptions.of(client)):
                self.transit.forget_context(client)
        return effects

    def hop(self, message: Message, neighbour: str) -> Hop:
        hop = Hop(message, neighbour, leaves=self.leaves(neighbour))
        hop.named = self.transit.named if self.strategy.by_source else partial(self.transit.named_behind, neighbour)
        return hop

    def others(self, message: Message, hops: list[Hop]) -> list[Hop]:
        """All neighbours but the previous hop and those that are among the hops already."""
        known = {message.sender, *(one.receiver for one in hops)}
        among = self.neighbours if message.type is MessageType.PUBLICATION else self.beside()
        return [self.hop(message, name) for name in among if name not in known]

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

    def tell(self, attributes: Attributes, *cause: str) -> list[Effect]:
        """Publishes an event of the broker's own; it causes no others."""
        event = self.meta_event(attributes, *cause)
        return [Told(event), *self.run(Publish(event, META), self.name)]

    def meta_event(self, attributes: Attributes, *cause: str) -> Event:
        """The next event of the broker's own."""
        self.sequence += 1
        return Event(
            id=meta.event_id(self.now, self.name, *cause, str(self.sequence)),
            publisher=self.name,
            timestamp=self.now,
            sequence=self.sequence,
            attributes=attributes,
        )

    # Tables

    def save(self) -> bytes:
        """The whole state, for `restore`."""
        from tidings.engine import archive  # with it comes the journal, and with that Arrow

        return archive.saved(self)

    @classmethod
    def restore(
        cls, settings: Settings | None, data: bytes, matcher: Matcher | None = None, gate: "Gate | None" = None
    ) -> Self:
        """An engine in the state that was saved, or an `InvalidValueError`."""
        from tidings.engine import archive

        engine = cls(settings, matcher, gate=gate)
        archive.restore(engine, data)
        return engine

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

    # Operations that are no messages

    def _define(self, operation: Define, sender: str) -> list[Effect]:
        known = self.subjects.find(operation.schema.subject)
        if known == operation.schema:
            return []
        try:
            self.subjects.define(operation.schema)
        except SchemaError as error:
            raise Refused("admit", str(error)) from None
        return [Send(name, operation) for name in self.beside() if name != sender]

    def advertise_meta(self) -> list[Effect]:
        return membership.advertise_meta(self)

    def _trusts(self, party: str, group: str) -> bool | None:
        known = self.trust.get((party, group))
        if known is None:
            return None
        member, until = known
        if until <= self.now:
            del self.trust[party, group]
            return None
        return member


def _unheard(_: Operation, __: str) -> list[Effect]:
    """Where there is no gate, nobody knows what to do with it."""
    return []
