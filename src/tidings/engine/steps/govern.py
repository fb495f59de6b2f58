"""Govern: evaluate the policy rules on a message, copy by copy. The result is a value; no state is changed.

1. Rules before matching may refuse the message or send it on without matching.
2. Insert rules decide whether a filter enters the tables.
3. Forward rules are evaluated once per copy: rules for every copy first, then those of the subscriptions behind it.
4. A copy whose rules need an answer of the trust provider waits (`GovernResult.waiting`), and so do all later copies
   for the same receiver. An operation waits as a whole, before anything has changed, if a rule before matching, an
   Insert rule or a question to the sender of a publication needs an answer: functions then raise `TrustAnswerNeeded`.
5. A copy is blocked by a rule for every copy, or by a rule of a subscription for that subscription alone; a
   subscription's rule blocks a whole link only if its owner may govern.
"""

from collections.abc import Iterable

from tidings.engine.headers import PLAIN, CopyChanges
from tidings.engine.message import Message, OutboundCopy, PublicationMessage, is_governed_by, text_of
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.rule_index import Conflict
from tidings.engine.steps import match, next_hops
from tidings.engine.steps.decisions import (
    Decision,
    apply_decisions,
    blocking,
    conflicts,
    decide,
    merge_changes,
    removed_attributes,
)
from tidings.engine.steps.match import MatchResult, governing_subscriptions_of, rulings_on
from tidings.engine.steps.next_hops import hop_to, hops_to_others
from tidings.engine.turn import Turn
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.ast import Matching, MessageType, RuleOperation
from tidings.policy.evaluation.evaluation import RuleContext, TrustAnswerNeeded

_FORWARD = RuleOperation.FORWARD


class Delivery:
    """A notification for a client, for one subscription or, with notify="client", for several of them.

    `changes` are the changes that rules made, `decisions` the rule decisions that led to the changes.
    """

    __slots__ = ("changes", "decisions", "subscriptions")

    def __init__(
        self, wanted: list[FilterEntry[Subscription]], changes: CopyChanges, decisions: list[Decision]
    ) -> None:
        self.subscriptions, self.changes, self.decisions = wanted, changes, decisions


class LinkCopy:
    """A copy of a publication for a neighbour, after policy rules.

    Args:
        hop: The copy.
        common: The changes for every subscription behind the link.
        own: The changes for single subscriptions, by id.
        dropped: The attributes that no subscription behind the link gets or names.
    """

    __slots__ = ("common", "dropped", "hop", "own")

    def __init__(
        self, hop: OutboundCopy, common: CopyChanges, own: dict[str, CopyChanges], dropped: frozenset[str]
    ) -> None:
        self.hop, self.common, self.own = hop, common, own
        self.dropped = dropped


class RuleConsequences:
    """What policy rules cause beside the copies of a message: meta-events, log lines, stored messages, flooding."""

    def __init__(self) -> None:
        self.publishes: list[Attributes] = []
        self.logs: list[str] = []
        self.persists: list[str] = []
        self.conflicts: list[tuple[str, Conflict]] = []  # link, conflict
        self.failures: list[Decision] = []
        self.floods = False
        self._failed: set[tuple[int, tuple[str, str, bool]]] = set()  # rules that have failed, with their sources

    def take(self, rule_context: RuleContext, decisions: Iterable[Decision]) -> None:
        """Add the events, log lines and failures that decisions lead to. Each rule reports them once per message."""
        for decision in decisions:
            outcome = decision.outcome
            self.publishes += outcome.publishes
            self.logs += outcome.logs
            self.persists += outcome.persists
            self.floods |= outcome.floods
            rule_context.facts.once.update(outcome.once)
            if outcome.failure is not None:
                key = id(decision.rule), decision.source.key
                if key not in self._failed:
                    self._failed.add(key)
                    self.failures.append(decision)


