"""Passing: how a publication finds its way through an overlay, and which neighbours it goes to next."""

from typing import TYPE_CHECKING

import msgspec

from tidings.engine import sealed
from tidings.engine.journey import ABROAD, Route
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.passages import Passage
from tidings.engine.tables import Filed
from tidings.matching.reference import matches_context
from tidings.model.subscription import Subscription
from tidings.routing.announced import situation_id
from tidings.routing.binding import bound
from tidings.routing.bloom import Bloom

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def pass_by(engine: "Engine", message: PublicationMessage) -> bool:
    """Sets its route where it enters; whether there is anything to do: no event is handled twice."""
    if message.enters:
        route = message.route = _route(engine, message)
    else:
        if engine.strategy.by_source and message.route.digest not in engine.overlay.recent:
            _turn(message)  # it came by trees that are not known here
        route = message.route
    elsewhere = is_for_others(engine, message)
    here = not elsewhere and not route.whose
    passage = engine.passages.note(message.event.id, engine.now, flood=route.flood, round=route.round, here=here)
    message.stays_out = elsewhere if route.whose else passage is Passage.ONWARD
    return passage is not Passage.AGAIN


def is_for_others(engine: "Engine", message: PublicationMessage) -> bool:
    """Whether this round of it is not for the clients of this broker; those of the broker that sends it again have it,
    unless they have come since."""
    route = message.route
    if message.enters and route.round and not message.from_broker:
        return engine.name not in route.only
    return not route.is_delivered_at(engine.name)


def waits(engine: "Engine", message: PublicationMessage) -> bool:
    """Until tables are those of the network, what clients publish waits where it enters: so that it reaches those who
    are there again, and does not overtake what is still on former ways. What tells of the overlay itself, and what has
    waited too long, goes everywhere instead.

    Where it is sent again from a journal it does not wait where it enters, but just stays there. What comes from other
    brokers, in the network that this one knows, waits until tables are complete here too. In any other network it
    comes to nothing: its source sends it again in this one, and so what is behind it cannot overtake it.
    """
    overlay = engine.overlay
    if not engine.settling.counts(message):
        return message.enters and not message.journey.meta and not overlay.is_ready and overlay.wait(message)
    if not message.from_broker:
        message.stays_in = not overlay.is_ready
        overlay.has_missed |= message.stays_in
        return False
    if not message.enters and message.route.digest != overlay.digest:
        return True
    return overlay.queue(message)


def _route(engine: "Engine", message: PublicationMessage) -> Route:
    """Where it is sent again, for whom is known; where it comes from another sub-overlay, it is for all in this one."""
    made, given = _new_route(engine, message), message.route
    if not engine.settling.counts(message):
        return made
    only, without, whose = given.only, engine.overlay.lagging, given.whose
    if message.from_broker:
        only, without, whose = (), (), ()
    elif given.round:
        without = ()
    return msgspec.structs.replace(
        made,
        digest=engine.digest,
        round=given.round,
        only=only,
        without=without,
        whose=whose,
        unpruned=made.unpruned or _is_unattractive(engine, message),
    )


def _is_unattractive(engine: "Engine", message: PublicationMessage) -> bool:
    """Whether advertisements cannot be relied on to have attracted those that it is for: its publisher has just come
    again, maybe from another broker; or it is sent again, and may have taken them back since, or be elsewhere."""
    if engine.strategy.name != "advertisement" or message.from_broker:
        return False
    return bool(message.route.round) or engine.overlay.has_just_come(message.event.publisher)


def _new_route(engine: "Engine", message: PublicationMessage) -> Route:
    event, overlay = message.event, engine.overlay
    if not overlay.is_complete:
        return Route(engine.name, flood=not engine.settling.counts(message))
    if not engine.strategy.by_source:
        return Route(engine.name)
    if not engine.strategy.announces:
        return Route(engine.name, overlay.digest)
    audience = None
    if event.subscribers is not None:
        audience = engine.announced.audience(bound(event.subscribers, event.context))
    context = situation_id(None if engine.leaves(message.sender) else event.context)
    known = overlay.announcer.is_known(context)
    return Route(engine.name, overlay.digest, unpruned=not known, context=context, audience=audience)


def _turn(message: PublicationMessage) -> None:
    """It goes everywhere from here on, also back to where it came from: that may be the only way around."""
    message.route = msgspec.structs.replace(message.route, flood=True)
    message.has_turned = True


def onward(engine: "Engine", message: PublicationMessage) -> dict[str, list[Filed[Subscription]]]:
    """The neighbours that it goes to, each with the subscriptions behind it that it is for, as far as is known; where
    no rule is about it, the first of them is enough."""
    if message.stays_in:
        return {}
    behind = _behind(engine, message)
    route = message.route
    if route.flood:
        reached = [name for name in engine.neighbours if not engine.leaves(name)]
    elif route.unpruned:
        reached = [name for name in _beside(engine, route) if name in engine.neighbours]
    else:
        reached = []
    found = {**{name: [] for name in reached if name != message.sender or message.has_turned}, **behind}
    if not route.only or ABROAD in route.only:
        return found
    ways = _ways(engine, route)
    return {name: those for name, those in found.items() if name in ways}


