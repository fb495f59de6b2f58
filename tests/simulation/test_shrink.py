"""Shrinking finds the few steps that matter."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.simulation.reduction import shrink_steps


@examples(100, 2000)
@given(st.sets(st.integers(0, 60), max_size=5))
def test_what_is_left_is_what_is_needed(needed: set[int]) -> None:
    assert shrink_steps(range(61), lambda left: needed <= set(left)) == tuple(sorted(needed))


def test_no_step_that_is_left_can_be_left_out() -> None:
    def fails(left: tuple[int, ...]) -> bool:
        return sum(left) >= 30

    left = shrink_steps(range(12), fails)
    assert fails(left)
    assert not any(fails(left[:place] + left[place + 1 :]) for place in range(len(left)))


def test_it_stops_when_the_attempts_are_used_up() -> None:
    tried: list[tuple[int, ...]] = []

    def fails(left: tuple[int, ...]) -> bool:
        tried.append(left)
        return 0 in left

    assert len(shrink_steps(range(1000), fails, attempts=3)) == 500
    assert len(tried) == 3
