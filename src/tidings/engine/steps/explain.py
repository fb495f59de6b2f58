"""Explain why a subscription does or does not get an event: each step of the pipeline and what decided it.

Explaining changes no state. A viewer sees only its own filters, contexts, policies and events; of everything else it
learns at which step the decision was made. If a rule or the publisher keeps an event from the viewer, the viewer does
not even learn whether its filters match.
"""

from collections.abc import Callable, Collection

from tidings.engine.forwarding import forwarding
from tidings.engine.headers import META, NEW
from tidings.engine.message import OutboundCopy, PublicationMessage, Refusal
from tidings.engine.operations import Publish
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import admit, emit, govern
from tidings.engine.steps.decisions import Decision, blocking, decide, removed_attributes
from tidings.engine.steps.govern import Delivery, GovernResult
from tidings.engine.steps.match import may_observe, rulings_on
from tidings.engine.turn import Turn
from tidings.matching.reference import Scope, due, explain_match, matches_context
from tidings.model.event import Event
from tidings.model.explanation import Explanation, ExplanationStep
from tidings.model.subscription import Subscription
from tidings.policy.ast import Branch
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded
from tidings.policy.syntax.printer import format_call, format_condition

STEPS = (
    *("forward", "admit", "before", "subject", "structure", "content", "publishers", "subscribers"),
    *("token", "govern", "route"),
)
HIDDEN = "that is not for you to see"
NOT_FOR_YOU = "the event is not for you"


class _BlockedByRule(Refusal):
    """Raised when a policy rule blocks the event."""

    def __init__(self, step: str, decision: Decision, where: str = "") -> None:
        super().__init__(step, f"{where}: {_describe(decision)}" if where else _describe(decision))
        self.decision = decision


def explain(
    turn: Turn,
    event: Event,
    entry: FilterEntry[Subscription],
    viewer: str | None = None,
    trusts: Callable[[str, str], bool] | None = None,
    *,
    accepted: bool = False,
    links_down: Collection[str] = (),
) -> Explanation:
    """Explain what would happen now to an event for one subscription.

    Args:
        turn: The state of the broker, and the operation at hand.
        event: The event.
        entry: The subscription.
        viewer: The client that asks; None is the operator, who sees everything.
        trusts: Answers whether a party belongs to a trust group where the engine has no valid answer cached.
        accepted: The event was accepted in the past: do not check again whether it may be published.
        links_down: The neighbours whose links are configured and down.
    """
    state = turn.state
    steps: list[ExplanationStep] = []
    delivery, owner = None, None
    rules: tuple[str, ...] = ()
    # Only the broker publishes under its own name: such an event is a meta-event.
    journey = META if event.publisher == state.name else NEW
    try:
        if not accepted:
            _explain_forwarding(turn, event, entry, links_down, steps)
        message = admit.admit_publication(turn, Publish(event, journey), event.publisher, accepted=accepted)
        if not journey.meta:
            sealed_events.check_publication(turn, event, accepted=accepted)
        if trusts is not None:
            _ask_immediately(message, trusts)
        steps.append(ExplanationStep("admit", True))
        _explain_pre_match_rules(state, message, steps)
        if journey.meta and not may_observe(state, entry):
            raise Refusal("govern", f"{entry.owner} may not see meta-events")
        rulings = _rules_for_all(state, message)
        if viewer not in (None, event.publisher):
            _check_hidden_refusals(state, message, rulings, entry)
        try:
            _explain_match(state, event, entry, steps)
        except Refusal as refusal:
            if accepted and refusal.step == "publishers":  # names that were not offered did not travel with the context
                _explain_forwarding(turn, event, entry, links_down, steps)
            raise
        admit.check_receiver(event, entry.value)
        if sealed_events.check_receiver(turn, event, entry):
            steps.append(ExplanationStep("token", True))
        delivery = _explain_govern(turn, message, rulings, entry, steps)
        rules = _shaping(event, delivery)
    except _BlockedByRule as stop:
        owner, rules = stop.decision.source.owner, (str(stop.decision),)
        steps.append(ExplanationStep(stop.step, False, stop.reason))
    except Refusal as refusal:
        steps.append(ExplanationStep(refusal.step, False, refusal.reason))
    except TrustAnswerNeeded as question:
        steps.append(ExplanationStep("govern", False, f"waits for an answer: {question}"))
    notification = None if delivery is None else emit.governed_delivery(event, delivery, turn.gate).notification
    if viewer is not None:
        steps, rules = [_redacted(step, event, entry, viewer, owner) for step in steps], ()
        if viewer != entry.owner:
            notification = None
    last = steps[-1]
    return Explanation(
        subscription=entry.id,
        delivered=last.passed,
        step=last.name,
        reason=last.reason or "every step was passed",
        steps=tuple(steps),
        notification=notification,
        rules=rules,
    )