class GovernResult:
    """What policy rules decided about a message. `stopped` lists, for explanations, which rule blocked which copy."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.copies: list[LinkCopy] = []
        # Copies of filters, with the names whose predicates are kept (None: all) and removed.
        self.filters: list[tuple[OutboundCopy, frozenset[str] | None, frozenset[str]]] = []
        self.waiting: list[tuple[OutboundCopy, TrustAnswerNeeded | None]] = []  # None: behind waiting copies
        self.stopped: list[tuple[str, Decision]] = []
        self.uninserted: Decision | None = None
        self.excluded: dict[str, Decision] = {}  # by publisher: why a subscription must not get its events
        self.refused: Decision | None = None
        self.forwards_to: list[str] = []
        self.consequences = RuleConsequences()

    @property
    def is_final(self) -> bool:
        """Whether rules before matching refused the message or sent it on, so that it is not matched."""
        return self.refused is not None or bool(self.forwards_to)


def apply_pre_match_rules(state: BrokerState, message: Message) -> GovernResult | None:
    """Evaluate the rules before matching, which may refuse a message or send it on without matching.

    Returns None if there are none. Raises `TrustAnswerNeeded`, before anything has changed, if a rule has to wait.
    """
    rulings = (*message.rulings(_FORWARD, Matching.BEFORE), *state.rules.pre_match_rulings(message.type))
    if not rulings:
        return None
    governed = GovernResult()
    rule_context = message.rule_context
    decisions = decide(rulings, rule_context, message.arrival.points)
    governed.consequences.take(rule_context, decisions)
    governed.refused = blocking(
        decision for decision in decisions if not (_is_removal(message) and decision.outcome.failure)
    )
    governed.forwards_to = [name for decision in decisions for name in decision.outcome.forwards_to]
    return governed


def is_blocked_for_neighbour(state: BrokerState, message: Message, neighbour: str, governed: GovernResult) -> bool:
    """Whether governing rules block a publication that is to be sent to a neighbour without matching.

    Raises `TrustAnswerNeeded`, before anything has changed, if a rule has to wait.

    Args:
        state: The state of the broker.
        message: The message; only publications are checked.
        neighbour: The neighbour that it would be sent to.
        governed: Gets the rule that blocks the copy.
    """
    if not isinstance(message, PublicationMessage) or not state.rules.on_publications:
        return False
    hop = hop_to(state, message, neighbour)
    governing_subscriptions = governing_subscriptions_of(state, message.event)
    hop.governing_subscriptions = [
        entry
        for entry in governing_subscriptions
        if not entry.is_client and next_hops.link_toward(state, entry, message) == neighbour
    ]
    rulings = [
        ruling for ruling in rulings_on(state, message, governing_subscriptions) if is_governed_by(message, ruling[1])
    ]
    rule_context = message.rule_context.for_receiver(neighbour)
    blocking_decision = blocking(decide(rulings, rule_context, hop.points)) or _governing_veto(
        message, hop, rule_context
    )
    if blocking_decision is not None:
        governed.stopped.append((neighbour, blocking_decision))
    return blocking_decision is not None


def govern_copies(
    turn: Turn, message: PublicationMessage, match_result: MatchResult, governed: GovernResult
) -> GovernResult:
    """Evaluate the policy rules on every copy of a publication.

    A copy that needs a trust answer waits for its receiver alone. If a rule asks about the sender of the publication,
    the whole publication waits, because the sender may be gone later: raises `TrustAnswerNeeded` before anything has
    changed.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The publication.
        match_result: Its copies, and the rules for every copy.
        governed: The result so far; it is filled and returned.
    """
    _govern_every_copy(turn, message, match_result, governed)
    for hop, _ in governed.waiting:
        _ask_sender(message, match_result.rulings, hop)
    return governed


def _ask_sender(message: PublicationMessage, rulings: tuple[Ruling, ...], hop: OutboundCopy) -> None:
    """Raise `TrustAnswerNeeded` if a rule on this copy needs an answer about the message's sender."""
    rule_context = message.rule_context.for_receiver(hop.receiver)
    own = (ruling for entry in (*hop.subscriptions, *hop.governing_subscriptions) for ruling in entry.on_publications)
    for rule, source in (*rulings, *own):
        if not rule.rule.points.isdisjoint(hop.points):
            rule_context.source = source
            rule.ask_sender(rule_context)


