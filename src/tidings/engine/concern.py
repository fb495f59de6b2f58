"""Match: whom does a message concern? The filters that it meets, with their rules, and the next hops behind them."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tidings.engine import passing, sealed
from tidings.engine.addressed import addressed
from tidings.engine.attaching import inherit
from tidings.engine.message import Hop, Message, PublicationMessage
from tidings.engine.operations import Subscribe
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.matching.reference import due, matches
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.policy.situation import Glance
from tidings.policy.statement import Matching, MessageType, Operation, Point
from tidings.routing.advertisement import without_publishers
from tidings.routing.offers import META

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_FORWARD, _INSERT = Operation.FORWARD, Operation.INSERT
_HERE = frozenset({Point.INGRESS, Point.EGRESS})  # the points of a copy that comes from a client and goes to one
HISTORY = 60_000_000  # microseconds: what is sent again later than this is history
_PUBLICATION, _SUBSCRIPTION = MessageType.PUBLICATION, MessageType.SUBSCRIPTION


class Concern:
    """`rulings` act on every copy, `insertion` before the tables are changed. `plain` is set where nothing governs:
    then it is the subscriptions of clients that the event goes to, as it is, and `onward` are the neighbours."""

    __slots__ = ("hops", "insertion", "onward", "plain", "rulings")

    def __init__(self, rulings: tuple[Ruling, ...] = (), insertion: tuple[Ruling, ...] = ()) -> None:
        self.rulings, self.insertion = rulings, insertion
        self.hops: list[Hop] = []
        self.plain: list[Filed[Subscription]] | None = None
        self.onward: Mapping[str, list[Filed[Subscription]]] = {}


def of_publication(engine: "Engine", message: PublicationMessage) -> Concern:
    table = engine.subscriptions
    wanted: list[Filed[Subscription]] = []
    if not message.stays_out and len(table) > len(engine.transit):
        wanted = table.those(sorted(engine.matcher.concerned(message.event)))
    wanted = addressed(message, wanted)
    if message.journey.meta:
        wanted = [one for one in wanted if engine.may_observe(one)]
    if message.route.round:
        wanted = _of_history(engine, message, wanted)
    if not engine.neighbours:
        return of_those(engine, message, wanted)
    if message.route.withheld:
        wanted = [one for one in wanted if _can_judge(one, message.route.withheld)]
    wanted = _in_order(engine, message.event, wanted)
    return of_those(engine, message, wanted, passing.onward(engine, message))


def _can_judge(filed: Filed[Subscription], withheld: tuple[str, ...]) -> bool:
    """A filter that asks for what no advertisement of the event's publisher offers is not for its events."""
    return filed.value.publishers is None or filed.value.publishers.names.isdisjoint(withheld)


def _of_history(
    engine: "Engine", message: PublicationMessage, wanted: list[Filed[Subscription]]
) -> list[Filed[Subscription]]:
    """What is sent again after a long time, or to clients that have come since, is for durable subscriptions alone; and
    not for those that stood here when it came first: it has been found out already whether it is for them."""
    route, event = message.route, message.event
    if route.whose:
        judged = engine.passages.judged(event.id)
        due = [one for one in wanted if one.value.durable is not None and one.owner in route.whose]
        return [one for one in due if engine.came.get(one.id, 0) >= judged]
    if route.round - event.timestamp > HISTORY:
        return [one for one in wanted if one.value.durable is not None]
    return wanted


def _in_order(engine: "Engine", event: Event, wanted: list[Filed[Subscription]]) -> list[Filed[Subscription]]:
    """Without those of clients that have got a later event of the publisher before. Where nothing durable is to be
    lost, a durable subscription gets it late rather than never."""
    told = {one.owner for one in wanted}
    late = {one for one in told if not _is_in_order(engine, one, event)}
    if not late:
        return wanted
    spared = engine.settings.resends
    return [one for one in wanted if one.owner not in late or (spared and one.value.durable is not None)]


def _is_in_order(engine: "Engine", client: str, event: Event) -> bool:
    return engine.passages.in_order(client, event.publisher, event.sequence, event.timestamp, engine.now)


