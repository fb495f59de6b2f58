"""With any one repair step of routing left out, the checker finds what goes wrong; with all of them, nothing does."""

from typing import NamedTuple

import msgspec
import pytest

from tests.simulation.mutations import MUTATIONS, unannounced_contexts_stay_unannounced
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import Publish
from tidings.model.event import Event
from tidings.model.values import Attributes, Context
from tidings.simulation import World
from tidings.simulation.checking.checker import Kind
from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import (
    Advertises,
    Moves,
    Publishes,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unsubscribes,
    Waits,
)
from tidings.simulation.faults import Cut, Heal
from tidings.simulation.topologies import Topology, line, ring

OFFER = ("x",)


class Case(NamedTuple):
    """Histories in one of which, at least, a mutation shows, and as what."""

    kind: Kind
    histories: tuple[History, ...]


def case(kind: Kind, strategy: str, topology: Topology, homes: dict[str, str], *steps: Step) -> Case:
    return Case(kind, (History(topology=topology, homes=homes, strategy=strategy, steps=steps),))


ENDS = {"pub": "b1", "sub": "b3"}
ATTRACTED = (
    SetsContext("sub", {"x": 2}),
    Subscribes("sub", "s", "", "x = this.x"),
    Settles(),
    SetsContext("pub", {"x": 2}),
    Publishes("pub", {"a": 0}),
    Settles(),
)
FOLLOWED = (
    SetsContext("pub", {"x": 3}),
    Subscribes("sub", "s", "", "x = this.x"),
    Settles(),
    SetsContext("sub", {"x": 3}),
    Settles(),
    Publishes("pub", {"a": 3}),
    Settles(),
)
RING = ring(4)
COMING_BACK = tuple(
    History(
        topology=RING,
        homes={"pub": "b1", "sub": "b2"},
        strategy="asf",
        steps=(
            *(Cut(0, "b1", "b2"), Settles(), Subscribes("sub", "s"), Settles()),
            *(Heal(0, "b1", "b2"), Waits(milliseconds / 1000), Publishes("pub", {"a": 1}), Settles()),
        ),
    )
    for milliseconds in range(470, 520)  # about when tables are made anew
)
FAILING = tuple(
    History(
        topology=RING,
        homes={"pub": "b3", "sub": "b4"},
        strategy="asf",
        steps=(
            *(Subscribes("sub", "s"), Settles()),
            *(Cut(0, "b1", "b2"), Waits(milliseconds / 1000), Publishes("pub", {"a": 1}), Settles()),
        ),
    )
    for milliseconds in range(3_500, 3_800, 25)  # after the failure has been noticed
)
STREAM = History(
    topology=ring(5),
    homes={"pub": "b1", "sub": "b2"},
    strategy="spcf",
    steps=(
        *(Cut(0, "b1", "b2"), Settles(), Subscribes("sub", "s"), Settles(), Heal(0, "b1", "b2")),
        *(step for number in range(600) for step in (Waits(0.002), Publishes("pub", {"a": number}))),
        Settles(),
    ),
)
BEGINNING = tuple(
    History(
        topology=line(7),
        homes=ENDS,
        strategy="gsf",
        seed=seed,
        network={"loss": 0.2, "duplication": 0.1, "reordering": 0.2},
        steps=(Subscribes("sub", "s"), Settles(), Publishes("pub", {"a": 1}), Settles()),
    )
    for seed in range(20)
)


