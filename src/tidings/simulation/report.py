"""Reports the violations of a history with a step file that reproduces them."""

from tidings.simulation.checking.history import History
from tidings.simulation.reduction import reduce_history
from tidings.simulation.step_file import StepFile, write

_SHOWN = 5  # violations of a report


def report(history: History) -> str | None:
    """Return the violations of a history and a reduced step file that shows the first one again, or None if there
    are none."""
    violations = history.violations()
    if not violations:
        return None
    small = reduce_history(history)
    shown = [str(violation) for violation in small.violations()[:_SHOWN]]
    return "\n".join(
        [
            *map(str, violations[:_SHOWN]),
            "with fewer steps, as a file FILE.steps for `tidings simulate FILE.steps`:",
            write(StepFile(small, violations[0].kind), shown),
        ]
    )
