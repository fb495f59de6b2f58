"""Govern: what the rules make of a message, copy by copy. Nothing is changed here; the answer is a value."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidings.engine import concern, passing
from tidings.engine.concern import Concern, rulings_on, wardens_of
from tidings.engine.deciding import Conflict, Decision, blocking, conflicts, decide, joined, shaped, taken_away
from tidings.engine.journey import PLAIN, Shape
from tidings.engine.message import Hop, Message, PublicationMessage
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.situation import NeedsAnswer, Situation
from tidings.policy.statement import Matching, MessageType, Operation

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_FORWARD = Operation.FORWARD


class Delivery:
    """A notification for a client: the subscriptions that it answers (one, or with notify="client" several).

    `decisions` led to its shape.
    """

    __slots__ = ("decisions", "shape", "wanted")

    def __init__(self, wanted: list[Filed[Subscription]], shape: Shape, decisions: list[Decision]) -> None:
        self.wanted, self.shape, self.decisions = wanted, shape, decisions


class LinkCopy:
    """A copy for a neighbour: what all behind the link get, and what single subscriptions do."""

    __slots__ = ("common", "dropped", "hop", "own")

    def __init__(self, hop: Hop, common: Shape, own: dict[str, Shape], dropped: frozenset[str]) -> None:
        self.hop, self.common, self.own = hop, common, own
        self.dropped = dropped  # attributes that nobody behind the link gets or needs


class Governed:
    """What was decided about a message. `stopped` says, for explanations, which rule blocked which copy."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.copies: list[LinkCopy] = []
        self.filters: list[tuple[Hop, frozenset[str] | None, frozenset[str]]] = []  # kept names, removed names
        self.publishes: list[Attributes] = []
        self.logs: list[str] = []
        self.persists: list[str] = []
        self.conflicts: list[tuple[str, Conflict]] = []  # with the link
        self.failures: list[Decision] = []
        self._failed: set[tuple[int, tuple[str, str, bool]]] = set()  # rules, each with whose it is
        self.waiting: list[tuple[Hop, NeedsAnswer | None]] = []  # None: behind others that wait
        self.stopped: list[tuple[str, Decision]] = []
        self.uninserted: Decision | None = None
        self.excluded: dict[str, Decision] = {}  # publishers whose events a subscription does not get, and why
        self.refused: Decision | None = None
        self.forwards_to: list[str] = []
        self.floods = False

    @property
    def is_final(self) -> bool:
        """Whether rules before matching have decided; if they only told something, that goes on."""
        return self.refused is not None or bool(self.forwards_to)

    def take(self, situation: Situation, decisions: Iterable[Decision]) -> None:
        """What is told, and what failed: once for the message, whichever copy it was."""
        for decision in decisions:
            outcome = decision.outcome
            self.publishes += outcome.publishes
            self.logs += outcome.logs
            self.persists += outcome.persists
            self.floods |= outcome.floods
            situation.facts.once.update(outcome.once)
            if outcome.failure is not None:
                key = id(decision.rule), decision.source.key
                if key not in self._failed:
                    self._failed.add(key)
                    self.failures.append(decision)


def before(engine: "Engine", message: Message) -> Governed | None:
    """Rules before matching may refuse a message, or send it on without matching; None if there are none.

    Raises `NeedsAnswer` if a rule has to wait: nothing has happened yet.
    """
    rulings = (*message.rulings(_FORWARD, Matching.BEFORE), *engine.early_rulings(message.type))
    if not rulings:
        return None
    governed = Governed()
    situation = message.situation
    decisions = decide(rulings, situation, message.arrival)
    governed.take(situation, decisions)
    governed.refused = blocking(one for one in decisions if not (_is_removal(message) and one.outcome.failure))
    governed.forwards_to = [name for one in decisions for name in one.outcome.forwards_to]
    return governed


def forbidden(engine: "Engine", message: Message, neighbour: str, governed: Governed) -> bool:
    """Whether rules that govern stop what is to be sent on without matching: going fast is no way around them.

    Raises `NeedsAnswer` if a rule has to wait: nothing has happened yet.
    """
    if not isinstance(message, PublicationMessage) or not engine.rules:
        return False
    hop = engine.hop(message, neighbour)
    wardens = wardens_of(engine, message.event)
    hop.wardens = [one for one in wardens if not one.is_client and passing.link(engine, one, message) == neighbour]
    rulings = [one for one in rulings_on(engine, message, wardens) if message.is_governed_by(one[1])]
    situation = message.situation.toward(neighbour)
    stopped = blocking(decide(rulings, situation, hop.points)) or _wardens_veto(message, hop, situation)
    if stopped is not None:
        governed.stopped.append((neighbour, stopped))
    return stopped is not None


