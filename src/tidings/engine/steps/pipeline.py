"""The pipeline: run a message through admit, match, govern and emit, and return its effects.

There is one function for publications, one for filters and one for the removal of filters. Policy rules with
`@matching: Before` run before the match step. A publication that no rule can touch takes a fast path.
"""

from tidings.engine.effects import DecisionMade, Deliver, Effect, LogMessage
from tidings.engine.headers import rule_of_snapshot
from tidings.engine.message import OutboundCopy, PublicationMessage, Refusal
from tidings.engine.operations import Advertise, Publish, Redecide, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.steps import admit, emit, govern, match, next_hops, report
from tidings.engine.steps.govern import GovernResult
from tidings.engine.steps.match import MatchResult
from tidings.engine.turn import Turn
from tidings.model.errors import PolicyError
from tidings.model.event import Event
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded
from tidings.security.rpc.messages import SERVICE_TOPIC


def publish(turn: Turn, operation: Publish, sender: str) -> list[Effect]:
    """Run a publication through the pipeline and return its effects."""
    state = turn.state
    message = admit.admit_publication(turn, operation, sender)
    if not state.links.neighbours:
        return _publish_alone(turn, message)
    if next_hops.must_wait(turn, message):
        return []
    if not next_hops.mark_seen(turn, message):
        return turn.settlement.record_duplicate(message)
    try:
        return turn.settlement.record_forwarding(message, _publish_admitted(turn, message))
    except TrustAnswerNeeded:
        state.seen_events.forget(message.event.id)
        raise


def _publish_alone(turn: Turn, message: PublicationMessage) -> list[Effect]:
    """Run a publication at a broker without neighbours. It is settled at once, if it is a redelivery."""
    if not message.routing.route.round:
        return _publish_admitted(turn, message)
    message.routing.skips_local_clients = next_hops.skips_this_broker(turn.state, message)
    return turn.settlement.record_forwarding(message, _publish_admitted(turn, message))


def _publish_admitted(turn: Turn, message: PublicationMessage) -> list[Effect]:
    """Run an admitted publication, then expel the subscriptions that lack a token for its secure topic."""
    effects = _govern_and_emit(turn, message)
    return effects if message.tokens is None else effects + emit.expel_subscriptions(turn, message)


def _govern_and_emit(turn: Turn, message: PublicationMessage) -> list[Effect]:
    """Run an admitted publication through the rules before matching, match, govern and emit."""
    pre_match_result = govern.apply_pre_match_rules(turn.state, message)
    if pre_match_result is not None and pre_match_result.is_final:
        return emit.emit_unmatched_with_reports(turn, message, pre_match_result)
    match_result = match.match_publication(turn, message)
    if match_result.plain is not None:
        effects = emit.emit_unchanged(turn, message, match_result.plain, match_result.onward)
        return effects if pre_match_result is None else effects + report.report(turn, message, pre_match_result)
    governed = govern.govern_copies(turn, message, match_result, pre_match_result or GovernResult())
    return emit.emit_publication(turn, message, match_result, governed)


def redecide(turn: Turn, operation: Redecide) -> list[Effect]:
    """Make a pending decision about a publication for durable subscriptions of one client.

    The recipients were found when the publication came. Each gets it if the rules in force then and the subscription's
    own rules now allow it. Ends with `DecisionMade`, unless another trust answer is needed.
    """
    event, client = operation.event, operation.client
    decided: list[Effect] = [DecisionMade(event.id, client)]
    known = [turn.state.filters.subscriptions.get(subscription_id) for subscription_id in operation.subscriptions]
    wanted = [entry for entry in known if entry is not None and entry.is_client and entry.owner == client]
    if not wanted:
        return decided
    try:
        sealed_events.check_publication(turn, event, accepted=True)
        match_result = MatchResult(tuple(map(rule_of_snapshot, operation.rules)))
    except (Refusal, PolicyError) as error:
        return [LogMessage(f"the event {event.id} is kept from {client}: {error}"), *decided]
    message = admit.rebuild_message(turn, operation)
    hop = OutboundCopy(message, client, is_client=True)
    hop.subscriptions = wanted
    governed = GovernResult()
    govern.govern_copy(turn, message, match_result.rulings, hop, governed)
    effects = emit.emit_publication(turn, message, match_result, governed)
    return effects if governed.waiting else effects + decided


def put_filter(turn: Turn, operation: Advertise | Subscribe, sender: str) -> list[Effect]:
    """Run a subscription or an advertisement through the pipeline and return its effects."""
    message = admit.admit_filter(turn, operation, sender)
    pre_match_result = govern.apply_pre_match_rules(turn.state, message)
    if pre_match_result is not None and pre_match_result.refused is not None:
        return emit.emit_unmatched_with_reports(turn, message, pre_match_result)
    match_result = match.match_filter(turn, message, () if pre_match_result is None else pre_match_result.forwards_to)
    governed = govern.govern_filter_copies(turn, message, match_result, pre_match_result or GovernResult())
    return emit.emit_filter(turn, message, match_result, governed)


def remove_filter(turn: Turn, operation: Unadvertise | Unsubscribe, sender: str) -> list[Effect]:
    """Run the removal of a subscription or an advertisement through the pipeline and return its effects."""
    state = turn.state
    message = admit.admit_removal(turn, operation, sender)
    if _is_left_to_another(state, message.id, sender):
        return []
    pre_match_result = govern.apply_pre_match_rules(state, message)
    if pre_match_result is not None and pre_match_result.refused is not None:
        return emit.emit_unmatched_with_reports(turn, message, pre_match_result)
    match_result = match.match_removal(state, message)
    governed = govern.govern_filter_copies(turn, message, match_result, pre_match_result or GovernResult())
    return emit.emit_removal(turn, message, match_result, governed)


def _is_left_to_another(state: BrokerState, id: str, sender: str) -> bool:  # noqa: A002
    """Note that `sender` withdraws a subscription; return whether another neighbour that sent it still has it."""
    entry = state.filters.subscriptions.get(id)
    return entry is not None and state.filters.is_left_to(entry, sender)


def can_take_fast_path(turn: Turn, publisher: str) -> bool:
    """Whether a publication needs no more than matching: no neighbours, rules or gate, and a client that may publish.

    Publishing on the fast path changes no state, so the answer holds until another operation is handled.
    """
    state = turn.state
    if (
        state.links.neighbours
        or state.rules.on_publications
        or state.rules.rule_bearing
        or turn.deferred
        or turn.gate is not None
        or state.strategy.announces
    ):
        return False
    try:
        admit.admit_client(state, publisher, publisher)
    except Refusal:
        return False
    return True


def publish_fast(turn: Turn, event: Event) -> list[Deliver] | None:
    """Publish on the fast path and return the deliveries; None if the event has to take the whole pipeline.

    An event that would be refused also gives None: the pipeline then refuses it with a reason.
    """
    state = turn.state
    if event.policy is not None or SERVICE_TOPIC in event.attributes:
        return None
    try:
        admit.admit_event(state, event)
    except Refusal:
        return None
    match_result = state.filters.matcher.match_event(event)
    return (
        emit.plain_deliveries(event, state.filters.subscriptions.get_many(sorted(match_result))) if match_result else []
    )
