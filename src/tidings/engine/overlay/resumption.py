"""Resumption: continue deferred messages when an answer of the trust provider comes, or when its party has gone."""

from tidings.engine.effects import DecisionMade, Effect
from tidings.engine.message import PublicationMessage
from tidings.engine.overlay.deferred import Question, durable_subscriptions
from tidings.engine.steps import emit, govern
from tidings.engine.steps.govern import GovernResult
from tidings.engine.turn import Turn


def resume_with_answer(turn: Turn, question: Question, member: bool) -> list[Effect]:
    """Continue, in order, everything that waited for this answer, up to the next question."""
    effects: list[Effect] = []
    for place in turn.deferred.answered(question):
        kind, name = place
        go_on = _resume_copies if kind == "copies" else _resume_operations
        effects += go_on(turn, name, question, member)
    return effects


def forget(turn: Turn, name: str) -> list[Effect]:
    """Drop the deferred messages that a client or neighbour has sent or would get, since it is gone.

    Open trust questions about it count as denied.
    """
    effects: list[Effect] = []
    for question in turn.deferred.forget(name):
        effects += resume_with_answer(turn, question, member=False)
    return effects


def _resume_copies(turn: Turn, receiver: str, question: Question, member: bool) -> list[Effect]:
    deferred = turn.deferred
    queue = deferred.copies_for(receiver)
    queue[0].message.rule_context.facts.answers[question] = member  # valid for this message even if not cached
    effects: list[Effect] = []
    while queue:
        message, rulings, hop = queue[0]
        governed = GovernResult()
        if isinstance(message, PublicationMessage):
            govern.govern_publication(message, rulings, hop, governed)
        else:
            govern.govern_filter(message, rulings, hop, governed)
        if governed.waiting:
            _, needed = governed.waiting[0]
            return effects + ([] if needed is None else deferred.ask(("copies", receiver), needed))
        queue.popleft()
        effects += emit.emit_deferred(turn, message, governed)
        if isinstance(message, PublicationMessage) and durable_subscriptions(message, hop):
            effects.append(DecisionMade(message.event.id, receiver))
        if isinstance(message, PublicationMessage) and not governed.copies:  # a rule has blocked it here
            effects += turn.settlement.settle((message.event.id, message.routing.route.round), receiver)
        if governed.consequences.floods:
            more = GovernResult()
            govern.flood_message(turn, message, rulings, more)
            effects += deferred.enqueue_copies(message, rulings, more.waiting)
            more.waiting = []
            effects += emit.emit_deferred(turn, message, more)
    deferred.drop_copies_for(receiver)
    return effects


def _resume_operations(turn: Turn, sender: str, question: Question, member: bool) -> list[Effect]:
    queue = turn.deferred.take_operations_of(sender)
    operation, answers = queue.popleft()
    effects = turn.run(operation, sender, {**answers, question: member})
    for waiting, _ in queue:  # if the first one waits again, they wait behind it
        effects += turn.run(waiting, sender)
    return effects
