"""Measure all systems at all sizes, and report the outcome as a table, as JSON or as a chart."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import drawing
from benchmarks.brokers.systems import SYSTEMS
from benchmarks.brokers.trial import WINDOW, TrialResult, run_trial
from benchmarks.brokers.workload import Variant
from tidings.cli.measurement import number, steps
from tidings.cli.output import out, print_json


def measure(systems: Sequence[str], sizes: Sequence[int], seconds: float) -> list[TrialResult]:
    """Measure the systems size by size, so that results to compare are measured shortly after each other."""
    trials = [
        (system, variant, 1 if SYSTEMS[system].is_limit else size)
        for size in sizes
        for variant in Variant
        for system in systems
        if variant in SYSTEMS[system].variants and (size == sizes[0] or not SYSTEMS[system].is_limit)
    ]
    outcomes = []
    with steps(len(trials)) as step:
        for system, variant, size in trials:
            step(f"{SYSTEMS[system].name}: {size:,} subscriptions")
            outcomes.append(run_trial(system, variant, size, seconds))
    return outcomes


def draw(outcomes: Sequence[TrialResult], path: Path) -> None:
    """Draw the events per second at the largest size, and of systems with only one size at that."""
    largest = max(trial.subscriptions for trial in outcomes)
    values = {
        _label(trial): trial.rate
        for trial in outcomes
        if trial.rate and (trial.subscriptions == largest or SYSTEMS[trial.system].is_limit)
    }
    drawing.bars(values, f"events/s, {largest:,} subscriptions, {WINDOW} publications in flight", path)


def report(outcomes: Sequence[TrialResult], as_json: bool) -> None:
    """Print the outcomes as a table or as JSON."""
    if as_json:
        print_json([msgspec.to_builtins(trial) for trial in outcomes])
        return
    from rich.table import Table

    columns = ["broker", "subscriptions", f"{WINDOW} in flight", "one at a time", "half load: p50", "p99"]
    table = Table(*columns, "loading", "", box=None, pad_edge=False)
    for trial in outcomes:
        table.add_row(_label(trial), f"{trial.subscriptions:,}", *_numbers(trial), trial.remark)
    out.print(table)


def _label(trial: TrialResult) -> str:
    return trial.name if SYSTEMS[trial.system].is_limit else f"{trial.name}, {trial.variant}"


def _numbers(trial: TrialResult) -> list[str]:
    values = [
        (trial.rate, "events/s"),
        (trial.single, "us"),
        (trial.middle, "ms"),
        (trial.high, "ms"),
        (trial.loading, "s"),
    ]
    return [f"{number(value)} {unit}" if value else "-" for value, unit in values]
