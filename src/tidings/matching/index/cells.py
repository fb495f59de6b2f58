"""The compiled part of a grid: who stands in which cell, each cell's records one after the other.

An entry is a client with its subscriptions of one level. Its record lies in the block of its cell, a header and room
for a power of two less one; who has no place has a record too, in a cell that no event looks into. Entries stand in
two lists beside: of their client and of their level, the last for events whose coordinates are so large that the
level's cells cannot be told apart. Cells, clients and subscriptions are keys of the same table. What becomes empty is
taken out at once; blocks that do not fit what is needed now are left over until `take_over`.
"""

import numpy as np

from tidings.matching.index.compiling import (
    BYTES,
    FLOAT,
    FLOAT_ROWS,
    INT32_ROWS,
    INT32S,
    INT64S,
    INTEGER,
    inlined,
    kernel,
    part,
)
from tidings.matching.index.lookup import KEY, KEY_2, KIND, VALUE, forget, found, hashed, remember
from tidings.matching.index.places import (
    ANYWHERE,
    EVERYONE,
    FAR_ROUND,
    FOLD,
    NOBODY,
    NOWHERE,
    SIZE,
    SPHERE,
    UNUSABLE,
    around,
    bands,
    home,
    settled,
    wide,
)

# The columns of an entry and of a subscription
CLIENT, LEVEL, CX, CY, BLOCK, PLACE, LEVEL_NEXT, LEVEL_PREVIOUS, SIBLING, FIRST = range(10)
POSITION, ENTRY, AFTER, BEFORE = range(4)
_CLIENT_KEY, _POSITION_KEY = NOBODY + 2, NOBODY + 3  # kinds of keys; a cell's is its level plus one

# All that an event asks of an entry lies together: coordinates, on the sphere a unit vector; how far an event may be;
# the subscription, or SEVERAL. The header of a block has its count and the logarithm of its size instead of the last.
# The array itself is of bytes, since a call takes those faster than records.
RECORD = np.dtype([("a", "f8"), ("b", "f8"), ("c", "f8"), ("limit", "f8"), ("position", "i4"), ("entry", "i4")])
SEVERAL = -1
RECORDS_AN_ENTRY = 4  # room for a block twice as large as the largest, beside all others, and for what is left over

# The state: the grid's shape, the table's seed, how many entries live, how many rows were ever used and which is free;
# the same of subscriptions; records that were ever used; then of each level how many entries are in its cells, the
# first of its list, and the largest radius that it ever had, in parts of a cell; the first vacant block of each size.
SHAPE, SEED, LIVE, USED, FREE, LIVE_POSITIONS, USED_POSITIONS, FREE_POSITIONS, USED_RECORDS, COUNTS = range(10)
FIRSTS = COUNTS + NOBODY + 1
WIDEST = FIRSTS + NOBODY + 1
VACANT = WIDEST + NOBODY + 1
_BLOCK_SIZES = 31
STATE = VACANT + _BLOCK_SIZES
_PARTS = 256

ROUNDING = 2.0**-44  # what rounding may do, relative to the numbers, in a filter that `reach_of` accepts
_UNDERFLOW = 1e-150  # the square of less than this is not exact

# What nearly all kernels take: state, entries, records, slots and table of a grid
_ARRAYS = (INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32_ROWS)


@kernel(*_ARRAYS, INT32S, FLOAT, FLOAT, INTEGER)
def near(state, entries, raw, slots, table, out, x, y, limit):
    """`within_reach`, for Python."""
    return within_reach(state, entries, raw, slots, table, out, x, y, limit)


