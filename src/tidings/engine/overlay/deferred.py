"""Deferred messages: copies and operations that wait for an answer of the trust provider.

1. From the first waiting copy of a receiver on, all copies for that receiver wait, so that none overtakes another.
2. An operation that cannot be decided at all waits, and so do all later operations of the same sender.
3. Each queue has asked at most one question, the one of its first entry. An answer continues every queue that asked it,
   up to the next question: see `tidings.engine.overlay.resumption`.
"""

from collections import deque
from typing import NamedTuple

from tidings.engine.effects import AskTrust, DecisionPending, Effect, Reject
from tidings.engine.headers import ForwardingHeader, rule_snapshot
from tidings.engine.message import Message, OutboundCopy, PublicationMessage
from tidings.engine.operations import DelegateContext, Redecide, Travelling
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.turn import Answers
from tidings.model.limits import MAX_DEFERRED_MESSAGES
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded

Question = tuple[str, str]
Place = tuple[str, str]  # a queue: ("copies" | "operations", name)


class DeferredCopy(NamedTuple):
    """A copy of a message that waits, with the rules for every copy."""

    message: Message
    rulings: tuple[Ruling, ...]
    hop: OutboundCopy


class DeferredMessages:
    """The queues of waiting copies, by receiver, and of waiting operations, by sender."""

    def __init__(self) -> None:
        self._copies: dict[str, deque[DeferredCopy]] = {}  # by receiver
        self._operations: dict[str, deque[tuple[Travelling | DelegateContext, Answers]]] = {}  # by sender
        # The question of a queue's first entry, by ("copies" | "operations", name).
        self._question_of_queue: dict[Place, Question] = {}
        self._open_questions: set[Question] = set()

    def __bool__(self) -> bool:
        return bool(self._copies or self._operations)

    def has_waiting_copies(self, receiver: str) -> bool:
        """Whether copies for a receiver wait."""
        return receiver in self._copies

    def receivers_waiting_for(self, message: Message) -> list[str]:
        """Return the receivers for which a copy of the message that came last waits."""
        return [name for name, queue in self._copies.items() if queue[-1].message is message]

    def has_waiting_operations(self, sender: str) -> bool:
        """Whether operations of a sender wait."""
        return sender in self._operations

    def enqueue_copies(
        self,
        message: Message,
        rulings: tuple[Ruling, ...],
        waiting: list[tuple[OutboundCopy, TrustAnswerNeeded | None]],
    ) -> list[Effect]:
        """Queue waiting copies and ask the questions of those that are first in their queue.

        Args:
            message: The message.
            rulings: The rules for every copy.
            waiting: The copies, each with its question; None if it waits behind others.
        """
        effects: list[Effect] = []
        for hop, question in waiting:
            queue = self._copies.setdefault(hop.receiver or "", deque())
            if len(queue) >= MAX_DEFERRED_MESSAGES:
                limit = f"MAX_DEFERRED_MESSAGES ({MAX_DEFERRED_MESSAGES:,})"
                reason = f"more than {limit} wait for an answer on {hop.receiver}"
                effects.append(Reject("govern", reason))
                continue
            queue.append(DeferredCopy(message, rulings, hop))
            effects += _pending_decision(message, rulings, hop)
            if question is not None:
                effects += self.ask(("copies", hop.receiver or ""), question)
        return effects

    def defer(
        self,
        sender: str,
        operation: Travelling | DelegateContext,
        question: TrustAnswerNeeded | None = None,
        answers: Answers | None = None,
    ) -> list[Effect]:
        """Queue an operation that waits for an answer itself, or behind others of its sender.

        Args:
            sender: The client or neighbour that sent it.
            operation: The operation.
            question: What it asks; None if it waits behind others.
            answers: The answers that it has got already.
        """
        queue = self._operations.setdefault(sender, deque())
        if len(queue) >= MAX_DEFERRED_MESSAGES:
            limit = f"MAX_DEFERRED_MESSAGES ({MAX_DEFERRED_MESSAGES:,})"
            return [Reject("govern", f"more than {limit} of {sender} wait already")]
        queue.append((operation, answers or {}))
        return [] if question is None else self.ask(("operations", sender), question)

    def undo_last(self, sender: str) -> Question | None:
        """Drop the operation of a sender that came last, for a caller that runs it again when it has the answer.

        Returns the question that it waits for; None if the sender has no waiting operations.
        """
        queue = self._operations.get(sender)
        if queue is None:
            return None
        queue.pop()
        place = "operations", sender
        question = self._question_of_queue[place]
        if not queue:
            del self._operations[sender], self._question_of_queue[place]
            self._open_questions &= set(self._question_of_queue.values())
        return question

    def answered(self, question: Question) -> list[Place]:
        """Note that a question is answered; return the queues whose first entry waited for the answer."""
        self._open_questions.discard(question)
        places = [place for place, asked in self._question_of_queue.items() if asked == question]
        for place in places:
            del self._question_of_queue[place]
        return places

    def copies_for(self, receiver: str) -> deque[DeferredCopy]:
        """Return the waiting copies for a receiver, to take from."""
        return self._copies[receiver]

    def drop_copies_for(self, receiver: str) -> None:
        """Drop the queue of a receiver, for which nothing waits any more."""
        del self._copies[receiver]

    def take_operations_of(self, sender: str) -> deque[tuple[Travelling | DelegateContext, Answers]]:
        """Remove and return the waiting operations of a sender, each with the answers that it has got."""
        return self._operations.pop(sender)

    def forget(self, name: str) -> list[Question]:
        """Drop the deferred messages that a client or neighbour has sent or would get, since it is gone.

        Returns the open questions about it, which count as denied.
        """
        self._copies.pop(name, None)
        self._operations.pop(name, None)
        self._question_of_queue.pop(("copies", name), None)
        self._question_of_queue.pop(("operations", name), None)
        # A question without waiting queues is asked again later.
        self._open_questions &= set(self._question_of_queue.values())
        return [question for question in sorted(self._open_questions) if question[0] == name]

    def clear(self) -> None:
        """Drop all queues and questions."""
        self._copies, self._operations, self._question_of_queue, self._open_questions = {}, {}, {}, set()

    def ask(self, place: Place, question: TrustAnswerNeeded) -> list[Effect]:
        """Note the question of a queue's first entry, and ask it if it is not asked already."""
        asked = question.party, question.group
        self._question_of_queue[place] = asked
        if asked in self._open_questions:
            return []
        self._open_questions.add(asked)
        return [AskTrust(*asked)]


def durable_subscriptions(message: Message, hop: OutboundCopy) -> tuple[str, ...]:
    """Return the durable subscriptions of a client that a copy is for."""
    if not hop.is_client or not isinstance(message, PublicationMessage):
        return ()
    return tuple(entry.id for entry in hop.subscriptions if entry.value.durable is not None)


def _pending_decision(message: Message, rulings: tuple[Ruling, ...], hop: OutboundCopy) -> list[Effect]:
    """Return the effect that makes the driver store the pending decision about a copy for durable subscriptions."""
    durable = durable_subscriptions(message, hop)
    if not durable or not isinstance(message, PublicationMessage):
        return []
    journey, sender = message.operation.journey, message.arrival.sender
    own = {name: shape for name, shape in journey.own.items() if name in durable}
    answers = [
        (group, member) for (party, group), member in message.rule_context.facts.answers.items() if party == sender
    ]
    redecide = Redecide(
        message.event,
        hop.receiver or "",
        durable,
        ForwardingHeader(journey.policy, journey.meta, journey.common, own),
        sender if message.arrival.from_broker else "",
        tuple(sorted(answers)),
        tuple(map(rule_snapshot, rulings)),
    )
    return [DecisionPending(redecide)]