def publication(engine: "Engine", message: PublicationMessage, concerned: Concern, governed: Governed) -> Governed:
    """Raises `NeedsAnswer` if a copy has to wait, and rules may ask something of its sender: nothing has happened yet.

    Copies wait for their receivers alone. Who sends may be gone when it is asked; so it is asked before anything is
    accepted.
    """
    _every_hop(engine, message, concerned, governed)
    for hop, _ in governed.waiting:
        _ask_sender(message, concerned.rulings, hop)
    return governed


def _ask_sender(message: PublicationMessage, rulings: tuple[Ruling, ...], hop: Hop) -> None:
    situation = message.situation.toward(hop.receiver)
    own = (ruling for one in (*hop.wanted, *hop.wardens) for ruling in one.on_publications)
    for rule, source in (*rulings, *own):
        if not rule.rule.points.isdisjoint(hop.points):
            situation.source = source
            rule.ask_sender(situation)


def filter(  # noqa: A001 - the step's word
    engine: "Engine", message: Message, concerned: Concern, governed: Governed
) -> Governed:
    """Insert rules first, which look at the previous hop; then Forward rules, once per neighbour.

    Raises `NeedsAnswer` if an Insert rule has to wait: nothing has happened yet.
    """
    _insertion(message, concerned.insertion, governed)
    if governed.uninserted is not None and governed.uninserted.outcome.failure is not None:
        return governed  # what cannot be decided goes nowhere
    if governed.excluded:
        concerned.hops = concern.still_wanted(engine, message, concerned.hops, governed.excluded)
    _every_hop(engine, message, concerned, governed)
    if governed.uninserted is not None and message.type is MessageType.SUBSCRIPTION and not message.from_broker:
        governed.filters = []  # a client's subscription that is not here cannot be served, nor taken back
    return governed


def _every_hop(engine: "Engine", message: Message, concerned: Concern, governed: Governed) -> None:
    message.hops = list(concerned.hops)
    if not message.hops and concerned.rulings:
        message.hops = [Hop(message, None)]
    for hop in message.hops:
        one_hop(engine, message, concerned.rulings, hop, governed)
    if governed.floods:
        flood(engine, message, concerned.rulings, governed)


def flood(engine: "Engine", message: Message, rulings: tuple[Ruling, ...], governed: Governed) -> None:
    """Copies for all neighbours that have none yet."""
    more = engine.others(message, message.hops)
    message.hops += more
    for hop in more:
        one_hop(engine, message, rulings, hop, governed)


def one_hop(engine: "Engine", message: Message, rulings: tuple[Ruling, ...], hop: Hop, governed: Governed) -> None:
    """One copy; it waits where copies before it do."""
    if hop.receiver is not None and engine.held.holds(hop.receiver):
        governed.waiting.append((hop, None))
    elif isinstance(message, PublicationMessage):
        govern_publication(message, rulings, hop, governed)
    else:
        govern_filter(message, rulings, hop, governed)


def _insertion(message: Message, rulings: tuple[Ruling, ...], governed: Governed) -> None:
    if not rulings:
        return
    situation = message.situation
    decisions = decide(rulings, situation, message.arrival)
    governed.take(situation, decisions)
    if not _is_removal(message):  # an exception lets a removal proceed
        kept_out = [one for one in decisions if one.outcome.uninserts or one.outcome.failure]
        if message.type is MessageType.SUBSCRIPTION:
            governed.excluded = {one.source.owner: one for one in kept_out if _decides_for_itself(one)}
            kept_out = [one for one in kept_out if not _decides_for_itself(one)]
        governed.uninserted = next((one for one in kept_out if one.outcome.failure), next(iter(kept_out), None))


def _decides_for_itself(decision: Decision) -> bool:
    """An advertisement may keep subscribers from its owner's events; from those of others only with `govern`."""
    return decision.source.kind == "advertisement" and not decision.source.governs


