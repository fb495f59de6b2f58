"""Says what goes wrong in a history, and how to do it again."""

from tidings.simulation.history import History
from tidings.simulation.reduction import reduced
from tidings.simulation.step_file import StepFile, write

_SHOWN = 5  # violations of a report


def report(history: History) -> str | None:
    """The violations, and a small step file that shows them again; None if nothing goes wrong."""
    violations = history.violations()
    if not violations:
        return None
    small = reduced(history)
    shown = [str(violation) for violation in small.violations()[:_SHOWN]]
    return "\n".join(
        [
            *map(str, violations[:_SHOWN]),
            "with fewer steps, as a file FILE.steps for `tidings simulate FILE.steps`:",
            write(StepFile(small, violations[0].kind), shown),
        ]
    )