def _beside(engine: "Engine", route: Route) -> tuple[str, ...]:
    """The neighbours in the tree that an event follows, from where it was published on."""
    topology = engine.overlay.recent[route.digest]
    if engine.strategy.by_source:
        return topology.tree(route.source).children(engine.name)
    return topology.shared.neighbours(engine.name)


def _ways(engine: "Engine", route: Route) -> set[str | None]:
    """The next hops on the ways to the brokers that it is for."""
    topology = engine.overlay.recent[route.digest]
    among = [name for name in route.only if name in topology.brokers and name != engine.name]
    if engine.strategy.by_source:
        return {topology.tree(route.source).below(engine.name, name) for name in among}
    tree = topology.shared
    return {tree.below(engine.name, name) or tree.parent(engine.name) for name in among}


def _behind(engine: "Engine", message: PublicationMessage) -> dict[str, list[Filed[Subscription]]]:
    if not _may_concern_others(engine, message.route):
        return {}
    behind: dict[str, list[Filed[Subscription]]] = {}
    all_count = bool(engine.rules) or message.attached is not None
    concerned = engine.transit.concerned(message.event)
    links: dict[str, str | None] = {}
    for filed in engine.subscriptions.those(sorted(concerned) if all_count else concerned):
        key = filed.hop if filed.is_local else filed.origin
        if key in links and engine.strategy.by_source:
            neighbour = links[key]
        else:
            neighbour = links[key] = link(engine, filed, message)
        if neighbour is None or neighbour == message.sender or (not all_count and neighbour in behind):
            continue
        if not _is_wanted(engine, filed, message):
            continue
        if neighbour in engine.neighbours:
            behind.setdefault(neighbour, []).append(filed)
        elif not message.route.flood and not engine.settling.counts(message):
            # The link is gone, and others have not been told the new way yet.
            _turn(message)
            engine.passages.flooded(message.event.id)
    return dict(sorted(behind.items())) if len(behind) > 1 else behind


def _may_concern_others(engine: "Engine", route: Route) -> bool:
    """Whether the way of an event goes on from here at all, and its publisher's context has attracted anything."""
    if any(map(engine.leaves, engine.neighbours)):
        return True
    topology = engine.overlay.recent.get(route.digest) if engine.strategy.by_source else None
    if topology is not None and not route.flood and not topology.tree(route.source).children(engine.name):
        return False
    if not _goes_by_context(engine, route):
        return True
    return any(reach.passing for reach in engine.announced.attracted_by((route.source, route.context)))


def _goes_by_context(engine: "Engine", route: Route) -> bool:
    """Whether what is announced says whom an event may concern: not of a network that was another one."""
    return engine.strategy.announces and not (route.unpruned or route.flood) and route.digest == engine.digest


def _is_wanted(engine: "Engine", filed: Filed[Subscription], message: PublicationMessage) -> bool:
    """Whether an event that a subscription matches may be for its subscriber, and come from whom it asks for."""
    event = message.event
    if event.signature is not None and engine.gate is not None and not sealed.is_for(engine, filed, event):
        return False
    if filed.scoped and event.subscribers is not None:
        return matches_context(event.subscribers, engine.transit.context(filed.owner), event.context)
    return not engine.strategy.announces or _may_be_for(engine, filed, message.route)


def link(engine: "Engine", filed: Filed[Subscription], message: PublicationMessage) -> str | None:
    """The next hop on the way to a subscription; None if the way from where it was published does not pass here."""
    if filed.is_local or not engine.strategy.by_source:
        return filed.hop
    topology = engine.overlay.recent.get(message.route.digest)
    return None if topology is None else engine.strategy.link(engine, filed, topology, message.route.source)


def _may_be_for(engine: "Engine", filed: Filed[Subscription], route: Route) -> bool:
    """Whether the publisher's context attracted the subscription, and the subscriber's may be one that it is for."""
    if not filed.is_local and _goes_by_context(engine, route):
        reach = filed.reach
        if reach is None or (route.source, route.context) not in reach.pairs:
            return False
    return _is_for(engine, filed, route.audience)


def _is_for(engine: "Engine", filed: Filed[Subscription], audience: Bloom | None) -> bool:
    """By the context that it has, or had until lately; of other sub-overlays it may be unknown."""
    if audience is None or not filed.context or filed.context in audience:
        return True
    return any(until > engine.now and one in audience for one, until in filed.past)


def without_unasked(engine: "Engine", passed: Publish, neighbour: str) -> Publish:
    """An event with what some filter behind a link asks of its publisher's context, and no more."""
    event, route = passed.event, passed.journey.route
    if not event.context or not engine.strategy.spares_context or route.flood or route.unpruned:
        return passed
    asked = set(engine.transit.asked_behind(neighbour))
    if event.subscribers is not None:
        asked |= event.subscribers.own_names
    if asked.issuperset(event.context):
        return passed
    kept = {name: value for name, value in event.context.items() if name in asked}
    cut = sealed.passed_on(msgspec.structs.replace(event, context=type(event.context).trusted(kept)))
    gone = (*route.withheld, *(name for name in event.context if name not in asked))
    route = msgspec.structs.replace(route, withheld=gone)
    return Publish(cut, msgspec.structs.replace(passed.journey, route=route))
