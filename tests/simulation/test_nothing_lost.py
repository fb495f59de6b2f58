"""Nothing is lost between brokers: what was accepted reaches every durable subscription that it is due to, once and in
its publisher's order, whatever crashes, pauses and is cut off."""

from collections.abc import Callable

import pytest

from tests.simulation.known_faults import FAULTS_WITH_PAUSES, check
from tests.sizes import sized
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.overlay.convergence import PATIENCE
from tidings.routing import STRATEGIES
from tidings.simulation import World
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.client import SimulatedClient
from tidings.simulation.clock import SECOND
from tidings.simulation.faults import Pause
from tidings.simulation.topologies import Topology, line, ring, star

SEEDS = sized(20, 1_500)
_TOGETHER = 20
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
each_shape = pytest.mark.parametrize("shape", [line, ring, star])


class Stage:
    """A publisher at one broker, and a durable subscriber at every broker; every event is numbered."""

    def __init__(self, topology: Topology, strategy: str, home: str = "b2", **network: float) -> None:
        self.world = World(topology, strategy=strategy, matcher=NaiveMatcher, **network)  # type: ignore[arg-type]
        self.publisher = self.publishes_at("pub", home)
        for name in topology.brokers:
            self.world.client(f"at-{name}", name).subscribe("n > 0", durable="mine", id=f"at-{name}")
        self.world.settle()
        self.count = 0

    def publishes_at(self, name: str, broker: str) -> SimulatedClient:
        client = self.world.client(name, broker)
        client.advertise("n > 0", id=f"{name}-offers")
        return client

    def publish(self, count: int, pause: float = 0.0) -> None:
        for _ in range(count):
            self.count += 1
            self.publisher.publish({"n": self.count})
            self.world.run(pause)

    def got(self, client: str) -> list[object]:
        return [note.attributes["n"] for note in self.world.notifications(client)]

    def check(self) -> None:
        """When all is well again, everybody has got everything, once and in order."""
        self.world.settle()
        expected = list(range(1, self.count + 1))
        assert {name: self.got(name) for name in self.world.clients if name.startswith("at-")} == {
            f"at-{name}": expected for name in self.world.brokers
        }


def others(stage: Stage) -> list[str]:
    return [name for name in stage.world.brokers if name != stage.publisher.broker]


@each_strategy
@each_shape
@pytest.mark.parametrize("at", [0.0, 0.001, 0.0025])
def test_a_broker_on_the_way_crashes_with_events_under_way(
    shape: Callable[[int], Topology], strategy: str, at: float
) -> None:
    stage = Stage(shape(5), strategy)
    for crashed in others(stage):
        stage.publish(3)
        stage.world.run(at)
        stage.world.crash(crashed)
        stage.publish(3, 0.7)
        stage.world.restart(crashed)
        stage.publish(2, 0.1)
        stage.check()


@each_strategy
@each_shape
def test_the_ingress_broker_crashes_right_after_accepting(shape: Callable[[int], Topology], strategy: str) -> None:
    stage = Stage(shape(4), strategy)
    for wait in (0.0, 0.0015, 0.004):
        stage.publish(5)
        stage.world.run(wait)
        stage.world.crash("b2")
        stage.world.run(1.0)
        stage.world.restart("b2")
        stage.world.run(1.0)
        stage.publish(1)
        stage.check()


@each_strategy
@each_shape
def test_an_egress_broker_is_gone_for_long(shape: Callable[[int], Topology], strategy: str) -> None:
    stage = Stage(shape(4), strategy)
    stage.publish(2)
    stage.world.crash("b4")
    stage.publish(40, 0.5)
    stage.world.settle()
    assert len(stage.got("at-b1")) == 42
    stage.world.restart("b4")
    stage.publish(40, 0.05)
    stage.check()


@each_strategy
def test_a_partition_lasts_long_and_there_are_publications_on_both_sides(strategy: str) -> None:
    stage = Stage(line(4), strategy, home="b1")
    other = stage.publishes_at("other", "b4")
    stage.world.client("at-b1", "b1").subscribe("m > 0", durable="more", id="more")
    other.advertise("m > 0", id="more-offers")
    stage.world.settle()
    stage.world.cut("b2", "b3")
    for number in range(1, 21):
        stage.publish(1)
        other.publish({"m": number})
        stage.world.run(2 * PATIENCE / SECOND / 20)
    stage.world.settle()
    stage.world.heal("b2", "b3")
    stage.world.settle()
    told = [note for note in stage.world.notifications("at-b1") if note.subscription == "more"]
    assert [note.attributes["m"] for note in told] == list(range(1, 21))
    assert stage.got("at-b4") == list(range(1, 21))


@each_strategy
def test_two_faults_overlap(strategy: str) -> None:
    stage = Stage(ring(5), strategy)
    stage.publish(3)
    stage.world.crash("b3")
    stage.publish(3, 1.0)
    stage.world.cut("b1", "b2")
    stage.publish(3, 1.5)
    stage.world.restart("b3")
    stage.world.crash("b2")
    stage.world.run(5.0)
    stage.world.heal("b1", "b2")
    stage.world.restart("b2")
    stage.world.run(1.0)
    stage.publish(3, 0.01)
    stage.check()