def _ask_immediately(message: PublicationMessage, trusts: Callable[[str, str], bool]) -> None:
    """Let `trusts` answer questions that the engine has no cached answer to; its answers are not cached."""
    facts = message.rule_context.facts
    remembered = facts.trusts

    def known(party: str, group: str) -> bool:
        answer = remembered(party, group)
        return trusts(party, group) if answer is None else answer

    facts.trusts = known


def _explain_forwarding(
    turn: Turn,
    event: Event,
    entry: FilterEntry[Subscription],
    links_down: Collection[str],
    steps: list[ExplanationStep],
) -> None:
    result = forwarding(turn, event, entry, links_down)
    if result is None:
        return
    if result.decision is not None:
        raise _BlockedByRule("forward", result.decision, result.reason)
    if not result.succeeded:
        raise Refusal("forward", result.reason)
    steps.append(ExplanationStep("forward", True, result.reason))


def _explain_pre_match_rules(state: BrokerState, message: PublicationMessage, steps: list[ExplanationStep]) -> None:
    pre_match_result = govern.apply_pre_match_rules(state, message)
    if pre_match_result is not None and pre_match_result.refused is not None:
        raise _BlockedByRule("before", pre_match_result.refused)
    if pre_match_result is not None and pre_match_result.forwards_to:
        raise Refusal("before", f"sent to {', '.join(pre_match_result.forwards_to)} without matching")
    if pre_match_result is not None:
        steps.append(ExplanationStep("before", True))


def _explain_match(
    state: BrokerState, event: Event, entry: FilterEntry[Subscription], steps: list[ExplanationStep]
) -> None:
    scope = Scope(event.attributes, {}, event.subject, event.payload, event.publisher)
    subscriber = state.contexts.context(entry.owner)
    result = explain_match(entry.value, scope, event.context, subscriber, event.subscribers)
    asked = _checks(entry.value, event)
    for name in STEPS[STEPS.index("subject") : STEPS.index("token")]:
        if result.step == name:
            raise Refusal(name, result.reason)
        if name in asked:
            steps.append(ExplanationStep(name, True, asked[name]))


def _checks(subscription: Subscription, event: Event) -> dict[str, str]:
    """Return the steps of matching that have something to check, each with what it checks."""
    structure = subscription.structure
    checks = {
        "subject": subscription.subject,
        "structure": None if structure is None else ", ".join(sorted(structure.names)),
        "content": subscription.content,
        "publishers": subscription.publishers,
        "subscribers": event.subscribers,
    }
    return {name: str(check) for name, check in checks.items() if check is not None}


def _check_hidden_refusals(
    state: BrokerState, message: PublicationMessage, rulings: tuple[Ruling, ...], entry: FilterEntry[Subscription]
) -> None:
    """Raise `Refusal` if the event is not for the subscriber, whatever its filter is.

    Otherwise the viewer could find out the event's content by trying filters.
    """
    event = message.event
    if not matches_context(event.subscribers, state.contexts.context(entry.owner), event.context):
        raise Refusal("subscribers", NOT_FOR_YOU)
    veto = blocking(decide(rulings, message.rule_context.for_receiver(entry.hop), _hop(state, message, entry).points))
    if veto is not None:
        raise _BlockedByRule("govern", veto)


def _rules_for_all(state: BrokerState, message: PublicationMessage) -> tuple[Ruling, ...]:
    event, context = message.event, state.contexts.context(state.name)
    own = [entry for entry in state.filters.subscriptions.of(state.name) if due(entry.value, event, context)]
    return rulings_on(state, message, own)


def _hop(state: BrokerState, message: PublicationMessage, entry: FilterEntry[Subscription]) -> OutboundCopy:
    return OutboundCopy(message, entry.hop, is_client=entry.is_client, is_egress=state.links.is_external(entry.hop))


