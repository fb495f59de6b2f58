"""How long it takes to start, beside a bare interpreter."""

import subprocess
import sys

from tidings.cli.bench import Measurement, median, timed
from tidings.cli.terminal import progress

_CASES = [
    ("import tidings", ["-c", "import tidings"], "0.3 s"),
    ("import tidings; tidings.Filter", ["-c", "import tidings; tidings.Filter"], ""),
    ("tidings --help", ["-m", "tidings", "--help"], "0.5 s"),
]


def measure(rounds: int) -> list[Measurement]:
    with progress() as bar:
        task = bar.add_task("starting", total=rounds * (len(_CASES) + 1))

        def started(arguments: list[str]) -> float:
            bar.advance(task)
            # S603: our own interpreter, with arguments from the table above.
            return timed(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))  # noqa: S603

        bare = median(started(["-c", "pass"]) for _ in range(rounds))
        beside = f"a bare interpreter {bare:.3f} s"
        found: list[Measurement] = []
        for what, arguments, goal in _CASES:
            seconds = median(started(arguments) for _ in range(rounds))
            found.append(Measurement(what, seconds, "s", goal, f"{beside} ({seconds / bare:.1f}x)"))
        return found