@part
def within_reach(state, entries, raw, slots, table, out, x, y, limit):
    """The positions of the subscriptions within reach, as many as `out` holds; how many there are, or -1 if more than
    `limit` entries would have to be looked at.

    All in one piece: arrays that are handed on for each cell are counted in and out for each cell.
    """
    records = raw.view(RECORD)
    shape, seed, mask = state[SHAPE], state[SEED], len(table) - 1
    usable, a, b, c, u, v = settled(shape, x, y)
    if usable == UNUSABLE:
        return 0
    count, looked = np.int64(0), np.int64(0)
    slack = ROUNDING * max(abs(x), abs(y)) + _UNDERFLOW if shape != SPHERE else 0.0
    for level in range(NOBODY):
        if state[COUNTS + level] == 0:
            continue
        low, high, start = np.int64(0), np.int64(0), np.int64(0)
        number, turn = np.int64(1), np.int64(0)
        size = reach = across = 0.0
        if level < EVERYONE:
            size = SIZE[level]
            if usable == FAR_ROUND or slack > 0.4 * size:
                count, looked = _listed(
                    state, entries, records, slots, out, count, level, a, b, c, slack, looked, limit
                )  # fmt: skip
                if looked > limit:
                    return -1
                continue
            reach = size if shape == SPHERE else size * state[WIDEST + level] / _PARTS * (1 + ROUNDING) + slack
            low, high = bands(shape, v, reach, size)
            across = wide(v, reach) if shape == SPHERE else reach
        for band in range(low, high + 1):
            if level < EVERYONE:
                turn = around(band, size) if shape == SPHERE else np.int64(0)
                width = 360.0 / turn if turn > 0 else size
                start = np.int64(np.floor((u - across) / width))
                number = np.int64(np.floor((u + across) / width)) - start + 1
                if turn > 0 and (number >= turn or across >= 180.0):
                    start, number = np.int64(0), turn
            cy = band & FOLD
            for n in range(start, start + number):
                cx = ANYWHERE if level == EVERYONE else n % turn if turn > 0 else n & FOLD
                at = hashed(seed, cx, cy, level + 1) & mask
                while table[at, KIND] != 0:
                    if table[at, KEY] == cx and table[at, KEY_2] == cy and table[at, KIND] == level + 1:
                        break
                    at = (at + 1) & mask
                if table[at, KIND] == 0:
                    continue
                first = np.int64(table[at, VALUE])
                many = np.int64(records[first].position)
                looked += many
                if looked > limit:
                    return -1
                for r in range(first + 1, first + 1 + many):
                    one = records[r]
                    dx, dy, dz = abs(one.a - a), abs(one.b - b), one.c - c
                    apart = dx * dx + dy * dy + dz * dz if shape == SPHERE else dx if dx > dy else dy
                    # NaN, a place on the sphere that is not known well, always is within reach.
                    is_within = not apart > one.limit + slack
                    if one.position != SEVERAL:
                        if count < len(out):
                            out[count] = one.position
                        count += is_within
                    elif is_within:
                        s = entries[one.entry, FIRST]
                        while s >= 0:
                            if count < len(out):
                                out[count] = slots[s, POSITION]
                            count += 1
                            s = slots[s, AFTER]
    return count


@part
def _listed(state, entries, records, slots, out, count, level, a, b, c, slack, looked, limit):
    """The same for all of a level."""
    e = state[FIRSTS + level]
    while e >= 0 and looked <= limit:
        looked += 1
        if entries[e, CX] < NOWHERE:
            one = records[entries[e, PLACE]]
            dx, dy, dz = abs(one.a - a), abs(one.b - b), one.c - c
            apart = dx * dx + dy * dy + dz * dz if state[SHAPE] == SPHERE else dx if dx > dy else dy
            if not apart > one.limit + slack:
                s = entries[e, FIRST]
                while s >= 0:
                    if count < len(out):
                        out[count] = slots[s, POSITION]
                    count += 1
                    s = slots[s, AFTER]
        e = np.int64(entries[e, LEVEL_NEXT])
    return count, looked


# Changes. Where one finds no room for a record it says so, and is done again when `take_over` has made some.


@kernel(INT64S, INT32_ROWS, BYTES, INT32_ROWS, INTEGER, FLOAT, FLOAT)
def move(state, entries, raw, table, client, x, y):
    """The client is at a place from now on, NaN where it has none; whether there was room."""
    records = raw.view(RECORD)
    at = found(table, state[SEED], client, 0, _CLIENT_KEY)
    return table[at, KIND] == 0 or _move_all(state, entries, records, table, np.int64(table[at, VALUE]), 0.0, x, y)


@kernel(INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32S, FLOAT_ROWS, INTEGER)
def move_many(state, entries, raw, table, clients, given, first):
    """The same of many clients, from the `first` on; the one for which there was no room, or how many there are."""
    return moved_until(state, entries, raw, table, clients, given, first, len(clients))


