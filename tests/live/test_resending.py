"""What a broker writes down of its debts is what it reads after a restart."""

from tidings.engine.debts import State
from tidings.live.resending import debts_row, read_debts


def test_debts_are_read_as_they_were_written() -> None:
    state = State(7, {"b2": 5}, [("b3", "roaming", 6)], frozenset({"b2", "b3"}))
    assert read_debts(debts_row(state)) == state
