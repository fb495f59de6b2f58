"""The pipeline: run a message through admit, match, govern and emit, and return its effects.

There is one function for publications, one for filters and one for the removal of filters. Policy rules with
`@matching: Before` run before the match step. A publication that no rule can touch takes a fast path.
"""

from typing import TYPE_CHECKING

from tidings.engine.effects import DecisionMade, Deliver, Effect, LogMessage
from tidings.engine.headers import rule_of_snapshot
from tidings.engine.message import OutboundCopy, PublicationMessage, Refusal
from tidings.engine.operations import Advertise, Publish, Redecide, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.security import sealed_events
from tidings.engine.steps import admit, emit, govern, match, next_hops, report
from tidings.engine.steps.govern import GovernResult
from tidings.engine.steps.match import MatchResult
from tidings.model.errors import PolicyError
from tidings.model.event import Event
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded
from tidings.security.rpc.messages import SERVICE_TOPIC

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def publish(engine: "Engine", operation: Publish, sender: str) -> list[Effect]:
    """Run a publication through the pipeline and return its effects."""
    message = admit.admit_publication(engine, operation, sender)
    if not engine.neighbours:
        return _publish_alone(engine, message)
    if next_hops.must_wait(engine, message):
        return []
    if not next_hops.mark_seen(engine, message):
        return engine.settlement.record_duplicate(message)
    try:
        return engine.settlement.record_forwarding(message, _publish_admitted(engine, message))
    except TrustAnswerNeeded:
        engine.seen_events.forget(message.event.id)
        raise


def _publish_alone(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    """Run a publication at a broker without neighbours. It is settled at once, if it is a redelivery."""
    if not message.route.round:
        return _publish_admitted(engine, message)
    message.skips_local_clients = next_hops.skips_this_broker(engine, message)
    return engine.settlement.record_forwarding(message, _publish_admitted(engine, message))


def _publish_admitted(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    """Run an admitted publication, then expel the subscriptions that lack a token for its secure topic."""
    effects = _govern_and_emit(engine, message)
    return (
        effects + sealed_events.expel_subscriptions(engine, message) if message.subscriptions_without_token else effects
    )


def _govern_and_emit(engine: "Engine", message: PublicationMessage) -> list[Effect]:
    """Run an admitted publication through the rules before matching, match, govern and emit."""
    pre_match_result = govern.apply_pre_match_rules(engine, message)
    if pre_match_result is not None and pre_match_result.is_final:
        return emit.emit_unmatched_with_reports(engine, message, pre_match_result)
    match_result = match.match_publication(engine, message)
    if match_result.plain is not None:
        effects = emit.emit_unchanged(engine, message, match_result.plain, match_result.onward)
        return effects if pre_match_result is None else effects + report.report(engine, message, pre_match_result)
    governed = govern.govern_copies(engine, message, match_result, pre_match_result or GovernResult())
    return emit.emit_publication(engine, message, match_result, governed)


def redecide(engine: "Engine", operation: Redecide) -> list[Effect]:
    """Make a pending decision about a publication for durable subscriptions of one client.

    The recipients were found when the publication came. Each gets it if the rules in force then and the subscription's
    own rules now allow it. Ends with `DecisionMade`, unless another trust answer is needed.
    """
    event, client = operation.event, operation.client
    decided: list[Effect] = [DecisionMade(event.id, client)]
    known = [engine.subscriptions.get(subscription_id) for subscription_id in operation.subscriptions]
    wanted = [entry for entry in known if entry is not None and entry.is_client and entry.owner == client]
    if not wanted:
        return decided
    try:
        sealed_events.check_publication(engine, event, accepted=True)
        match_result = MatchResult(tuple(map(rule_of_snapshot, operation.rules)))
    except (Refusal, PolicyError) as error:
        return [LogMessage(f"the event {event.id} is kept from {client}: {error}"), *decided]
    message = admit.rebuild_message(engine, operation)
    hop = OutboundCopy(message, client, is_client=True)
    hop.subscriptions = wanted
    governed = GovernResult()
    govern.govern_copy(engine, message, match_result.rulings, hop, governed)
    effects = emit.emit_publication(engine, message, match_result, governed)
    return effects if governed.waiting else effects + decided


def put_filter(engine: "Engine", operation: Advertise | Subscribe, sender: str) -> list[Effect]:
    """Run a subscription or an advertisement through the pipeline and return its effects."""
    message = admit.admit_filter(engine, operation, sender)
    pre_match_result = govern.apply_pre_match_rules(engine, message)
    if pre_match_result is not None and pre_match_result.refused is not None:
        return emit.emit_unmatched_with_reports(engine, message, pre_match_result)
    match_result = match.match_filter(engine, message, () if pre_match_result is None else pre_match_result.forwards_to)
    governed = govern.govern_filter_copies(engine, message, match_result, pre_match_result or GovernResult())
    return emit.emit_filter(engine, message, match_result, governed)


def remove_filter(engine: "Engine", operation: Unadvertise | Unsubscribe, sender: str) -> list[Effect]:
    """Run the removal of a subscription or an advertisement through the pipeline and return its effects."""
    message = admit.admit_removal(engine, operation, sender)
    if engine.withdraw_sender(message.id, sender):
        return []
    pre_match_result = govern.apply_pre_match_rules(engine, message)
    if pre_match_result is not None and pre_match_result.refused is not None:
        return emit.emit_unmatched_with_reports(engine, message, pre_match_result)
    match_result = match.match_removal(engine, message)
    governed = govern.govern_filter_copies(engine, message, match_result, pre_match_result or GovernResult())
    return emit.emit_removal(engine, message, match_result, governed)


def can_take_fast_path(engine: "Engine", publisher: str) -> bool:
    """Whether a publication needs no more than matching: no neighbours, rules or gate, and a client that may publish.

    Publishing on the fast path changes no state, so the answer holds until another operation is handled.
    """
    if (
        engine.neighbours
        or engine.rules
        or engine.rule_bearing
        or engine.deferred
        or engine.gate is not None
        or engine.strategy.announces
    ):
        return False
    try:
        admit.admit_client(engine, publisher, publisher)
    except Refusal:
        return False
    return True


def publish_fast(engine: "Engine", event: Event) -> list[Deliver] | None:
    """Publish on the fast path and return the deliveries; None if the event has to take the whole pipeline.

    An event that would be refused also gives None: the pipeline then refuses it with a reason.
    """
    if event.policy is not None or SERVICE_TOPIC in event.attributes:
        return None
    try:
        admit.admit_event(engine, event)
    except Refusal:
        return None
    match_result = engine.matcher.match_event(event)
    return emit.plain_deliveries(event, engine.subscriptions.get_many(sorted(match_result))) if match_result else []
