"""Debts: whatever is lost and whoever is away, everybody is sent everything that they may have missed, in order."""

from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.engine.headers import ABROAD
from tidings.engine.operations import Republish
from tidings.engine.overlay.redelivery import MOVING, PATIENCE, RedeliveryTracker, ResendRange
from tidings.model.event import Event
from tidings.model.identity import ENTROPY_BYTES, uuid7

OTHERS = ("b2", "b3", "b4")
ALL = frozenset({"b1", *OTHERS})


def identity(offset: int) -> UUID:
    return uuid7(1_000 * offset, bytes(ENTROPY_BYTES))


def event(offset: int) -> Event:
    return Event.of({}, id=identity(offset), publisher="p", timestamp=offset, sequence=offset + 1)


def arranged(*brokers: str) -> RedeliveryTracker:
    debts = RedeliveryTracker("b1")
    debts.topology_changing(frozenset({"b1", *brokers}))
    debts.topology_settled(frozenset({"b1", *brokers}), 0)
    return debts


def sent_again(debts: RedeliveryTracker, now: int = 10 * MOVING) -> list[tuple[int, Republish]]:
    """Everything that is to be sent again."""
    found = []
    while (piece := debts.next_range(now)) is not None:
        for offset in range(piece.start, piece.stop):
            found.append((offset, debts.republish(piece, offset, event(offset), now)))
        debts.reached(piece, piece.stop)
    return found


def publish(debts: RedeliveryTracker, count: int) -> None:
    for offset in range(debts.end, debts.end + count):
        debts.published(offset, event(offset), goes_on=True)


def test_below_the_floor_everything_is_settled() -> None:
    debts = arranged("b2")
    publish(debts, 3)
    assert (debts.floor, debts.end) == (0, 3)
    debts.settled(identity(1), 0)
    assert debts.floor == 0
    debts.settled(identity(0), 0)
    assert debts.floor == 2
    debts.settled(identity(2), 0)
    assert (debts.floor, debts.is_settled) == (3, True)


def test_what_is_not_settled_when_the_network_changes_is_sent_again_to_all_who_are_there() -> None:
    debts = arranged("b2", "b3")
    publish(debts, 3)
    debts.settled(identity(0), 0)
    debts.topology_changing(frozenset({"b1", "b2"}))
    assert debts.next_range(0) is None  # tables are not complete
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    assert debts.lagging == (ABROAD, "b2")
    again = sent_again(debts)
    assert [(offset, one.only) for offset, one in again] == [(1, (ABROAD, "b2")), (2, (ABROAD, "b2"))]
    assert not debts.has_to_send
    debts.topology_changing(ALL)
    debts.topology_settled(ALL, 1)
    assert [offset for offset, one in sent_again(debts) if "b3" in one.only] == [1, 2]


def test_who_is_away_is_sent_everything_that_came_meanwhile_when_it_is_back() -> None:
    debts = arranged("b2", "b3")
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    publish(debts, 5)
    for offset in range(5):
        debts.settled(identity(offset), 0)
    assert debts.is_settled
    assert debts.needed == 0
    debts.topology_changing(ALL)
    debts.topology_settled(ALL, 1)
    assert [(offset, one.only) for offset, one in sent_again(debts)] == [(offset, ("b3",)) for offset in range(5)]


def test_acknowledgements_of_former_rounds_do_not_count() -> None:
    debts = arranged("b2")
    publish(debts, 1)
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    ((_, again),) = sent_again(debts)
    debts.settled(identity(0), 0)
    assert not debts.is_settled
    debts.settled(identity(0), again.round)
    assert debts.is_settled


def test_rounds_rise_also_at_one_moment() -> None:
    debts = arranged("b2")
    publish(debts, 3)
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    rounds = [one.round for _, one in sent_again(debts, now=7)]
    assert rounds == sorted(set(rounds))
    assert rounds[0] == 7


def test_who_was_forgotten_is_owed_nothing() -> None:
    debts = arranged("b2", "b3")
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    publish(debts, 2)
    debts.forget("b3")
    debts.settled(identity(0), 0)
    debts.settled(identity(1), 0)
    assert debts.needed == 2


def test_what_is_not_settled_for_long_is_sent_again_and_then_less_often() -> None:
    debts = arranged("b2")
    publish(debts, 1)
    debts.tick(PATIENCE)
    assert debts.next_range(PATIENCE) is None
    debts.tick(PATIENCE + 1)
    assert len(sent_again(debts, PATIENCE + 1)) == 1
    debts.tick(2 * PATIENCE + 3)
    assert sent_again(debts, 2 * PATIENCE + 3) == []
    debts.tick(3 * PATIENCE + 3)
    assert len(sent_again(debts, 3 * PATIENCE + 3)) == 1


def test_a_client_that_has_moved_is_sent_what_is_owed_to_the_broker_that_is_gone() -> None:
    debts = arranged("b2", "b3")
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    publish(debts, 2)
    debts.settled(identity(0), 0)
    debts.settled(identity(1), 0)
    debts.moved("c", "b2", 2, 0)
    assert debts.lagging == ("b2",)
    assert debts.next_range(0) is None  # what it wants is under way
    assert debts.next_range(MOVING) == ResendRange(0, 2, ("b2",), ("c",))
    again = sent_again(debts)
    assert not debts.has_to_send
    debts.moved("c", "b2", 2, 0)  # nothing new
    debts.topology_changing(frozenset({"b1", "b2"}))  # it may be lost
    debts.topology_settled(frozenset({"b1", "b2"}), 1)
    assert [one.whose for _, one in sent_again(debts) if one.whose] == [("c",), ("c",)]
    assert len(again) == 2


