"""One suite for all: the same steps lead to the same notifications in the reference, in a hub, and in overlays of every
shape under every strategy, simulated and live, with and without a journal."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.drivers import Driver, HubDriver, ReferenceDriver, SimulatorDriver
from tests.conformance.live import LiveDriver
from tests.conformance.scenarios import OFFER, SCENARIOS
from tests.simulation.strategies import of_client
from tests.sizes import examples
from tidings.routing import STRATEGIES
from tidings.simulation import Topology
from tidings.simulation.checking.steps import Advertises, Publishes, Step, Unadvertises
from tidings.simulation.topologies import line, random_graph, ring, star, tree

TOPOLOGIES = {"line": line(5), "star": star(5), "ring": ring(5), "tree": tree(5), "random": random_graph(5, 3, 7)}


def overlay(strategy: str, topology: Topology) -> Callable[[], Driver]:
    return lambda: SimulatorDriver(strategy, topology)


DRIVERS: dict[str, Callable[[], Driver]] = {
    "hub": HubDriver,
    **{f"{name}-{shape}": overlay(name, made) for name in STRATEGIES for shape, made in TOPOLOGIES.items()},
}


def agree(make: Callable[[], Driver], steps: Iterable[Step]) -> int:
    """How many notifications there were."""
    reference, driver = ReferenceDriver(), make()
    told = 0
    for number, step in enumerate(steps):
        expected = reference.take(step)
        assert driver.take(step) == expected, f"step {number}: {step}"
        told += len(expected)
    return told


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_everybody_agrees_with_the_reference(driver: str, scenario: str) -> None:
    assert agree(DRIVERS[driver], SCENARIOS[scenario]) > 0


LIVE = [("advertisement", "line"), ("asf", "star"), ("gsf", "ring"), ("spcf", "random")]
JOURNALED = [("advertisement", "ring"), ("spcf", "line")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("strategy", "shape"), LIVE)
def test_live_overlays_agree_with_the_reference(strategy: str, shape: str, scenario: str) -> None:
    driver = LiveDriver(strategy, TOPOLOGIES[shape])
    try:
        assert agree(lambda: driver, SCENARIOS[scenario]) > 0
    finally:
        driver.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("strategy", "shape"), JOURNALED)
def test_live_overlays_with_journals_agree_with_the_reference(
    strategy: str, shape: str, scenario: str, tmp_path: Path
) -> None:
    driver = LiveDriver(strategy, TOPOLOGIES[shape], tmp_path)
    try:
        assert agree(lambda: driver, SCENARIOS[scenario]) > 0
    finally:
        driver.close()


_step = st.sampled_from(["ann", "bob", "cyd", "dan", "eve"]).flatmap(lambda name: of_client(name, TOPOLOGIES["line"]))


@examples(60, 1_000)
@given(st.sampled_from(sorted(DRIVERS)), st.lists(_step, max_size=25))
def test_everybody_agrees_with_the_reference_whatever_is_done(driver: str, drawn: list[Step]) -> None:
    agree(DRIVERS[driver], _advertised(drawn))


@examples(10, 400)
@given(st.sampled_from(sorted(STRATEGIES)), st.sampled_from(sorted(TOPOLOGIES)), st.lists(_step, max_size=25))
def test_live_overlays_agree_with_the_reference_whatever_is_done(strategy: str, shape: str, drawn: list[Step]) -> None:
    driver = LiveDriver(strategy, TOPOLOGIES[shape])
    try:
        agree(lambda: driver, _advertised(drawn))
    finally:
        driver.close()


def _advertised(drawn: list[Step]) -> list[Step]:
    """With advertisements leading the way, what was not advertised would be refused."""
    steps: list[Step] = []
    for step in drawn:
        if isinstance(step, Publishes):
            steps.append(Advertises(step.client, f"{step.client}.ad", "", OFFER, OFFER))
        if not isinstance(step, Advertises | Unadvertises):
            steps.append(step)
    return steps
