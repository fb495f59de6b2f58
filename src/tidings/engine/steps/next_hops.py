"""Next hops: how a publication is routed through an overlay, and to which neighbours it goes next.

1. The ingress broker gives a publication its route: the source, the topology digest, and whether it must be flooded.
2. Every broker handles an event once per round, and once more if it comes flooded later (`mark_seen`), so that loops
   and duplicates end.
3. While routing tables are incomplete a publication waits, or is flooded if it has waited too long (`must_wait`).
4. The next hops are the neighbours with matching subscriptions behind them; for an unpruned route all neighbours in the
   tree of the source; for a flooded one all neighbours (`find_next_hops`).
"""

from functools import partial

import msgspec

from tidings.engine.headers import ABROAD, Route
from tidings.engine.message import Message, OutboundCopy, PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.seen_events import SeenStatus
from tidings.engine.turn import Turn
from tidings.matching.reference import matches_context
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType
from tidings.routing.bloom import Bloom
from tidings.routing.context_table import announced_context_id
from tidings.routing.strategy import bound


def mark_seen(turn: Turn, message: PublicationMessage) -> bool:
    """Note that a publication has come; return False if it was handled before in this round.

    At its ingress broker the publication gets its route.
    """
    state = turn.state
    if message.arrival.is_ingress:
        route = message.routing.route = _route(turn, message)
    else:
        if state.strategy.by_source and message.routing.route.digest not in state.links.recent:
            _flood_from_here(message)  # its source routed it by a topology that is not known here
        route = message.routing.route
    is_skipped = skips_this_broker(state, message)
    here = not is_skipped and not route.clients
    seen_status = state.seen_events.note(message.event.id, turn.now, flood=route.flood, round=route.round, here=here)
    message.routing.skips_local_clients = is_skipped if route.clients else seen_status is SeenStatus.ONWARD
    return seen_status is not SeenStatus.AGAIN


def skips_this_broker(state: BrokerState, message: PublicationMessage) -> bool:
    """Whether the local clients do not get the publication in this round of redelivery.

    They have it already, unless they have come since.
    """
    route = message.routing.route
    if message.arrival.is_ingress and route.round and not message.arrival.from_broker:
        return state.name not in route.deliver_at
    return not route.is_delivered_at(state.name)


def must_wait(turn: Turn, message: PublicationMessage) -> bool:
    """Whether a publication waits until routing tables are complete, or is dropped here to be sent again by its source.

    Publications of clients wait where they enter, so that they reach subscribers that are connected again and do not
    overtake events in flight. Meta-events, and publications that have waited too long, are flooded instead.

    Where the driver redelivers from a journal, a client's publication does not wait but is not forwarded yet. A
    publication of another broker waits if it was sent in the topology that this broker knows; in any other topology it
    is dropped, because its source sends it again in this one, and so later events cannot overtake it.
    """
    overlay = turn.convergence
    if not turn.settlement.is_tracked(message):
        return (
            message.arrival.is_ingress
            and not message.operation.journey.meta
            and not overlay.is_ready
            and overlay.wait(message, turn.now)
        )
    if not message.arrival.from_broker:
        message.routing.skips_neighbours = not overlay.is_ready
        overlay.has_unforwarded |= message.routing.skips_neighbours
        return False
    if not message.arrival.is_ingress and message.routing.route.digest != turn.state.links.digest:
        return True
    return overlay.queue(message)


def _route(turn: Turn, message: PublicationMessage) -> Route:
    """Return the route for a publication that enters here; a redelivery keeps its round and its recipients."""
    new_route, former_route = _new_route(turn, message), message.routing.route
    if not turn.settlement.is_tracked(message):
        return new_route
    deliver_at, skip_at, clients = former_route.deliver_at, turn.settlement.lagging, former_route.clients
    if message.arrival.from_broker:
        deliver_at, skip_at, clients = (), (), ()
    elif former_route.round:
        skip_at = ()
    return msgspec.structs.replace(
        new_route,
        digest=turn.state.links.digest,
        round=former_route.round,
        deliver_at=deliver_at,
        skip_at=skip_at,
        clients=clients,
        unpruned=new_route.unpruned or _may_lack_subscriptions(turn, message),
    )


def _may_lack_subscriptions(turn: Turn, message: PublicationMessage) -> bool:
    """Whether advertisements may not yet have attracted all subscriptions that the event is for.

    Its publisher has just connected again, perhaps from another broker; or the event is redelivered, and its publisher
    may have withdrawn its advertisements or be elsewhere.
    """
    if turn.state.strategy.name != "advertisement" or message.arrival.from_broker:
        return False
    return bool(message.routing.route.round) or turn.convergence.has_reconnected_recently(
        message.event.publisher, turn.now
    )


