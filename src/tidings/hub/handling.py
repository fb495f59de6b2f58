"""Handling: the engine is given an operation, its questions are answered, and its effects come to an outcome."""

from typing import TYPE_CHECKING

from tidings.engine import plain
from tidings.engine.effects import (
    Ask,
    Decided,
    Deliver,
    Effect,
    Expelled,
    Learnt,
    Log,
    Persist,
    Reject,
    Remark,
    Told,
    Undecided,
    timed,
)
from tidings.engine.operations import Operation, Publish, Trust, Unsubscribe
from tidings.hub.outcome import Outcome
from tidings.model.event import Event

if TYPE_CHECKING:
    from tidings.hub.desk import Desk


def handled(desk: "Desk", operation: Operation, now: int) -> Outcome:
    """What follows from an operation. The hub's lock is held."""
    outcome, engine = Outcome(), desk.engine
    governed = engine.rules or (type(operation) is Publish and operation.event.policy is not None)
    started = desk.clock.now() if governed else 0
    effects: list[Effect] = engine.handle(operation, now)
    if governed:
        effects = _timed(desk, effects, started)
    subscriptions, deliveries = desk.roster.subscriptions, outcome.deliveries
    durable = []
    for effect in effects:  # grows while there are questions
        if type(effect) is Deliver:
            note = effect.notification
            held = subscriptions.get(note.subscription)
            if held is not None:
                delivery = held, note
                deliveries.append(delivery)
                if held.durable is not None:
                    durable.append(delivery)
        elif isinstance(effect, Ask):
            answer = desk.ask(effect.party, effect.group, now)
            if answer is None:
                continue  # it comes later
            member, until = answer
            outcome.trusted += ((effect.party, effect.group, member, until),)
            effects.extend(engine.handle(Trust(effect.party, effect.group, member, until), now))
        else:
            _note(desk, effect, outcome)
    if durable:
        outcome.durable = tuple(durable)
    return outcome


def published(desk: "Desk", event: Event, now: int) -> Outcome | None:
    """What follows from a publication where the short way is open, see `engine.plain`; None: it has to be handled."""
    desk.engine.now = now
    effects = plain.publish(desk.engine, event)
    if effects is None:
        return None
    outcome, subscriptions = Outcome(), desk.roster.subscriptions
    durable = []
    for effect in effects:
        note = effect.notification
        held = subscriptions.get(note.subscription)
        if held is not None:
            delivery = held, note
            outcome.deliveries.append(delivery)
            if effect.durable is not None:
                durable.append(delivery)
    if durable:
        outcome.durable = tuple(durable)
    return outcome


def _timed(desk: "Desk", effects: list[Effect], started: int) -> list[Effect]:
    """With the time that was spent, where a rule has asked for it."""
    attribute = f"$trace.{desk.name}.microseconds"
    for effect in effects:
        if isinstance(effect, Deliver) and (effect.notification.trace or attribute in effect.notification.attributes):
            return timed(effects, desk.name, max(0, desk.clock.now() - started))
    return effects


def _note(desk: "Desk", effect: Effect, outcome: Outcome) -> None:
    match effect:
        case Reject():
            outcome.refused = effect
            desk.stats.refused += 1
        case Told(event):
            outcome.told += (event,)
        case Persist():
            outcome.persisted += (effect,)
        case Learnt(operation):
            outcome.followed += (operation,)
        case Undecided(judge):
            outcome.undecided += (judge,)
        case Decided():
            outcome.decide(effect)
        case Expelled(client, id, reason):
            desk.note(f"the subscription {id} of {client} is removed: {reason}")
            removal = Unsubscribe(client, id)
            outcome.followed += (removal,)
            desk.roster.book(removal, {})
        case Remark(_, finding):
            outcome.findings += (finding,)
        case Log(line):
            desk.note(line)
        case _:
            outcome.others.append(effect)