def govern_filter(message: Message, rulings: tuple[Ruling, ...], hop: Hop, governed: Governed) -> None:
    """A subscription, an advertisement or the removal of one, on its way to a neighbour."""
    situation = message.situation.toward(hop.receiver)
    try:
        decisions = decide(rulings, situation, hop.points)
    except NeedsAnswer as question:
        governed.waiting.append((hop, question))
        return
    governed.take(situation, decisions)
    link = hop.receiver or ""
    governed.conflicts += [(link, one) for one in conflicts(decisions, [])]
    # Whose events the subscription is not for, has no say in where it goes.
    concerned = [one for one in decisions if one.source.owner not in governed.excluded or not _decides_for_itself(one)]
    stopped = blocking(concerned)
    if stopped is not None and (stopped.outcome.failure is None or not _is_removal(message)):
        governed.stopped.append((link, stopped))
        return
    if hop.receiver is not None:
        kept = [one.outcome.keeps for one in concerned if one.outcome.keeps is not None]
        removed = frozenset[str]().union(*(one.outcome.removes for one in concerned))
        governed.filters.append((hop, frozenset.intersection(*kept) if kept else None, removed))


def govern_publication(message: PublicationMessage, rulings: tuple[Ruling, ...], hop: Hop, governed: Governed) -> None:
    """A publication on its way to a client, to a neighbour, or nowhere."""
    situation = message.situation.toward(hop.receiver)
    try:
        common = decide(rulings, situation, hop.points)
        link = hop.receiver or ""
        veto = blocking(common)
        hidden = taken_away(message.event.attributes, common) if common else frozenset()
        others = situation if not hidden else _without(situation, message, hidden)
        own = {} if veto else {one.id: _own(one, others, hop) for one in hop.wanted}
        veto = veto or _wardens_veto(message, hop, others)
    except NeedsAnswer as question:
        governed.waiting.append((hop, question))
        return
    governed.take(situation, common)
    for decisions in own.values():
        governed.take(situation, decisions)
    governed.conflicts += [(link, one) for one in conflicts(common, [])]
    for decisions in own.values():
        if decisions:
            governed.conflicts += [(link, one) for one in conflicts(common, decisions)]
    if veto is None:
        veto = _link_veto(message, hop, own, governed)
    if veto is not None:
        governed.stopped.append((link, veto))
    elif hop.is_client:
        _deliver(message, hop, common, own, situation, governed)
    elif hop.receiver is not None:
        _send(message, hop, common, own, situation, governed)


def _own(filed: Filed[Subscription], situation: Situation, hop: Hop) -> list[Decision]:
    rulings = filed.on_publications
    # A filter of the broker's own acts on every copy; its rules are among those for all.
    return decide(rulings, situation, hop.points) if rulings and not filed.is_own else []


def _without(situation: Situation, message: PublicationMessage, hidden: frozenset[str]) -> Situation:
    """For the rules of subscriptions: what they tell of the message leaves out what rules for all take away."""
    other = situation.toward(situation.receiver)
    other.values = situation.values
    other.hidden = lambda: message.text(hidden)
    return other


def _wardens_veto(message: PublicationMessage, hop: Hop, situation: Situation) -> Decision | None:
    """Those that govern stop what concerns them, whoever the publisher says that it is for."""
    if hop.is_client:
        return None
    for filed in hop.wardens:
        stopped = blocking(one for one in _own(filed, situation, hop) if message.is_governed_by(one.source))
        if stopped is not None:
            return stopped
    return None


def _link_veto(
    message: PublicationMessage, hop: Hop, own: dict[str, list[Decision]], governed: Governed
) -> Decision | None:
    """BlockMessage of a subscription stops its own copy, and the whole link only with the right to govern."""
    if hop.is_client:
        return None  # a client decides about its own copies only
    for filed in hop.wanted:
        stopped = blocking(own[filed.id])
        if stopped is None:
            continue
        governing = blocking(one for one in own[filed.id] if message.is_governed_by(one.source))
        if governing is not None:
            return governing
        if len(hop.wanted) > 1:
            reason = "one blocks what others behind the link want, without the right to govern: its own copy is blocked"
            others = next(one for one in hop.wanted if one is not filed)
            governed.conflicts.append((hop.receiver or "", Conflict(str(stopped), str(others.source), reason)))
    return None


