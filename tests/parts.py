"""The parts of `make test-all`: the whole suite at its long size, cut into runs that are short enough to repeat.

    make test-all                    # every part that has not passed on this tree yet, then the summary
    make test-all PART=seeds         # one part, whether it has passed or not
    make test-all PART=summary       # what the parts came to

A part is a set of test files (`part_of`); together they are all of them. The outcome of a part is kept below
`.test-all/`, with a digest of the tree that it was run on: a run that was interrupted goes on with the next part, and
an outcome of another tree does not count.

A property draws its long number of examples, or as many as it can draw in `MAX_PROPERTY_SECONDS` (`tests/limits.py`),
so that a slow machine does not need hours. The summary says how many properties ran out of time.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from tests.limits import CUT, MAX_PROPERTY_SECONDS, SIZE_VARIABLE
from tests.sharing import ROOT, starts_spark

KEPT = ROOT / ".test-all"
PARTS = {
    "seeds": "simulated overlays: histories that are drawn from seeds, faults, repair, roaming",
    "kills": "processes that are killed, stopped and cut off while they work",
    "spark": "everything that runs on Spark, its drivers and executors killed as well",
    "mutants": "checks and repair steps that are left out one by one: a test notices each",
    "install": "the wheel with each of its extras in a fresh environment",
    "laws": "every other test, the properties with their long number of examples",
}
_FILES = {
    "seeds": ("tests/simulation/", "tests/routing/"),
    "kills": (
        *("tests/process/", "tests/hub/test_killed.py", "tests/journal/test_crash.py"),
        *("tests/services/test_authority_crash.py", "tests/services/test_tdn_crash.py", "tests/broker/test_process.py"),
    ),
    "mutants": (
        *("tests/security/test_mutants.py", "tests/simulation/test_mutations.py"),
        "tests/simulation/test_settling_mutations.py",
    ),
    "install": ("tests/install/",),
}
_ORDER = ("mutants", "install", "kills", "seeds")  # the first that names a file has it


class Outcome(msgspec.Struct, frozen=True):
    """What a part came to, on the tree of a digest."""

    part: str
    tree: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    cut: int = 0  # properties that ran out of time before they had drawn all of their examples

    @property
    def is_good(self) -> bool:
        return self.failed == 0 and self.passed > 0


def part_of(file: str) -> str:
    """The part that a file of tests, or a page, belongs to."""
    if starts_spark(file):
        return "spark"
    return next((part for part in _ORDER if file.startswith(_FILES[part])), "laws")


def tree_digest() -> str:
    """A digest of everything that the tests may depend on: what is committed, and what was changed since."""
    asked = (["git", "rev-parse", "HEAD^{tree}"], ["git", "diff", "HEAD"], ["git", "status", "--porcelain"])
    answers = [subprocess.run(one, cwd=ROOT, capture_output=True, check=True).stdout for one in asked]
    return hashlib.sha256(b"\0".join(answers)).hexdigest()[:16]


def run(part: str, workers: int) -> Outcome:
    """Runs the tests of a part at their long size, and keeps the outcome."""
    KEPT.mkdir(exist_ok=True)
    report, began = KEPT / f"{part}.xml", time.monotonic()
    report.unlink(missing_ok=True)
    chosen = ["--part", part, "-m", "slow or not slow", "--durations", "10", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", "--numprocesses", str(workers), *chosen]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, SIZE_VARIABLE: "long"}, check=False).returncode
    outcome = _outcome(part, report, code, time.monotonic() - began)
    (KEPT / f"{part}.json").write_bytes(msgspec.json.encode(outcome))
    return outcome


def _outcome(part: str, report: Path, code: int, seconds: float) -> Outcome:
    """Counts the tests of a report; a run that ended without one, or badly, counts as a failure."""
    if not report.exists():
        return Outcome(part, tree_digest(), 0, 1, 0, seconds)
    tree = ElementTree.parse(report)  # noqa: S314 - pytest wrote it
    found = next(tree.iter("testsuite")).attrib
    failed, skipped = int(found["failures"]) + int(found["errors"]), int(found["skipped"])
    passed = int(found["tests"]) - failed - skipped
    cut = sum(one.get("name") == CUT for one in tree.iter("property"))
    return Outcome(part, tree_digest(), passed, failed or int(code != 0), skipped, seconds, cut)


def kept(part: str) -> Outcome | None:
    """The last outcome of a part."""
    path = KEPT / f"{part}.json"
    return msgspec.json.decode(path.read_bytes(), type=Outcome) if path.exists() else None


def summary(outcomes: Iterable[tuple[str, Outcome | None]], tree: str) -> str:
    """A line for each part, and one for all of them."""
    rows, total = [f"{'part':<8} {'passed':>7} {'failed':>7} {'skipped':>8} {'minutes':>8}"], 0.0
    cut = 0
    for part, one in outcomes:
        if one is None:
            rows.append(f"{part:<8} was not run")
            continue
        total += one.seconds
        numbers = f"{one.passed:>7,} {one.failed:>7,} {one.skipped:>8,} {one.seconds / 60:>8.1f}"
        cut += one.cut
        rows.append(f"{part:<8} {numbers}{'' if one.tree == tree else '  on another tree'}")
    rows.append(f"{'all':<8} {total / 60:>33.1f}")
    if cut:
        rows.append(f"{cut} properties drew for {MAX_PROPERTY_SECONDS:.0f} s, and not all of their examples")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", choices=["", "summary", *PARTS])
    parser.add_argument("--workers", type=int, default=3, help="processes that share the tests (3)")
    asked = parser.parse_args()
    tree = tree_digest()
    for part in [asked.part] if asked.part in PARTS else [] if asked.part else PARTS:
        before = kept(part)
        if not asked.part and before is not None and before.is_good and before.tree == tree:
            continue
        sys.stdout.write(f"== {part}: {PARTS[part]}\n")
        sys.stdout.flush()
        run(part, asked.workers)
    outcomes = [(part, kept(part)) for part in PARTS]
    sys.stdout.write(summary(outcomes, tree) + "\n")
    judged = [one for part, one in outcomes if asked.part in ("", "summary", part)]
    return int(not all(one is not None and one.is_good and one.tree == tree for one in judged))


if __name__ == "__main__":
    sys.exit(main())