def _explain_govern(
    turn: Turn,
    message: PublicationMessage,
    rulings: tuple[Ruling, ...],
    entry: FilterEntry[Subscription],
    steps: list[ExplanationStep],
) -> Delivery | None:
    state = turn.state
    event = message.event
    wanted = [entry]
    if entry.value.notify == "client":
        context = state.contexts.context(entry.owner)
        others = [
            subscription
            for subscription in state.filters.subscriptions.of(entry.owner)
            if subscription.value.notify == "client" and sealed_events.is_for(turn, subscription, event)
        ]
        wanted = sorted(
            (subscription for subscription in others if due(subscription.value, event, context)),
            key=lambda subscription: subscription.id,
        )
    hop = _hop(state, message, entry)
    hop.subscriptions = wanted
    governed = GovernResult()
    govern.govern_publication(message, rulings, hop, governed)
    for _, question in governed.waiting:
        raise Refusal("govern", f"waits for an answer: {question}")
    for place, decision in governed.stopped:
        if place in (entry.id, entry.hop):
            raise _BlockedByRule("govern", decision)
    if entry.is_client and not any(entry in delivery.subscriptions for delivery in governed.deliveries):
        raise Refusal("govern", "blocked on the way by a rule of the subscription")
    steps.append(ExplanationStep("govern", True, _changes(governed, entry)))
    if not entry.is_client:
        steps.append(ExplanationStep("route", True, f"goes to {entry.hop}"))
        return None
    steps.append(ExplanationStep("route", True, f"goes to {entry.owner}"))
    return next(delivery for delivery in governed.deliveries if entry in delivery.subscriptions)


def _shaping(event: Event, delivery: Delivery | None) -> tuple[str, ...]:
    """Return the rules that changed the notification."""
    if delivery is None:
        return ()
    shaping = []
    for decision in delivery.decisions:
        outcome = decision.outcome
        if outcome.added or outcome.trace or outcome.conversions or removed_attributes(event.attributes, [decision]):
            shaping.append(str(decision))
    return tuple(shaping)


def _changes(governed: GovernResult, entry: FilterEntry[Subscription]) -> str:
    for delivery in governed.deliveries:
        if entry in delivery.subscriptions:
            shape = delivery.changes
            changes = [
                f"without {', '.join(sorted(shape.removed))}" if shape.removed else "",
                f"with {', '.join(name for name, _ in shape.added)}" if shape.added else "",
                "converted" if shape.payload is not None else "",
            ]
            return ", ".join(change for change in changes if change)
    return ""


def _describe(decision: Decision) -> str:
    """Return the rule that decided, with the branch that was taken or the failure."""
    rule, outcome = decision.rule.rule, decision.outcome
    if outcome.failure is not None:
        return f"{decision} failed: {outcome.failure}"
    branches: tuple[Branch, ...] = (*rule.branches, *rule.on_exception)
    branch = branches[outcome.branch - 1]
    actions = ", ".join(format_call(call) for call in branch.actions)
    return f"{decision}: If {{{format_condition(branch.condition)}}} Then {{{actions}}}"


def _redacted(
    step: ExplanationStep, event: Event, entry: FilterEntry[Subscription], viewer: str, owner: str | None
) -> ExplanationStep:
    """Return a step as far as the viewer may see it; `owner` is the owner of the rule that stopped it, if one did.

    The side that wrote a predicate which failed sees the predicate; only a viewer that is both publisher and subscriber
    sees the values.
    """
    subscriber, publisher = viewer == entry.owner, viewer == event.publisher
    if step.passed and step.name == "forward":
        return ExplanationStep(step.name, True, step.reason.split(": ")[0])  # hide which subscription covers it
    if step.passed:
        sees = {"admit": publisher, "before": publisher, "subscribers": publisher, "route": True}
        return step if sees.get(step.name, subscriber) or not step.reason else ExplanationStep(step.name, True, HIDDEN)
    if step.name == "forward" and owner is None and not subscriber:
        return ExplanationStep(step.name, False, HIDDEN)  # the reason names what the subscription's filters use
    if step.name in ("forward", "before", "govern"):
        return (
            step
            if owner in (None, viewer)
            else ExplanationStep(step.name, False, "stopped by a rule that is not yours")
        )
    if step.name == "admit":
        return step if publisher else ExplanationStep(step.name, False, HIDDEN)
    if subscriber and publisher:
        return step
    if step.reason == NOT_FOR_YOU:
        return step
    own_side = publisher if step.name == "subscribers" else subscriber
    return ExplanationStep(step.name, False, step.reason.split(": ")[0] if own_side else HIDDEN)
