"""All systems at all sizes in turn, and what was found: a table for people, JSON for machines, a picture."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidings.cli.bench import drawing, number, steps
from tidings.cli.bench.brokers.systems import SYSTEMS
from tidings.cli.bench.brokers.trial import WINDOW, Outcome, outcome
from tidings.cli.bench.brokers.workload import Variant
from tidings.cli.terminal import out, print_json


def measure(systems: Sequence[str], sizes: Sequence[int], seconds: float) -> list[Outcome]:
    """Size by size, so that what is compared is measured shortly after each other."""
    trials = [
        (system, variant, 1 if SYSTEMS[system].is_limit else size)
        for size in sizes
        for variant in Variant
        for system in systems
        if variant in SYSTEMS[system].variants and (size == sizes[0] or not SYSTEMS[system].is_limit)
    ]
    found = []
    with steps(len(trials)) as step:
        for system, variant, size in trials:
            step(f"{SYSTEMS[system].name}: {size:,} subscriptions")
            found.append(outcome(system, variant, size, seconds))
    return found


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Events a second at the largest size, and of those that know no other at theirs."""
    largest = max(one.subscriptions for one in outcomes)
    values = {
        _label(one): one.rate
        for one in outcomes
        if one.rate and (one.subscriptions == largest or SYSTEMS[one.system].is_limit)
    }
    drawing.bars(values, f"events/s, {largest:,} subscriptions, {WINDOW} publications in flight", path)


def report(outcomes: Sequence[Outcome], as_json: bool) -> None:
    if as_json:
        print_json([msgspec.to_builtins(one) for one in outcomes])
        return
    from rich.table import Table

    columns = ["broker", "subscriptions", f"{WINDOW} in flight", "one at a time", "half load: p50", "p99"]
    table = Table(*columns, "loading", "", box=None, pad_edge=False)
    for one in outcomes:
        table.add_row(_label(one), f"{one.subscriptions:,}", *_numbers(one), one.remark)
    out.print(table)


def _label(one: Outcome) -> str:
    return one.name if SYSTEMS[one.system].is_limit else f"{one.name}, {one.variant}"


def _numbers(one: Outcome) -> list[str]:
    told = [(one.rate, "events/s"), (one.single, "us"), (one.middle, "ms"), (one.high, "ms"), (one.loading, "s")]
    return [f"{number(value)} {unit}" if value else "-" for value, unit in told]