@part
def moved_until(state, entries, raw, table, clients, given, first, end):
    """The same of those before the `end`."""
    records = raw.view(RECORD)
    for i in range(first, end):
        at = found(table, state[SEED], clients[i], 0, _CLIENT_KEY)
        if table[at, KIND] != 0:
            y = given[i, 1] if given.shape[1] > 1 else 0.0
            if not _move_all(state, entries, records, table, np.int64(table[at, VALUE]), 0.0, given[i, 0], y):
                return i
    return end


@kernel(*_ARRAYS, INTEGER, INTEGER, INTEGER, FLOAT, FLOAT, FLOAT)
def put(state, entries, raw, slots, table, position, client, level, limit, x, y):
    """One more subscription; whether there was room. It must not be there yet, but for an attempt without room."""
    records = raw.view(RECORD)
    if state[FREE] < 0 and state[USED] == len(entries):
        return False
    if state[FREE_POSITIONS] < 0 and state[USED_POSITIONS] == len(slots):
        return False
    at = found(table, state[SEED], client, 0, _CLIENT_KEY)
    first = np.int64(table[at, VALUE]) if table[at, KIND] != 0 else np.int64(-1)
    e = first
    while e >= 0 and entries[e, LEVEL] != level:
        e = np.int64(entries[e, SIBLING])
    if e < 0:
        e = first = _new_entry(state, entries, table, client, level)
    _widen(state, level, limit)
    if table[found(table, state[SEED], position, 0, _POSITION_KEY), KIND] == 0:
        _put_position(state, entries, slots, table, e, position)
    if not _move_all(state, entries, records, table, first, limit, x, y):
        return False
    record = entries[e, PLACE]
    records[record].limit = max(records[record].limit, limit)
    _mark(entries, records, slots, e)
    return True


@kernel(*_ARRAYS, INTEGER)
def remove(state, entries, raw, slots, table, position):
    """A subscription less; whether it was there, and whether the arrays are much too large by now."""
    records = raw.view(RECORD)
    seed = state[SEED]
    at = found(table, seed, position, 0, _POSITION_KEY)
    if table[at, KIND] == 0:
        return False, False
    s = np.int64(table[at, VALUE])
    forget(table, seed, at)
    e, after, before = np.int64(slots[s, ENTRY]), slots[s, AFTER], slots[s, BEFORE]
    if before >= 0:
        slots[before, AFTER] = after
    else:
        entries[e, FIRST] = after
    if after >= 0:
        slots[after, BEFORE] = before
    slots[s, AFTER] = state[FREE_POSITIONS]
    state[FREE_POSITIONS] = s
    state[LIVE_POSITIONS] -= 1
    if entries[e, FIRST] < 0:
        _old_entry(state, entries, records, table, e)
    else:
        _mark(entries, records, slots, e)
    wasteful = 4 * state[LIVE] + 64 < len(entries) or 4 * state[LIVE_POSITIONS] + 64 < len(slots)
    return True, wasteful


@kernel(*_ARRAYS, *_ARRAYS)
def take_over(
    state, entries, raw, slots, table, old_state, old_entries, old_raw, old_slots, old_table
):  # fmt: skip
    """Everything from other arrays into these, which are empty and have room."""
    records, old_records = raw.view(RECORD), old_raw.view(RECORD)
    number = np.full(len(old_entries), -1, np.int64)
    for e in range(old_state[USED]):
        if old_entries[e, FIRST] < 0:
            continue
        number[e] = _new_entry(state, entries, table, old_entries[e, CLIENT], old_entries[e, LEVEL])
        s = np.int64(old_entries[e, FIRST])
        while s >= 0:
            _put_position(state, entries, slots, table, number[e], old_slots[s, POSITION])
            s = np.int64(old_slots[s, AFTER])
    for row in range(len(old_table)):
        cx, cy, kind = old_table[row, KEY], old_table[row, KEY_2], old_table[row, KIND]
        if kind == 0 or kind > NOBODY + 1:
            continue
        old = np.int64(old_table[row, VALUE])
        count, power = np.int64(old_records[old].position), 1
        while (1 << power) <= count:
            power += 1
        start = _taken(state, records, power)
        records[start].position, records[start].entry = count, power
        at = found(table, state[SEED], cx, cy, kind)
        remember(table, at, cx, cy, kind)
        table[at, VALUE] = start
        for i in range(1, count + 1):
            e = number[old_records[old + i].entry]
            records[start + i] = old_records[old + i]
            records[start + i].entry = e
            entries[e, BLOCK], entries[e, PLACE], entries[e, CX], entries[e, CY] = start, start + i, cx, cy
            _widen(state, entries[e, LEVEL], records[start + i].limit)
        if cx != NOWHERE:
            state[COUNTS + kind - 1] += count


