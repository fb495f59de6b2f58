"""The compiled way through a grid: who is near, and of them whom the content concerns."""

from typing import Any

import numpy as np
from llvmlite.ir import FunctionType, VoidType
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidings.matching.index.cells import moved_until, within_reach
from tidings.matching.index.compiling import (
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
from tidings.matching.index.conjuncts import RESIDUAL
from tidings.matching.index.kernels import (
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
    lay_event,
    lay_event_of_many,
    lay_tests_of_many,
    passes,
)
from tidings.matching.index.layout import CHECKED, FOUND, NEEDED, STAMP

# What both kernels take: the arrays of a grid, and of a pool
_NEAR = (INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32_ROWS, INT32S, PREDICATES)
_AHEAD = 8  # candidates whose memory is asked for before it is needed


@intrinsic
def _fetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Asks the processor for the memory of an array's element, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        word = cgutils.int32_t
        kind = FunctionType(VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        flags = [word(0), word(3), word(1)]  # to read, into every cache, data
        builder.call(prefetch, [place, *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@kernel(*_NEAR, BYTES, FLOATS, INT32S, FLOAT, FLOAT, INTEGER, INT32S)
def near_event(
    state, entries, records, slots, table, ends, preds, scratch, event, tests, x, y, limit, out
):  # fmt: skip
    """Whom of those nearby one event concerns by its content: how many positions stand in `out`, or -1 if there was no
    room (the counters tell how much is needed), or -2 if more than `limit` entries would have to be looked at.

    Positions that the reference has to confirm come as their complement.
    """
    counters = i8(scratch, COUNTERS)
    count = within_reach(state, entries, records, slots, table, out, x, y, limit)
    if count < 0:
        return TOO_MANY
    if count > len(out):
        counters[NEEDED] = count
        return NO_ROOM
    kinds, fs, rs = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R)
    present, test_stamp = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP)
    counters[STAMP] += 1
    stamp = counters[STAMP]
    size = lay_event(event, len(kinds), kinds, fs, rs, present)
    for test in tests:
        test_stamp[test] = stamp
    kept = _checked(ends, preds, kinds, fs, rs, test_stamp, stamp, out, count)
    for c in range(size):
        kinds[present[c]] = MISSING
    counters[CHECKED] += count
    counters[FOUND] += kept
    return kept


@kernel(
    *_NEAR, BYTES, INT32S, BYTE_ROWS, FLOAT_ROWS, INT16_ROWS, INT32_ROWS,
    INT32S, INT32S, FLOAT_ROWS, INTEGER, INT32S, FLOAT_ROWS, INT64S, INTEGER, INTEGER, INT32S, INT64S,
)  # fmt: skip
def near_events(
    state, entries, records, slots, table, ends, preds, scratch, event_attribute, event_kind, event_f, event_r, tests,
    test_first, test_members, places, limit, clients, moves, before, first, moved, out, sizes,
):  # fmt: skip
    """The same of many events, as `match_events` takes them, a place each, from the `first` on. `sizes` says how many
    positions each has, or -2. Of the clients that move so many move `before` each event, and so many have `moved`.

    Returns how many events are done, and how many moves: `out` had no room for the next event, or the grid for the
    next move if not all before that event are done.
    """
    kinds, fs, rs = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R)
    present, test_stamp, counters = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, COUNTERS)
    filled = 0
    for e in range(first, len(sizes)):
        if moved < before[e]:
            moved = moved_until(state, entries, records, table, clients, moves, moved, before[e])
            if moved < before[e]:
                return e, moved
        room = out[filled:]
        count = within_reach(state, entries, records, slots, table, room, places[e, 0], places[e, 1], limit)
        if count < 0:
            sizes[e] = TOO_MANY
            continue
        if count > len(room):
            counters[NEEDED] = count
            return e, moved
        counters[STAMP] += 1
        stamp = counters[STAMP]
        size = lay_event_of_many(e, event_attribute, event_kind, event_f, event_r, len(kinds), kinds, fs, rs, present)
        lay_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, size)
        sizes[e] = _checked(ends, preds, kinds, fs, rs, test_stamp, stamp, room, count)
        for c in range(size):
            kinds[present[c]] = MISSING
        counters[CHECKED] += count
        counters[FOUND] += sizes[e]
        filled += sizes[e]
    return len(sizes), moved


@part
def _checked(ends, preds, kinds, fs, rs, test_stamp, stamp, out, count):
    """Keeps those of the positions in `out` that the event in the scratch concerns; how many.

    Between ends[position] stand the predicates of a subscription, each conjunct behind a separator.
    """
    there = kept = 0
    for i in range(count):
        at = 2 * np.int64(out[i])
        if at < len(ends):  # else it asks for what no event has
            _fetch(ends, at)
            out[there] = out[i]
            there += 1
    count = there
    for i in range(-_AHEAD, count):
        if i + _AHEAD < count:
            ahead = np.int64(ends[2 * out[i + _AHEAD]])
            _fetch(preds, ahead)
            _fetch(preds, ahead + 2)  # most likely on the next line
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
            out[kept] = position if sure else ~position
            kept += 1
    return kept
