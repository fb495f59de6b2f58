"""Which segments go: the oldest first, those too old or too much, and none that somebody still needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.journal import Retention
from tidings.journal.closed_segments import DAY, Candidate, files_to_remove
from tidings.model.errors import InvalidValueError

steps = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 9)), max_size=6)
numbers = st.integers(0, 40)
limits = st.none() | numbers


def candidates(given: list[tuple[int, int, int]]) -> list[Candidate]:
    found, offset, timestamp = [], 0, 0
    for records, time, size in given:
        offset, timestamp = offset + records, timestamp + time
        found.append(Candidate(offset, timestamp, size))
    return found


@examples(300, 3000)
@given(steps, numbers, numbers, limits, limits)
def test_what_goes_had_to_go_and_what_stays_may_stay(
    given: list[tuple[int, int, int]], limit: int, beside: int, before: int | None, max_bytes: int | None
) -> None:
    parts = candidates(given)
    total = beside + sum(part.size for part in parts)
    count = files_to_remove(iter(parts), limit, total, before, max_bytes)
    sizes = [total - sum(part.size for part in parts[:number]) for number in range(len(parts) + 1)]
    for number, part in enumerate(parts[:count]):
        assert part.next <= limit
        assert (before is not None and part.timestamp < before) or (max_bytes is not None and sizes[number] > max_bytes)
    if count < len(parts):
        first = parts[count]
        is_wanted = first.next > limit
        is_young = before is None or first.timestamp >= before
        assert is_wanted or (is_young and (max_bytes is None or sizes[count] <= max_bytes))


def test_days_are_counted_back_from_now() -> None:
    assert Retention().limits(10 * DAY) == (None, None)
    assert Retention(days=1.5, bytes=7).limits(10 * DAY) == (8 * DAY + DAY // 2, 7)
    assert Retention(days=30).limits(DAY) == (0, None)


@pytest.mark.parametrize("given", [{"days": -1}, {"bytes": -1}, {"days": float("nan")}, {"days": float("inf")}])
def test_limits_that_are_none(given: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match="retention: "):
        Retention(**given)  # type: ignore[arg-type]
