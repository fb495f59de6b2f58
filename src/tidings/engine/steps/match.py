"""Match: find the subscriptions and next hops of a message, and the policy rules that act on it."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tidings.engine.message import Message, OutboundCopy, PublicationMessage, Refusal, is_governed_by, size_of
from tidings.engine.operations import Subscribe
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling, compiled_rules
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.registration import prospective_entry, target_links
from tidings.engine.steps import next_hops
from tidings.engine.steps.admit import keep_addressed
from tidings.engine.steps.next_hops import hop_to, hops_to_others
from tidings.engine.turn import Turn
from tidings.matching.covering import overlaps
from tidings.matching.reference import due, matches
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.limits import MAX_POLICY_RULES
from tidings.model.subscription import Subscription
from tidings.policy.ast import Attach, Matching, MessageType, Point, Rule, RuleOperation
from tidings.policy.evaluation.evaluation import SharedFacts
from tidings.routing.advertisement import without_publishers
from tidings.routing.advertisement_table import META

_FORWARD, _INSERT = RuleOperation.FORWARD, RuleOperation.INSERT
_HERE = frozenset({Point.INGRESS, Point.EGRESS})  # the points of a copy that comes from a client and goes to one
HISTORY = 60_000_000  # microseconds: a redelivery this long after the event is for durable subscriptions only
_PUBLICATION, _SUBSCRIPTION = MessageType.PUBLICATION, MessageType.SUBSCRIPTION


class MatchResult:
    """The outcome of matching a message.

    - `rulings`: rules that act on every copy. `insertion`: rules that act before the tables are changed.
    - `hops`: the copies to govern, one per receiver.
    - `plain`: set if no rule needs to be evaluated: the local subscriptions that get the event unchanged. Then `onward`
      has the neighbours that get it, each with its subscriptions.
    """

    __slots__ = ("hops", "insertion", "onward", "plain", "rulings")

    def __init__(self, rulings: tuple[Ruling, ...] = (), insertion: tuple[Ruling, ...] = ()) -> None:
        self.rulings, self.insertion = rulings, insertion
        self.hops: list[OutboundCopy] = []
        self.plain: list[FilterEntry[Subscription]] | None = None
        self.onward: Mapping[str, list[FilterEntry[Subscription]]] = {}


def match_publication(turn: Turn, message: PublicationMessage) -> MatchResult:
    """Match a publication: find the local subscriptions, the next hops and the rules for every copy."""
    state = turn.state
    table = state.filters.subscriptions
    wanted: list[FilterEntry[Subscription]] = []
    if not message.routing.skips_local_clients and len(table) > len(state.filters.remote_subscriptions):
        wanted = table.get_many(sorted(state.filters.matcher.match_event(message.event)))
    wanted = keep_addressed(message, wanted)
    if message.operation.journey.meta:
        wanted = [entry for entry in wanted if may_observe(state, entry)]
    if message.routing.route.round:
        wanted = _recipients_of_redelivery(state, message, wanted)
    if not state.links.neighbours:
        return match_known_recipients(turn, message, wanted)
    if message.routing.route.withheld:
        wanted = [entry for entry in wanted if _can_evaluate_publishers(entry, message.routing.route.withheld)]
    wanted = _without_overtaken(turn, message.event, wanted)
    return match_known_recipients(turn, message, wanted, next_hops.find_next_hops(turn, message))


def _can_evaluate_publishers(entry: FilterEntry[Subscription], withheld: tuple[str, ...]) -> bool:
    """Whether a subscription's filter on publishers uses none of the context names withheld from the event.

    If it uses one, no advertisement of the publisher offers that name, so the event is not for the subscription.
    """
    return entry.value.publishers is None or entry.value.publishers.names.isdisjoint(withheld)


def _recipients_of_redelivery(
    state: BrokerState, message: PublicationMessage, wanted: list[FilterEntry[Subscription]]
) -> list[FilterEntry[Subscription]]:
    """Filter the recipients of a redelivered event.

    A redelivery for clients that have moved, or a long time after the first transmission, is for durable subscriptions
    only. A subscription that was here at the first transmission was already matched then. The broker's own filters
    stay, because their rules act on redelivered events too.
    """
    route, event = message.routing.route, message.event
    own = [entry for entry in wanted if entry.is_own]  # their rules act on redelivered events too
    if route.clients:
        matched_at = state.seen_events.matched_at(event.id)
        due = [entry for entry in wanted if entry.value.durable is not None and entry.owner in route.clients]
        return own + [entry for entry in due if state.filters.durable_since.get(entry.id, 0) >= matched_at]
    if route.round - event.timestamp > HISTORY:
        return own + [entry for entry in wanted if entry.value.durable is not None]
    return wanted


def _without_overtaken(
    turn: Turn, event: Event, wanted: list[FilterEntry[Subscription]]
) -> list[FilterEntry[Subscription]]:
    """Drop the subscriptions of clients that have already got a later event of the same publisher.

    If the driver redelivers, a durable subscription gets the event late rather than never. The broker's own filters
    stay, because their rules act on late events too.
    """
    clients = {entry.owner for entry in wanted if not entry.is_own}
    late = {client for client in clients if not _is_in_order(turn, client, event)}
    if not late:
        return wanted
    keeps_durable = turn.state.settings.resends
    return [entry for entry in wanted if entry.owner not in late or (keeps_durable and entry.value.durable is not None)]


def _is_in_order(turn: Turn, client: str, event: Event) -> bool:
    return turn.state.seen_events.is_in_order(client, event.publisher, event.sequence, event.timestamp, turn.now)


def match_known_recipients(
    turn: Turn,
    message: PublicationMessage,
    local: list[FilterEntry[Subscription]],
    behind: Mapping[str, list[FilterEntry[Subscription]]] | None = None,
) -> MatchResult:
    """Return the match result of a publication whose recipients are known.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The publication.
        local: The local subscriptions that match it, by rising id.
        behind: The neighbours that it goes to, each with the matching subscriptions behind the link.
    """
    state = turn.state
    event = message.event
    rulings: tuple[Ruling, ...] = ()
    if state.rules.on_publications or message.attached is not None:
        wanted = local
        if behind:
            wanted = sorted(
                [
                    *local,
                    *(entry for subscriptions in behind.values() for entry in subscriptions),
                ],
                key=lambda entry: entry.id,
            )
        rulings = rulings_on(state, message, wanted)
    is_sealed = event.signature is not None and turn.gate is not None
    if is_sealed:
        local = sealed_events.subscriptions_with_token(turn, message, local)
    match_result = MatchResult(rulings)
    if rulings and not (state.links.neighbours or turn.deferred) and _block_every_copy(state, rulings, message):
        match_result.plain = []  # every copy is blocked and nothing is reported
        return match_result
    if (
        not rulings
        and not turn.deferred
        and _need_no_evaluation(state, local, message)
        and _are_link_copies_unchanged(message, behind)
    ):
        match_result.plain, match_result.onward = local, behind or {}
        return match_result
    hops: dict[str, OutboundCopy] = {}
    for entry in local:
        hop = hops.get(entry.hop)
        if hop is None:
            hop = hops[entry.hop] = OutboundCopy(message, entry.hop, is_client=True)
        hop.subscriptions.append(entry)
    for name, subscriptions in () if behind is None else behind.items():
        hops[name] = hop = hop_to(state, message, name)
        hop.subscriptions = subscriptions
    if (event.subscribers is not None or is_sealed) and state.rules.governing_subscriptions:
        for subscription in governing_subscriptions_of(state, event):
            hop = hops.get(
                subscription.hop
                if subscription.is_client
                else next_hops.link_toward(state, subscription, message) or ""
            )
            if hop is not None and subscription not in hop.subscriptions:
                hop.governing_subscriptions.append(subscription)
    match_result.hops = list(hops.values())
    return match_result


def match_filter(turn: Turn, message: Message, forwards_to: Collection[str] = ()) -> MatchResult:
    """Match a subscription or an advertisement: find the neighbours that it goes to and the rules that act on it.

    An advertisement goes to all tree neighbours, a subscription to those where overlapping advertisements came from (or
    where the routing strategy sends it). A rule before matching may send either to the neighbours in `forwards_to`
    instead.
    """
    state = turn.state
    if isinstance(message.operation, Subscribe):
        match_result = _match_subscription(turn, message, message.operation.subscription)
    else:
        match_result = MatchResult(message.rulings(_FORWARD), _insert_rulings(message))
        match_result.hops = [
            hop_to(state, message, name) for name in state.links.tree_neighbours() if name != message.arrival.sender
        ]
        if message.id.startswith(META):
            match_result.hops = []  # each broker sends an advertisement of its own: see `propagation.advertise_meta`
    if forwards_to:
        match_result.hops = [hop for hop in hops_to_others(state, message, []) if hop.receiver in forwards_to]
    return match_result


def _match_subscription(turn: Turn, message: Message, subscription: Subscription) -> MatchResult:
    state = turn.state
    advertisements = overlapping_advertisements(state, subscription)
    if message.arrival.is_ingress:
        inherit(message, [ruling for entry in advertisements for ruling in entry.inherited(_SUBSCRIPTION)])
    match_result = MatchResult(
        (
            *message.rulings(_FORWARD),
            *(ruling for entry in advertisements for ruling in entry.rulings(_FORWARD, _SUBSCRIPTION)),
        ),
        (
            *_insert_rulings(message),
            *(ruling for entry in advertisements for ruling in entry.rulings(_INSERT, _SUBSCRIPTION)),
        ),
    )
    match_result.hops = [hop_to(state, message, name) for name in _target_links(turn, message, subscription)]
    return match_result


def overlapping_advertisements(state: BrokerState, subscription: Subscription) -> list[FilterEntry[Advertisement]]:
    """Return the advertisements with rules on subscriptions whose filters overlap the subscription's."""
    return [
        entry
        for entry in state.rules.advertisements_with_rules(_SUBSCRIPTION)
        if overlaps(entry.value.content, subscription.content)
    ]