def test_what_a_publisher_that_has_moved_left_unsettled_is_sent_again_to_all() -> None:
    debts = arranged("b2")
    publish(debts, 2)
    debts.settled(identity(0), 0)
    debts.moved("other", "b2", 2, 0)
    assert [one.whose for _, one in sent_again(debts)] == [("other",)]
    debts.moved("p", "b2", 2, 0)
    assert [(offset, one.only) for offset, one in sent_again(debts) if not one.whose] == [(1, (ABROAD, "b2"))]


def test_it_is_the_same_after_a_restart() -> None:
    debts = arranged("b2", "b3")
    debts.topology_changing(frozenset({"b1", "b2"}))
    debts.topology_settled(frozenset({"b1", "b2"}), 0)
    publish(debts, 3)
    debts.settled(identity(0), 0)
    debts.moved("c", "b2", 2, 0)
    restored = RedeliveryTracker("b1", debts.state(), end=3)
    restored.topology_changing(ALL)
    restored.topology_settled(ALL, 0)
    again = sent_again(restored)
    assert [offset for offset, one in again if "b3" in one.only] == [0, 1, 2]
    assert [offset for offset, one in again if "b2" in one.only and not one.whose] == [1, 2]
    assert [offset for offset, one in again if one.whose == ("c",)] == [0, 1, 2]


def test_an_event_that_was_published_twice_is_settled_once() -> None:
    debts = arranged("b2")
    debts.published(0, event(7), goes_on=True)
    debts.published(1, event(7), goes_on=True)
    debts.settled(identity(7), 0)
    assert debts.is_settled


class Sent(NamedTuple):
    """A publication under way to brokers."""

    offset: int
    round: int
    to: frozenset[str]


class Played:
    """One broker with its journal, and others that get what is not lost. What is lost is never settled, and nothing
    that is sent behind it in the same network arrives before it."""

    def __init__(self) -> None:
        self.debts = RedeliveryTracker("b1")
        self.present: frozenset[str] = frozenset()
        self.is_arranged = False
        self.got: dict[str, list[int]] = {name: [] for name in OTHERS}
        self.under_way: list[Sent] = []
        self.now = 0

    def change(self, brokers: frozenset[str]) -> None:
        """What is under way is lost."""
        self.present, self.is_arranged, self.under_way = brokers, False, []
        self.debts.topology_changing(brokers | {"b1"})

    def arrange(self) -> None:
        self.is_arranged = True
        self.debts.topology_settled(self.present | {"b1"}, self.now)

    def publish(self) -> None:
        offset = self.debts.end
        lagging = self.debts.lagging
        self.debts.published(offset, event(offset), goes_on=bool(self.present))
        if self.is_arranged and self.present:
            self.under_way.append(Sent(offset, 0, self.present - {*lagging}))

    def send_again(self, most: int) -> None:
        self.now += 1
        piece = self.debts.next_range(self.now)
        if piece is not None:
            stop = min(piece.stop, piece.start + most)
            for offset in range(piece.start, stop):
                again = self.debts.republish(piece, offset, event(offset), self.now)
                self.under_way.append(Sent(offset, again.round, self.present & {*again.only}))
            self.debts.reached(piece, stop)

    def arrive(self, count: int, *, has_sent_all: bool) -> None:
        """The first ones arrive; whether that is told may be lost itself."""
        for offset, round, to in self.under_way[:count]:  # noqa: A001
            for name in to:
                if offset not in self.got[name]:
                    self.got[name].append(offset)
            if has_sent_all:
                self.debts.settled(identity(offset), round)
        del self.under_way[:count]

    def restart(self) -> None:
        self.debts = RedeliveryTracker("b1", self.debts.state(), self.debts.end)
        self.change(frozenset())

    def finish(self) -> None:
        self.change(frozenset(OTHERS))
        self.arrange()
        while not self.debts.is_settled:
            self.send_again(3)
            self.arrive(len(self.under_way), has_sent_all=True)


_actions = st.one_of(
    st.just(("publish",)),
    st.tuples(st.just("change"), st.frozensets(st.sampled_from(OTHERS))),
    st.just(("arrange",)),
    st.tuples(st.just("again"), st.integers(1, 3)),
    st.tuples(st.just("arrive"), st.integers(1, 4), st.booleans()),
    st.just(("restart",)),
)


@examples(300, 10_000)
@given(st.lists(_actions, max_size=40))
def test_everybody_gets_everything_once_and_in_order(actions: list[tuple[object, ...]]) -> None:
    played = Played()
    played.change(frozenset(OTHERS))
    played.arrange()
    for kind, *rest in actions:
        match kind, rest:
            case "publish", _:
                played.publish()
            case "change", [brokers]:
                played.change(brokers)  # type: ignore[arg-type]
            case "arrange", _:
                played.arrange()
            case "again", [most]:
                played.send_again(most)  # type: ignore[arg-type]
            case "arrive", [count, has_sent_all]:
                played.arrive(count, has_sent_all=has_sent_all)  # type: ignore[arg-type]
            case "restart", _:
                played.restart()
    played.finish()
    everything = list(range(played.debts.end))
    assert played.got == dict.fromkeys(OTHERS, everything)
    assert played.debts.needed == played.debts.end
