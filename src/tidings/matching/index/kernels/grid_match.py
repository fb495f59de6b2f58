"""Match events by place and content: find subscriptions in a grid, then check their predicates in a pool.

The parameters `state`, `entries`, `records`, `slots` and `table` are the arrays of a grid, `ends` and `preds` those of
a `PredicatePool`; `scratch` is the thread's scratch memory.
"""

from typing import Any

import numpy as np
from llvmlite.ir import FunctionType, VoidType
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidings.matching.index.conjuncts import RESIDUAL
from tidings.matching.index.kernels.grid import find_within_reach, move_until
from tidings.matching.index.kernels.jit import (
    BYTE_ROWS,
    BYTES,
    FLOAT,
    FLOAT_ROWS,
    FLOATS,
    INT16_ROWS,
    INT32_ROWS,
    INT32S,
    INT64S,
    INTEGER,
    PREDICATES,
    kernel,
    part,
)
from tidings.matching.index.kernels.layout import CHECKED, FOUND, NEEDED, STAMP
from tidings.matching.index.kernels.match import (
    COUNTERS,
    KIND,
    MISSING,
    NO_ROOM,
    PRESENT_ONES,
    SEPARATOR,
    TEST_STAMP,
    TOO_MANY,
    F,
    R,
    bytes_of,
    f8,
    i2,
    i4,
    i8,
    passes,
    write_event,
    write_event_of_many,
    write_tests_of_many,
)

# The arrays of a grid and of a pool, which both kernels take
_NEAR = (INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32_ROWS, INT32S, PREDICATES)
_AHEAD = 8  # how many candidates ahead memory is prefetched


@intrinsic
def _prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetch the memory of an array's element without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        word = cgutils.int32_t
        kind = FunctionType(VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        flags = [word(0), word(3), word(1)]  # for reading, into all cache levels, data
        builder.call(prefetch, [place, *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@kernel(*_NEAR, BYTES, FLOATS, INT32S, FLOAT, FLOAT, INTEGER, INT32S)
def near_event(
    state, entries, records, slots, table, ends, preds, scratch, event, tests, x, y, limit, out
):  # fmt: skip
    """Write the positions of the subscriptions near an event whose content it satisfies; return how many.

    Returns NO_ROOM if `out` is too small (the counter NEEDED has the required size), and TOO_MANY if more than `limit`
    entries would have to be examined. Positions that the reference has to confirm come as their complement.

    Args:
        event: The event's values, as `Columns.encode` returns them.
        tests: The string tests that the event passes.
        x: The event's first coordinate.
        y: The event's second coordinate.
        limit: The number of entries that may be examined.
        out: Where positions are written.
    """
    counters = i8(scratch, COUNTERS)
    count = find_within_reach(state, entries, records, slots, table, out, x, y, limit)
    if count < 0:
        return TOO_MANY
    if count > len(out):
        counters[NEEDED] = count
        return NO_ROOM
    kinds, fs, rs = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R)
    present, test_stamp = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP)
    counters[STAMP] += 1
    stamp = counters[STAMP]
    size = write_event(event, len(kinds), kinds, fs, rs, present)
    for test in tests:
        test_stamp[test] = stamp
    match_count = _filter_by_content(ends, preds, kinds, fs, rs, test_stamp, stamp, out, count)
    for c in range(size):
        kinds[present[c]] = MISSING
    counters[CHECKED] += count
    counters[FOUND] += match_count
    return match_count


@kernel(
    *_NEAR, BYTES, INT32S, BYTE_ROWS, FLOAT_ROWS, INT16_ROWS, INT32_ROWS,
    INT32S, INT32S, FLOAT_ROWS, INTEGER, INT32S, FLOAT_ROWS, INT64S, INTEGER, INTEGER, INT32S, INT64S,
)  # fmt: skip
def near_events(
    state, entries, records, slots, table, ends, preds, scratch, event_attribute, event_kind, event_f, event_r, tests,
    test_first, test_members, places, limit, clients, moves, before, first, moved, out, sizes,
):  # fmt: skip
    """Match many events from `first` on as `near_event` does; return how many events and how many moves are done.

    It stops early if `out` has no room for the next event (the counter NEEDED has the required size), or if the grid
    has no room for the next move; in the second case fewer moves are done than come before that event. The parameters
    of events are those of `match_events`.

    Args:
        places: The events' coordinates, a row for each.
        limit: The number of entries that may be examined for an event.
        clients: The clients that move, in order.
        moves: Their new coordinates, a row for each.
        before: For each event, how many of the moves come before it.
        first: The event to begin with.
        moved: How many moves are done already.
        out: Where positions are written.
        sizes: Where the number of positions of each event is written, or TOO_MANY.
    """
    kinds, fs, rs = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R)
    present, test_stamp, counters = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, COUNTERS)
    filled = 0
    for e in range(first, len(sizes)):
        if moved < before[e]:
            moved = move_until(state, entries, records, table, clients, moves, moved, before[e])
            if moved < before[e]:
                return e, moved
        room = out[filled:]
        count = find_within_reach(state, entries, records, slots, table, room, places[e, 0], places[e, 1], limit)
        if count < 0:
            sizes[e] = TOO_MANY
            continue
        if count > len(room):
            counters[NEEDED] = count
            return e, moved
        counters[STAMP] += 1
        stamp = counters[STAMP]
        size = write_event_of_many(e, event_attribute, event_kind, event_f, event_r, len(kinds), kinds, fs, rs, present)
        write_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, size)
        sizes[e] = _filter_by_content(ends, preds, kinds, fs, rs, test_stamp, stamp, room, count)
        for c in range(size):
            kinds[present[c]] = MISSING
        counters[CHECKED] += count
        counters[FOUND] += sizes[e]
        filled += sizes[e]
    return len(sizes), moved


@part
def _filter_by_content(ends, preds, kinds, fs, rs, test_stamp, stamp, out, count):
    """Reduce `out` to the positions whose content the event in the scratch memory satisfies; return how many.

    In `preds`, from `ends[2 * position]` to `ends[2 * position + 1]`, are the subscription's predicates, each conjunct
    behind a separator.
    """
    present = match_count = 0
    for i in range(count):
        at = 2 * np.int64(out[i])
        if at < len(ends):  # otherwise it has no conjuncts: nothing can match it
            _prefetch(ends, at)
            out[present] = out[i]
            present += 1
    count = present
    for i in range(-_AHEAD, count):
        if i + _AHEAD < count:
            ahead = np.int64(ends[2 * out[i + _AHEAD]])
            _prefetch(preds, ahead)
            _prefetch(preds, ahead + 2)  # most likely in the next cache line
        if i < 0:
            continue
        position = out[i]
        at, end = ends[2 * position], ends[2 * position + 1]
        sure = doubtful = False
        while at < end and not sure:
            conjunct = at + 1
            at = conjunct
            while at < end and preds[at].what & 7 != SEPARATOR:
                at += 1
            if passes(preds, conjunct, at, kinds, fs, rs, test_stamp, stamp):
                if (preds[conjunct - 1].what >> 3) & RESIDUAL:
                    doubtful = True
                else:
                    sure = True
        if sure or doubtful:
            out[match_count] = position if sure else ~position
            match_count += 1
    return match_count
