"""An allowance: who keeps to what it says never gets more than burst and rate give, and never less."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.broker.net.rate_limits import TokenBucket

rates = st.integers(1, 1_000)
bursts = st.integers(1, 1_000)
amounts = st.integers(1, 200)
pauses = st.integers(0, 400).map(lambda number: number / 256)  # exact in binary, so that sums are
NEARLY = 1e-6


@examples(200, 10_000)
@given(rates, bursts, st.lists(st.tuples(amounts, pauses), max_size=40))
def test_who_waits_as_told_gets_no_more_than_burst_and_rate(
    rate: int, burst: int, steps: list[tuple[int, float]]
) -> None:
    allowance, now = TokenBucket(rate, burst), 0.0
    taken: list[tuple[float, int]] = []
    for amount, pause in steps:
        now += pause
        taken.append((now, amount))
        now += allowance.take(amount, now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            seconds = taken[last][0] - taken[first][0]
            before = sum(amount for _, amount in taken[first:last])  # the last may be as large as it likes
            assert before <= burst + rate * seconds + NEARLY


@examples(200, 10_000)
@given(rates, bursts, st.lists(st.tuples(amounts, pauses), max_size=40))
def test_it_counts_like_a_bucket_that_may_owe(rate: int, burst: int, steps: list[tuple[int, float]]) -> None:
    allowance, now, level = TokenBucket(rate, burst), 0.0, float(burst)
    for amount, pause in steps:
        now += pause
        level = min(burst, level + rate * pause) - amount
        waiting = allowance.take(amount, now)
        assert abs(waiting - max(0.0, -level / rate)) < NEARLY


@examples(100, 5_000)
@given(rates, st.integers(1, 100), st.integers(1, 50))
def test_a_burst_is_free_and_the_next_waits(rate: int, burst: int, later: int) -> None:
    allowance = TokenBucket(rate, burst)
    assert [allowance.take(1, 5.0) for _ in range(burst)] == [0.0] * burst
    assert abs(allowance.take(later, 5.0) - later / rate) < NEARLY


def test_without_a_burst_it_is_that_of_a_second() -> None:
    allowance = TokenBucket(100)
    assert allowance.take(100, 0.0) == 0.0
    assert allowance.take(50, 0.0) == 0.5


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    allowance = TokenBucket(1, 1)
    assert allowance.take(1, 100.0) == 0.0
    assert allowance.take(1, 50.0) == 1.0
    assert allowance.take(0, 100.0) == 1.0
