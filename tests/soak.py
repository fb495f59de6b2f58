"""A run as long as one likes: `make soak MINUTES=n`.

It takes turns between simulated histories, drawn from seeds that no test has, and rounds of faults on broker processes.
What goes wrong is printed with the seed that shows it again, and the run goes on. It ends with 1 if anything went
wrong.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.process.rounds import Round
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.reduction import report
from tidings.simulation.topologies import line, ring, star

_SHAPES = (line, ring, star)
_TURNS = 100  # of which one is a round on processes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long it runs (30)")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000, help="the first seed (the time)")
    asked = parser.parse_args()
    until, wrong = time.monotonic() + 60 * asked.minutes, 0
    for turn, seed in enumerate(itertools.count(asked.seed), 1):
        is_round = turn % _TURNS == 0
        wrong += _said(seed, _played(seed) if is_round else report(draw_history(seed, pauses=seed % 2 == 0)))
        left = until - time.monotonic()
        if is_round or left <= 0:
            rounds = turn // _TURNS
            sys.stdout.write(
                f"{turn - rounds:,} histories, {rounds:,} rounds, {wrong} wrong, {left / 60:.0f} min left\n"
            )
            sys.stdout.flush()
        if left <= 0:
            break
    return int(wrong > 0)


def _played(seed: int) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(Round(seed, _SHAPES[seed % 3](4), Path(folder), faults=5).play()) or None


def _said(seed: int, complaint: str | None) -> int:
    if complaint is not None:
        sys.stdout.write(f"seed {seed}:\n{complaint}\n")
    return int(complaint is not None)


if __name__ == "__main__":
    sys.exit(main())
