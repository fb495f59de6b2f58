"""While a network heals: what is published once a link is up again reaches those behind it."""

import pytest

from tidings.engine.matcher import NaiveMatcher
from tidings.routing import STRATEGIES
from tidings.simulation import World
from tidings.simulation.clock import SECOND
from tidings.simulation.topologies import line


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("later", [0.0, 0.01, 0.1, 0.19, 0.21, 0.3])
def test_an_event_that_is_published_when_a_link_is_back_is_told(strategy: str, later: float) -> None:
    """Tables are made anew only when the network has been quiet for a moment: till then it waits."""
    world = World(line(2), strategy=strategy, matcher=NaiveMatcher)
    publisher, subscriber = world.client("p", "b1"), world.client("s", "b2")
    publisher.advertise("n > 0")
    subscriber.subscribe("n > 0")
    world.settle()
    world.cut("b1", "b2")
    world.settle()
    assert world.tables("b1").subscriptions == []
    world.heal("b1", "b2")
    while not all(end.is_up for end in world.links["b1", "b2"].ends):
        world.clock.step()
    world.run(later)
    publisher.publish({"n": 1})
    before = world.now
    world.settle()
    assert [dict(note.attributes) for note in world.notifications("s")] == [{"n": 1}]
    assert world.now - before < SECOND
