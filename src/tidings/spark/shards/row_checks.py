"""Reject rows before they reach an engine: unreadable rows, late events, missing times, times in the future."""

import pyarrow as pa
import pyarrow.compute as pc

from tidings.journal.record import PUBLISH
from tidings.spark.events import PROBLEM, SCHEDULED
from tidings.spark.shards.output_rows import refusals

_LATE = "the event is older than the watermark; a longer `watermark` would have waited for it"
_AHEAD = "the timestamp lies further in the future than `ahead` allows"
_TIMELESS = "there is no timestamp, or none that can be read"


def split_rejected(
    table: pa.Table, *, late_before: int | None = None, latest: int | None = None
) -> tuple[pa.Table, list[pa.Table]]:
    """Split rows into those that the engine processes, and rejections of the others.

    Args:
        table: Events, or changes and events.
        late_before: Earlier events are rejected as `late` (microseconds); earlier changes are not.
        latest: Later rows are rejected (microseconds), except scheduled changes.
    """
    table, refused = _split_problems(table)
    time = table["timestamp"]
    steps = [(pc.is_null(time), "admit", _TIMELESS)]
    if late_before is not None:
        late = pc.less(time, late_before)
        is_event = pc.equal(table["kind"], PUBLISH) if "kind" in table.column_names else True
        steps.append((pc.and_(late, is_event).fill_null(False), "late", _LATE))
    if latest is not None:
        ahead = pc.greater(time, latest)
        if SCHEDULED in table.column_names:
            ahead = pc.and_(ahead, pc.invert(table[SCHEDULED]))
        steps.append((ahead.fill_null(False), "admit", _AHEAD))
    rejecting = [(is_rejected, step, reason) for is_rejected, step, reason in steps if pc.any(is_rejected).as_py()]
    is_good = None
    for is_rejected, step, reason in rejecting:
        refused.append(refusals(table.filter(is_rejected), step, reason))
        is_good = pc.invert(is_rejected) if is_good is None else pc.and_(is_good, pc.invert(is_rejected))
    return (table if is_good is None else table.filter(is_good)), refused


def _split_problems(table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Split off the rows that the source could not read, with the source's reasons."""
    if PROBLEM not in table.column_names:
        return table, []
    problem, table = table[PROBLEM], table.drop_columns([PROBLEM])
    has_problem = pc.is_valid(problem)
    if not pc.any(has_problem).as_py():
        return table, []
    refused = refusals(table.filter(has_problem), "read", problem.drop_null().combine_chunks())
    return table.filter(pc.invert(has_problem)), [refused]