def govern_filter_copies(
    turn: Turn, message: Message, match_result: MatchResult, governed: GovernResult
) -> GovernResult:
    """Govern a filter or its removal: first Insert rules, on the previous hop, then Forward rules per neighbour.

    Raises `TrustAnswerNeeded`, before anything has changed, if an Insert rule has to wait.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The filter or its removal.
        match_result: Its copies and rules.
        governed: The result so far; it is filled and returned.
    """
    _govern_insertion(message, match_result.insertion, governed)
    if governed.uninserted is not None and governed.uninserted.outcome.failure is not None:
        return governed  # the rule failed: the filter is not forwarded
    if governed.excluded:
        match_result.hops = match.hops_after_exclusion(turn, message, match_result.hops, governed.excluded)
    _govern_every_copy(turn, message, match_result, governed)
    if governed.uninserted is not None and message.type is MessageType.SUBSCRIPTION and not message.arrival.from_broker:
        governed.filters = []  # without a table entry it could be neither served nor withdrawn
    return governed


def _govern_every_copy(turn: Turn, message: Message, match_result: MatchResult, governed: GovernResult) -> None:
    """Govern every copy, or once without a receiver if there is no next hop; then flood if a rule asks for it."""
    message.hops = list(match_result.hops)
    if not message.hops and match_result.rulings:
        message.hops = [OutboundCopy(message, None)]
    for hop in message.hops:
        govern_copy(turn, message, match_result.rulings, hop, governed)
    if governed.consequences.floods:
        flood_message(turn, message, match_result.rulings, governed)


def flood_message(turn: Turn, message: Message, rulings: tuple[Ruling, ...], governed: GovernResult) -> None:
    """Add and govern copies for all neighbours that have none yet, because a rule floods the message.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The message; the copies are added to its hops.
        rulings: The rules for every copy.
        governed: Gets what is decided about the copies.
    """
    more = hops_to_others(turn.state, message, message.hops)
    message.hops += more
    for hop in more:
        govern_copy(turn, message, rulings, hop, governed)


def govern_copy(
    turn: Turn, message: Message, rulings: tuple[Ruling, ...], hop: OutboundCopy, governed: GovernResult
) -> None:
    """Govern one copy; it waits if earlier copies for the same receiver wait.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The message.
        rulings: The rules for every copy.
        hop: The copy.
        governed: Gets what is decided about the copy.
    """
    if hop.receiver is not None and turn.deferred.has_waiting_copies(hop.receiver):
        governed.waiting.append((hop, None))
    elif isinstance(message, PublicationMessage):
        govern_publication(message, rulings, hop, governed)
    else:
        govern_filter(message, rulings, hop, governed)


def _govern_insertion(message: Message, rulings: tuple[Ruling, ...], governed: GovernResult) -> None:
    """Evaluate Insert rules: whether a filter is inserted, and which publishers a subscription is excluded from."""
    if not rulings:
        return
    rule_context = message.rule_context
    decisions = decide(rulings, rule_context, message.arrival.points)
    governed.consequences.take(rule_context, decisions)
    if not _is_removal(message):  # an exception lets a removal proceed
        excluding_decisions = [
            decision for decision in decisions if decision.outcome.uninserts or decision.outcome.failure
        ]
        if message.type is MessageType.SUBSCRIPTION:
            governed.excluded = {
                decision.source.owner: decision
                for decision in excluding_decisions
                if _excludes_own_events_only(decision)
            }
            excluding_decisions = [
                decision for decision in excluding_decisions if not _excludes_own_events_only(decision)
            ]
        governed.uninserted = next(
            (decision for decision in excluding_decisions if decision.outcome.failure),
            next(iter(excluding_decisions), None),
        )


