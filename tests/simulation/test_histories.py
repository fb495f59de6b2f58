"""Any history of any small overlay, with faults: what clients are told is what routing owes them."""

from hypothesis import given

from tests.simulation.strategies import histories
from tests.sizes import examples
from tidings.simulation.checking.history import History
from tidings.simulation.step_file import StepFile, write


@examples(28, 700)
@given(histories())
def test_clients_are_told_what_they_are_owed_and_what_has_healed_is_as_new(history: History) -> None:
    found = history.violations()
    assert not found, "\n".join([*map(str, found), write(StepFile(history))])