def may_observe(state: BrokerState, entry: FilterEntry[Subscription]) -> bool:
    """Whether a subscription may get meta-events."""
    observers = state.settings.observers
    return observers is None or entry.owner in observers or entry.governs or not entry.is_client


def _insert_rulings(message: Message) -> tuple[Ruling, ...]:
    """Return the Insert rules of the message's own policy; rules before matching come first."""
    return (*message.rulings(_INSERT, Matching.BEFORE), *message.rulings(_INSERT))


def hops_after_exclusion(
    turn: Turn, message: Message, hops: list[OutboundCopy], excluded: Collection[str]
) -> list[OutboundCopy]:
    """Return the hops that a subscription still needs when the events of some publishers are excluded from it.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The subscription.
        hops: Its hops before the exclusion.
        excluded: The publishers whose events it must not get.
    """
    if not isinstance(message.operation, Subscribe):
        return hops
    subscription = message.operation.subscription
    narrowed = msgspec.structs.replace(subscription, content=without_publishers(subscription.content, excluded))
    left = _target_links(turn, message, narrowed)
    return [hop for hop in hops if hop.receiver in left]


def _target_links(turn: Turn, message: Message, subscription: Subscription) -> Mapping[str, bool]:
    """Return the neighbours that should get a subscription which is not in the table yet."""
    state = turn.state
    provenance = message.operation.way if isinstance(message.operation, Subscribe) else None
    return target_links(state, prospective_entry(state, subscription, message.arrival.sender, provenance, turn.now))


