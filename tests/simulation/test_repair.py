"""While tables are made anew nothing is lost: neither once a failure has been noticed, nor when a link is back."""

import pytest

from tidings.routing import STRATEGIES
from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import Advertises, Publishes, Settles, Step, Subscribes, Waits
from tidings.simulation.faults import Crash, Cut, Fault, Heal, Restart
from tidings.simulation.topologies import Topology, ring

SAID: tuple[Step, ...] = (Advertises("pub", "ad"), Subscribes("sub", "s"), Settles())


def lost(
    strategy: str, topology: Topology, homes: dict[str, str], before: tuple[Step, ...], moments: range
) -> list[int]:
    """Of the moments after a fault, in milliseconds, those at which an event is published and something goes wrong."""
    return [
        moment
        for moment in moments
        if History(
            topology=topology,
            homes=homes,
            strategy=strategy,
            steps=(*before, Waits(moment / 1000), Publishes("pub", {"a": 1}), Settles()),
        ).violations()
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fault", [Cut(0, "b1", "b2"), Crash(0, "b2")], ids=["link", "broker"])
def test_events_arrive_once_a_failure_has_been_noticed(strategy: str, fault: Fault) -> None:
    for homes in ({"pub": "b3", "sub": "b4"}, {"pub": "b1", "sub": "b3"}):
        assert lost(strategy, ring(4), homes, (*SAID, fault), range(3_100, 4_000, 60)) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_events_arrive_while_a_link_comes_back(strategy: str) -> None:
    before = (Cut(0, "b1", "b2"), Settles(), *SAID, Heal(0, "b1", "b2"))
    assert lost(strategy, ring(5), {"pub": "b1", "sub": "b2"}, before, range(420, 540, 8)) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_events_arrive_while_a_broker_between_them_comes_back(strategy: str) -> None:
    before = (*SAID, Crash(0, "b2"), Settles(), Restart(0, "b2"))
    assert lost(strategy, ring(4), {"pub": "b1", "sub": "b3"}, before, range(0, 1_500, 60)) == []
