"""Histories drawn from seeds, with faults, each strategy in turn: nothing is lost, undue, doubled or out of order, and
what has healed is as new."""

import pytest

from tests.simulation.known_faults import FAULTS, check
from tests.sizes import sized
from tidings.routing import STRATEGIES
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.checking.steps import Moves, Step, Waits
from tidings.simulation.faults import Crash, Cut

SEEDS = sized(24, 2_500)
_TOGETHER = 20  # seeds of a test: so that several processes can share them


@pytest.mark.parametrize("first", range(0, SEEDS, _TOGETHER))
def test_nothing_goes_wrong_in_the_histories_of_these_seeds(first: int) -> None:
    for seed in range(first, first + _TOGETHER):
        history = draw_history(seed)
        check(history, history.violations(), FAULTS)


def test_seeds_draw_every_strategy_and_faults_of_all_kinds() -> None:
    histories = [draw_history(seed) for seed in range(40)]
    assert {one.strategy for one in histories} == STRATEGIES.keys()
    kinds = {type(step).__name__ for one in histories for step in one.steps}
    assert {"Cut", "Heal", "Crash", "Restart", "Slow", "Lossy", "Moves", "Leaves", "Returns", "Publishes"} <= kinds
    assert histories == [draw_history(seed) for seed in range(40)]
    assert not any(isinstance(step, Cut | Crash) for step in draw_history(1, faults=False).steps)


def test_seeds_draw_subscribers_that_move_when_a_failure_is_noticed() -> None:
    for strategy in STRATEGIES:
        histories = [draw_history(seed, strategy=strategy) for seed in range(40)]
        following = [three for one in histories for three in zip(one.steps, one.steps[1:], one.steps[2:], strict=False)]
        assert any(
            isinstance(first, Cut | Crash) and _is_long(then) and isinstance(last, Moves)
            for first, then, last in following
        )


def _is_long(step: Step) -> bool:
    """Whether somebody waits until a failure is noticed."""
    return isinstance(step, Waits) and step.seconds > 3