# Entries


@part
def _widen(state, level, limit):
    if state[SHAPE] != SPHERE and level < EVERYONE:
        state[WIDEST + level] = max(state[WIDEST + level], np.int64(np.ceil(limit / SIZE[level] * _PARTS)))


@part
def _mark(entries, records, slots, e):
    s = entries[e, FIRST]
    records[entries[e, PLACE]].position = slots[s, POSITION] if slots[s, AFTER] < 0 else SEVERAL


@part
def _move_all(state, entries, records, table, e, limit, x, y):
    """All entries from this one on; one that had no record yet has the limit."""
    shape = state[SHAPE]
    usable, a, b, c, u, v = settled(shape, x, y)
    while e >= 0:
        cx, cy = home(shape, entries[e, LEVEL], usable, u, v)
        old, block, old_cx, old_cy = np.int64(entries[e, PLACE]), entries[e, BLOCK], entries[e, CX], entries[e, CY]
        if old < 0 or old_cx != cx or old_cy != cy:
            if not _enter(state, entries, records, table, e, cx, cy):
                return False
            new = entries[e, PLACE]
            records[new].limit, records[new].position = limit, SEVERAL
            if old >= 0:
                records[new].limit, records[new].position = records[old].limit, records[old].position
                _leave(state, entries, records, table, entries[e, LEVEL], old, np.int64(block), old_cx, old_cy)
        r = entries[e, PLACE]
        records[r].a, records[r].b, records[r].c = a, b, c
        e = np.int64(entries[e, SIBLING])
    return True


@inlined
def _enter(state, entries, records, table, e, cx, cy):
    """A record at the end of a cell's block; whether there was room for it."""
    level = EVERYONE if cx == ANYWHERE else entries[e, LEVEL]
    at = found(table, state[SEED], cx, cy, level + 1)
    if table[at, KIND] == 0:
        start = _taken(state, records, 1)
        if start < 0:
            return False
        remember(table, at, cx, cy, level + 1)
        table[at, VALUE] = start
        records[start].position, records[start].entry = 0, 1
    start = np.int64(table[at, VALUE])
    count, power = np.int64(records[start].position) + 1, np.int64(records[start].entry)
    if count == 1 << power:
        start = _resettled(state, entries, records, table, at, power + 1)
        if start < 0:
            return False
    records[start].position = count
    records[start + count].entry = e
    entries[e, BLOCK], entries[e, PLACE], entries[e, CX], entries[e, CY] = start, start + count, cx, cy
    if cx != NOWHERE:
        state[COUNTS + level] += 1
    return True


@inlined
def _leave(state, entries, records, table, level, record, block, cx, cy):
    """Takes a record out of its cell; the last one moves up."""
    level = EVERYONE if cx == ANYWHERE else level
    count, power = np.int64(records[block].position) - 1, np.int64(records[block].entry)
    last = block + count + 1
    if record != last:
        records[record] = records[last]
        entries[records[record].entry, PLACE] = record
    records[block].position = count
    if 4 * count < 1 << power and (count == 0 or power > 2):
        at = found(table, state[SEED], cx, cy, level + 1)
        if count == 0:
            _given_back(state, records, block, power)
            forget(table, state[SEED], at)
        else:
            _resettled(state, entries, records, table, at, power - 1)
    if cx != NOWHERE:
        state[COUNTS + level] -= 1