def _new_route(turn: Turn, message: PublicationMessage) -> Route:
    """Return the route of a publication that enters here for the first time."""
    state = turn.state
    event, overlay = message.event, turn.convergence
    if not overlay.is_complete:
        return Route(state.name, flood=not turn.settlement.is_tracked(message))
    if not state.strategy.by_source:
        return Route(state.name)
    if not state.strategy.announces:
        return Route(state.name, state.links.digest)
    audience = None
    if event.subscribers is not None:
        audience = state.contexts.announced.selected_contexts_bloom(bound(event.subscribers, event.context))
    context = announced_context_id(None if state.links.is_external(message.arrival.sender) else event.context)
    known = overlay.announcer.is_known(context)
    return Route(state.name, state.links.digest, unpruned=not known, context=context, audience=audience)


def _flood_from_here(message: PublicationMessage) -> None:
    """Flood a publication from here on, also back to where it came from, which may be the only way around."""
    message.routing.route = msgspec.structs.replace(message.routing.route, flood=True)
    message.routing.is_flooded_back = True


def find_next_hops(turn: Turn, message: PublicationMessage) -> dict[str, list[FilterEntry[Subscription]]]:
    """Return the neighbours that a publication goes to, each with the matching subscriptions behind the link.

    If no rule acts on the publication, only the first of the subscriptions is listed.
    """
    state = turn.state
    if message.routing.skips_neighbours:
        return {}
    behind = _neighbours_with_matches(turn, message)
    route = message.routing.route
    if route.flood:
        flooded_neighbours = [name for name in state.links.neighbours if not state.links.is_external(name)]
    elif route.unpruned:
        flooded_neighbours = [name for name in _tree_neighbours(state, route) if name in state.links.neighbours]
    else:
        flooded_neighbours = []
    next_hops = {
        **{
            name: [] for name in flooded_neighbours if name != message.arrival.sender or message.routing.is_flooded_back
        },
        **behind,
    }
    if not route.deliver_at or ABROAD in route.deliver_at:
        return next_hops
    allowed_hops = _hops_toward_recipients(state, route)
    return {name: those for name, those in next_hops.items() if name in allowed_hops}


def _tree_neighbours(state: BrokerState, route: Route) -> tuple[str, ...]:
    """Return the next neighbours on an event's tree: children in its source's tree, or all in the shared tree."""
    topology = state.links.recent[route.digest]
    if state.strategy.by_source:
        return topology.tree(route.source).children(state.name)
    return topology.shared.neighbours(state.name)


def _hops_toward_recipients(state: BrokerState, route: Route) -> set[str | None]:
    """Return the next hops toward the brokers that a redelivery is for."""
    topology = state.links.recent[route.digest]
    destinations = [name for name in route.deliver_at if name in topology.brokers and name != state.name]
    if state.strategy.by_source:
        return {topology.tree(route.source).below(state.name, name) for name in destinations}
    tree = topology.shared
    return {tree.below(state.name, name) or tree.parent(state.name) for name in destinations}


def _neighbours_with_matches(turn: Turn, message: PublicationMessage) -> dict[str, list[FilterEntry[Subscription]]]:
    """Return the neighbours with matching subscriptions behind them, by name.

    If the link toward such a subscription is gone, the publication is flooded instead.
    """
    state = turn.state
    if not _may_concern_others(state, message.routing.route):
        return {}
    behind: dict[str, list[FilterEntry[Subscription]]] = {}
    needs_all = bool(state.rules.on_publications) or message.attached is not None
    matching_ids = state.filters.remote_subscriptions.match_event(message.event)
    links: dict[str, str | None] = {}
    for entry in state.filters.subscriptions.get_many(sorted(matching_ids) if needs_all else matching_ids):
        key = entry.hop if entry.is_local else entry.origin
        if key in links and state.strategy.by_source:
            neighbour = links[key]
        else:
            neighbour = links[key] = link_toward(state, entry, message)
        if neighbour is None or neighbour == message.arrival.sender or (not needs_all and neighbour in behind):
            continue
        if not _is_wanted(turn, entry, message):
            continue
        if neighbour in state.links.neighbours:
            behind.setdefault(neighbour, []).append(entry)
        elif not message.routing.route.flood and not turn.settlement.is_tracked(message):
            # The link is gone, and other brokers do not know the new way yet.
            _flood_from_here(message)
            state.seen_events.mark_flooded(message.event.id)
    return dict(sorted(behind.items())) if len(behind) > 1 else behind


