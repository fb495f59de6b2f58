"""Virtual time: what is due happens in order, and what was put down first comes first."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.simulation.clock import SimulatedClock


@examples(100, 2000)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20))
def test_things_happen_by_time_and_then_in_the_order_in_which_they_were_put_down(due: list[tuple[int, bool]]) -> None:
    clock, happened = SimulatedClock(), list[tuple[int, int]]()
    for number, (time, is_background) in enumerate(due):
        (clock.in_background if is_background else clock.at)(time, lambda *what: happened.append(what), time, number)
    assert clock.under_way == sum(not is_background for _, is_background in due)
    clock.run_until(10)
    assert happened == sorted((time, number) for number, (time, _) in enumerate(due))
    assert (clock.now, clock.under_way) == (10, 0)


def test_what_follows_from_something_may_be_due_at_the_same_time() -> None:
    clock, happened = SimulatedClock(), list[str]()
    clock.at(3, lambda: clock.at(3, happened.append, "after"))
    clock.at(3, happened.append, "before")
    clock.run_until(3)
    assert happened == ["before", "after"]


def test_the_background_does_not_keep_time_going() -> None:
    clock = SimulatedClock()

    def beat() -> None:
        clock.in_background(clock.now + 10, beat)

    clock.in_background(0, beat)
    clock.at(25, int)
    assert clock.run_until_idle(1000)
    assert clock.now == 25


def test_time_that_is_up_leaves_what_comes_later() -> None:
    clock = SimulatedClock()
    clock.at(25, int)
    assert not clock.run_until_idle(20)
    assert clock.under_way == 1
    assert clock.due() == [int]
