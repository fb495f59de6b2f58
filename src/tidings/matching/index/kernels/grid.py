"""The compiled operations of a grid: records by cell, moves, and the search for subscriptions near an event.

Theory of operation:

1. An *entry* stands for a client's subscriptions of one level. It is in two linked lists: the entries of its client,
   and the entries of its level. The latter is walked for an event whose coordinates are so large that the level's cells
   cannot be told apart.
2. The *record* of an entry has what an event needs of it: coordinates, limit, and the subscription if there is only
   one. The records of a cell lie one after the other in a block: a header, then room for a power of two less one. The
   record of a client without a place is in a cell that no event looks into.
3. A *slot* stands for a subscription; the slots of an entry are a linked list.
4. Cells, clients and subscriptions are keys of one hash table.
5. Whatever becomes empty is removed at once. Blocks of records that fit no present need stay vacant until `take_over`
   copies everything into new arrays.

The functions share the parameters `state`, `entries`, `raw` (or `records`), `slots` and `table`, which are the arrays
of the grid.
"""

import numpy as np

from tidings.matching.index.kernels.cell_geometry import (
    ANYWHERE,
    EVERYONE,
    FAR_ROUND,
    FOLD,
    NOBODY,
    NOWHERE,
    SIZE,
    SPHERE,
    UNUSABLE,
    bands,
    cell_of,
    cells_in_band,
    longitude_reach,
    normalized_place,
)
from tidings.matching.index.kernels.hash_table import (
    KEY,
    KEY_2,
    KIND,
    VALUE,
    delete_row,
    find_row,
    hash_key,
    insert_key,
)
from tidings.matching.index.kernels.jit import (
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

# The columns of an entry and of a slot
CLIENT, LEVEL, CX, CY, BLOCK, PLACE, LEVEL_NEXT, LEVEL_PREVIOUS, SIBLING, FIRST = range(10)
POSITION, ENTRY, AFTER, BEFORE = range(4)
_CLIENT_KEY, _POSITION_KEY = NOBODY + 2, NOBODY + 3  # kinds of keys; the kind of a cell is its level plus one

# A record: coordinates, on the sphere a unit vector; the largest distance of an event; the subscription, or SEVERAL;
# the entry. The header of a block has its count and the logarithm of its size in place of the last two.
# Kernels take the array as bytes, which are cheaper to pass than records.
RECORD = np.dtype([("a", "f8"), ("b", "f8"), ("c", "f8"), ("limit", "f8"), ("position", "i4"), ("entry", "i4")])
SEVERAL = -1
RECORDS_AN_ENTRY = 4  # enough for a block twice as large as the largest, for all others and for vacant ones

# The state: the grid's shape; the table's seed; of entries the number in use, the number of rows ever used and the
# first free row; the same of slots; records ever used; then for each level the number of entries in its cells, the
# first of its list, and the largest radius it ever had, in parts of a cell; and the first vacant block of each size.
SHAPE, SEED, LIVE, USED, FREE, LIVE_POSITIONS, USED_POSITIONS, FREE_POSITIONS, USED_RECORDS, COUNTS = range(10)
FIRSTS = COUNTS + NOBODY + 1
WIDEST = FIRSTS + NOBODY + 1
VACANT = WIDEST + NOBODY + 1
_BLOCK_SIZES = 31
STATE = VACANT + _BLOCK_SIZES
_PARTS = 256

ROUNDING = 2.0**-44  # the relative rounding error in a filter that `distance_bound_of` accepts
_UNDERFLOW = 1e-150  # below this, squares are not exact

# The arrays of a grid: state, entries, records, slots and table
_ARRAYS = (INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32_ROWS)


@kernel(*_ARRAYS, INT32S, FLOAT, FLOAT, INTEGER)
def near(state, entries, raw, slots, table, out, x, y, limit):
    """Run `find_within_reach` for Python.

    Args:
        out: Where positions are written.
        x: The event's first coordinate.
        y: The event's second coordinate.
        limit: The number of entries that may be examined.
    """
    return find_within_reach(state, entries, raw, slots, table, out, x, y, limit)


@part
def find_within_reach(state, entries, raw, slots, table, out, x, y, limit):
    """Write the positions of the subscriptions that have the event within reach, as many as `out` has room for.

    Returns how many there are, or -1 if more than `limit` entries would have to be examined. The function is not split,
    because arrays that are passed on for each cell are reference-counted for each cell.

    Args:
        out: Where positions are written.
        x: The event's first coordinate.
        y: The event's second coordinate.
        limit: The number of entries that may be examined.
    """
    records = raw.view(RECORD)
    shape, seed, mask = state[SHAPE], state[SEED], len(table) - 1
    usable, a, b, c, u, v = normalized_place(shape, x, y)
    if usable == UNUSABLE:
        return 0
    count, examined = np.int64(0), np.int64(0)
    margin = ROUNDING * max(abs(x), abs(y)) + _UNDERFLOW if shape != SPHERE else 0.0
    for level in range(NOBODY):
        if state[COUNTS + level] == 0:
            continue
        low, high, start = np.int64(0), np.int64(0), np.int64(0)
        number, cell_count = np.int64(1), np.int64(0)
        size = reach = across = 0.0
        if level < EVERYONE:
            size = SIZE[level]
            if usable == FAR_ROUND or margin > 0.4 * size:
                count, examined = _search_level(
                    state, entries, records, slots, out, count, level, a, b, c, margin, examined, limit
                )  # fmt: skip
                if examined > limit:
                    return -1
                continue
            reach = size if shape == SPHERE else size * state[WIDEST + level] / _PARTS * (1 + ROUNDING) + margin
            low, high = bands(shape, v, reach, size)
            across = longitude_reach(v, reach) if shape == SPHERE else reach
        for band in range(low, high + 1):
            if level < EVERYONE:
                cell_count = cells_in_band(band, size) if shape == SPHERE else np.int64(0)
                width = 360.0 / cell_count if cell_count > 0 else size
                start = np.int64(np.floor((u - across) / width))
                number = np.int64(np.floor((u + across) / width)) - start + 1
                if cell_count > 0 and (number >= cell_count or across >= 180.0):
                    start, number = np.int64(0), cell_count
            cy = band & FOLD
            for n in range(start, start + number):
                cx = ANYWHERE if level == EVERYONE else n % cell_count if cell_count > 0 else n & FOLD
                at = hash_key(seed, cx, cy, level + 1) & mask
                while table[at, KIND] != 0:
                    if table[at, KEY] == cx and table[at, KEY_2] == cy and table[at, KIND] == level + 1:
                        break
                    at = (at + 1) & mask
                if table[at, KIND] == 0:
                    continue
                first = np.int64(table[at, VALUE])
                record_count = np.int64(records[first].position)
                examined += record_count
                if examined > limit:
                    return -1
                for r in range(first + 1, first + 1 + record_count):
                    record = records[r]
                    dx, dy, dz = abs(record.a - a), abs(record.b - b), record.c - c
                    distance = dx * dx + dy * dy + dz * dz if shape == SPHERE else dx if dx > dy else dy
                    # NaN, for a longitude too large to be exact, always counts as within reach.
                    is_within = not distance > record.limit + margin
                    if record.position != SEVERAL:
                        if count < len(out):
                            out[count] = record.position
                        count += is_within
                    elif is_within:
                        s = entries[record.entry, FIRST]
                        while s >= 0:
                            if count < len(out):
                                out[count] = slots[s, POSITION]
                            count += 1
                            s = slots[s, AFTER]
    return count


@part
def _search_level(state, entries, records, slots, out, count, level, a, b, c, margin, examined, limit):
    """Search all entries of a level instead of its cells."""
    e = state[FIRSTS + level]
    while e >= 0 and examined <= limit:
        examined += 1
        if entries[e, CX] < NOWHERE:
            record = records[entries[e, PLACE]]
            dx, dy, dz = abs(record.a - a), abs(record.b - b), record.c - c
            distance = dx * dx + dy * dy + dz * dz if state[SHAPE] == SPHERE else dx if dx > dy else dy
            if not distance > record.limit + margin:
                s = entries[e, FIRST]
                while s >= 0:
                    if count < len(out):
                        out[count] = slots[s, POSITION]
                    count += 1
                    s = slots[s, AFTER]
        e = np.int64(entries[e, LEVEL_NEXT])
    return count, examined


# Changes. One that finds no room for a record returns False; it is repeated after `take_over` into larger arrays.


@kernel(INT64S, INT32_ROWS, BYTES, INT32_ROWS, INTEGER, FLOAT, FLOAT)
def move(state, entries, raw, table, client, x, y):
    """Set the place of a client, NaN without one; return whether there was room.

    Args:
        client: The row of the client.
        x: The first coordinate.
        y: The second coordinate.
    """
    records = raw.view(RECORD)
    at = find_row(table, state[SEED], client, 0, _CLIENT_KEY)
    return table[at, KIND] == 0 or _move_all(state, entries, records, table, np.int64(table[at, VALUE]), 0.0, x, y)


@kernel(INT64S, INT32_ROWS, BYTES, INT32_ROWS, INT32S, FLOAT_ROWS, INTEGER)
def move_many(state, entries, raw, table, clients, coordinates, first):
    """Set the places of clients from `first` on; return the client for which there was no room, or their number.

    Args:
        clients: The rows of the clients.
        coordinates: Their coordinates, a row for each.
        first: The first client to move.
    """
    return move_until(state, entries, raw, table, clients, coordinates, first, len(clients))


@part
def move_until(state, entries, raw, table, clients, coordinates, first, end):
    """Set the places of clients from `first` up to `end`; return the client for which there was no room, or `end`.

    Args:
        clients: The rows of the clients.
        coordinates: Their coordinates, a row for each.
        first: The first client to move.
        end: The client to stop at.
    """
    records = raw.view(RECORD)
    for i in range(first, end):
        at = find_row(table, state[SEED], clients[i], 0, _CLIENT_KEY)
        if table[at, KIND] != 0:
            y = coordinates[i, 1] if coordinates.shape[1] > 1 else 0.0
            if not _move_all(state, entries, records, table, np.int64(table[at, VALUE]), 0.0, coordinates[i, 0], y):
                return i
    return end


@kernel(*_ARRAYS, INTEGER, INTEGER, INTEGER, FLOAT, FLOAT, FLOAT)
def put(state, entries, raw, slots, table, position, client, level, limit, x, y):
    """Add a subscription; return whether there was room.

    It must not be there yet, unless a previous call for it returned False.

    Args:
        position: The subscription's position.
        client: The row of its client.
        level: The level of its radius.
        limit: The largest distance of an event.
        x: The client's first coordinate, NaN without a place.
        y: The client's second coordinate.
    """
    records = raw.view(RECORD)
    if state[FREE] < 0 and state[USED] == len(entries):
        return False
    if state[FREE_POSITIONS] < 0 and state[USED_POSITIONS] == len(slots):
        return False
    at = find_row(table, state[SEED], client, 0, _CLIENT_KEY)
    first = np.int64(table[at, VALUE]) if table[at, KIND] != 0 else np.int64(-1)
    e = first
    while e >= 0 and entries[e, LEVEL] != level:
        e = np.int64(entries[e, SIBLING])
    if e < 0:
        e = first = _new_entry(state, entries, table, client, level)
    _widen(state, level, limit)
    if table[find_row(table, state[SEED], position, 0, _POSITION_KEY), KIND] == 0:
        _put_position(state, entries, slots, table, e, position)
    if not _move_all(state, entries, records, table, first, limit, x, y):
        return False
    record = entries[e, PLACE]
    records[record].limit = max(records[record].limit, limit)
    _write_record_position(entries, records, slots, e)
    return True


@kernel(*_ARRAYS, INTEGER)
def remove(state, entries, raw, slots, table, position):
    """Remove a subscription; return whether it was there, and whether the arrays are much too large now.

    Args:
        position: The subscription's position.
    """
    records = raw.view(RECORD)
    seed = state[SEED]
    at = find_row(table, seed, position, 0, _POSITION_KEY)
    if table[at, KIND] == 0:
        return False, False
    s = np.int64(table[at, VALUE])
    delete_row(table, seed, at)
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
        _remove_entry(state, entries, records, table, e)
    else:
        _write_record_position(entries, records, slots, e)
    wasteful = 4 * state[LIVE] + 64 < len(entries) or 4 * state[LIVE_POSITIONS] + 64 < len(slots)
    return True, wasteful


@kernel(*_ARRAYS, *_ARRAYS)
def take_over(
    state, entries, raw, slots, table, old_state, old_entries, old_raw, old_slots, old_table
):  # fmt: skip
    """Copy everything from other arrays into these, which must be empty and large enough; blocks are packed anew.

    Args:
        old_state: The state of the other grid, followed by its other arrays.
    """
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
        start = _allocate_block(state, records, power)
        records[start].position, records[start].entry = count, power
        at = find_row(table, state[SEED], cx, cy, kind)
        insert_key(table, at, cx, cy, kind)
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
    """Raise the largest radius of a level."""
    if state[SHAPE] != SPHERE and level < EVERYONE:
        state[WIDEST + level] = max(state[WIDEST + level], np.int64(np.ceil(limit / SIZE[level] * _PARTS)))


@part
def _write_record_position(entries, records, slots, e):
    """Write the subscription of an entry into its record, or SEVERAL."""
    s = entries[e, FIRST]
    records[entries[e, PLACE]].position = slots[s, POSITION] if slots[s, AFTER] < 0 else SEVERAL


@part
def _move_all(state, entries, records, table, e, limit, x, y):
    """Set the place of an entry and of its siblings; an entry without a record gets one with this limit."""
    shape = state[SHAPE]
    usable, a, b, c, u, v = normalized_place(shape, x, y)
    while e >= 0:
        cx, cy = cell_of(shape, entries[e, LEVEL], usable, u, v)
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
    """Append a record for an entry to a cell; return whether there was room."""
    level = EVERYONE if cx == ANYWHERE else entries[e, LEVEL]
    at = find_row(table, state[SEED], cx, cy, level + 1)
    if table[at, KIND] == 0:
        start = _allocate_block(state, records, 1)
        if start < 0:
            return False
        insert_key(table, at, cx, cy, level + 1)
        table[at, VALUE] = start
        records[start].position, records[start].entry = 0, 1
    start = np.int64(table[at, VALUE])
    count, power = np.int64(records[start].position) + 1, np.int64(records[start].entry)
    if count == 1 << power:
        start = _resize_block(state, entries, records, table, at, power + 1)
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
    """Remove a record from its cell; the cell's last record takes its place."""
    level = EVERYONE if cx == ANYWHERE else level
    count, power = np.int64(records[block].position) - 1, np.int64(records[block].entry)
    last = block + count + 1
    if record != last:
        records[record] = records[last]
        entries[records[record].entry, PLACE] = record
    records[block].position = count
    if 4 * count < 1 << power and (count == 0 or power > 2):
        at = find_row(table, state[SEED], cx, cy, level + 1)
        if count == 0:
            _free_block(state, records, block, power)
            delete_row(table, state[SEED], at)
        else:
            _resize_block(state, entries, records, table, at, power - 1)
    if cx != NOWHERE:
        state[COUNTS + level] -= 1


@part
def _new_entry(state, entries, table, client, level):
    """Add an entry without a record and without subscriptions, as the first of its client and of its level."""
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
    at = find_row(table, state[SEED], client, 0, _CLIENT_KEY)
    entries[e, SIBLING] = -1
    if table[at, KIND] == 0:
        insert_key(table, at, client, 0, _CLIENT_KEY)
    else:
        entries[e, SIBLING] = table[at, VALUE]
    table[at, VALUE] = e
    return e


@part
def _remove_entry(state, entries, records, table, e):
    """Remove an entry without subscriptions from its cell and from both lists."""
    block, place = np.int64(entries[e, BLOCK]), np.int64(entries[e, PLACE])
    _leave(state, entries, records, table, entries[e, LEVEL], place, block, entries[e, CX], entries[e, CY])
    after, before = entries[e, LEVEL_NEXT], entries[e, LEVEL_PREVIOUS]
    if after >= 0:
        entries[after, LEVEL_PREVIOUS] = before
    if before >= 0:
        entries[before, LEVEL_NEXT] = after
    else:
        state[FIRSTS + entries[e, LEVEL]] = after
    at = find_row(table, state[SEED], entries[e, CLIENT], 0, _CLIENT_KEY)
    sibling = np.int64(table[at, VALUE])
    if sibling != e:  # a short walk: a client has few entries
        while entries[sibling, SIBLING] != e:
            sibling = np.int64(entries[sibling, SIBLING])
        entries[sibling, SIBLING] = entries[e, SIBLING]
    elif entries[e, SIBLING] >= 0:
        table[at, VALUE] = entries[e, SIBLING]
    else:
        delete_row(table, state[SEED], at)
    entries[e, LEVEL_NEXT] = state[FREE]
    state[FREE] = e
    state[LIVE] -= 1


@part
def _put_position(state, entries, slots, table, e, position):
    """Add a slot for a subscription, as the first of its entry."""
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
    at = find_row(table, state[SEED], position, 0, _POSITION_KEY)
    insert_key(table, at, position, 0, _POSITION_KEY)
    table[at, VALUE] = s


# Blocks of records, whose sizes are powers of two


@part
def _resize_block(state, entries, records, table, at, power):
    """Move a cell's records into a block of another size; return where it begins, or -1 without room."""
    old, start = np.int64(table[at, VALUE]), _allocate_block(state, records, power)
    if start >= 0:
        for i in range(1, records[old].position + 1):
            records[start + i] = records[old + i]
            e = records[old + i].entry
            entries[e, BLOCK], entries[e, PLACE] = start, start + i
        records[start].position, records[start].entry = records[old].position, power
        _free_block(state, records, old, np.int64(records[old].entry))
        table[at, VALUE] = start
    return start


@inlined
def _allocate_block(state, records, power):
    """Allocate a block: a vacant one, half of a larger one, or an unused one.

    Return where it begins, or -1 without room.
    """
    size_power = power
    while size_power < _BLOCK_SIZES and state[VACANT + size_power] < 0:
        size_power += 1
    if size_power == _BLOCK_SIZES:
        start = state[USED_RECORDS]
        if start + (1 << power) > len(records):
            return np.int64(-1)
        state[USED_RECORDS] += 1 << power
        return start
    start = state[VACANT + size_power]
    state[VACANT + size_power] = records[start].position
    while size_power > power:
        size_power -= 1
        _free_block(state, records, start + (1 << size_power), size_power)
    return start


@inlined
def _free_block(state, records, start, power):
    """Free a block."""
    records[start].position = state[VACANT + power]
    state[VACANT + power] = start
