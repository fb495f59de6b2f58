"""Measure how long `import tidings` and `tidings --help` take, compared with a bare interpreter."""

import subprocess
import sys

from tidings.cli.measurement import Measurement, median, time_once
from tidings.cli.output import progress

_CASES = [
    ("import tidings", ["-c", "import tidings"], "0.3 s"),
    ("import tidings; tidings.Filter", ["-c", "import tidings; tidings.Filter"], ""),
    ("tidings --help", ["-m", "tidings", "--help"], "0.5 s"),
]


def measure(rounds: int) -> list[Measurement]:
    """Measure the median start time of `rounds` starts for each case."""
    with progress() as bar:
        task = bar.add_task("starting", total=rounds * (len(_CASES) + 1))

        def start_seconds(arguments: list[str]) -> float:
            bar.advance(task)
            # S603: runs this interpreter, with arguments from the table above.
            return time_once(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))  # noqa: S603

        bare_seconds = median(start_seconds(["-c", "pass"]) for _ in range(rounds))
        comparison = f"a bare interpreter {bare_seconds:.3f} s"
        measurements: list[Measurement] = []
        for name, arguments, goal in _CASES:
            seconds = median(start_seconds(arguments) for _ in range(rounds))
            measurements.append(Measurement(name, seconds, "s", goal, f"{comparison} ({seconds / bare_seconds:.1f}x)"))
        return measurements
