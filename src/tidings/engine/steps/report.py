"""Report what rules did with a message: log lines, stored messages and meta-events."""

from typing import Any

from tidings.engine import meta_events
from tidings.engine.effects import Effect, LogMessage, MetaEventPublished, Persist
from tidings.engine.headers import META
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps.govern import GovernResult
from tidings.engine.turn import Turn
from tidings.model.event import Event
from tidings.model.expression import Constant
from tidings.model.limits import MAX_META_EVENTS_PER_MESSAGE
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.ast import MessageType, Point, Rule
from tidings.policy.lint import findings
from tidings.policy.placement import Finding, PolicyPlace, Severity, check_placement
from tidings.policy.policy import Policy


def report(turn: Turn, message: Message, governed: GovernResult) -> list[Effect]:
    """Return the log lines, stored messages and meta-events about a message.

    Nothing is reported about a meta-event, or about a redelivered event that was reported before.
    """
    if isinstance(message, PublicationMessage) and message.routing.route.round and message.routing.skips_local_clients:
        return []
    news = meta_events_of(turn.state, message, governed)
    effects = log_and_store(message, governed)
    for place, attributes in enumerate(news):
        effects += publish_meta_event(turn, attributes, message.id, str(place))
    return effects


def log_and_store(message: Message, governed: GovernResult) -> list[Effect]:
    """Return the log lines, and the messages that rules store."""
    effects: list[Effect] = [LogMessage(line) for line in governed.consequences.logs]
    event = message.event if isinstance(message, PublicationMessage) else None
    return effects + [Persist(store, message.rule_context.message, event) for store in governed.consequences.persists]


def meta_events_of(state: BrokerState, message: Message, governed: GovernResult) -> list[Attributes]:
    """Return the attributes of the meta-events about a message, in order; none about a meta-event.

    At most `MAX_META_EVENTS_PER_MESSAGE` are returned; a log line counts the rest.
    """
    if isinstance(message, PublicationMessage) and message.operation.journey.meta:
        return []
    news = list(governed.consequences.publishes)
    for failure in governed.consequences.failures:
        news.append(meta_events.exception(state.name, str(failure), failure.outcome.failure or "", message.id))
    for link, conflict in governed.consequences.conflicts:
        if state.rules.conflicts.is_new(link, conflict):
            news.append(
                meta_events.conflict(state.name, link, conflict.one, conflict.other, conflict.reason, message.id)
            )
    if len(news) > MAX_META_EVENTS_PER_MESSAGE:
        left = len(news) - MAX_META_EVENTS_PER_MESSAGE
        governed.consequences.logs.append(
            f"{left:,} meta-events about one message more than MAX_META_EVENTS_PER_MESSAGE: they are not published"
        )
        del news[MAX_META_EVENTS_PER_MESSAGE:]
    return news


def suspicious(entry: FilterEntry[Any], *, lone: bool = True) -> list[str]:
    """Return what looks suspicious about a filter's policies, its owner's and the operator's.

    `lone` says that the broker has no neighbours, so that some rules never act.
    """
    return [
        str(finding)
        for compiled in (entry.policy, entry.operator_policy)
        if compiled is not None
        for finding in (
            *findings(compiled.policy),
            *check_placement(compiled.policy, _where(entry), hub=lone),
            *_needed_attributes_removed(compiled.policy, entry),
        )
    ]


def _where(entry: FilterEntry[Any]) -> PolicyPlace:
    own = entry.is_own or not entry.is_client  # the policies of another broker's own filters were checked there
    if isinstance(entry.value, Subscription):
        return PolicyPlace.BROKER_SUBSCRIPTION if own else PolicyPlace.ATTACHED_TO_SUBSCRIPTION
    return PolicyPlace.BROKER_ADVERTISEMENT if own else PolicyPlace.ATTACHED_TO_ADVERTISEMENT


def _needed_attributes_removed(policy: Policy, entry: FilterEntry[Any]) -> list[Finding]:
    """Find attributes that the rules remove between brokers and that the filter itself uses."""
    findings_of_policy = []
    for number, rule in enumerate(policy.rules, 1):
        if rule.message is not MessageType.PUBLICATION or rule.points == {Point.EGRESS}:
            continue
        needed = ", ".join(sorted(_attributes_removed_by(rule) & entry.names))
        if needed and isinstance(entry.value, Subscription):
            later = f"removes {needed}, which its own filter needs: between brokers it waits until the end"
            findings_of_policy.append(Finding(Severity.NOTE, number, later))
        elif needed:
            lost = f"removes {needed}, which its own filter requires: behind the link, who asks for it gets nothing"
            findings_of_policy.append(Finding(Severity.WARNING, number, lost))
    return findings_of_policy


def _attributes_removed_by(rule: Rule) -> set[str]:
    return {
        str(argument.value)
        for branch in (*rule.branches, *rule.on_exception)
        for call in branch.actions
        if call.name == "RemoveAttributes"
        for argument in call.arguments
        if isinstance(argument, Constant)
    }


def publish_meta_event(turn: Turn, attributes: Attributes, *cause: str) -> list[Effect]:
    """Publish a meta-event with these attributes and return the effects.

    Handling a meta-event never publishes another one. `cause` goes into the event's id, which is the same in every
    driver that handles the same operations.
    """
    event = meta_event(turn, attributes, *cause)
    return [MetaEventPublished(event), *turn.run(Publish(event, META), turn.state.name)]


def meta_event(turn: Turn, attributes: Attributes, *cause: str) -> Event:
    """Return the broker's next meta-event, without publishing it."""
    state = turn.state.rules.meta_events
    state.sequence += 1
    return Event(
        id=meta_events.event_id(turn.now, turn.state.name, *cause, str(state.sequence)),
        publisher=turn.state.name,
        timestamp=turn.now,
        sequence=state.sequence,
        attributes=attributes,
    )