CASES: dict[str, Case] = {
    "attraction is not waited for": case("lost", "spcf", line(3), ENDS, *ATTRACTED),
    "attraction is acknowledged ahead of those below": case("lost", "spcf", line(3), ENDS, *ATTRACTED),
    "a context does not count after it has changed": case(
        *("lost", "spcf", line(3), ENDS),
        *(SetsContext("sub", {"x": 1}), Subscribes("sub", "s"), Settles()),
        *(SetsContext("sub", {"x": 2}), Waits(0.0015)),  # b2 has heard of it, and b1 has not
        *(Publishes("pub", {"a": 1}, "x >= 1"), Settles()),
    ),
    "connecting does not count as setting the empty context": case(
        *("lost", "spcf", line(3), ENDS),
        *(SetsContext("pub", {"x": 1}), Subscribes("sub", "s"), Settles()),
        *(Publishes("pub", {"a": 1}, "x is null"), Settles()),
    ),
    "subscriptions do not follow their subscribers context": case("lost", "gsf", line(3), ENDS, *FOLLOWED),
    "the subscribers own broker is among the destinations": case(
        *("tables", "spcf", line(3), ENDS),
        *(Subscribes("sub", "s"), Settles(), Unsubscribes("sub", "s")),
    ),
    "this is bound at the receiver": case("lost", "asf", line(3), ENDS, *FOLLOWED),
    "a subscribers context does not go ahead of its subscription": case(
        *("lost", "advertisement", line(3), ENDS),
        *(Advertises("pub", "ad", "", OFFER, OFFER), SetsContext("sub", {"x": 1}), Subscribes("sub", "s"), Settles()),
        *(Publishes("pub", {"a": 1}, "x > 0"), Settles()),
    ),
    "a subscribers context is not sent when it changes": case(
        *("lost", "advertisement", line(3), ENDS),
        *(Advertises("pub", "ad", "", OFFER, OFFER), Subscribes("sub", "s"), Settles()),
        *(SetsContext("sub", {"x": 1}), Settles(), Publishes("pub", {"a": 1}, "x > 0"), Settles()),
    ),
    "covering is not undone": case(
        *("lost", "asf", line(3), {**ENDS, "other": "b3"}),
        *(Subscribes("other", "wide"), Subscribes("sub", "narrow", "a > 1"), Settles()),
        *(Unsubscribes("other", "wide"), Settles(), Publishes("pub", {"a": 2}), Settles()),
    ),
    "subscriptions are not withdrawn": case(
        *("tables", "spcf", line(3), ENDS),
        *(SetsContext("pub", {"x": 1}), Subscribes("sub", "s", "", "x = 1"), Settles(), SetsContext("pub", {"x": 2})),
    ),
    "versions are ignored": case(
        *("lost", "asf", line(3), {"pub": "b1", "sub": "b3"}),
        *(Settles(), Subscribes("sub", "s"), Moves("sub", "b2"), Settles(), Publishes("pub", {"a": 1}), Settles()),
    ),
    "brokers keep what they have of clients that moved": case(
        *("tables", "advertisement", line(3), ENDS),
        *(Advertises("pub", "ad"), Subscribes("sub", "s", "", None, None, "mine"), Settles()),
        *(Cut(0, "b2", "b3"), Settles()),  # it is not heard at b3 that its client has come to b1
        *(Moves("sub", "b1"), Settles(), Heal(0, "b2", "b3"), Settles()),
    ),
    "a former subscription becomes a clients when its link is gone": case(
        *("tables", "asf", ring(3), {"pub": "b1", "sub": "b2"}),
        *(SetsContext("sub", {"x": 1}), Subscribes("sub", "s", "", "x = this.x", None, "mine"), Settles()),
        *(Cut(0, "b1", "b2"), Waits(3.6), Moves("sub", "b1"), Settles()),  # noticed; tables are not made anew yet
    ),
    "subscriptions are not told anew in a changed network": case(
        *("lost", "gsf", line(3), ENDS),
        *(Subscribes("sub", "s"), Settles(), Cut(0, "b1", "b2"), Settles(), Heal(0, "b1", "b2"), Settles()),
        *(Publishes("pub", {"a": 1}), Settles()),
    ),
    "the end of a phase is not awaited": Case("lost", COMING_BACK),
    "events do not turn where their way ends": Case("lost", FAILING),
    "events do not wait while tables are made anew": Case("lost", (STREAM,)),
    "what was not told anew is not swept": case(
        *("tables", "asf", line(3), ENDS),
        *(Subscribes("sub", "s"), Settles(), Cut(0, "b2", "b3"), Settles(), Unsubscribes("sub", "s")),
    ),
    "what is told under another digest is taken": Case("lost", BEGINNING),
    "events may overtake each other": case(
        *("order", "asf", line(4), {"pub": "b1", "sub": "b4"}),
        *(
            Subscribes("sub", "s"),
            Settles(),
            Publishes("pub", {"a": 1}),
            Moves("pub", "b4"),
            Publishes("pub", {"a": 2}),
        ),
    ),
}


def test_every_mutation_has_its_case() -> None:
    assert CASES.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_one_step_something_goes_wrong_and_with_it_nothing_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is sent again: that would make good what goes wrong."""
    kind, given = CASES[name]
    histories = [msgspec.structs.replace(one, resends=False) for one in given]
    for history in histories:
        assert history.violations() == []
    MUTATIONS[name](monkeypatch)
    assert kind in {found[0].kind for history in histories if (found := history.violations())}


def packets_of_an_unannounced_context() -> int:
    """Sent for the second event that a publisher gives a context which it never set, and in which nobody is
    interested."""
    world = World(line(3), strategy="spcf", matcher=NaiveMatcher, resends=False)
    world.client("pub", "b1")
    world.client("sub", "b3").subscribe("", publishers="x = 1")
    sent = []
    for number in (1, 2):
        world.settle()
        before = world.counters.counts()
        event = Event.of(
            Attributes.of({"a": number}),
            id=world.new_event_id(),
            publisher="pub",
            timestamp=world.now,
            sequence=number,
            context=Context.of({"x": 2}),
        )
        world.do("b1", Publish(event))
        world.settle()
        sent.append((world.counters.counts() - before).of("Publish").messages)
    return sent[1]


def test_an_event_with_an_unannounced_context_is_an_implicit_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs packets, and no events, if it is not: such events go unpruned."""
    assert packets_of_an_unannounced_context() == 0
    unannounced_contexts_stay_unannounced(monkeypatch)
    assert packets_of_an_unannounced_context() == 2
