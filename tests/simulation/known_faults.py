"""Seeds whose histories show faults that are not mended yet, each with the kind of its first violation.

The folder histories/ has most of them as step files, reduced.
"""

from collections.abc import Mapping, Sequence

import pytest

from tidings.simulation.checking.checker import Kind, Violation
from tidings.simulation.checking.history import History
from tidings.simulation.reduction import report

FAULTS: dict[int, Kind] = {
    **dict.fromkeys((632, 1792, 1830), "lost"),
    **dict.fromkeys((181, 813, 1030, 1048, 1218, 1318, 1358, 1924, 2028, 2168), "order"),
    **dict.fromkeys((2430,), "tables"),
    **dict.fromkeys((1344,), "unsettled"),
}
FAULTS_WITH_PAUSES: dict[int, Kind] = {
    **dict.fromkeys((1048,), "lost"),
    **dict.fromkeys((344, 1257, 1309, 1344, 1420, 1475), "order"),
    **dict.fromkeys((1262,), "undue"),
    **dict.fromkeys((1358, 1460), "unsettled"),
}


def check(history: History, found: Sequence[Violation], known: Mapping[int, Kind]) -> None:
    """Fails where a history shows a fault that is not known, or a known fault no longer."""
    seed = history.seed
    if seed in known:
        kinds = [one.kind for one in found[:1]]
        assert kinds == [known[seed]], f"seed {seed} shows another fault, or none any more"
    elif found:
        pytest.fail(f"seed {seed}, {history.strategy}:\n{report(history)}")
