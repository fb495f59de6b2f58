"""What a broker writes down of its debts."""

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from tidings.engine.debts import State
from tidings.live.resending import debts_row, read_debts

NAMES, OFFSETS = st.text(min_size=1, max_size=5), st.integers(0, 2**60)
STATES = st.builds(
    State,
    floor=OFFSETS,
    owed=st.dictionaries(NAMES, OFFSETS, max_size=3),
    moved=st.lists(st.tuples(NAMES, NAMES, OFFSETS), max_size=3),
    known=st.frozensets(NAMES, max_size=3),
)


@examples(30, 1_000)
@given(STATES)
def test_debts_are_read_as_they_were_written(state: State) -> None:
    assert read_debts(debts_row(state)) == state
