"""Rows that have no business in an engine: refused before they come to one, each with its reason."""

import pyarrow as pa
import pyarrow.compute as pc

from tidings.journal.record import PUBLISH
from tidings.spark.events import PROBLEM, SCHEDULED
from tidings.spark.physical import refusals

_LATE = "the event is older than the watermark; a longer `watermark` would have waited for it"
_AHEAD = "the timestamp lies further in the future than `ahead` allows"
_TIMELESS = "there is no timestamp, or none that can be read"


def judged(
    table: pa.Table, *, late_before: int | None = None, latest: int | None = None
) -> tuple[pa.Table, list[pa.Table]]:
    """The rows that have a place in the order of time, and refusals of the others.

    Events of before `late_before` are late. Nothing is later than `latest` but what was said beforehand.
    """
    table, refused = _without_problems(table)
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
    found = [(those, step, why) for those, step, why in steps if pc.any(those).as_py()]
    good = None
    for those, step, why in found:
        refused.append(refusals(table.filter(those), step, why))
        good = pc.invert(those) if good is None else pc.and_(good, pc.invert(those))
    return (table if good is None else table.filter(good)), refused


def _without_problems(table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """What could not be read never was an event or a change, whatever else its columns say."""
    if PROBLEM not in table.column_names:
        return table, []
    problem, table = table[PROBLEM], table.drop_columns([PROBLEM])
    has_one = pc.is_valid(problem)
    if not pc.any(has_one).as_py():
        return table, []
    refused = refusals(table.filter(has_one), "read", problem.drop_null().combine_chunks())
    return table.filter(pc.invert(has_one)), [refused]