def match_removal(state: BrokerState, message: Message) -> MatchResult:
    """Match the removal of a filter: it goes to the neighbours that have the filter, under the filter's rules."""
    entry: FilterEntry[Advertisement] | FilterEntry[Subscription]
    if message.type is MessageType.UNADVERTISEMENT:
        entry = state.filters.advertisements[message.id]
    else:
        entry = state.filters.subscriptions[message.id]
    match_result = MatchResult(
        (*message.rulings(_FORWARD), *entry.rulings(_FORWARD, message.type)),
        (*_insert_rulings(message), *entry.rulings(_INSERT, message.type)),
    )
    match_result.hops = [hop_to(state, message, name) for name in sorted(entry.sent_to)]
    return match_result


def rulings_on(
    state: BrokerState, message: PublicationMessage, wanted: list[FilterEntry[Subscription]]
) -> tuple[Ruling, ...]:
    """Return the rules that act on every copy of a publication.

    These are the rules of the message's own policy, of advertisements that match the event, and of the broker's own
    filters. Rules of an advertisement act on its owner's events, and on those of others only if the owner may govern.
    """
    event = message.event
    associated: list[Ruling] = []
    inherited_rulings: list[Ruling] = []
    for entry in _advertisements_acting_on(state, message):
        inherited = entry.for_publications if message.arrival.is_ingress else ()
        # Receiver-independent conditions cost less than matching, which is skipped if they are false.
        here = _applicable_rulings(state, entry, message)
        if (here or inherited) and matches(entry.value.content, event):
            associated += (ruling for ruling in here if _may_act(entry, ruling, message))
            inherited_rulings += (ruling for ruling in inherited if _may_act(entry, ruling, message))
    if inherited_rulings:
        inherit(message, inherited_rulings)
    if not state.rules.governing_subscriptions and message.attached is None:
        return tuple(associated)
    own = [subscription for subscription in wanted if subscription.is_own]
    if event.subscribers is not None:
        own = [subscription for subscription in governing_subscriptions_of(state, event) if subscription.is_own]
    return (
        *message.rulings(_FORWARD),
        *associated,
        *(ruling for subscription in own for ruling in _applicable_rulings(state, subscription, message)),
    )