def _may_concern_others(state: BrokerState, route: Route) -> bool:
    """Whether the event's tree goes on from this broker, and its publisher's context attracts subscriptions."""
    if any(map(state.links.is_external, state.links.neighbours)):
        return True
    topology = state.links.recent.get(route.digest) if state.strategy.by_source else None
    if topology is not None and not route.flood and not topology.tree(route.source).children(state.name):
        return False
    if not _goes_by_context(state, route):
        return True
    return any(reach.passing for reach in state.contexts.announced.attracted_by((route.source, route.context)))


def _goes_by_context(state: BrokerState, route: Route) -> bool:
    """Whether announced contexts decide where an event goes; not for an event sent in another topology."""
    return state.strategy.announces and not (route.unpruned or route.flood) and route.digest == state.links.digest


def _is_wanted(turn: Turn, entry: FilterEntry[Subscription], message: PublicationMessage) -> bool:
    """Whether the event may be for a subscriber behind a link, by token, audience and publisher's context."""
    state = turn.state
    event = message.event
    if event.signature is not None and turn.gate is not None and not sealed_events.is_for(turn, entry, event):
        return False
    if entry.scoped and event.subscribers is not None:
        return matches_context(
            event.subscribers, state.filters.remote_subscriptions.context(entry.owner), event.context
        )
    return not state.strategy.announces or _may_be_for(turn, entry, message.routing.route)


def link_toward(state: BrokerState, entry: FilterEntry[Subscription], message: PublicationMessage) -> str | None:
    """Return the next hop toward a subscription; None if the event's way to it does not pass this broker."""
    if entry.is_local or not state.strategy.by_source:
        return entry.hop
    topology = state.links.recent.get(message.routing.route.digest)
    return (
        None
        if topology is None
        else state.strategy.next_hop(state.overlay, entry, topology, message.routing.route.source)
    )


def _may_be_for(turn: Turn, entry: FilterEntry[Subscription], route: Route) -> bool:
    """Whether the publisher's context attracted the subscription and the audience may include its subscriber."""
    if not entry.is_local and _goes_by_context(turn.state, route):
        reach = entry.selection
        if reach is None or (route.source, route.context) not in reach.pairs:
            return False
    return _audience_may_include(turn, entry, route.audience)


def _audience_may_include(turn: Turn, entry: FilterEntry[Subscription], audience: Bloom | None) -> bool:
    """Whether the audience may include a subscriber, by its present context or one that it had until recently.

    The context of a subscriber in another sub-overlay may be unknown; then the answer is yes.
    """
    if audience is None or not entry.context or entry.context in audience:
        return True
    return any(until > turn.now and context in audience for context, until in entry.former_contexts)


def strip_unrequested_context(state: BrokerState, publication: Publish, neighbour: str) -> Publish:
    """Return a publication without the names of its publisher's context that no filter behind the link uses."""
    event, route = publication.event, publication.journey.route
    if not event.context or not state.strategy.prunes_context or route.flood or route.unpruned:
        return publication
    requested_names = set(state.filters.remote_subscriptions.context_names_behind(neighbour))
    if event.subscribers is not None:
        requested_names |= event.subscribers.own_names
    if requested_names.issuperset(event.context):
        return publication
    kept_context = {name: value for name, value in event.context.items() if name in requested_names}
    stripped_event = sealed_events.trim_for_neighbour(
        msgspec.structs.replace(event, context=type(event.context).trusted(kept_context))
    )
    withheld_names = (*route.withheld, *(name for name in event.context if name not in requested_names))
    route = msgspec.structs.replace(route, withheld=withheld_names)
    return Publish(stripped_event, msgspec.structs.replace(publication.journey, route=route))


def hop_to(state: BrokerState, message: Message, neighbour: str) -> OutboundCopy:
    """Return a new copy of `message` for `neighbour`."""
    hop = OutboundCopy(message, neighbour, is_egress=state.links.is_external(neighbour))
    remote_subscriptions = state.filters.remote_subscriptions
    hop.attributes_behind = (
        remote_subscriptions.attributes
        if state.strategy.by_source
        else partial(remote_subscriptions.attributes_behind, neighbour)
    )
    return hop


def hops_to_others(state: BrokerState, message: Message, hops: list[OutboundCopy]) -> list[OutboundCopy]:
    """Return new copies for the neighbours that are neither the previous hop nor among `hops`."""
    known = {message.arrival.sender, *(hop.receiver for hop in hops)}
    links = state.links
    among = links.neighbours if message.type is MessageType.PUBLICATION else links.tree_neighbours()
    return [hop_to(state, message, name) for name in among if name not in known]