def _excludes_own_events_only(decision: Decision) -> bool:
    """Whether a rule may exclude subscribers from its own publisher's events only, lacking the right to govern."""
    return decision.source.kind == "advertisement" and not decision.source.governs


def govern_filter(message: Message, rulings: tuple[Ruling, ...], hop: OutboundCopy, governed: GovernResult) -> None:
    """Evaluate the Forward rules on a filter, or on its removal, for one neighbour.

    Args:
        message: The filter or its removal.
        rulings: The rules to evaluate.
        hop: The copy for the neighbour.
        governed: Gets the copy with the predicates that rules keep or remove, or the rule that blocked it.
    """
    rule_context = message.rule_context.for_receiver(hop.receiver)
    try:
        decisions = decide(rulings, rule_context, hop.points)
    except TrustAnswerNeeded as question:
        governed.waiting.append((hop, question))
        return
    governed.consequences.take(rule_context, decisions)
    link = hop.receiver or ""
    governed.consequences.conflicts += [(link, decision) for decision in conflicts(decisions, [])]
    # Rules of publishers whose events the subscription does not get do not act on forwarding it.
    effective_decisions = [
        decision
        for decision in decisions
        if decision.source.owner not in governed.excluded or not _excludes_own_events_only(decision)
    ]
    blocking_decision = blocking(effective_decisions)
    if blocking_decision is not None and (blocking_decision.outcome.failure is None or not _is_removal(message)):
        governed.stopped.append((link, blocking_decision))
        return
    if hop.receiver is not None:
        kept = [decision.outcome.keeps for decision in effective_decisions if decision.outcome.keeps is not None]
        removed = frozenset[str]().union(*(decision.outcome.removes for decision in effective_decisions))
        governed.filters.append((hop, frozenset.intersection(*kept) if kept else None, removed))


def govern_publication(
    message: PublicationMessage, rulings: tuple[Ruling, ...], hop: OutboundCopy, governed: GovernResult
) -> None:
    """Evaluate the Forward rules on one copy of a publication: for a client, for a neighbour, or without a receiver.

    Args:
        message: The publication.
        rulings: The rules for every copy.
        hop: The copy, with the subscriptions that it is for.
        governed: Gets the deliveries or the link copy, conflicts and failures, or the rule that blocked the copy.
    """
    rule_context = message.rule_context.for_receiver(hop.receiver)
    try:
        common = decide(rulings, rule_context, hop.points)
        link = hop.receiver or ""
        veto_decision = blocking(common)
        hidden = removed_attributes(message.event.attributes, common) if common else frozenset()
        others = rule_context if not hidden else _hide_attributes(rule_context, message, hidden)
        own = {} if veto_decision else {entry.id: _decide_own_rules(entry, others, hop) for entry in hop.subscriptions}
        veto_decision = veto_decision or _governing_veto(message, hop, others)
    except TrustAnswerNeeded as question:
        governed.waiting.append((hop, question))
        return
    governed.consequences.take(rule_context, common)
    for decisions in own.values():
        governed.consequences.take(rule_context, decisions)
    governed.consequences.conflicts += [(link, conflict) for conflict in conflicts(common, [])]
    for decisions in own.values():
        if decisions:
            governed.consequences.conflicts += [(link, decision) for decision in conflicts(common, decisions)]
    if veto_decision is None:
        veto_decision = _link_veto(message, hop, own, governed)
    if veto_decision is not None:
        governed.stopped.append((link, veto_decision))
    elif hop.is_client:
        _add_deliveries(message, hop, common, own, rule_context, governed)
    elif hop.receiver is not None:
        _add_link_copy(message, hop, common, own, rule_context, governed)