def _applicable_rulings(
    state: BrokerState, entry: FilterEntry[Advertisement] | FilterEntry[Subscription], message: PublicationMessage
) -> list[Ruling]:
    """Return a filter's rules on publications, without those whose conditions are false for every copy of this one."""
    rulings = entry.on_publications
    return [ruling for ruling in rulings if _may_apply(state, ruling, message)] if rulings else []


def rulings_of_matching_filters(
    message: PublicationMessage, advertisements: list[FilterEntry[Advertisement]], own: list[FilterEntry[Subscription]]
) -> tuple[Ruling, ...]:
    """Return the rules for every copy where the matching filters are known; some may turn out not to apply.

    Args:
        message: The publication.
        advertisements: The advertisements that match the event and have rules.
        own: The broker's own matching subscriptions.
    """
    inherit(
        message,
        [ruling for entry in advertisements for ruling in entry.for_publications if _may_act(entry, ruling, message)],
    )
    return (
        *message.rulings(_FORWARD),
        *(ruling for entry in advertisements for ruling in entry.on_publications if _may_act(entry, ruling, message)),
        *(ruling for entry in own for ruling in entry.on_publications),
    )


def _need_no_evaluation(
    state: BrokerState, wanted: list[FilterEntry[Subscription]], message: PublicationMessage
) -> bool:
    """Whether every notification is the event itself or a fixed projection of it: no rule has to be evaluated."""
    for entry in wanted:
        if entry.is_plain or entry.projection is not None:
            continue
        if not entry.is_client or entry.is_own or entry.value.notify == "client":
            return False
        if _applicable_rulings(state, entry, message):
            return False
    return True


def _are_link_copies_unchanged(
    message: PublicationMessage, behind: Mapping[str, list[FilterEntry[Subscription]]] | None
) -> bool:
    """Whether no rule has changed, or can change, the copies for neighbours."""
    if behind is None:
        return True
    journey = message.operation.journey
    if journey.own or not journey.common.is_plain:
        return False
    return not any(entry.on_publications for subscriptions in behind.values() for entry in subscriptions)


