"""With any one rule of settling left out, the checker finds that something is lost or out of order; with all of them,
nothing is."""

import pytest

from tests.simulation.settling_mutations import MUTATIONS
from tests.sizes import variants
from tidings.simulation.checking.history import History
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.checking.steps import Advertises, Moves, Publishes, Settles, Step, Subscribes, Waits
from tidings.simulation.faults import Crash, Cut, Heal, Restart, Slow
from tidings.simulation.topologies import Topology, line, ring

LOSSY = {"loss": 0.2, "duplication": 0.1, "reordering": 0.2}


def stream(count: int, pause: float) -> tuple[Step, ...]:
    return tuple(step for number in range(count) for step in (Waits(pause), Publishes("pub", {"a": number})))


def history(strategy: str, topology: Topology, homes: dict[str, str], *steps: Step, **more: object) -> History:
    wanted = (Advertises("pub", "ad"), Subscribes("sub", "s", durable="mine"), Settles())
    return History(topology=topology, homes=homes, strategy=strategy, steps=(*wanted, *steps), **more)  # type: ignore[arg-type]


def seeds(*numbers: int) -> tuple[History, ...]:
    return tuple(draw_history(number, pauses=True, steps=60) for number in numbers)


ENDS = {"pub": "b1", "sub": "b3"}
BACK = history(
    "asf",
    line(3),
    ENDS,
    *(Crash(0, "b3"), Settles(), *stream(60, 0.001), Settles(), Restart(0, "b3"), *stream(400, 0.002), Settles()),
)
HEALING = tuple(
    history(
        strategy,
        ring(5),
        ENDS,
        *(Cut(0, "b1", "b2"), Settles(), Heal(0, "b1", "b2")),
        *(*stream(400, 0.002), Cut(0, "b4", "b5"), *stream(300, 0.015), Settles()),
        network=network,
        seed=seed,
    )
    for strategy in ("gsf", "asf")
    for network, seed in (({}, 0), (LOSSY, 1), (LOSSY, 2))
)
LATE = history("asf", line(4), {"pub": "b1", "sub": "b4"}, Publishes("pub"), Moves("pub", "b4"), Publishes("pub"))
MOVED = history(
    "gsf",
    ring(4),
    {"pub": "b3", "sub": "b4"},
    *(Slow(0, "b2", "b3", 100), Moves("sub", "b1"), Waits(0.001), Publishes("pub"), Settles()),
)
CASES: dict[str, tuple[History, ...]] = {
    "an event that is sent again does not pass where it was": seeds(0),
    "an event that is sent again is delivered where it was": seeds(0),
    "new events overtake those that are sent again": (BACK,),
    "a publication is settled before those below have it": seeds(14),
    "publications go on while tables are made anew": HEALING,
    "what comes in another network is taken": HEALING,
    "nothing is owed when the network changes": seeds(0),
    "who is away is owed nothing": seeds(0),
    "debts are forgotten in a restart": seeds(4),
    "what comes late never comes": (LATE,),
    "who has moved is told on the shared tree alone": (MOVED,),
    "a client that has moved is not sent what was owed to its broker": seeds(16),
    "what is sent again goes by advertisements": seeds(4),
    "a link that is gone leaves what waits behind it settled": seeds(14),
}


def test_every_mutation_has_its_case() -> None:
    assert CASES.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", variants(2, list(MUTATIONS)))
def test_without_one_rule_something_goes_wrong_and_with_it_nothing_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in CASES[name]:
        assert one.violations() == []
    MUTATIONS[name](monkeypatch)
    found = {violations[0].kind for one in CASES[name] if (violations := one.violations())}
    assert found & {"lost", "twice", "order", "unsettled"}
