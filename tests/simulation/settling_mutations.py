"""Ways to lose events between brokers: each of them leaves out one rule by which what is lost is sent again."""

import pytest

from tests.simulation.mutations import Mutation
from tidings.engine import concern, membership, passing
from tidings.engine.debts import Debts, State
from tidings.engine.effects import Effect
from tidings.engine.engine import Engine
from tidings.engine.message import PublicationMessage
from tidings.engine.overlay import Overlay
from tidings.engine.passages import Passage, Passages
from tidings.engine.settling import Settling
from tidings.engine.tables import Filed
from tidings.model.event import Event
from tidings.model.subscription import Subscription

MUTATIONS: dict[str, Mutation] = {}


def mutation(made: Mutation) -> Mutation:
    """It is known under its name, in words."""
    MUTATIONS[made.__name__.replace("_", " ")] = made
    return made


@mutation
def an_event_that_is_sent_again_does_not_pass_where_it_was(patch: pytest.MonkeyPatch) -> None:
    note = Passages.note

    def once(passages: Passages, event: object, now: int, *, flood: bool, round: int = 0, here: bool = True) -> Passage:  # noqa: A002
        return note(passages, event, now, flood=flood, here=here)  # type: ignore[arg-type]

    patch.setattr(Passages, "note", once)


@mutation
def an_event_that_is_sent_again_is_delivered_where_it_was(patch: pytest.MonkeyPatch) -> None:
    note = Passages.note

    def always(
        passages: Passages,
        event: object,
        now: int,
        *,
        flood: bool,
        round: int = 0,  # noqa: A002
        here: bool = True,
    ) -> Passage:
        found = note(passages, event, now, flood=flood, round=round, here=here)  # type: ignore[arg-type]
        return Passage.FIRST if here and found is Passage.ONWARD else found

    patch.setattr(Passages, "note", always)


@mutation
def new_events_overtake_those_that_are_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Debts, "lagging", ())


@mutation
def a_publication_is_settled_before_those_below_have_it(patch: pytest.MonkeyPatch) -> None:
    passed_on = Settling.passed_on

    def hasty(settling: Settling, message: PublicationMessage, effects: list[Effect]) -> list[Effect]:
        made = passed_on(settling, message, effects)
        for neighbour in list(settling._engine.neighbours):
            made += settling.settle((message.event.id, message.route.round), neighbour)
        return made

    patch.setattr(Settling, "passed_on", hasty)


@mutation
def publications_go_on_while_tables_are_made_anew(patch: pytest.MonkeyPatch) -> None:
    waits = passing.waits

    def never(engine: Engine, message: PublicationMessage) -> bool:
        found = waits(engine, message)
        message.stays_in = False
        return found

    patch.setattr(passing, "waits", never)


@mutation
def what_comes_in_another_network_is_taken(patch: pytest.MonkeyPatch) -> None:
    waits = passing.waits

    def taken(engine: Engine, message: PublicationMessage) -> bool:
        found = waits(engine, message)
        return found and message.route.digest == engine.digest

    patch.setattr(passing, "waits", taken)


@mutation
def nothing_is_owed_when_the_network_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Debts, "_owe_all", lambda debts, floor: debts._waiting.clear() or debts._rounds.clear())


@mutation
def who_is_away_is_owed_nothing(patch: pytest.MonkeyPatch) -> None:
    arranged = Debts.arranged

    def forgetting(debts: Debts, brokers: frozenset[str], now: int) -> None:
        debts.owed = {one: offset for one, offset in debts.owed.items() if one.broker in brokers}
        arranged(debts, brokers, now)

    patch.setattr(Debts, "arranged", forgetting)


@mutation
def debts_are_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Debts, "state", lambda debts: State(floor=debts.end, known=frozenset(debts.known)))


@mutation
def what_comes_late_never_comes(patch: pytest.MonkeyPatch) -> None:
    def strictly(engine: Engine, event: Event, wanted: list[Filed[Subscription]]) -> list[Filed[Subscription]]:
        told = {one.owner for one in wanted}
        late = {one for one in told if not concern._is_in_order(engine, one, event)}
        return [one for one in wanted if one.owner not in late]

    patch.setattr(concern, "_in_order", strictly)


@mutation
def who_has_moved_is_told_on_the_shared_tree_alone(patch: pytest.MonkeyPatch) -> None:
    """Though events go another way, and may be settled before it is known."""
    patch.setattr(Overlay, "_floods_moves", False)


@mutation
def a_client_that_has_moved_is_not_sent_what_was_owed_to_its_broker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Debts, "moved", lambda debts, client, broker, session, now: None)


@mutation
def what_is_sent_again_goes_by_advertisements(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passing, "_is_unattractive", lambda engine, message: False)


@mutation
def a_link_that_is_gone_leaves_what_waits_behind_it_settled(patch: pytest.MonkeyPatch) -> None:
    leave = membership.leave

    def hopeful(engine: Engine, neighbour: str) -> list[Effect]:
        settled: list[Effect] = []
        for made in list(engine.settling._passed):
            settled += engine.settling.settle(made, neighbour)
        return settled + leave(engine, neighbour)

    patch.setattr(membership, "leave", hopeful)
