"""Why does, or does not, a subscription get an event? Each step of the pipeline, with what decided it.

Nothing is changed by asking. Who asks sees only what it may: its own filters, contexts and policies, and the events
that it made itself; of everything else only at which step it was decided. Of an event that is kept from it, by a rule
or by whom its publisher meant, it does not even learn whether its filters match.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tidings.engine import addressed, admission, governing, routes, sealed
from tidings.engine.concern import rulings_on
from tidings.engine.deciding import Decision, blocking, decide, taken_away
from tidings.engine.forwarding import forwarding
from tidings.engine.governing import Delivery, Governed
from tidings.engine.journey import META, NEW
from tidings.engine.message import Hop, PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.refusal import Refused
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.matching.explaining import explained
from tidings.matching.reference import Scope, due, matches_context
from tidings.model.event import Event
from tidings.model.explanation import Explanation, Step
from tidings.model.subscription import Subscription
from tidings.policy.situation import NeedsAnswer
from tidings.policy.statement import Branch
from tidings.policy.text import written_call, written_condition

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

STEPS = (
    *("forward", "admit", "before", "subject", "structure", "content", "publishers", "subscribers"),
    *("token", "govern", "route"),
)
HIDDEN = "that is not for you to see"
NOT_FOR_YOU = "the event is not for you"


class _Stopped(Refused):
    """A rule said no."""

    def __init__(self, step: str, decision: Decision, where: str = "") -> None:
        super().__init__(step, f"{where}: {_said(decision)}" if where else _said(decision))
        self.decision = decision


def explain(
    engine: "Engine",
    event: Event,
    filed: Filed[Subscription],
    viewer: str | None = None,
    trusts: Callable[[str, str], bool] | None = None,
    *,
    accepted: bool = False,
    links_down: Collection[str] = (),
) -> Explanation:
    """What would happen to the event now, for that subscription; `viewer` is who asks, None for the operator. One that
    was `accepted` in the past may be published. `links_down` are the neighbours whose links are configured and down."""
    steps: list[Step] = []
    delivery, owner = None, None
    rules: tuple[str, ...] = ()
    # Only the broker itself publishes in its name: such an event is a meta-event.
    journey = META if event.publisher == engine.name else NEW
    try:
        if not accepted:
            _forward(engine, event, filed, links_down, steps)
        message = admission.publication(engine, Publish(event, journey), event.publisher, accepted=accepted)
        if not journey.meta:
            sealed.check_publication(engine, event, accepted=accepted)
        if trusts is not None:
            _ask_at_once(message, trusts)
        steps.append(Step("admit", True))
        _before(engine, message, steps)
        if journey.meta and not engine.may_observe(filed):
            raise Refused("govern", f"{filed.owner} may not see meta-events")
        rulings = _rules_for_all(engine, message)
        if viewer not in (None, event.publisher):
            _kept_from(engine, message, rulings, filed)
        try:
            _match(engine, event, filed, steps)
        except Refused as refusal:
            if accepted and refusal.step == "publishers":  # what was not offered of its context did not travel here
                _forward(engine, event, filed, links_down, steps)
            raise
        addressed.check_receiver(event, filed.value)
        if sealed.check_receiver(engine, event, filed):
            steps.append(Step("token", True))
        delivery = _govern(engine, message, rulings, filed, steps)
        rules = _shaping(event, delivery)
    except _Stopped as stop:
        owner, rules = stop.decision.source.owner, (str(stop.decision),)
        steps.append(Step(stop.step, False, stop.reason))
    except Refused as refusal:
        steps.append(Step(refusal.step, False, refusal.reason))
    except NeedsAnswer as question:
        steps.append(Step("govern", False, f"waits for an answer: {question}"))
    notification = None if delivery is None else routes.delivered(event, delivery, engine.gate).notification
    if viewer is not None:
        steps, rules = [_redacted(step, event, filed, viewer, owner) for step in steps], ()
        if viewer != filed.owner:
            notification = None
    last = steps[-1]
    return Explanation(
        subscription=filed.id,
        delivered=last.passed,
        step=last.name,
        reason=last.reason or "every step was passed",
        steps=tuple(steps),
        notification=notification,
        rules=rules,
    )


def _ask_at_once(message: PublicationMessage, trusts: Callable[[str, str], bool]) -> None:
    """What is not remembered is asked now, and not remembered either."""
    facts = message.situation.facts
    remembered = facts.trusts

    def known(party: str, group: str) -> bool:
        answer = remembered(party, group)
        return trusts(party, group) if answer is None else answer

    facts.trusts = known


def _forward(
    engine: "Engine", event: Event, filed: Filed[Subscription], links_down: Collection[str], steps: list[Step]
) -> None:
    found = forwarding(engine, event, filed, links_down)
    if found is None:
        return
    if found.decision is not None:
        raise _Stopped("forward", found.decision, found.reason)
    if not found.succeeded:
        raise Refused("forward", found.reason)
    steps.append(Step("forward", True, found.reason))


def _before(engine: "Engine", message: PublicationMessage, steps: list[Step]) -> None:
    early = governing.before(engine, message)
    if early is not None and early.refused is not None:
        raise _Stopped("before", early.refused)
    if early is not None and early.forwards_to:
        raise Refused("before", f"sent to {', '.join(early.forwards_to)} without matching")
    if early is not None:
        steps.append(Step("before", True))


def _match(engine: "Engine", event: Event, filed: Filed[Subscription], steps: list[Step]) -> None:
    scope = Scope(event.attributes, {}, event.subject, event.payload, event.publisher)
    subscriber = engine.context(filed.owner)
    found = explained(filed.value, scope, event.context, subscriber, event.subscribers)
    asked = _asked(filed.value, event)
    for name in STEPS[STEPS.index("subject") : STEPS.index("token")]:
        if found.step == name:
            raise Refused(name, found.reason)
        if name in asked:
            steps.append(Step(name, True, asked[name]))


def _asked(subscription: Subscription, event: Event) -> dict[str, str]:
    """The steps of matching that have something to check, with what they check."""
    structure = subscription.structure
    given = {
        "subject": subscription.subject,
        "structure": None if structure is None else ", ".join(sorted(structure.names)),
        "content": subscription.content,
        "publishers": subscription.publishers,
        "subscribers": event.subscribers,
    }
    return {name: str(one) for name, one in given.items() if one is not None}


def _kept_from(
    engine: "Engine", message: PublicationMessage, rulings: tuple[Ruling, ...], filed: Filed[Subscription]
) -> None:
    """What is not for the subscriber stops here, whatever its filter is: else filters could feel for the content."""
    event = message.event
    if not matches_context(event.subscribers, engine.context(filed.owner), event.context):
        raise Refused("subscribers", NOT_FOR_YOU)
    veto = blocking(decide(rulings, message.situation.toward(filed.hop), _hop(engine, message, filed).points))
    if veto is not None:
        raise _Stopped("govern", veto)


def _rules_for_all(engine: "Engine", message: PublicationMessage) -> tuple[Ruling, ...]:
    event, context = message.event, engine.context(engine.name)
    own = [one for one in engine.subscriptions.of(engine.name) if due(one.value, event, context)]
    return rulings_on(engine, message, own)


def _hop(engine: "Engine", message: PublicationMessage, filed: Filed[Subscription]) -> Hop:
    return Hop(message, filed.hop, is_client=filed.is_client, leaves=engine.leaves(filed.hop))


def _govern(
    engine: "Engine",
    message: PublicationMessage,
    rulings: tuple[Ruling, ...],
    filed: Filed[Subscription],
    steps: list[Step],
) -> Delivery | None:
    event = message.event
    wanted = [filed]
    if filed.value.notify == "client":
        context = engine.context(filed.owner)
        others = [
            one
            for one in engine.subscriptions.of(filed.owner)
            if one.value.notify == "client" and sealed.is_for(engine, one, event)
        ]
        wanted = sorted((one for one in others if due(one.value, event, context)), key=lambda one: one.id)
    hop = _hop(engine, message, filed)
    hop.wanted = wanted
    governed = Governed()
    governing.govern_publication(message, rulings, hop, governed)
    for _, question in governed.waiting:
        raise Refused("govern", f"waits for an answer: {question}")
    for place, decision in governed.stopped:
        if place in (filed.id, filed.hop):
            raise _Stopped("govern", decision)
    if filed.is_client and not any(filed in one.wanted for one in governed.deliveries):
        raise Refused("govern", "blocked on the way by a rule of the subscription")
    steps.append(Step("govern", True, _changes(governed, filed)))
    if not filed.is_client:
        steps.append(Step("route", True, f"goes to {filed.hop}"))
        return None
    steps.append(Step("route", True, f"goes to {filed.owner}"))
    return next(one for one in governed.deliveries if filed in one.wanted)


def _shaping(event: Event, delivery: Delivery | None) -> tuple[str, ...]:
    """The rules that had an effect on what is delivered."""
    if delivery is None:
        return ()
    shaping = []
    for one in delivery.decisions:
        outcome = one.outcome
        if outcome.added or outcome.trace or outcome.conversions or taken_away(event.attributes, [one]):
            shaping.append(str(one))
    return tuple(shaping)


def _changes(governed: Governed, filed: Filed[Subscription]) -> str:
    for delivery in governed.deliveries:
        if filed in delivery.wanted:
            shape = delivery.shape
            said = [
                f"without {', '.join(sorted(shape.removed))}" if shape.removed else "",
                f"with {', '.join(name for name, _ in shape.added)}" if shape.added else "",
                "converted" if shape.payload is not None else "",
            ]
            return ", ".join(one for one in said if one)
    return ""


def _said(decision: Decision) -> str:
    """The rule that decided, and its branch."""
    rule, outcome = decision.rule.rule, decision.outcome
    if outcome.failure is not None:
        return f"{decision} failed: {outcome.failure}"
    branches: tuple[Branch, ...] = (*rule.branches, *rule.on_exception)
    branch = branches[outcome.branch - 1]
    actions = ", ".join(written_call(call) for call in branch.actions)
    return f"{decision}: If {{{written_condition(branch.condition)}}} Then {{{actions}}}"


def _redacted(step: Step, event: Event, filed: Filed[Subscription], viewer: str, owner: str | None) -> Step:
    """What the one who asks may see of a step; `owner` is whose rule stopped it, where one did.

    Of a predicate that failed its own side sees the predicate, and only who knows both sides sees the values.
    """
    subscriber, publisher = viewer == filed.owner, viewer == event.publisher
    if step.passed and step.name == "forward":
        return Step(step.name, True, step.reason.split(": ")[0])  # whose subscription covers it is not told
    if step.passed:
        sees = {"admit": publisher, "before": publisher, "subscribers": publisher, "route": True}
        return step if sees.get(step.name, subscriber) or not step.reason else Step(step.name, True, HIDDEN)
    if step.name == "forward" and owner is None and not subscriber:
        return Step(step.name, False, HIDDEN)  # the reason names what the subscription's filters ask for
    if step.name in ("forward", "before", "govern"):
        return step if owner in (None, viewer) else Step(step.name, False, "stopped by a rule that is not yours")
    if step.name == "admit":
        return step if publisher else Step(step.name, False, HIDDEN)
    if subscriber and publisher:
        return step
    if step.reason == NOT_FOR_YOU:
        return step
    own_side = publisher if step.name == "subscribers" else subscriber
    return Step(step.name, False, step.reason.split(": ")[0] if own_side else HIDDEN)
