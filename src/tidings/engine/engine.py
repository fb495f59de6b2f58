"""The engine: one broker as a pure state machine. It reads no clock, draws nothing at random and does no I/O.

Theory of operation:

1. A driver calls `Engine.handle(operation, now)` for one operation at a time and carries out the returned effects in
   their order.
2. `handle` dispatches on the operation. Operations of clients and neighbours run through the steps of the pipeline
   (`engine.steps`); operations about the overlay itself go to `Convergence`, `Settlement` and `TopicGossip`.
3. A step that refuses an operation raises `Refusal`, which becomes a `Reject` effect. A step that needs an answer of
   the trust provider raises `TrustAnswerNeeded` before anything has changed; the operation is deferred until a `Trust`
   operation brings the answer.
4. `Engine.batch` is the vectorised form of `handle` for tables of operations. Tests hold the two equal.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidings.engine import meta_events
from tidings.engine.effects import Effect, MetaEventPublished, Reject, Send
from tidings.engine.headers import META, NEW, ForwardingHeader, Route
from tidings.engine.matcher import Matcher
from tidings.engine.message import Message, OutboundCopy, OutdatedNews, PublicationMessage, Refusal
from tidings.engine.operations import (
    Acknowledge,
    Advertise,
    Announce,
    ApplyNotice,
    AskRevocations,
    BacklogStored,
    ClaimClients,
    Connect,
    Define,
    DelegateContext,
    Disconnect,
    Join,
    LearnTopic,
    Leave,
    Operation,
    PhaseComplete,
    PhaseDone,
    Publish,
    Receive,
    Redecide,
    ReportLoss,
    Republish,
    Revoke,
    SetContext,
    SetLaggingBrokers,
    SetLoad,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TellNotices,
    TellRevocations,
    TellTopics,
    Tick,
    TransferBacklog,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
    digest_of,
)
from tidings.engine.overlay import peers
from tidings.engine.overlay.convergence import Convergence
from tidings.engine.overlay.deferred import DeferredMessages
from tidings.engine.overlay.settlement import Settlement
from tidings.engine.security import sealed_events
from tidings.engine.settings import Settings
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import contexts, emit, explain, pipeline, set_policy
from tidings.model.advertisement import Advertisement
from tidings.model.errors import SchemaError
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.limits import MAX_KNOWN_TRUST
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.ast import MessageType, RuleOperation
from tidings.policy.evaluation.evaluation import MessageFacts, RuleContext, TrustAnswerNeeded
from tidings.routing.advertisement import targets_of_advertisements
from tidings.routing.covering_classes import CoveringClasses
from tidings.routing.topology import BrokerGraph

if TYPE_CHECKING:
    import pyarrow as pa

    from tidings.engine.batch.batch import BatchResult
    from tidings.engine.security import topic_gossip
    from tidings.security.gate import Gate

Trusts = Callable[[str, str], bool]
_FORWARD = RuleOperation.FORWARD
_ONLY_BROKERS: list[Effect] = [Reject("admit", "only brokers tell of the overlay, over their links")]


class Engine(BrokerState):
    """A broker's state and the handlers of its operations. Call it from one thread at a time.

    Args:
        settings: The broker's configuration; the defaults are those of a hub.
        matcher: Finds the local clients' subscriptions that an event matches; by default an index.
        kinds: A cache of covering decisions, which engines of one process may share.
        gate: Checks sealed events, tokens and the security messages of neighbours. Without a gate nothing is checked.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        matcher: Matcher | None = None,
        kinds: CoveringClasses | None = None,
        gate: "Gate | None" = None,
    ) -> None:
        super().__init__(settings, matcher, kinds)
        self.gate = gate
        self.topic_gossip: topic_gossip.TopicGossip | None = None
        self.unread_security_state = b""  # without a gate: the security state of a restored snapshot, as it is
        self.is_replaying = False  # whether the driver replays its journal: accepted operations are not checked again
        self.deferred = DeferredMessages(self)
        self.convergence = Convergence(self)
        self.settlement = Settlement(self)
        self._answers: dict[tuple[str, str], bool] = {}
        self._handlers: dict[type, Callable[[Any, str], list[Effect]]] = {
            Publish: lambda operation, sender: pipeline.publish(self, operation, sender),
            Advertise: lambda operation, sender: pipeline.put_filter(self, operation, sender),
            Subscribe: lambda operation, sender: pipeline.put_filter(self, operation, sender),
            Unadvertise: lambda operation, sender: pipeline.remove_filter(self, operation, sender),
            Unsubscribe: lambda operation, sender: pipeline.remove_filter(self, operation, sender),
            SetContext: lambda operation, sender: contexts.set_context(self, operation, sender),
            SetPolicy: lambda operation, sender: set_policy.set_policy(self, operation, sender),
            Define: self._define,
            DelegateContext: lambda operation, sender: contexts.delegate_context(self, operation, sender),
            TellLinks: lambda operation, sender: self.convergence.take_links(operation, sender, self.now),
            PhaseDone: self.convergence.take_done,
            PhaseComplete: self.convergence.take_complete,
            Announce: self.convergence.announcer.take_announcement,
            Acknowledge: self.convergence.announcer.take_acknowledgement,
            ClaimClients: self.convergence.take_claims,
            TransferBacklog: lambda operation, _: self.convergence.take_backlog(operation),
            BacklogStored: lambda operation, _: self.convergence.take_backlog_stored(operation),
            Settle: self.settlement.take,
            TellTopics: _ignore_security_message,
            TellNotices: _ignore_security_message,
            AskRevocations: _ignore_security_message,
            TellRevocations: _ignore_security_message,
        }
        if gate is not None:
            from tidings.engine.security.topic_gossip import TopicGossip  # imports the cryptography packages

            self.topic_gossip = TopicGossip(self, gate)
            self._handlers |= {
                TellTopics: self.topic_gossip.take_topics,
                TellNotices: self.topic_gossip.take_notices,
                AskRevocations: self.topic_gossip.take_question,
                TellRevocations: self.topic_gossip.take_revocations,
            }

    # Entry point

    def handle(self, operation: Operation, now: int) -> list[Effect]:
        """Handle one operation at time `now` (microseconds) and return the effects that the driver must carry out.

        A refused operation changes no state and returns a `Reject`.
        """
        self.now = now
        match operation:
            case Publish(event, journey):
                if journey is not NEW and journey != NEW:
                    return [Reject("admit", "only a broker says what happened to an event on its way")]
                if self.topic_gossip is not None:
                    return sealed_events.publish(self, operation) + self.topic_gossip.news()
                short = (
                    pipeline.publish_fast(self, event) if pipeline.can_take_fast_path(self, event.publisher) else None
                )
                return self.run_client_operation(operation, event.publisher) if short is None else [*short]
            case Receive(neighbour, received):
                effects = self._receive(received, neighbour)
                return effects if self.topic_gossip is None else effects + self.topic_gossip.news(neighbour)
            case Advertise(advertisement):
                return self.run_client_operation(operation, advertisement.publisher)
            case Subscribe(subscription):
                effects = self.run_client_operation(operation, subscription.subscriber)
                return effects if self.topic_gossip is None else effects + self.topic_gossip.news()
            case Republish(event, round, only, whose):
                refused = sealed_events.refuse_resend(self, operation)
                if refused is not None:
                    return refused
                again = ForwardingHeader(route=Route(round=round, deliver_at=only, clients=whose))
                return self.run(Publish(event, again), event.publisher)
            case Redecide(event, _, _, _, sender, proved):
                self._answers = {(sender or event.publisher, group): member for group, member in proved}
                return pipeline.redecide(self, operation)
            case SetLaggingBrokers(brokers):
                self.convergence.lagging = brokers
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
                return self.deferred.resume_with_answer(party, group, member)
            case Tick():
                return self.settlement.tick() + self.convergence.tick(now)
            case Join(neighbour):
                was_there = neighbour in self.neighbours
                effects = peers.join(self, operation)
                if self.topic_gossip is not None and neighbour in self.neighbours and not was_there:
                    return self.topic_gossip.joined(neighbour) + effects
                return effects
            case Leave(neighbour):
                if self.topic_gossip is not None:
                    self.topic_gossip.left(neighbour)
                return peers.leave(self, neighbour)
            case LearnTopic() | ApplyNotice() | Revoke():
                return self._apply_security_operation(operation)
            case Connect():
                return peers.connect(self, operation)
            case Disconnect(client):
                return peers.disconnect(self, client)
            case TransferBacklog():
                return self.convergence.take_backlog(operation)
            case (
                TellLinks()
                | PhaseDone()
                | PhaseComplete()
                | Announce()
                | Acknowledge()
                | ClaimClients()
                | BacklogStored()
                | Settle()
            ):
                return _ONLY_BROKERS.copy()
            case TellTopics() | TellNotices() | AskRevocations() | TellRevocations():
                return _ONLY_BROKERS.copy()
            case ReportLoss(client, subscription, count):
                return self.publish_meta_event(
                    meta_events.lost(self.name, client, subscription, count), subscription, str(now)
                )
            case _:
                return self.run_client_operation(operation, operation.client)

    def _apply_security_operation(self, operation: LearnTopic | ApplyNotice | Revoke) -> list[Effect]:
        """Handle a security operation of the driver: a topic record, a key management notice or a revocation update."""
        topic_gossip = self.topic_gossip
        if topic_gossip is None:
            return [Reject("admit", f"{self.name} has no gate, and knows of no secure topics: give it one")]
        if self.is_replaying:
            topic_gossip.recall(operation)
            return []
        match operation:
            case LearnTopic():
                return topic_gossip.learn(operation)
            case ApplyNotice():
                return topic_gossip.heed(operation)
            case Revoke():
                return topic_gossip.revoke(operation)

    def run_client_operation(self, operation: Travelling | DelegateContext, client: str) -> list[Effect]:
        """Run an operation of a local client, after checking that it does not pose as an operation of a broker.

        Under a strategy that announces contexts, the client's context is announced before the operation runs.
        """
        if client in self.neighbours:
            return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
        if getattr(operation, "way", None) is not None:
            return [Reject("admit", "only a broker says which way something came")]
        if not self.strategy.announces:
            return self.run(operation, client)
        ahead = [] if client in self.arrivals else contexts.client_arrived(self, client)
        if isinstance(operation, Publish):
            ahead += contexts.announce_publisher_context(self, client, operation.event.context)
        return ahead + self.run(operation, client)

    def _receive(self, operation: Travelling, neighbour: str) -> list[Effect]:
        """Run an operation that came over the link from `neighbour`.

        An operation that was sent under the digest of another topology is dropped: its sender sends it again under the
        new digest.
        """
        if neighbour not in self.neighbours:
            return [Reject("admit", f"{neighbour} is no neighbour of {self.name}")]
        if self.gate is not None and isinstance(operation, Publish):
            refused = sealed_events.refuse_from_neighbour(self, operation, neighbour)
            if refused is not None:
                return refused
        digest = digest_of(operation)
        if digest is None or self.is_external(neighbour):
            return self.run(operation, neighbour)
        counts, effects = self.convergence.accepts_digest(digest)
        return effects + self.run(operation, neighbour) if counts else effects

    def batch(self, table: "pa.Table", now: int | None = None) -> "BatchResult":
        """Handle a table of operations in their order, with the same effects as `handle` but much faster.

        A table of publications has the columns that `engine.batch.publication_columns` lists. With the columns `kind`
        and `body` it is a table of journal rows, which may hold other operations between publications; the context of a
        `set_context` row may stand in the column `context` instead of the body. Runs of publications, with context
        changes between them, and runs of subscriptions are vectorised. Each operation happens at its own timestamp, or
        at `now` if given.

        The engine must not have neighbours. The batch does not wait for answers of the trust provider.
        """
        from tidings.engine.batch import batch  # imports pyarrow, which other users need not load

        return batch.run(self, table, now)

    @property
    def is_untidy(self) -> bool:
        """Whether calling `tidy` would make matching faster."""
        return self.matcher.is_untidy or self.remote_subscriptions.is_untidy

    def tidy(self) -> None:
        """Compact the matching indexes. Another thread may call this while operations are handled."""
        for matcher in (self.matcher, self.remote_subscriptions):
            if matcher.is_untidy:
                matcher.tidy()

    def prefetch_matches(self, events: list[Event]) -> None:
        """Match several upcoming publications at once, so that handling each of them is faster.

        This changes no state: the cached matches are ignored if the events never come or the subscriptions change
        meanwhile.
        """
        if len(self.subscriptions) > len(self.remote_subscriptions):
            self.matcher.prefetch(events)

    def at(self, now: int) -> None:
        """Set the time of the next operation, for callers that run the steps themselves instead of `handle`."""
        self.now, self._answers = now, {}

    def run(
        self, operation: Travelling | DelegateContext, sender: str, answers: dict[tuple[str, str], bool] | None = None
    ) -> list[Effect]:
        """Run an operation through its handler and return its effects; a refusal becomes a `Reject`.

        If an earlier operation of `sender` waits for an answer of the trust provider, this one is deferred behind it.

        Args:
            operation: The operation to run.
            sender: The client or neighbour that the operation came from.
            answers: Answers of the trust provider that count for this operation alone, by party and group.
        """
        if answers is None and self.deferred and self.deferred.has_waiting_operations(sender):
            return self.deferred.defer(sender, operation)
        self._answers = answers or {}
        try:
            return self._handlers[type(operation)](operation, sender)
        except Refusal as refusal:
            return [Reject(refusal.step, refusal.reason)]
        except OutdatedNews:
            return []
        except TrustAnswerNeeded as question:
            return self.deferred.defer(sender, operation, question, answers)

    # Queries: they change no state

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
        """Explain why one subscription, or each subscription of a client, would or would not get the event now.

        Changes no state. A subscription that does not exist, or that the viewer may not ask about, gives no
        explanation.

        Args:
            event: The event to explain.
            subscription: The id of one subscription; if None, all subscriptions of `client` are explained.
            client: The client whose subscriptions are explained.
            viewer: The client that asks; None is the operator, who sees everything.
            trusts: Answers whether a party belongs to a trust group where the engine has no valid answer cached.
            accepted: Whether the event was accepted in the past; then it is not checked again whether it may be
                published.
            links_down: The neighbours whose links are configured and down.
        """
        if subscription is not None:
            found = self.subscriptions.get(subscription)
            entries = [] if found is None else [found]
        else:
            entries = self.subscriptions.of(client or "")
        # A publisher could find out a subscriber's context by asking for many events: only the owner may ask.
        allowed = [entry for entry in entries if viewer in (None, entry.owner) or self.governs(viewer)]
        chosen = sorted(allowed, key=lambda other_entry: other_entry.id)
        return [
            explain.explain(self, event, entry, viewer, trusts, accepted=accepted, links_down=links_down)
            for entry in chosen
        ]

    def preview(self, event: Event, subscription: str, now: int, trusts: Trusts | None = None) -> Notification | None:
        """Return the notification, if any, that a subscription would get if a formerly accepted event came at `now`.

        Args:
            event: The event, which was accepted before.
            subscription: The id of the subscription.
            now: The time to evaluate at, in microseconds.
            trusts: Answers whether a party belongs to a trust group where the engine has no valid answer cached.
        """
        self.now = now
        found = self.explain(event, subscription=subscription, trusts=trusts, accepted=True)
        return found[0].notification if found and found[0].delivered else None

    # For the steps of the pipeline

    @property
    def is_lone(self) -> bool:
        """Whether the broker has no neighbours and no deferred messages."""
        return not self.neighbours and not self.deferred

    @property
    def topology(self) -> BrokerGraph:
        """The brokers and links of the sub-overlay for which the routing tables are built."""
        return self.convergence.topology

    @property
    def digest(self) -> str:
        """The digest of the topology for which the routing tables are built."""
        return self.convergence.digest

    @property
    def is_settled(self) -> bool:
        """Whether routing tables are complete, as far as this broker knows, and nothing waits.

        Nothing waits: no publication, no settlement to be sent, no deferred message.
        """
        return self.convergence.is_settled and self.settlement.has_sent_all and not self.deferred

    @property
    def advertisements_required(self) -> bool:
        """Whether a client may publish only events that match one of its advertisements."""
        asked = self.settings.advertisements_required
        return bool(self.neighbours) and self.strategy.name == "advertisement" if asked is None else asked

    def propagation_targets(self, entry: FilterEntry[Subscription]) -> dict[str, bool]:
        """Return the neighbours that should have a subscription, and for each whether the subscription is scoped there.

        A scoped subscription is matched at the neighbour with its subscriber's context. The routing strategy decides
        for the neighbours of this sub-overlay, overlapping advertisements decide for other sub-overlays.
        """
        if not self.neighbours:
            return {}
        found = {
            name: one
            for name, one in self.strategy.subscription_targets(self, entry).items()
            if name in self.neighbours
        }
        abroad = [name for name in self.neighbours if self.is_external(name)]
        if abroad:
            found |= targets_of_advertisements(self.offers, entry, abroad)
        known = entry.is_client or entry.scoped  # otherwise this broker does not know the subscriber's context
        return {name: scoped and known for name, scoped in found.items()}

    def digest_for(self, neighbour: str) -> str:
        """Return the topology digest to put into messages for `neighbour`: empty for another sub-overlay."""
        return "" if self.is_external(neighbour) else self.convergence.digest

    def is_current(self, entry: FilterEntry[Any]) -> bool:
        """Whether a filter is local or was sent under the digest of the current topology."""
        return entry.is_local or entry.digest == self.convergence.digest

    def tree_neighbours(self) -> list[str]:
        """Return the neighbours that get broadcasts: those in the shared tree, and those of other sub-overlays."""
        shared = self.topology.shared.neighbours(self.name)
        return [name for name in self.neighbours if name in shared or self.is_external(name)]

    def withdraw_sender(self, id: str, sender: str) -> bool:  # noqa: A002
        """Note that `sender` withdraws a subscription; return whether another neighbour that sent it still has it.

        If the withdrawing neighbour was the subscription's hop, another sender becomes its hop.
        """
        entry = self.subscriptions.get(id)
        if entry is None or entry.is_local or not entry.senders - {sender}:
            return False
        entry.senders -= {sender}
        if entry.hop == sender:
            self.remote_subscriptions.remove(entry)
            entry.hop = min(entry.senders)
            self.remote_subscriptions.put(entry)
        return True

    def sweep(self) -> list[Effect]:
        """Drop the filters and contexts that were not sent again after a topology change.

        Neighbours in other sub-overlays that have such a filter get its withdrawal.
        """
        effects: list[Effect] = []
        for entry in [subscription for subscription in self.entries() if not self.is_current(subscription)]:
            effects += emit.withdraw_filter(self, entry)
            self.remove_filter(entry)
        for client in self.remote_subscriptions.contexts():
            if not any(subscription.scoped for subscription in self.subscriptions.of(client)):
                self.remote_subscriptions.forget_context(client)
        return effects

    def hop(self, message: Message, neighbour: str) -> OutboundCopy:
        """Return a new copy of `message` for `neighbour`."""
        hop = OutboundCopy(message, neighbour, is_egress=self.is_external(neighbour))
        hop.attributes_behind = (
            self.remote_subscriptions.attributes
            if self.strategy.by_source
            else partial(self.remote_subscriptions.attributes_behind, neighbour)
        )
        return hop

    def others(self, message: Message, hops: list[OutboundCopy]) -> list[OutboundCopy]:
        """Return new copies for the neighbours that are neither the previous hop nor among `hops`."""
        known = {message.sender, *(hop.receiver for hop in hops)}
        among = self.neighbours if message.type is MessageType.PUBLICATION else self.tree_neighbours()
        return [self.hop(message, name) for name in among if name not in known]

    def rule_context(self, message: Message) -> RuleContext:
        """Return the facts that policy rules may read about a message at this broker."""
        large = self.settings.large_message_bytes
        facts = MessageFacts(
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
        return RuleContext(facts)

    def publish_meta_event(self, attributes: Attributes, *cause: str) -> list[Effect]:
        """Publish a meta-event with these attributes and return the effects.

        Handling a meta-event never publishes another one. `cause` goes into the event's id, which is the same in every
        driver that handles the same operations.
        """
        event = self.meta_event(attributes, *cause)
        return [MetaEventPublished(event), *self.run(Publish(event, META), self.name)]

    def meta_event(self, attributes: Attributes, *cause: str) -> Event:
        """Return the broker's next meta-event, without publishing it."""
        self.sequence += 1
        return Event(
            id=meta_events.event_id(self.now, self.name, *cause, str(self.sequence)),
            publisher=self.name,
            timestamp=self.now,
            sequence=self.sequence,
            attributes=attributes,
        )

    # Saving and restoring

    def save(self) -> bytes:
        """Return the engine's state as bytes for `restore`."""
        from tidings.engine.state import snapshot  # imports the journal, and with it pyarrow

        return snapshot.encode_state(self)

    @classmethod
    def restore(
        cls, settings: Settings | None, data: bytes, matcher: Matcher | None = None, gate: "Gate | None" = None
    ) -> Self:
        """Return an engine with the state that `save` wrote. Raises `InvalidValueError` if the state cannot be read.

        Args:
            settings: The broker's configuration, which is not part of the state.
            data: The bytes that `save` returned.
            matcher: The matcher to fill, or a loaded one.
            gate: Checks secure topics, as in `Engine`.
        """
        from tidings.engine.state import snapshot

        engine = cls(settings, matcher, gate=gate)
        snapshot.restore(engine, data)
        return engine

    def rebuild_subscription_message(self, entry: FilterEntry[Subscription]) -> tuple[Message, tuple[Ruling, ...]]:
        """Return a stored subscription as the message it came in, with the Forward rules that act on forwarding it."""
        message = Message(
            MessageType.SUBSCRIPTION,
            entry.id,
            Subscribe(entry.value),
            entry.hop,
            entry.owner,
            from_broker=not entry.is_client,
            is_ingress=self.is_ingress(entry.hop),
            attached=entry.policy,
            rule_context=self.rule_context,
            filter=entry.value.content,
        )
        met = self.overlapping_advertisements(entry.value)
        associated = (ruling for one in met for ruling in one.rulings(_FORWARD, MessageType.SUBSCRIPTION))
        return message, (*message.rulings(_FORWARD), *associated)

    def rebuild_advertisement_message(self, entry: FilterEntry[Advertisement]) -> Message:
        """Return a stored advertisement as the message it came in."""
        return Message(
            MessageType.ADVERTISEMENT,
            entry.id,
            Advertise(entry.value),
            entry.hop,
            entry.owner,
            from_broker=not entry.is_client,
            is_ingress=self.is_ingress(entry.hop),
            attached=entry.policy,
            rule_context=self.rule_context,
            filter=entry.value.content,
        )

    # Operations without a pipeline of their own

    def _define(self, operation: Define, sender: str) -> list[Effect]:
        """Define a subject's schema and pass a new one on to the tree neighbours."""
        known = self.subjects.find(operation.schema.subject)
        if known == operation.schema:
            return []
        try:
            self.subjects.define(operation.schema)
        except SchemaError as error:
            raise Refusal("admit", str(error)) from None
        return [Send(name, operation) for name in self.tree_neighbours() if name != sender]

    def advertise_meta(self) -> list[Effect]:
        """Advertise to the neighbours which meta-events may be published; see `peers.advertise_meta`."""
        return peers.advertise_meta(self)

    def _trusts(self, party: str, group: str) -> bool | None:
        """Return the cached answer whether a party belongs to a trust group; None if there is no valid one."""
        known = self.trust.get((party, group))
        if known is None:
            return None
        member, until = known
        if until <= self.now:
            del self.trust[party, group]
            return None
        return member


def _ignore_security_message(_: Operation, __: str) -> list[Effect]:
    """Ignore a security message of a neighbour: without a gate the broker knows nothing of secure topics."""
    return []