def _block_every_copy(state: BrokerState, rulings: tuple[Ruling, ...], message: PublicationMessage) -> bool:
    """Whether these rules do nothing but block, and one of them blocks this publication for every receiver."""
    return all(rule.only_blocks for rule, _ in rulings) and any(
        not ruling[0].rule.points.isdisjoint(_HERE) and _may_apply(state, ruling, message) for ruling in rulings
    )


def _may_apply(state: BrokerState, ruling: Ruling, message: PublicationMessage) -> bool:
    """Whether a rule's conditions, as far as they do not depend on the receiver, can be true for this publication."""
    shared_facts = message.shared_facts
    if shared_facts is None:
        large = state.settings.large_message_bytes
        shared_facts = SharedFacts(
            message.event.attributes, state.rules.load, lambda: min(1.0, size_of(message) / large)
        )
        message.shared_facts = shared_facts
    shared_facts.source = ruling[1]
    return ruling[0].may_apply(shared_facts)


def _may_act(entry: FilterEntry[Advertisement], ruling: Ruling, message: PublicationMessage) -> bool:
    """Whether an advertisement's rule may act on the event: it is its owner's event, or the owner may govern."""
    return entry.owner == message.event.publisher or is_governed_by(message, ruling[1])


def _advertisements_acting_on(state: BrokerState, message: PublicationMessage) -> Sequence[FilterEntry[Advertisement]]:
    """Return the advertisements whose rules may act on the event.

    For a sealed event these include advertisements whose owners may govern it by a token.
    """
    publisher = message.event.publisher
    if message.tokens is None:
        return state.rules.advertisements_acting_on(publisher)
    advertisements = {subscription.id: subscription for subscription in state.rules.advertisements_acting_on(publisher)}
    for entry in state.rules.advertisements_with_rules(_PUBLICATION):
        if entry.id not in advertisements and is_governed_by(message, entry.source):
            advertisements[entry.id] = entry
    return [advertisements[name] for name in sorted(advertisements)]


def governing_subscriptions_of(state: BrokerState, event: Event) -> list[FilterEntry[Subscription]]:
    """Return the subscriptions that may govern and match the event, ignoring which subscribers it is addressed to."""
    event = msgspec.structs.replace(event, subscribers=None)
    entries = (
        entry
        for entry in state.rules.governing_subscriptions.values()
        if due(entry.value, event, state.contexts.of(entry))
    )
    return sorted(entries, key=lambda entry: entry.id)


def inherit(message: Message, inherited_rulings: list[Ruling]) -> None:
    """Attach the rules that a message inherits from advertisements, as their `@attach` and `@yield_attach` say.

    Equal rules are attached once. 'Existing' rules are those that the message brought along, with the same `On(...)`.
    Raises `Refusal` if the message would carry too many rules.
    """
    if not inherited_rulings:
        return
    own_rules = () if message.attached is None else message.attached.policy.rules
    kept, attached = list(own_rules), list[Rule]()
    for compiled, _ in inherited_rulings:
        rule = compiled.rule
        existing = [own_rule for own_rule in own_rules if own_rule.heading == rule.heading]
        if rule.attach is Attach.KEEP_EXISTING and existing:
            continue
        if rule.attach is Attach.IF_YIELD and any(not own_rule.yield_attach for own_rule in existing):
            continue
        kept = [own_rule for own_rule in kept if own_rule not in existing]
        here = msgspec.structs.replace(rule, attach=Attach.NEVER)  # once attached, it is not inherited again
        if here not in attached:
            attached.append(here)
    if len(kept) + len(attached) > MAX_POLICY_RULES:
        raise Refusal("govern", f"the message would inherit more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules")
    if attached:
        message.attached = compiled_rules((*kept, *attached))