def _decide_own_rules(entry: FilterEntry[Subscription], rule_context: RuleContext, hop: OutboundCopy) -> list[Decision]:
    """Evaluate the rules of one subscription on a copy."""
    rulings = entry.on_publications
    # The rules of the broker's own filters act on every copy and are among `rulings`.
    return decide(rulings, rule_context, hop.points) if rulings and not entry.is_own else []


def _hide_attributes(rule_context: RuleContext, message: PublicationMessage, hidden: frozenset[str]) -> RuleContext:
    """Return the facts for subscriptions' rules: `$Message` lacks the attributes that rules for every copy remove."""
    other = rule_context.for_receiver(rule_context.receiver)
    other.values = rule_context.values
    other.hidden = lambda: text_of(message, hidden)
    return other


def _governing_veto(message: PublicationMessage, hop: OutboundCopy, rule_context: RuleContext) -> Decision | None:
    """Return the decision of a governing subscription that blocks the copy, though the event is not addressed to it."""
    if hop.is_client:
        return None
    for entry in hop.governing_subscriptions:
        blocking_decision = blocking(
            decision
            for decision in _decide_own_rules(entry, rule_context, hop)
            if is_governed_by(message, decision.source)
        )
        if blocking_decision is not None:
            return blocking_decision
    return None


def _link_veto(
    message: PublicationMessage, hop: OutboundCopy, own: dict[str, list[Decision]], governed: GovernResult
) -> Decision | None:
    """Return the decision of a subscription's rule that blocks the whole link, which needs the right to govern.

    Without that right BlockMessage stops only the subscription's own copy, and a conflict is reported.
    """
    if hop.is_client:
        return None  # a client blocks its own notifications only
    for entry in hop.subscriptions:
        blocking_decision = blocking(own[entry.id])
        if blocking_decision is None:
            continue
        governing = blocking(decision for decision in own[entry.id] if is_governed_by(message, decision.source))
        if governing is not None:
            return governing
        if len(hop.subscriptions) > 1:
            reason = "one blocks what others behind the link want, without the right to govern: its own copy is blocked"
            others = next(subscription for subscription in hop.subscriptions if subscription is not entry)
            governed.consequences.conflicts.append(
                (hop.receiver or "", Conflict(str(blocking_decision), str(others.source), reason))
            )
    return None


def _add_deliveries(
    message: PublicationMessage,
    hop: OutboundCopy,
    common: list[Decision],
    own: dict[str, list[Decision]],
    rule_context: RuleContext,
    governed: GovernResult,
) -> None:
    """Add a delivery for each subscription of a client, or one for all that have notify="client"."""
    groups: list[list[FilterEntry[Subscription]]] = []
    together: list[FilterEntry[Subscription]] = []
    for entry in hop.subscriptions:
        blocking_decision = blocking(own[entry.id])
        if blocking_decision is not None:
            governed.stopped.append((entry.id, blocking_decision))
        elif message.operation.journey.own.get(entry.id, PLAIN).blocked:
            continue
        elif entry.value.notify == "client":
            together.append(entry)
        else:
            groups.append([entry])
    if together:
        groups.append(together)
    for group in groups:
        before = message.operation.journey.common
        for entry in group:
            before = merge_changes(before, message.operation.journey.own.get(entry.id, PLAIN))
        decisions = [*common, *(decision for entry in group for decision in own[entry.id])]
        names = frozenset[str]().union(*(entry.names for entry in group))
        changes, failures = _apply_to_changes(message, before, decisions, rule_context, names, governed)
        if blocking(failures) is None:
            governed.deliveries.append(Delivery(group, changes, decisions))
        else:
            governed.stopped += [
                (entry.id, decision) for entry in group for decision in failures if decision.outcome.blocks
            ]