def of_those(
    engine: "Engine",
    message: PublicationMessage,
    local: list[Filed[Subscription]],
    behind: Mapping[str, list[Filed[Subscription]]] | None = None,
) -> Concern:
    """The same where it is known already which subscriptions of clients it is due to, in the order of their ids, and
    which neighbours it goes to."""
    event = message.event
    rulings: tuple[Ruling, ...] = ()
    if engine.rules or message.attached is not None:
        wanted = local
        if behind:
            wanted = sorted([*local, *(one for found in behind.values() for one in found)], key=lambda one: one.id)
        rulings = rulings_on(engine, message, wanted)
    is_sealed = event.signature is not None and engine.gate is not None
    if is_sealed:
        local = sealed.entitled(engine, message, local)
    concerned = Concern(rulings)
    if rulings and engine.is_lone and _stop_everything(engine, rulings, message):
        concerned.plain = []  # nobody gets it, and nothing is told: who would have got it need not be looked at
        return concerned
    if not rulings and not engine.held and _are_simple(engine, local, message) and _pass_as_they_are(message, behind):
        concerned.plain, concerned.onward = local, behind or {}
        return concerned
    hops: dict[str, Hop] = {}
    for one in local:
        hop = hops.get(one.hop)
        if hop is None:
            hop = hops[one.hop] = Hop(message, one.hop, is_client=True)
        hop.wanted.append(one)
    for name, found in () if behind is None else behind.items():
        hops[name] = hop = engine.hop(message, name)
        hop.wanted = found
    if (event.subscribers is not None or is_sealed) and engine.wardens:
        for one in wardens_of(engine, event):
            hop = hops.get(one.hop if one.is_client else passing.link(engine, one, message) or "")
            if hop is not None and one not in hop.wanted:
                hop.wardens.append(one)
    concerned.hops = list(hops.values())
    return concerned


def of_filter(engine: "Engine", message: Message, forwards_to: Collection[str] = ()) -> Concern:
    """An advertisement goes everywhere, a subscription to where advertisements that it overlaps came from; or both to
    where a rule before matching sends them. Wherever it goes, the rules that it meets are applied."""
    if isinstance(message.operation, Subscribe):
        concerned = _of_subscription(engine, message, message.operation.subscription)
    else:
        concerned = Concern(message.rulings(_FORWARD), _own_insertion(message))
        concerned.hops = [engine.hop(message, name) for name in engine.beside() if name != message.sender]
        if message.id.startswith(META):
            concerned.hops = []  # brokers say it in their own words
    if forwards_to:
        concerned.hops = [one for one in engine.others(message, []) if one.receiver in forwards_to]
    return concerned


def _of_subscription(engine: "Engine", message: Message, subscription: Subscription) -> Concern:
    met = engine.met_by(subscription)
    if message.enters:
        inherit(message, [ruling for one in met for ruling in one.inherited(_SUBSCRIPTION)])
    concerned = Concern(
        (*message.rulings(_FORWARD), *(ruling for one in met for ruling in one.rulings(_FORWARD, _SUBSCRIPTION))),
        (*_own_insertion(message), *(ruling for one in met for ruling in one.rulings(_INSERT, _SUBSCRIPTION))),
    )
    concerned.hops = [engine.hop(message, name) for name in _toward(engine, message, subscription)]
    return concerned


def _own_insertion(message: Message) -> tuple[Ruling, ...]:
    """An insertion comes after matching, so rules before it come at its beginning."""
    return (*message.rulings(_INSERT, Matching.BEFORE), *message.rulings(_INSERT))


def still_wanted(engine: "Engine", message: Message, hops: list[Hop], excluded: Collection[str]) -> list[Hop]:
    """The hops of a subscription that some publisher's events attract, without those of the excluded ones."""
    if not isinstance(message.operation, Subscribe):
        return hops
    given = message.operation.subscription
    narrowed = msgspec.structs.replace(given, content=without_publishers(given.content, excluded))
    left = _toward(engine, message, narrowed)
    return [one for one in hops if one.receiver in left]


def _toward(engine: "Engine", message: Message, subscription: Subscription) -> dict[str, bool]:
    """Where a subscription should go that is not in the table yet."""
    way = message.operation.way if isinstance(message.operation, Subscribe) else None
    return engine.toward(engine.prospective(subscription, message.sender, way))


def of_removal(engine: "Engine", message: Message) -> Concern:
    """A removal goes where the filter went, whatever else it is told, under the rules that are associated with it."""
    filed: Filed[Advertisement] | Filed[Subscription]
    if message.type is MessageType.UNADVERTISEMENT:
        filed = engine.advertisements[message.id]
    else:
        filed = engine.subscriptions[message.id]
    concerned = Concern(
        (*message.rulings(_FORWARD), *filed.rulings(_FORWARD, message.type)),
        (*_own_insertion(message), *filed.rulings(_INSERT, message.type)),
    )
    concerned.hops = [engine.hop(message, name) for name in sorted(filed.sent)]
    return concerned