@part
def _new_entry(state, entries, table, client, level):
    """An entry without a record and without subscriptions, the first of its client and of its level."""
    e = state[FREE]
    if e >= 0:
        state[FREE] = entries[e, LEVEL_NEXT]
    else:
        e = state[USED]
        state[USED] += 1
    state[LIVE] += 1
    entries[e, CLIENT], entries[e, LEVEL], entries[e, FIRST] = client, level, -1
    entries[e, CX], entries[e, CY], entries[e, PLACE] = NOWHERE, 0, -1
    after = state[FIRSTS + level]
    if after >= 0:
        entries[after, LEVEL_PREVIOUS] = e
    entries[e, LEVEL_NEXT], entries[e, LEVEL_PREVIOUS] = after, -1
    state[FIRSTS + level] = e
    at = found(table, state[SEED], client, 0, _CLIENT_KEY)
    entries[e, SIBLING] = -1
    if table[at, KIND] == 0:
        remember(table, at, client, 0, _CLIENT_KEY)
    else:
        entries[e, SIBLING] = table[at, VALUE]
    table[at, VALUE] = e
    return e


@part
def _old_entry(state, entries, records, table, e):
    """Takes an entry that has no subscriptions out of every list."""
    block, place = np.int64(entries[e, BLOCK]), np.int64(entries[e, PLACE])
    _leave(state, entries, records, table, entries[e, LEVEL], place, block, entries[e, CX], entries[e, CY])
    after, before = entries[e, LEVEL_NEXT], entries[e, LEVEL_PREVIOUS]
    if after >= 0:
        entries[after, LEVEL_PREVIOUS] = before
    if before >= 0:
        entries[before, LEVEL_NEXT] = after
    else:
        state[FIRSTS + entries[e, LEVEL]] = after
    at = found(table, state[SEED], entries[e, CLIENT], 0, _CLIENT_KEY)
    sibling = np.int64(table[at, VALUE])
    if sibling != e:  # a client has few entries
        while entries[sibling, SIBLING] != e:
            sibling = np.int64(entries[sibling, SIBLING])
        entries[sibling, SIBLING] = entries[e, SIBLING]
    elif entries[e, SIBLING] >= 0:
        table[at, VALUE] = entries[e, SIBLING]
    else:
        forget(table, state[SEED], at)
    entries[e, LEVEL_NEXT] = state[FREE]
    state[FREE] = e
    state[LIVE] -= 1


@part
def _put_position(state, entries, slots, table, e, position):
    s = state[FREE_POSITIONS]
    if s >= 0:
        state[FREE_POSITIONS] = slots[s, AFTER]
    else:
        s = state[USED_POSITIONS]
        state[USED_POSITIONS] += 1
    state[LIVE_POSITIONS] += 1
    after = entries[e, FIRST]
    if after >= 0:
        slots[after, BEFORE] = s
    slots[s, POSITION], slots[s, ENTRY], slots[s, AFTER], slots[s, BEFORE] = position, e, after, -1
    entries[e, FIRST] = s
    at = found(table, state[SEED], position, 0, _POSITION_KEY)
    remember(table, at, position, 0, _POSITION_KEY)
    table[at, VALUE] = s


# Blocks of records, whose sizes are powers of two


@part
def _resettled(state, entries, records, table, at, power):
    """A cell's records in a block of another size; -1 if there is none."""
    old, start = np.int64(table[at, VALUE]), _taken(state, records, power)
    if start >= 0:
        for i in range(1, records[old].position + 1):
            records[start + i] = records[old + i]
            e = records[old + i].entry
            entries[e, BLOCK], entries[e, PLACE] = start, start + i
        records[start].position, records[start].entry = records[old].position, power
        _given_back(state, records, old, np.int64(records[old].entry))
        table[at, VALUE] = start
    return start


@inlined
def _taken(state, records, power):
    """A block: a vacant one, half of a larger one, or one that was never used; -1 if there is none."""
    found = power
    while found < _BLOCK_SIZES and state[VACANT + found] < 0:
        found += 1
    if found == _BLOCK_SIZES:
        start = state[USED_RECORDS]
        if start + (1 << power) > len(records):
            return np.int64(-1)
        state[USED_RECORDS] += 1 << power
        return start
    start = state[VACANT + found]
    state[VACANT + found] = records[start].position
    while found > power:
        found -= 1
        _given_back(state, records, start + (1 << found), found)
    return start


@inlined
def _given_back(state, records, start, power):
    records[start].position = state[VACANT + power]
    state[VACANT + power] = start