def _deliver(
    message: PublicationMessage,
    hop: Hop,
    common: list[Decision],
    own: dict[str, list[Decision]],
    situation: Situation,
    governed: Governed,
) -> None:
    groups: list[list[Filed[Subscription]]] = []
    together: list[Filed[Subscription]] = []
    for filed in hop.wanted:
        stopped = blocking(own[filed.id])
        if stopped is not None:
            governed.stopped.append((filed.id, stopped))
        elif message.journey.own.get(filed.id, PLAIN).blocked:
            continue
        elif filed.value.notify == "client":
            together.append(filed)
        else:
            groups.append([filed])
    if together:
        groups.append(together)
    for group in groups:
        before = message.journey.common
        for filed in group:
            before = joined(before, message.journey.own.get(filed.id, PLAIN))
        decisions = [*common, *(one for filed in group for one in own[filed.id])]
        names = frozenset[str]().union(*(filed.names for filed in group))
        shape, failures = _shaped(message, before, decisions, situation, names, governed)
        if blocking(failures) is None:
            governed.deliveries.append(Delivery(group, shape, decisions))
        else:
            governed.stopped += [(filed.id, one) for filed in group for one in failures if one.outcome.blocks]


def _send(
    message: PublicationMessage,
    hop: Hop,
    common: list[Decision],
    own: dict[str, list[Decision]],
    situation: Situation,
    governed: Governed,
) -> None:
    shape, failures = _shaped(message, message.journey.common, common, situation, frozenset(), governed)
    stopped = blocking(failures)
    if stopped is not None:
        governed.stopped.append((hop.receiver or "", stopped))
        return
    shapes: dict[str, Shape] = {}
    for filed in hop.wanted:
        before = message.journey.own.get(filed.id, PLAIN)
        if before.blocked or blocking(own[filed.id]) is not None:
            shapes[filed.id] = Shape(blocked=True)
            continue
        names = filed.names
        if filed.value.notify == "client":  # one notification in the end: trimming keeps what any of them names
            group = (one for one in hop.wanted if one.owner == filed.owner and one.value.notify == "client")
            names = names.union(*(one.names for one in group))
        decided, failures = _shaped(message, before, own[filed.id], situation, names, governed)
        shapes[filed.id] = Shape(blocked=True) if blocking(failures) is not None else decided
    served = [one for one in hop.wanted if not shapes[one.id].blocked]
    if hop.wanted and not served:
        return
    _tell_needs(message, hop, common, served, governed)
    unwanted = frozenset.intersection(*(shapes[one.id].removed for one in served)) if served else frozenset[str]()
    needed = frozenset[str]()
    if unwanted:  # also by those that it does not concern, which might ask that an attribute be missing
        needed = needed.union(hop.named(), *(one.names for one in (*served, *hop.wardens)))
    kept = {name: one for name, one in shapes.items() if one != PLAIN}
    governed.copies.append(LinkCopy(hop, shape, kept, unwanted - needed))


def _tell_needs(
    message: PublicationMessage,
    hop: Hop,
    common: list[Decision],
    served: list[Filed[Subscription]],
    governed: Governed,
) -> None:
    """What an advertisement or the message itself takes away is gone behind the link, even if a filter there asks."""
    for decision in common:
        gone = taken_away(message.event.attributes, [decision])
        for filed in served if gone else ():
            lacking = sorted(gone & filed.names)
            if lacking:
                reason = f"one removes {', '.join(lacking)}, which the other needs to match: it is removed"
                governed.conflicts.append((hop.receiver or "", Conflict(str(decision), str(filed.source), reason)))


def _shaped(
    message: PublicationMessage,
    before: Shape,
    decisions: list[Decision],
    situation: Situation,
    names: frozenset[str],
    governed: Governed,
) -> tuple[Shape, list[Decision]]:
    if not any(one.outcome.changes or one.outcome.trims for one in decisions):
        return before, []
    if message.event.signature is not None:
        _tell_unconverted(decisions, situation, governed)
    shape, failures = shaped(message.event, before, decisions, situation, names)
    governed.take(situation, failures)
    return shape, failures


def _tell_unconverted(decisions: list[Decision], situation: Situation, governed: Governed) -> None:
    """What is sealed is converted by who opens it: the payload here is what nobody on the way can read."""
    reason = "a sealed payload can be converted only by who opens it: it stays as it is"
    for one in decisions:
        if one.outcome.conversions:
            governed.conflicts.append((situation.receiver or "", Conflict(str(one), "the event's seal", reason)))


def _is_removal(message: Message) -> bool:
    return message.type in (MessageType.UNSUBSCRIPTION, MessageType.UNADVERTISEMENT)