def rulings_on(engine: "Engine", message: PublicationMessage, wanted: list[Filed[Subscription]]) -> tuple[Ruling, ...]:
    """The rules for every copy: the message's own, those of advertisements, and those of the broker's own filters.

    Those of an advertisement act on its owner's events; on those of others only with the right to govern.
    """
    event = message.event
    associated: list[Ruling] = []
    handed_down: list[Ruling] = []
    for one in _ruling_on(engine, message):
        inherited = one.for_publications if message.enters else ()
        # Conditions that are the same for everyone cost less than matching, and spare it where they are false.
        here = _applicable(engine, one, message)
        if (here or inherited) and matches(one.value.content, event):
            associated += (ruling for ruling in here if _may(one, ruling, message))
            handed_down += (ruling for ruling in inherited if _may(one, ruling, message))
    if handed_down:
        inherit(message, handed_down)
    if not engine.wardens and message.attached is None:
        return tuple(associated)
    own = [one for one in wanted if one.is_own]
    if event.subscribers is not None:
        own = [one for one in wardens_of(engine, event) if one.is_own]
    return (
        *message.rulings(_FORWARD),
        *associated,
        *(ruling for one in own for ruling in _applicable(engine, one, message)),
    )


def rulings_for_all(engine: "Engine", message: PublicationMessage) -> tuple[Ruling, ...]:
    """The same where nobody has looked yet which of the broker's own filters it meets."""
    event, context = message.event, engine.context(engine.name)
    own = [one for one in engine.subscriptions.of(engine.name) if due(one.value, event, context)]
    return rulings_on(engine, message, own)


def _applicable(
    engine: "Engine", filed: Filed[Advertisement] | Filed[Subscription], message: PublicationMessage
) -> list[Ruling]:
    """Its rules on publications, without those that apply to no copy of this one."""
    rulings = filed.on_publications
    return [one for one in rulings if _may_apply(engine, one, message)] if rulings else []


def rulings_met(
    message: PublicationMessage, met: list[Filed[Advertisement]], own: list[Filed[Subscription]]
) -> tuple[Ruling, ...]:
    """The same where it is known already which filters the event meets; also those that cannot apply to it."""
    inherit(message, [one for filed in met for one in filed.for_publications if _may(filed, one, message)])
    return (
        *message.rulings(_FORWARD),
        *(one for filed in met for one in filed.on_publications if _may(filed, one, message)),
        *(one for filed in own for one in filed.on_publications),
    )


def _are_simple(engine: "Engine", wanted: list[Filed[Subscription]], message: PublicationMessage) -> bool:
    """Whether all notifications are known without governing: as published, or always cut alike."""
    for filed in wanted:
        if filed.is_plain or filed.cut is not None:
            continue
        if not filed.is_client or filed.is_own or filed.value.notify == "client":
            return False
        if _applicable(engine, filed, message):
            return False
    return True


def _pass_as_they_are(message: PublicationMessage, behind: Mapping[str, list[Filed[Subscription]]] | None) -> bool:
    """Whether no rule has made, or makes, anything of the copies for neighbours."""
    if behind is None:
        return True
    journey = message.journey
    if journey.own or not journey.common.is_plain:
        return False
    return not any(one.on_publications for found in behind.values() for one in found)


def _stop_everything(engine: "Engine", rulings: tuple[Ruling, ...], message: PublicationMessage) -> bool:
    """Whether these rules do nothing but block, whoever the receiver is, and one of them does."""
    return all(rule.only_blocks for rule, _ in rulings) and any(
        not one[0].rule.points.isdisjoint(_HERE) and _may_apply(engine, one, message) for one in rulings
    )


def _may_apply(engine: "Engine", ruling: Ruling, message: PublicationMessage) -> bool:
    glance = message.glance
    if glance is None:
        large = engine.settings.large_message_bytes
        glance = Glance(message.event.attributes, engine.load, lambda: min(1.0, message.size() / large))
        message.glance = glance
    glance.source = ruling[1]
    return ruling[0].may_apply(glance)


def _may(filed: Filed[Advertisement], ruling: Ruling, message: PublicationMessage) -> bool:
    return filed.owner == message.event.publisher or message.is_governed_by(ruling[1])


def _ruling_on(engine: "Engine", message: PublicationMessage) -> Sequence[Filed[Advertisement]]:
    """The advertisements whose rules may act on the event; on a sealed one also those of who governs by a token."""
    publisher = message.event.publisher
    if message.by_token is None:
        return engine.advertisements_on(publisher)
    found = {one.id: one for one in engine.advertisements_on(publisher)}
    for one in engine.ruling_advertisements(_PUBLICATION):
        if one.id not in found and message.is_governed_by(one.source):
            found[one.id] = one
    return [found[name] for name in sorted(found)]


def wardens_of(engine: "Engine", event: Event) -> list[Filed[Subscription]]:
    """The subscriptions that govern and concern the event, whoever its publisher says that it is for."""
    event = msgspec.structs.replace(event, subscribers=None)
    found = (one for one in engine.wardens.values() if due(one.value, event, engine.context_of(one)))
    return sorted(found, key=lambda one: one.id)
