"""The engine: one broker as a pure state machine. It reads no clock, draws nothing at random and does no I/O.

Theory of operation:

1. A driver calls `Engine.handle(operation, now)` for one operation at a time and carries out the returned effects in
   their order.
2. `handle` dispatches on the operation. Operations of clients and neighbours run through the steps of the pipeline
   (`engine.steps`); operations about the overlay itself go to `Convergence`, `Settlement` and `TopicGossip`. All take
   the engine's `Turn`: its state, the time, and a way to run a nested operation.
3. A step that refuses an operation raises `Refusal`, which becomes a `Reject` effect. A step that needs an answer of
   the trust provider raises `TrustAnswerNeeded` before anything has changed; the operation is deferred until a `Trust`
   operation brings the answer.
4. `Engine.batch` is the vectorised form of `handle` for tables of operations. Tests hold the two equal. Nothing but
   `handle` and `batch` changes the state.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidings.engine import meta_events
from tidings.engine.effects import Effect, Reject
from tidings.engine.headers import NEW, ForwardingHeader, Route
from tidings.engine.matcher import Matcher
from tidings.engine.message import OutdatedNews, Refusal
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
from tidings.engine.overlay import peers, resumption
from tidings.engine.overlay.convergence import Convergence
from tidings.engine.overlay.deferred import DeferredMessages
from tidings.engine.overlay.settlement import Settlement
from tidings.engine.security import sealed_events
from tidings.engine.settings import Settings
from tidings.engine.state.broker_state import BrokerState, governs, tables_of
from tidings.engine.state.filters import BrokerTables
from tidings.engine.steps import admit, contexts, explain, pipeline, report, set_policy
from tidings.engine.turn import Answers, Turn
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.notification import Notification
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded
from tidings.routing.covering_classes import CoveringClasses
from tidings.routing.topology import BrokerGraph

if TYPE_CHECKING:
    import pyarrow as pa

    from tidings.engine.batch.batch import BatchResult
    from tidings.engine.security import topic_gossip
    from tidings.security.gate import Gate

Trusts = Callable[[str, str], bool]


class Engine:
    """A broker's state and the handlers of its operations. Call it from one thread at a time.

    `state` is for reading: only `handle` and `batch` change it.

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
        state = self.state = BrokerState(settings, matcher, kinds)
        self.gate = gate
        self.topic_gossip: topic_gossip.TopicGossip | None = None
        if gate is not None:
            from tidings.engine.security.topic_gossip import TopicGossip  # imports the cryptography packages

            self.topic_gossip = TopicGossip(state.links.neighbours, gate)
        self._unread_security_state = b""  # without a gate: the security state of a restored snapshot, as it is
        self.deferred = DeferredMessages()
        self.convergence = Convergence(state)
        self.settlement = Settlement(state, self.deferred.receivers_waiting_for)
        self._turn = Turn(state, self._run, self.deferred, self.settlement, self.convergence, gate, self.topic_gossip)
        self._entrances = self._driver_handlers()
        self._handlers = self._client_handlers() | self._neighbour_handlers()

    # Entry points

    def handle(self, operation: Operation, now: int) -> list[Effect]:
        """Handle one operation at time `now` (microseconds) and return the effects that the driver must carry out.

        A refused operation changes no state and returns a `Reject`.
        """
        turn = self._turn
        turn.now = now
        if type(operation) is not Publish:
            return self._entrances.get(type(operation), self._handle_by_client)(operation)
        event, journey = operation.event, operation.journey
        if journey is not NEW and journey != NEW:
            return [Reject("admit", "only a broker says what happened to an event on its way")]
        if self.topic_gossip is not None:
            effects = sealed_events.publish(turn, operation, self._run_client_operation)
            return effects + self.topic_gossip.news()
        short = pipeline.publish_fast(turn, event) if pipeline.can_take_fast_path(turn, event.publisher) else None
        return self._run_client_operation(operation, event.publisher) if short is None else [*short]

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

        return batch.run(self._turn, self._handle_without_waiting, table, now)

    def _handle_without_waiting(self, operation: Operation, now: int) -> list[Effect]:
        """Handle an operation of a batch; what would wait for an answer of the trust provider is dropped."""
        effects = self.handle(operation, now)
        if self.deferred:
            self.deferred.clear()
        return effects

    def prefetch_matches(self, events: list[Event]) -> None:
        """Match several upcoming publications at once, so that handling each of them is faster.

        This changes no state: the cached matches are ignored if the events never come or the subscriptions change
        meanwhile.
        """
        filters = self.state.filters
        if len(filters.subscriptions) > len(filters.remote_subscriptions):
            filters.matcher.prefetch(events)

    # Dispatch

    def _driver_handlers(self) -> dict[type, Callable[[Any], list[Effect]]]:
        """Return what handles each type of operation of a driver; `_handle_by_client` handles the other types."""
        turn, convergence = self._turn, self.convergence
        handlers: dict[type, Callable[[Any], list[Effect]]] = {
            Receive: self._receive,
            Advertise: lambda operation: self._run_client_operation(operation, operation.advertisement.publisher),
            Subscribe: self._subscribe,
            Republish: self._republish,
            Redecide: self._redecide,
            SetLaggingBrokers: self._set_lagging_brokers,
            SetLoad: self._set_load,
            Trust: self._take_trust_answer,
            Tick: lambda _: self.settlement.tick() + convergence.tick(turn),
            Join: self._join,
            Leave: self._leave,
            LearnTopic: self._apply_security_operation,
            ApplyNotice: self._apply_security_operation,
            Revoke: self._apply_security_operation,
            Connect: lambda operation: peers.connect(turn, convergence, operation),
            Disconnect: lambda operation: peers.disconnect(turn, operation.client),
            TransferBacklog: lambda operation: convergence.take_backlog(turn, operation),
            ReportLoss: self._report_loss,
        }
        return handlers | dict.fromkeys(_BROKERS_OPERATIONS, _refuse_overlay_operation)

    def _client_handlers(self) -> dict[type, Callable[[Any, str], list[Effect]]]:
        """Return what runs each type of operation of a client, at its own broker and at the others."""
        turn = self._turn
        return {
            Publish: partial(pipeline.publish, turn),
            Advertise: partial(pipeline.put_filter, turn),
            Subscribe: partial(pipeline.put_filter, turn),
            Unadvertise: partial(pipeline.remove_filter, turn),
            Unsubscribe: partial(pipeline.remove_filter, turn),
            SetContext: partial(contexts.set_context, turn),
            SetPolicy: partial(set_policy.set_policy, turn),
            Define: partial(admit.define_schema, turn),
            DelegateContext: partial(contexts.delegate_context, turn),
        }

    def _neighbour_handlers(self) -> dict[type, Callable[[Any, str], list[Effect]]]:
        """Return what runs each type of operation between brokers."""
        turn, convergence, topic_gossip = self._turn, self.convergence, self.topic_gossip
        handlers: dict[type, Callable[[Any, str], list[Effect]]] = {
            TellLinks: partial(convergence.take_links, turn),
            PhaseDone: partial(convergence.take_done, turn),
            PhaseComplete: partial(convergence.take_complete, turn),
            Announce: partial(convergence.announcer.take_announcement, turn),
            Acknowledge: partial(convergence.announcer.take_acknowledgement, turn),
            ClaimClients: partial(convergence.take_claims, turn),
            TransferBacklog: lambda operation, _: convergence.take_backlog(turn, operation),
            BacklogStored: lambda operation, _: convergence.take_backlog_stored(operation),
            Settle: self.settlement.take,
        }
        if topic_gossip is None:  # without a gate the broker knows nothing of secure topics
            return handlers | dict.fromkeys(
                (TellTopics, TellNotices, AskRevocations, TellRevocations), lambda _operation, _sender: []
            )
        return handlers | {
            TellTopics: lambda operation, sender: topic_gossip.take_topics(operation, sender, turn.now),
            TellNotices: lambda operation, sender: topic_gossip.take_notices(operation, sender, turn.now),
            AskRevocations: topic_gossip.take_question,
            TellRevocations: lambda operation, sender: topic_gossip.take_revocations(operation, sender, turn.now),
        }

    def _run(
        self, operation: Travelling | DelegateContext, sender: str, answers: Answers | None = None
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
        self._turn.answers = answers or {}
        try:
            return self._handlers[type(operation)](operation, sender)
        except Refusal as refusal:
            return [Reject(refusal.step, refusal.reason)]
        except OutdatedNews:
            return []
        except TrustAnswerNeeded as question:
            return self.deferred.defer(sender, operation, question, answers)

    # Operations of local clients

    def _handle_by_client(self, operation: Any) -> list[Effect]:
        """Handle an operation that names its client."""
        return self._run_client_operation(operation, operation.client)

    def _run_client_operation(self, operation: Travelling | DelegateContext, client: str) -> list[Effect]:
        """Run an operation of a local client, after checking that it does not pose as an operation of a broker.

        Under a strategy that announces contexts, the client's context is announced before the operation runs.
        """
        state = self.state
        if client in state.links.neighbours:
            return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
        if getattr(operation, "way", None) is not None:
            return [Reject("admit", "only a broker says which way something came")]
        if not state.strategy.announces:
            return self._run(operation, client)
        ahead = [] if client in state.contexts.arrivals else contexts.client_arrived(self._turn, client)
        if isinstance(operation, Publish):
            ahead += contexts.announce_publisher_context(self._turn, client, operation.event.context)
        return ahead + self._run(operation, client)

    def _subscribe(self, operation: Subscribe) -> list[Effect]:
        """Handle a client's subscription, whose token may reveal a topic to the broker."""
        effects = self._run_client_operation(operation, operation.subscription.subscriber)
        return effects if self.topic_gossip is None else effects + self.topic_gossip.news()

    # Operations of neighbours

    def _receive(self, received: Receive) -> list[Effect]:
        """Handle an operation of a neighbour, which may reveal a topic to the broker."""
        neighbour = received.neighbour
        effects = self._run_received(received.operation, neighbour)
        return effects if self.topic_gossip is None else effects + self.topic_gossip.news(neighbour)

    def _run_received(self, operation: Travelling, neighbour: str) -> list[Effect]:
        """Run an operation that came over the link from `neighbour`.

        An operation that was sent under the digest of another topology is dropped: its sender sends it again under the
        new digest.
        """
        links = self.state.links
        if neighbour not in links.neighbours:
            return [Reject("admit", f"{neighbour} is no neighbour of {self.state.name}")]
        if self.gate is not None and isinstance(operation, Publish):
            refused = sealed_events.refuse_from_neighbour(self._turn, operation, neighbour)
            if refused is not None:
                return refused
        digest = digest_of(operation)
        if digest is None or links.is_external(neighbour):
            return self._run(operation, neighbour)
        counts, effects = self.convergence.accepts_digest(self._turn, digest)
        return effects + self._run(operation, neighbour) if counts else effects

    def _join(self, operation: Join) -> list[Effect]:
        neighbours, neighbour = self.state.links.neighbours, operation.neighbour
        was_there = neighbour in neighbours
        effects = peers.join(self._turn, self.convergence, operation)
        if self.topic_gossip is not None and neighbour in neighbours and not was_there:
            return self.topic_gossip.joined(neighbour) + effects
        return effects

    def _leave(self, operation: Leave) -> list[Effect]:
        if self.topic_gossip is not None:
            self.topic_gossip.left(operation.neighbour)
        return peers.leave(self._turn, self.convergence, operation.neighbour)

    # Operations of the driver

    def _republish(self, operation: Republish) -> list[Effect]:
        """Send a journaled event again, in a new round."""
        refused = sealed_events.refuse_resend(self._turn, operation)
        if refused is not None:
            return refused
        event = operation.event
        route = Route(round=operation.round, deliver_at=operation.only, clients=operation.whose)
        return self._run(Publish(event, ForwardingHeader(route=route)), event.publisher)

    def _redecide(self, operation: Redecide) -> list[Effect]:
        """Make a pending decision, with the answers about its sender that were stored with it."""
        party = operation.sender or operation.event.publisher
        self._turn.answers = {(party, group): member for group, member in operation.answers}
        return pipeline.redecide(self._turn, operation)

    def _set_lagging_brokers(self, operation: SetLaggingBrokers) -> list[Effect]:
        self.settlement.lagging = operation.brokers
        return []

    def _set_load(self, operation: SetLoad) -> list[Effect]:
        self.state.rules.set_load(operation.load)
        return []

    def _take_trust_answer(self, operation: Trust) -> list[Effect]:
        """Cache an answer of the trust provider, and continue what waited for it."""
        question = operation.party, operation.group
        self.state.trust.put(question, operation.member, operation.until, self._turn.now)
        return resumption.resume_with_answer(self._turn, question, operation.member)

    def _apply_security_operation(self, operation: LearnTopic | ApplyNotice | Revoke) -> list[Effect]:
        """Handle a security operation of the driver: a topic record, a key management notice or a revocation update."""
        topic_gossip, now = self.topic_gossip, self._turn.now
        if topic_gossip is None:
            return [Reject("admit", f"{self.state.name} has no gate, and knows of no secure topics: give it one")]
        if self._turn.is_replaying:
            topic_gossip.recall(operation)
            return []
        match operation:
            case LearnTopic():
                return topic_gossip.learn(operation, now)
            case ApplyNotice():
                return topic_gossip.heed(operation, now)
            case Revoke():
                return topic_gossip.revoke(operation, now)

    def _report_loss(self, operation: ReportLoss) -> list[Effect]:
        """Publish that a driver's queue was full and lost notifications."""
        client, subscription = operation.client, operation.subscription
        attributes = meta_events.lost(self.state.name, client, subscription, operation.count)
        return report.publish_meta_event(self._turn, attributes, subscription, str(self._turn.now))

    # What the driver sets

    @property
    def is_replaying(self) -> bool:
        """Whether the driver replays its journal: accepted operations are not checked again."""
        return self._turn.is_replaying

    @is_replaying.setter
    def is_replaying(self, is_replaying: bool) -> None:
        self._turn.is_replaying = is_replaying

    @property
    def is_untidy(self) -> bool:
        """Whether calling `tidy` would make matching faster."""
        filters = self.state.filters
        return filters.matcher.is_untidy or filters.remote_subscriptions.is_untidy

    def tidy(self) -> None:
        """Compact the matching indexes. Another thread may call this while operations are handled."""
        for matcher in (self.state.filters.matcher, self.state.filters.remote_subscriptions):
            if matcher.is_untidy:
                matcher.tidy()

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
        now: int | None = None,
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
            now: The time to evaluate at, in microseconds; None: the time of the last operation.
            links_down: The neighbours whose links are configured and down.
        """
        if now is not None:
            self._turn.begin(now)
        if subscription is not None:
            found = self.state.filters.subscriptions.get(subscription)
            entries = [] if found is None else [found]
        else:
            entries = self.state.filters.subscriptions.of(client or "")
        # A publisher could find out a subscriber's context by asking for many events: only the owner may ask.
        allowed = [entry for entry in entries if viewer in (None, entry.owner) or governs(self.state, viewer)]
        chosen = sorted(allowed, key=lambda entry: entry.id)
        return [
            explain.explain(self._turn, event, entry, viewer, trusts, accepted=accepted, links_down=links_down)
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
        self._turn.now = now
        found = self.explain(event, subscription=subscription, trusts=trusts, accepted=True)
        return found[0].notification if found and found[0].delivered else None

    def tables(self) -> BrokerTables:
        """Return the broker's tables as values that can be listed and compared."""
        return tables_of(self.state)

    @property
    def topology(self) -> BrokerGraph:
        """The brokers and links of the sub-overlay for which the routing tables are built."""
        return self.state.links.topology

    @property
    def is_settled(self) -> bool:
        """Whether routing tables are complete, as far as this broker knows, and nothing waits.

        Nothing waits: no publication, no settlement to be sent, no deferred message.
        """
        return self.convergence.is_settled and self.settlement.has_sent_all and not self.deferred

    # Saving and restoring

    def save(self, *, subscriptions: bool = True) -> bytes:
        """Return the state as bytes for `restore`; without `subscriptions` if the caller stores those in an index."""
        from tidings.engine.state import snapshot  # imports the journal, and with it pyarrow

        security_state = self._unread_security_state if self.topic_gossip is None else self.topic_gossip.state()
        claimed_clients = self.convergence.claimed_clients
        return snapshot.encode_state(self.state, claimed_clients, security_state, subscriptions=subscriptions)

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

        engine, saved = cls(settings, matcher, gate=gate), snapshot.decode_state(data)
        engine.convergence.claimed_clients.update(saved.residents)
        if engine.topic_gossip is None:
            engine._unread_security_state = saved.topic_gossip
        elif saved.topic_gossip:
            engine.topic_gossip.restore(saved.topic_gossip)
        snapshot.restore_state(engine.state, saved)
        return engine


_BROKERS_OPERATIONS = (
    *(TellLinks, PhaseDone, PhaseComplete, Announce, Acknowledge, ClaimClients, BacklogStored, Settle),
    *(TellTopics, TellNotices, AskRevocations, TellRevocations),
)


def _refuse_overlay_operation(_: Operation) -> list[Effect]:
    """Refuse an operation that only brokers send, over their links."""
    return [Reject("admit", "only brokers tell of the overlay, over their links")]
