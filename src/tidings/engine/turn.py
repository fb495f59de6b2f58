"""A turn: what the steps of the pipeline take, and all that they take, to handle one operation.

An engine has one turn. It sets `now` and `answers` for each operation instead of making a new object, and messages that
wait for an answer read the time at which they are decided.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidings.engine.effects import Effect
from tidings.engine.message import Message, OutboundCopy, PublicationMessage, size_of, text_of
from tidings.engine.operations import DelegateContext, Travelling
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.model.event import Event
from tidings.policy.evaluation.evaluation import MessageFacts, RuleContext, TrustAnswerNeeded
from tidings.routing.context_table import AnnouncedContext

if TYPE_CHECKING:
    from tidings.engine.overlay.deferred import DeferredCopy, Place, Question
    from tidings.engine.overlay.settlement import Settlement
    from tidings.engine.security.token_requirements import TokenRequirements
    from tidings.security.gate import Gate

Answers = dict[tuple[str, str], bool]  # party and trust group -> whether the party is a member


class RunOperation(Protocol):
    """Runs a nested operation and returns its effects; a refusal becomes a `Reject`."""

    def __call__(
        self, operation: Travelling | DelegateContext, sender: str, answers: Answers | None = None
    ) -> list[Effect]: ...


class Announcer(Protocol):
    """What the steps ask of the announcements of contexts (strategy spcf)."""

    def is_known(self, name: bytes) -> bool:
        """Whether all subscriptions that a context attracts have arrived here."""
        ...

    def set_client_contexts(
        self, turn: "Turn", client: str, *contexts: AnnouncedContext
    ) -> tuple[list[Effect], list[Effect]]:
        """Set the contexts that a client has; return the effects of new contexts, and of those that are gone."""
        ...


class RoutingProgress(Protocol):
    """What the steps ask of convergence: whether routing tables are complete, and what waits until they are."""

    is_complete: bool
    has_unforwarded: bool  # whether publications were not forwarded, since tables were incomplete

    @property
    def announcer(self) -> Announcer:
        """The announcements of contexts."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether tables are complete and current, all announcements acknowledged, and no publication waits."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether routing tables are complete, and no topology change is known since."""
        ...

    def wait(self, message: PublicationMessage, now: int) -> bool:
        """Queue a publication that enters here until tables are complete; return False if it does not wait."""
        ...

    def queue(self, message: PublicationMessage) -> bool:
        """Queue a neighbour's publication if it must wait; return whether it must not go on."""
        ...

    def has_reconnected_recently(self, client: str, now: int) -> bool:
        """Whether subscriptions that a client's advertisements attract may still be in flight."""
        ...


class DeferredQueues(Protocol):
    """What the steps ask of the copies and operations that wait for an answer of the trust provider."""

    def __bool__(self) -> bool:
        """Whether anything waits."""
        ...

    def has_waiting_copies(self, receiver: str) -> bool:
        """Whether copies for a receiver wait."""
        ...

    def enqueue_copies(
        self,
        message: Message,
        rulings: tuple[Ruling, ...],
        waiting: list[tuple[OutboundCopy, TrustAnswerNeeded | None]],
    ) -> list[Effect]:
        """Queue waiting copies and ask the questions of those that are first in their queue."""
        ...

    def answered(self, question: "Question") -> "list[Place]":
        """Note that a question is answered; return the queues whose first entry waited for the answer."""
        ...

    def ask(self, place: "Place", question: TrustAnswerNeeded) -> list[Effect]:
        """Note the question of a queue's first entry, and ask it if it is not asked already."""
        ...

    def copies_for(self, receiver: str) -> "deque[DeferredCopy]":
        """Return the waiting copies for a receiver, to take from."""
        ...

    def drop_copies_for(self, receiver: str) -> None:
        """Drop the queue of a receiver, for which nothing waits any more."""
        ...

    def take_operations_of(self, sender: str) -> deque[tuple[Travelling | DelegateContext, Answers]]:
        """Remove and return the waiting operations of a sender, each with the answers that it has got."""
        ...

    def forget(self, name: str) -> "list[Question]":
        """Drop the deferred messages of a party that is gone; return the open questions about it."""
        ...


class TopicKnowledge(Protocol):
    """What the steps ask of the knowledge of secure topics."""

    @property
    def token_requirements(self) -> "TokenRequirements":
        """Which subscriptions need a token."""
        ...

    def remind(self, neighbour: str, event: Event) -> list[Effect]:
        """Send a neighbour the topic of an unsealed event that it should have refused; once for each topic."""
        ...


class Turn:
    """The state of a broker, and the operation at hand.

    Args:
        state: The state of the broker.
        run: Runs a nested operation.
        deferred: The copies and operations that wait for an answer of the trust provider.
        settlement: The publications in flight.
        convergence: Whether routing tables are complete.
        gate: Checks sealed events, if the engine has one.
        topic_gossip: What is known of secure topics, if the engine has a gate.
    """

    __slots__ = (
        *("answers", "convergence", "deferred", "gate", "is_replaying", "now", "run", "settlement", "state"),
        "topic_gossip",
    )

    def __init__(
        self,
        state: BrokerState,
        run: RunOperation,
        deferred: DeferredQueues,
        settlement: "Settlement",
        convergence: RoutingProgress,
        gate: "Gate | None",
        topic_gossip: TopicKnowledge | None,
    ) -> None:
        self.state, self.run, self.deferred, self.settlement = state, run, deferred, settlement
        self.convergence, self.gate, self.topic_gossip = convergence, gate, topic_gossip
        self.now = 0  # microseconds
        self.answers: Answers = {}  # answers of the trust provider that count for this operation alone
        self.is_replaying = False  # whether the driver replays its journal: accepted operations are not checked again

    def begin(self, now: int) -> None:
        """Set the time of the next operation, for callers that run the steps themselves."""
        self.now, self.answers = now, {}

    def rule_context(self, message: Message) -> RuleContext:
        """Return the facts that policy rules may read about a message at this broker."""
        state = self.state
        large = state.settings.large_message_bytes
        facts = MessageFacts(
            message.type,
            state.name,
            state.settings.host,
            state.rules.load,
            message.arrival.sender,
            partial(text_of, message),
            lambda: min(1.0, size_of(message) / large),
            self._trusts,
        )
        if isinstance(message, PublicationMessage):
            event = message.event
            facts.attributes, facts.payload = event.attributes, event.payload
            facts.subject, facts.publisher = event.subject, event.publisher
        if self.answers:
            facts.answers.update(self.answers)
        return RuleContext(facts)

    def _trusts(self, party: str, group: str) -> bool | None:
        """Return the cached answer whether a party belongs to a trust group; None if there is no valid one."""
        return self.state.trust.answer((party, group), self.now)