@each_strategy
def test_a_fault_comes_while_what_was_missed_is_sent_again(strategy: str) -> None:
    stage = Stage(line(4), strategy, home="b1")
    stage.world.crash("b4")
    stage.publish(100, 0.01)
    stage.world.settle()
    stage.world.restart("b4")
    while len(stage.got("at-b4")) < 20:
        stage.world.clock.step()
    stage.world.crash("b3")
    stage.publish(5, 0.5)
    stage.world.restart("b3")
    while len(stage.got("at-b4")) < 60:
        stage.world.clock.step()
    stage.world.crash("b1")
    stage.world.run(0.5)
    stage.world.restart("b1")
    stage.check()


@each_strategy
@pytest.mark.parametrize("seconds", [0.5, 10.0])
@pytest.mark.parametrize("paused", ["b1", "b2", "b3"])
def test_a_broker_pauses(strategy: str, seconds: float, paused: str) -> None:
    stage = Stage(line(3), strategy, home="b1")
    stage.publish(3)
    stage.world.run(0.001)
    stage.world.pause(paused)
    if paused != "b1":
        stage.publish(10, seconds / 10)
    stage.world.run(seconds)
    stage.world.resume(paused)
    stage.world.run(1.0)
    stage.publish(3, 0.01)
    stage.check()


@each_strategy
def test_links_that_lose_double_and_reorder_make_no_difference(strategy: str) -> None:
    stage = Stage(ring(4), strategy, loss=0.2, duplication=0.1, reordering=0.2)
    stage.publish(20, 0.001)
    stage.world.crash("b3")
    stage.publish(20, 0.1)
    stage.world.restart("b3")
    stage.check()


@each_strategy
@pytest.mark.parametrize("wait", [0.0, 0.001, 0.002, 2.0, 8.0])
def test_a_subscriber_moves_away_from_a_broker_that_crashes(strategy: str, wait: float) -> None:
    """What was published before it was elsewhere follows it, whether or not the broker comes back."""
    stage = Stage(line(4), strategy, home="b1")
    roamer = stage.world.clients["at-b4"]
    stage.publish(3)
    stage.world.run(0.003)
    stage.world.crash("b4")
    stage.publish(3)
    stage.world.run(wait)
    stage.publish(3)
    roamer.move("b2")
    stage.publish(3)
    stage.world.settle()
    if wait >= 8.0:  # what b4 had is on its disk
        assert set(stage.got("at-b4")) >= set(range(4, 13))
    stage.world.restart("b4")
    stage.world.settle()
    assert sorted(stage.got("at-b4"), key=str) == sorted(range(1, 13), key=str)


@each_strategy
def test_a_subscriber_moves_while_events_are_under_way(strategy: str) -> None:
    stage = Stage(ring(5), strategy, home="b1")
    roamer = stage.world.clients["at-b3"]
    for number, broker in enumerate(("b4", "b2", "b5", "b3", "b1")):
        stage.publish(2)
        stage.world.run(0.0007 * number)
        roamer.move(broker)
        stage.publish(2)
        stage.world.run(0.3)
    stage.world.settle()
    assert sorted(stage.got("at-b3"), key=str) == sorted(range(1, stage.count + 1), key=str)


@each_strategy
def test_what_has_followed_one_subscriber_comes_to_the_others_of_its_new_broker(strategy: str) -> None:
    """Also if that one crashes in between: it has given it to nobody else."""
    stage = Stage(line(3), strategy, home="b1")
    roamer = stage.world.clients["at-b1"]
    stage.world.cut("b1", "b2")
    stage.world.run(6.0)
    roamer.disconnect()
    stage.publish(3)
    roamer.move("b2")
    stage.world.run(1.0)
    stage.world.heal("b1", "b2")
    stage.world.run(0.71)  # what waited has followed, and tables are not complete
    stage.world.crash("b2")
    stage.world.run(1.0)
    stage.world.restart("b2")
    stage.check()


@each_strategy
def test_a_publisher_goes_elsewhere_when_its_broker_crashes(strategy: str) -> None:
    """What it publishes at once reaches those who were there; what the first broker had accepted comes late."""
    stage = Stage(line(4), strategy, home="b1")
    stage.publish(3)
    stage.world.crash("b1")
    stage.publisher.move("b3")
    stage.publish(3)
    stage.world.run(3.0)
    stage.world.restart("b1")
    stage.world.settle()
    for name in stage.world.brokers:
        assert sorted(stage.got(f"at-{name}"), key=str) == sorted(range(1, 7), key=str)


@pytest.mark.parametrize("first", range(0, SEEDS, _TOGETHER))
def test_nothing_is_lost_in_the_histories_of_these_seeds(first: int) -> None:
    """With pauses among the faults. Whether tables are as new is judged elsewhere."""
    for seed in range(first, first + _TOGETHER):
        history = draw_history(seed, pauses=True, steps=60)
        check(history, [one for one in history.violations() if one.kind != "tables"], FAULTS_WITH_PAUSES)


def test_seeds_draw_pauses() -> None:
    assert any(isinstance(step, Pause) for step in draw_history(1, pauses=True, steps=60).steps)
    assert not any(isinstance(step, Pause) for step in draw_history(1, steps=60).steps)


def test_what_is_settled_need_not_be_kept() -> None:
    """Only what somebody may have missed is read again."""
    stage = Stage(line(3), "advertisement")
    stage.publish(10, 0.1)
    stage.check()
    broker = stage.world.brokers["b2"]
    assert broker.redelivery.needed == len(broker.disk.journal) == 10
    stage.world.crash("b3")
    stage.world.settle()
    stage.publish(5, 0.1)
    stage.world.settle()
    assert broker.redelivery.needed == 10
    broker.redelivery.forget("b3")
    assert broker.redelivery.needed == 15
