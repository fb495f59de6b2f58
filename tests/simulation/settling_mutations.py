"""Ways to lose events between brokers: each of them leaves out one rule by which what is lost is sent again."""

import pytest

from tests.simulation.mutations import Mutation
from tidings.engine.effects import Effect
from tidings.engine.message import PublicationMessage
from tidings.engine.overlay import peers
from tidings.engine.overlay.convergence import Convergence
from tidings.engine.overlay.redelivery import RedeliveryState, RedeliveryTracker
from tidings.engine.overlay.settlement import Settlement
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.seen_events import SeenEvents, SeenStatus
from tidings.engine.steps import match, next_hops
from tidings.engine.turn import Turn
from tidings.model.event import Event
from tidings.model.subscription import Subscription

MUTATIONS: dict[str, Mutation] = {}


def mutation(made: Mutation) -> Mutation:
    """It is known under its name, in words."""
    MUTATIONS[made.__name__.replace("_", " ")] = made
    return made


@mutation
def an_event_that_is_sent_again_does_not_pass_where_it_was(patch: pytest.MonkeyPatch) -> None:
    note = SeenEvents.note

    def once(
        seen_events: SeenEvents,
        event: object,
        now: int,
        *,
        flood: bool,
        round: int = 0,  # noqa: A002
        here: bool = True,
    ) -> SeenStatus:
        return note(seen_events, event, now, flood=flood, here=here)  # type: ignore[arg-type]

    patch.setattr(SeenEvents, "note", once)


@mutation
def an_event_that_is_sent_again_is_delivered_where_it_was(patch: pytest.MonkeyPatch) -> None:
    note = SeenEvents.note

    def always(
        seen_events: SeenEvents,
        event: object,
        now: int,
        *,
        flood: bool,
        round: int = 0,  # noqa: A002
        here: bool = True,
    ) -> SeenStatus:
        found = note(seen_events, event, now, flood=flood, round=round, here=here)  # type: ignore[arg-type]
        return SeenStatus.FIRST if here and found is SeenStatus.ONWARD else found

    patch.setattr(SeenEvents, "note", always)


@mutation
def new_events_overtake_those_that_are_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RedeliveryTracker, "lagging", ())


@mutation
def a_publication_is_settled_before_those_below_have_it(patch: pytest.MonkeyPatch) -> None:
    passed_on = Settlement.record_forwarding

    def hasty(settlement: Settlement, message: PublicationMessage, effects: list[Effect]) -> list[Effect]:
        made = passed_on(settlement, message, effects)
        for neighbour in list(settlement._state.links.neighbours):
            made += settlement.settle((message.event.id, message.routing.route.round), neighbour)
        return made

    patch.setattr(Settlement, "record_forwarding", hasty)


@mutation
def publications_go_on_while_tables_are_made_anew(patch: pytest.MonkeyPatch) -> None:
    waits = next_hops.must_wait

    def never(turn: Turn, message: PublicationMessage) -> bool:
        found = waits(turn, message)
        message.routing.skips_neighbours = False
        return found

    patch.setattr(next_hops, "must_wait", never)


@mutation
def what_comes_in_another_network_is_taken(patch: pytest.MonkeyPatch) -> None:
    waits = next_hops.must_wait

    def taken(turn: Turn, message: PublicationMessage) -> bool:
        found = waits(turn, message)
        return found and message.routing.route.digest == turn.state.links.digest

    patch.setattr(next_hops, "must_wait", taken)


@mutation
def nothing_is_owed_when_the_network_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        RedeliveryTracker, "_owe_to_all", lambda debts, floor: debts._in_flight.clear() or debts._rounds.clear()
    )


@mutation
def who_is_away_is_owed_nothing(patch: pytest.MonkeyPatch) -> None:
    arranged = RedeliveryTracker.topology_settled

    def forgetting(debts: RedeliveryTracker, brokers: frozenset[str], now: int) -> None:
        debts.owed = {one: offset for one, offset in debts.owed.items() if one.broker in brokers}
        arranged(debts, brokers, now)

    patch.setattr(RedeliveryTracker, "topology_settled", forgetting)


@mutation
def debts_are_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        RedeliveryTracker, "state", lambda debts: RedeliveryState(floor=debts.end, known=frozenset(debts.known))
    )


@mutation
def what_comes_late_never_comes(patch: pytest.MonkeyPatch) -> None:
    def strictly(turn: Turn, event: Event, wanted: list[FilterEntry[Subscription]]) -> list[FilterEntry[Subscription]]:
        told = {one.owner for one in wanted}
        late = {one for one in told if not match._is_in_order(turn, one, event)}
        return [one for one in wanted if one.owner not in late]

    patch.setattr(match, "_without_overtaken", strictly)


@mutation
def who_has_moved_is_told_on_the_shared_tree_alone(patch: pytest.MonkeyPatch) -> None:
    """Though events go another way, and may be settled before it is known."""
    patch.setattr(Convergence, "_floods_moves", False)


@mutation
def a_client_that_has_moved_is_not_sent_what_was_owed_to_its_broker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RedeliveryTracker, "moved", lambda debts, client, broker, session, now: None)


@mutation
def what_is_sent_again_goes_by_advertisements(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(next_hops, "_may_lack_subscriptions", lambda engine, message: False)


@mutation
def a_link_that_is_gone_leaves_what_waits_behind_it_settled(patch: pytest.MonkeyPatch) -> None:
    leave = peers.leave

    def hopeful(turn: Turn, overlay: peers.OverlayChanges, neighbour: str) -> list[Effect]:
        settled: list[Effect] = []
        for made in list(turn.settlement._in_flight):
            settled += turn.settlement.settle(made, neighbour)
        return settled + leave(turn, overlay, neighbour)

    patch.setattr(peers, "leave", hopeful)
