"""Ways to break routing: each of them leaves out one step with which it repairs itself, or one precaution."""

from collections.abc import Callable
from typing import Any

import pytest

from tidings.engine.effects import Effect, Send
from tidings.engine.operations import Announce, ClaimClients, Subscribe
from tidings.engine.overlay.context_announcements import ContextAnnouncer
from tidings.engine.overlay.convergence import Convergence
from tidings.engine.state import registration
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.seen_events import SeenEvents
from tidings.engine.steps import admit, contexts, next_hops, propagation
from tidings.engine.turn import Turn
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing import spcf
from tidings.routing.bloom import Bloom
from tidings.routing.strategy import OverlayView, RoutedSubscription

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(made: Mutation) -> Mutation:
    """It is known under its name, in words."""
    MUTATIONS[made.__name__.replace("_", " ")] = made
    return made


# A change of context (spcf)


@mutation
def attraction_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Events with a new context are pruned at once, while the subscriptions that it attracts are under way."""
    patch.setattr(ContextAnnouncer, "is_known", lambda announcer, context: True)


@mutation
def attraction_is_acknowledged_ahead_of_those_below(patch: pytest.MonkeyPatch) -> None:
    onward = ContextAnnouncer._forward_announcement

    def hasty(announcer: ContextAnnouncer, turn: Turn, told: Announce, origin: str) -> list[Effect]:
        effects = onward(announcer, turn, told, origin)
        if (origin, told.number) in announcer._waiting:
            effects += announcer._handle_acknowledged(turn, origin, told.number)
        return effects

    patch.setattr(ContextAnnouncer, "_forward_announcement", hasty)


@mutation
def a_context_does_not_count_after_it_has_changed(patch: pytest.MonkeyPatch) -> None:
    def without_grace(turn: Turn, filed: FilterEntry[Subscription], audience: Bloom | None) -> bool:
        return audience is None or filed.context in audience

    patch.setattr(next_hops, "_audience_may_include", without_grace)


@mutation
def connecting_does_not_count_as_setting_the_empty_context(patch: pytest.MonkeyPatch) -> None:
    held = ContextAnnouncer.set_client_contexts

    def of_those_set(
        announcer: ContextAnnouncer, turn: Turn, client: str, *contexts: Context
    ) -> tuple[list[Effect], list[Effect]]:
        return held(announcer, turn, client, *(one for one in contexts if one))

    patch.setattr(ContextAnnouncer, "set_client_contexts", of_those_set)


def unannounced_contexts_stay_unannounced(patch: pytest.MonkeyPatch) -> None:
    """No event is lost by that, so it is not among those that a checker can find."""
    patch.setattr(contexts, "announce_publisher_context", lambda engine, client, context: [])


@mutation
def subscriptions_do_not_follow_their_subscribers_context(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(propagation, "repropagate", lambda engine, filed: [])


@mutation
def the_subscribers_own_broker_is_among_the_destinations(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(overlay: OverlayView, subscription: RoutedSubscription) -> set[str]:
        selected = overlay.announced.selection(subscription.bound_publishers).brokers
        return {broker for broker in selected if broker != overlay.name and broker in overlay.topology.brokers}

    patch.setattr(spcf, "destinations", all_of_them)


# Filters with `this.`


@mutation
def this_is_bound_at_the_receiver(patch: pytest.MonkeyPatch) -> None:
    """Which does not know the subscriber's context."""
    bind = registration.bind

    def unbound(state: BrokerState, filed: FilterEntry[Subscription]) -> None:
        bind(state, filed)
        filed.bound_publishers = filed.value.publishers

    patch.setattr(registration, "bind", unbound)


@mutation
def a_subscribers_context_does_not_go_ahead_of_its_subscription(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(propagation, "_send_context_first", lambda engine, client, neighbour: [])


@mutation
def a_subscribers_context_is_not_sent_when_it_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contexts, "_send_to_holders", lambda *_, **__: [])


# Where subscriptions are


@mutation
def covering_is_not_undone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(propagation, "uncover", lambda engine, filed, neighbour: [])


@mutation
def subscriptions_are_not_withdrawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(propagation, "withdraw", lambda engine, filed, neighbour: [])


@mutation
def versions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admit, "admit_newer_version", lambda engine, known, way, sender: None)


@mutation
def brokers_keep_what_they_have_of_clients_that_moved(patch: pytest.MonkeyPatch) -> None:
    def deaf(overlay: Convergence, turn: Turn, told: ClaimClients, sender: str) -> list[Effect]:
        beside = turn.state.links.topology.shared.neighbours(overlay._name)
        return [Send(name, told) for name in beside if name != sender]

    patch.setattr(Convergence, "take_claims", deaf)


@mutation
def a_former_subscription_becomes_a_clients_when_its_link_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Then the broker takes the subscriber for its own client."""
    new_remote_entry = registration._new_remote_entry

    def by_links_of_now(state: BrokerState, given: Subscription, hop: str) -> FilterEntry[Any]:
        if hop in state.links.neighbours:
            return new_remote_entry(state, given, hop)
        return FilterEntry(given, hop, state.name, is_own=False, governs=False)

    patch.setattr(registration, "_new_remote_entry", by_links_of_now)


# A changed network


@mutation
def subscriptions_are_not_told_anew_in_a_changed_network(patch: pytest.MonkeyPatch) -> None:
    begin = Convergence._begin

    def silently(overlay: Convergence, turn: Turn) -> list[Effect]:
        effects = begin(overlay, turn)
        return [one for one in effects if not (isinstance(one, Send) and isinstance(one.operation, Subscribe))]

    patch.setattr(Convergence, "_begin", silently)


@mutation
def events_do_not_wait_while_tables_are_made_anew(patch: pytest.MonkeyPatch) -> None:
    """They go everywhere at once, and overtake those before them."""
    patch.setattr(next_hops, "must_wait", lambda engine, message: False)


@mutation
def events_do_not_turn_where_their_way_ends(patch: pytest.MonkeyPatch) -> None:
    """At a link that is gone, or by trees that are not known there."""
    patch.setattr(next_hops, "_flood_from_here", lambda message: None)


@mutation
def the_end_of_a_phase_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    advance = Convergence.advance

    def at_once(overlay: Convergence, turn: Turn) -> list[Effect]:
        overlay._has_sent_phase = True
        overlay._reported.update(turn.state.links.topology.shared.children(overlay._name))
        return advance(overlay, turn)

    patch.setattr(Convergence, "advance", at_once)


@mutation
def what_was_not_told_anew_is_not_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Convergence, "_sweep", lambda overlay, turn: [])


@mutation
def what_is_told_under_another_digest_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Convergence, "accepts_digest", lambda overlay, turn, digest: (True, []))


@mutation
def events_may_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SeenEvents, "is_in_order", lambda seen_events, client, publisher, number, timestamp, now: True)
