"""The way of a message: admit -> match -> govern -> route, and what comes out are effects.

One function for publications, one for filters, one for the removal of filters; each is these steps in their order.
Rules that are applied before matching come before it.
"""

from typing import TYPE_CHECKING

from tidings.engine import admission, concern, governing, passing, routes, sealed, telling
from tidings.engine.concern import Concern
from tidings.engine.effects import Decided, Effect, Log
from tidings.engine.governing import Governed
from tidings.engine.message import Hop, PublicationMessage
from tidings.engine.operations import Advertise, Judge, Publish, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.refusal import Refused
from tidings.policy.situation import NeedsAnswer

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def publish(engine: "Engine", operation: Publish, sender: str) -> list[Effect]:
    message = admission.publication(engine, operation, sender)
    if not engine.neighbours:
        return _alone(engine, message)
    if passing.waits(engine, message):
        return []
    if not passing.pass_by(engine, message):
        return engine.settling.came_again(message)
    try:
        return engine.settling.passed_on(message, _published(engine, message))
    except NeedsAnswer:
        engine.passages.forget(message.event.id)
        raise


def _alone(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    """Where there are no other brokers nobody waits for it to be settled, unless it is sent again."""
    if not message.route.round:
        return _published(engine, message)
    message.stays_out = passing.is_for_others(engine, message)
    return engine.settling.passed_on(message, _published(engine, message))


def _published(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    effects = _governed(engine, message)
    return effects + sealed.expelled(engine, message) if message.intruders else effects


def _governed(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    early = governing.before(engine, message)
    if early is not None and early.is_final:
        return routes.without_matching(engine, message, early)
    concerned = concern.of_publication(engine, message)
    if concerned.plain is not None:
        effects = routes.plainly(engine, message, concerned.plain, concerned.onward)
        return effects if early is None else effects + telling.told(engine, message, early)
    governed = governing.publication(engine, message, concerned, early or Governed())
    return routes.publication(engine, message, concerned, governed)


def judge(engine: "Engine", operation: Judge) -> list[Effect]:
    """For whom it is was found out when it came; by the rules that there are now, those get it or not."""
    event, client = operation.event, operation.client
    decided: list[Effect] = [Decided(event.id, client)]
    known = [engine.subscriptions.get(one) for one in operation.subscriptions]
    wanted = [one for one in known if one is not None and one.is_client and one.owner == client]
    if not wanted:
        return decided
    try:
        sealed.check_publication(engine, event, accepted=True)
    except Refused as refusal:
        return [Log(f"the event {event.id} is kept from {client}: {refusal.reason}"), *decided]
    message = admission.again(engine, operation)
    hop = Hop(message, client, is_client=True)
    hop.wanted = wanted
    concerned = Concern(concern.rulings_for_all(engine, message))
    governed = Governed()
    governing.one_hop(engine, message, concerned.rulings, hop, governed)
    effects = routes.publication(engine, message, concerned, governed)
    return effects if governed.waiting else effects + decided


def put(engine: "Engine", operation: Advertise | Subscribe, sender: str) -> list[Effect]:
    message = admission.filter(engine, operation, sender)
    early = governing.before(engine, message)
    if early is not None and early.refused is not None:
        return routes.without_matching(engine, message, early)
    concerned = concern.of_filter(engine, message, () if early is None else early.forwards_to)
    governed = governing.filter(engine, message, concerned, early or Governed())
    return routes.filter(engine, message, concerned, governed)


def remove(engine: "Engine", operation: Unadvertise | Unsubscribe, sender: str) -> list[Effect]:
    message = admission.removal(engine, operation, sender)
    if engine.is_kept_by_others(message.id, sender):
        return []
    early = governing.before(engine, message)
    if early is not None and early.refused is not None:
        return routes.without_matching(engine, message, early)
    concerned = concern.of_removal(engine, message)
    governed = governing.filter(engine, message, concerned, early or Governed())
    return routes.removal(engine, message, concerned, governed)