def _add_link_copy(
    message: PublicationMessage,
    hop: OutboundCopy,
    common: list[Decision],
    own: dict[str, list[Decision]],
    rule_context: RuleContext,
    governed: GovernResult,
) -> None:
    """Add a link copy for a neighbour, with the changes for all and for single subscriptions behind the link."""
    changes, failures = _apply_to_changes(
        message, message.operation.journey.common, common, rule_context, frozenset(), governed
    )
    blocking_decision = blocking(failures)
    if blocking_decision is not None:
        governed.stopped.append((hop.receiver or "", blocking_decision))
        return
    own_changes: dict[str, CopyChanges] = {}
    for entry in hop.subscriptions:
        before = message.operation.journey.own.get(entry.id, PLAIN)
        if before.blocked or blocking(own[entry.id]) is not None:
            own_changes[entry.id] = CopyChanges(blocked=True)
            continue
        names = entry.names
        if entry.value.notify == "client":  # one notification for all: trimming keeps the union of their names
            group = (
                subscription
                for subscription in hop.subscriptions
                if subscription.owner == entry.owner and subscription.value.notify == "client"
            )
            names = names.union(*(subscription.names for subscription in group))
        decided, failures = _apply_to_changes(message, before, own[entry.id], rule_context, names, governed)
        own_changes[entry.id] = CopyChanges(blocked=True) if blocking(failures) is not None else decided
    served = [subscription for subscription in hop.subscriptions if not own_changes[subscription.id].blocked]
    if hop.subscriptions and not served:
        return
    _report_missing_attributes(message, hop, common, served, governed)
    unwanted = (
        frozenset.intersection(*(own_changes[subscription.id].removed for subscription in served))
        if served
        else frozenset[str]()
    )
    needed = frozenset[str]()
    if unwanted:  # also by filters that do not match: they may test that an attribute is absent
        needed = needed.union(
            hop.attributes_behind(), *(subscription.names for subscription in (*served, *hop.governing_subscriptions))
        )
    kept = {name: copy_changes for name, copy_changes in own_changes.items() if copy_changes != PLAIN}
    governed.copies.append(LinkCopy(hop, changes, kept, unwanted - needed))


def _report_missing_attributes(
    message: PublicationMessage,
    hop: OutboundCopy,
    common: list[Decision],
    served: list[FilterEntry[Subscription]],
    governed: GovernResult,
) -> None:
    """Report a conflict where a rule for every copy removes an attribute that a filter behind the link names."""
    for decision in common:
        removed_names = removed_attributes(message.event.attributes, [decision])
        for entry in served if removed_names else ():
            lacking = sorted(removed_names & entry.names)
            if lacking:
                reason = f"one removes {', '.join(lacking)}, which the other needs to match: it is removed"
                governed.consequences.conflicts.append(
                    (hop.receiver or "", Conflict(str(decision), str(entry.source), reason))
                )


def _apply_to_changes(
    message: PublicationMessage,
    before: CopyChanges,
    decisions: list[Decision],
    rule_context: RuleContext,
    names: frozenset[str],
    governed: GovernResult,
) -> tuple[CopyChanges, list[Decision]]:
    """Apply decisions to the changes made so far; return the changes and the failures of conversions."""
    if not any(decision.outcome.changes or decision.outcome.trims for decision in decisions):
        return before, []
    if message.event.signature is not None:
        _report_unconverted_payloads(decisions, rule_context, governed)
    changes, failures = apply_decisions(message.event, before, decisions, rule_context, names)
    governed.consequences.take(rule_context, failures)
    return changes, failures


def _report_unconverted_payloads(decisions: list[Decision], rule_context: RuleContext, governed: GovernResult) -> None:
    """Report a conflict for each conversion of a sealed event: only its receiver can open the payload."""
    reason = "a sealed payload can be converted only by who opens it: it stays as it is"
    for decision in decisions:
        if decision.outcome.conversions:
            governed.consequences.conflicts.append(
                (rule_context.receiver or "", Conflict(str(decision), "the event's seal", reason))
            )


def _is_removal(message: Message) -> bool:
    return message.type in (MessageType.UNSUBSCRIPTION, MessageType.UNADVERTISEMENT)
