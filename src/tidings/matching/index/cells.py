"""The compiled part of a grid: entries in cells of their level's size, found through one hash table.

An entry is a client with its subscriptions of one level. It stands in three lists: of its cell, of its client and of
its level, the last for events whose coordinates are so large that the level's cells cannot be told apart. Cells,
clients and subscriptions are keys of the same table. What becomes empty is taken out at once.
"""

import numpy as np

from tidings.matching.index.compiling import FLOAT, FLOAT_ROWS, INT32_ROWS, INT32S, INT64S, INTEGER, kernel, part

LINE, PLANE, SPHERE = range(3)

# Levels: cells of 2 to the (level - ORIGIN); above them one cell for everyone, and no cell at all for nobody. In the
# plane a radius is up to twice the size of its level's cells, on the sphere up to once.
ORIGIN = 40
EVERYONE = 103
NOBODY = 104
_SIZE = 2.0 ** (np.arange(NOBODY) - ORIGIN)

# The columns of an entry, of its place, of a subscription, and of a row of the table
CLIENT, LEVEL, CX, CY, NEXT, PREVIOUS, LEVEL_NEXT, LEVEL_PREVIOUS, SIBLING, FIRST = range(10)
A, B, C, LIMIT = range(4)  # coordinates, on the sphere a unit vector; how far an event may be
POSITION, ENTRY, AFTER, BEFORE = range(4)
KEY, KEY_2, KIND, VALUE = range(4)
_CLIENT_KEY, _POSITION_KEY = NOBODY + 1, NOBODY + 2  # kinds; a cell's is its level plus one, 0 is an empty row

# The state: the grid's shape, the table's seed, how many entries live, how many rows were ever used and which is free;
# the same of subscriptions; then of each level how many entries are in its cells, the first of its list, and the
# largest radius that it ever had, in parts of a cell.
SHAPE, SEED, LIVE, USED, FREE, LIVE_POSITIONS, USED_POSITIONS, FREE_POSITIONS, COUNTS = range(9)
FIRSTS = COUNTS + NOBODY + 1
WIDEST = FIRSTS + NOBODY + 1
STATE = WIDEST + NOBODY + 1
_PARTS = 256

# Cells far away share the numbers of those at hand: the coordinates tell them apart.
_FOLD = np.int64(2**30 - 1)
_NOWHERE, _ANYWHERE = np.int64(2**30), np.int64(2**30 + 1)

ROUNDING = 2.0**-44  # what rounding may do, relative to the numbers, in a filter that `reach_of` accepts
_UNDERFLOW = 1e-150  # the square of less than this is not exact
_WILD = 2.0**20  # degrees of longitude from where on differences are not exact enough
_LEEWAY = 1e-5  # degrees that sines and cosines may be wrong by
_UNUSABLE, _USABLE, _FAR_ROUND = range(3)  # a place; the last has a longitude that is wild

# What nearly all kernels take: state, entries, places, slots and table of a grid
_ARRAYS = (INT64S, INT32_ROWS, FLOAT_ROWS, INT32_ROWS, INT32_ROWS)


@kernel(*_ARRAYS, INT32S, FLOAT, FLOAT, INTEGER)
def near(state, entries, places, slots, table, out, x, y, limit):
    """The positions of the subscriptions within reach, as many as `out` holds; how many there are, or -1 if more than
    `limit` entries would have to be looked at.
    """
    shape, seed = state[SHAPE], state[SEED]
    usable, a, b, c, u, v = _settled(shape, x, y)
    if usable == _UNUSABLE:
        return 0
    found = looked = 0
    slack = ROUNDING * max(abs(x), abs(y)) + _UNDERFLOW if shape != SPHERE else 0.0
    for level in range(NOBODY):
        if state[COUNTS + level] == 0:
            continue
        size = _SIZE[level]
        if level == EVERYONE:
            e = _first(table, seed, _ANYWHERE, 0, level)
            found, looked = _listed(
                shape, entries, places, slots, out, found, e, NEXT, a, b, c, slack, looked, limit
            )  # fmt: skip
        elif usable == _FAR_ROUND or slack > 0.4 * size:
            e = state[FIRSTS + level]
            found, looked = _listed(
                shape, entries, places, slots, out, found, e, LEVEL_NEXT, a, b, c, slack, looked, limit
            )  # fmt: skip
        else:
            reach = size if shape == SPHERE else size * state[WIDEST + level] / _PARTS * (1 + ROUNDING) + slack
            low, high = _bands(shape, v, reach, size)
            wide = _wide(v, reach) if shape == SPHERE else reach
            for band in range(low, high + 1):
                around = _around(band, size) if shape == SPHERE else np.int64(0)
                width = 360.0 / around if around > 0 else size
                start = np.int64(np.floor((u - wide) / width))
                number = np.int64(np.floor((u + wide) / width)) - start + 1
                if around > 0 and (number >= around or wide >= 180.0):
                    start, number = np.int64(0), around
                for n in range(start, start + number):
                    cx = n % around if around > 0 else n & _FOLD
                    cy = band & _FOLD  # what `_found` does, written out: it is most of the cost of an empty cell
                    at = _hashed(seed, cx, cy, level + 1) & (len(table) - 1)
                    while table[at, KIND] != 0:
                        if table[at, KEY] == cx and table[at, KEY_2] == cy and table[at, KIND] == level + 1:
                            break
                        at = (at + 1) & (len(table) - 1)
                    if table[at, KIND] != 0:
                        e = np.int64(table[at, VALUE])
                        found, looked = _listed(
                            shape, entries, places, slots, out, found, e, NEXT, a, b, c, slack, looked, limit
                        )  # fmt: skip
                        if looked > limit:
                            return -1
        if looked > limit:
            return -1
    return found


@kernel(INT64S, INT32_ROWS, FLOAT_ROWS, INT32_ROWS, INTEGER, FLOAT, FLOAT)
def move(state, entries, places, table, client, x, y):
    """The client is at a place from now on; NaN where it has none."""
    at = _found(table, state[SEED], client, 0, _CLIENT_KEY)
    if table[at, KIND] != 0:
        _move_all(state, entries, places, table, np.int64(table[at, VALUE]), x, y)


@kernel(INT64S, INT32_ROWS, FLOAT_ROWS, INT32_ROWS, INT32S, FLOAT_ROWS)
def move_many(state, entries, places, table, clients, given):
    for i in range(len(clients)):
        at = _found(table, state[SEED], clients[i], 0, _CLIENT_KEY)
        if table[at, KIND] != 0:
            y = given[i, 1] if given.shape[1] > 1 else 0.0
            _move_all(state, entries, places, table, np.int64(table[at, VALUE]), given[i, 0], y)


@kernel(*_ARRAYS, INTEGER, INTEGER, INTEGER, FLOAT, FLOAT, FLOAT)
def put(state, entries, places, slots, table, position, client, level, limit, x, y):
    """One more subscription; whether there was room, without which nothing is done. It must not be there yet."""
    if state[FREE] < 0 and state[USED] == len(entries):
        return False
    if state[FREE_POSITIONS] < 0 and state[USED_POSITIONS] == len(slots):
        return False
    at = _found(table, state[SEED], client, 0, _CLIENT_KEY)
    first = np.int64(table[at, VALUE]) if table[at, KIND] != 0 else -1
    e = first
    while e >= 0 and entries[e, LEVEL] != level:
        e = entries[e, SIBLING]
    if e < 0:
        e = first = _new_entry(state, entries, places, table, client, level)
    places[e, LIMIT] = max(places[e, LIMIT], limit)
    _widen(state, level, limit)
    _put_position(state, entries, slots, table, e, position)
    _move_all(state, entries, places, table, first, x, y)
    return True


@kernel(*_ARRAYS, INTEGER)
def remove(state, entries, places, slots, table, position):
    """A subscription less; whether it was there, and whether the arrays are much too large by now."""
    seed = state[SEED]
    at = _found(table, seed, position, 0, _POSITION_KEY)
    if table[at, KIND] == 0:
        return False, False
    s = np.int64(table[at, VALUE])
    _forget(table, seed, at)
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
        _old_entry(state, entries, table, e)
    wasteful = 4 * state[LIVE] + 64 < len(entries) or 4 * state[LIVE_POSITIONS] + 64 < len(slots)
    return True, wasteful


@kernel(*_ARRAYS, INT64S, INT32_ROWS, FLOAT_ROWS, INT32_ROWS)
def take_over(state, entries, places, slots, table, old_state, old_entries, old_places, old_slots):
    """Everything from other arrays into these, which are empty and have room."""
    for e in range(old_state[USED]):
        if old_entries[e, FIRST] < 0:
            continue
        level = old_entries[e, LEVEL]
        new = _new_entry(state, entries, places, table, old_entries[e, CLIENT], level)
        for column in range(LIMIT + 1):
            places[new, column] = old_places[e, column]
        _widen(state, level, places[new, LIMIT])
        if old_entries[e, CX] != _NOWHERE:
            _enter(state, entries, table, new, old_entries[e, CX], old_entries[e, CY])
        s = np.int64(old_entries[e, FIRST])
        while s >= 0:
            _put_position(state, entries, slots, table, new, old_slots[s, POSITION])
            s = np.int64(old_slots[s, AFTER])


# What is given to an event


@part
def _listed(shape, entries, places, slots, out, found, e, link, a, b, c, slack, looked, limit):
    """The positions of a list's entries within reach; NaN, a place on the sphere that is not known well, always is.

    All in one piece: arrays that are handed on for each entry are counted in and out for each entry.
    """
    while e >= 0 and looked <= limit:
        looked += 1
        if link == NEXT or entries[e, CX] < _NOWHERE:
            x, y, z = abs(places[e, A] - a), abs(places[e, B] - b), places[e, C] - c
            apart = x * x + y * y + z * z if shape == SPHERE else x if x > y else y
            if not apart > places[e, LIMIT] + slack:
                s = entries[e, FIRST]
                while s >= 0:
                    if found < len(out):
                        out[found] = slots[s, POSITION]
                    found += 1
                    s = slots[s, AFTER]
        e = entries[e, link]
    return found, looked


# Places


@part
def _settled(shape, x, y):
    """Whether a place can be used, what is compared of it, and across and along what its cells are counted."""
    if shape != SPHERE:
        usable = _USABLE if np.isfinite(x) and np.isfinite(y) else _UNUSABLE
        return usable, x, y, 0.0, x, y
    if not (abs(x) <= 90.0 and np.isfinite(y)):
        return _UNUSABLE, 0.0, 0.0, 0.0, 0.0, 0.0
    if abs(y) > _WILD:
        return _FAR_ROUND, np.nan, np.nan, np.nan, 0.0, x
    latitude, longitude = np.radians(x), np.radians(y % 360.0)
    level = np.cos(latitude)
    return _USABLE, level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude), y % 360.0, x


@part
def _home(shape, level, usable, u, v):
    """The cell of a place."""
    if level == NOBODY or usable == _UNUSABLE:
        return _NOWHERE, np.int64(0)
    if level == EVERYONE or usable == _FAR_ROUND:
        return _ANYWHERE, np.int64(0)
    size = _SIZE[level]
    if shape == SPHERE:
        band = np.int64(np.floor(v / size))
        around = _around(band, size)
        return min(np.int64(np.floor(u / (360.0 / around))), around - 1), band & _FOLD
    return _folded(u / size), _folded(v / size) if shape == PLANE else np.int64(0)


@part
def _folded(number):
    # Beyond these no event asks for a cell.
    return np.int64(np.floor(number)) & _FOLD if abs(number) < 2.0**60 else np.int64(0)


@part
def _bands(shape, v, reach, size):
    if shape == LINE:
        return np.int64(0), np.int64(0)
    low, high = v - reach, v + reach
    if shape == SPHERE:
        low, high = max(low - _LEEWAY, -90.0), min(high + _LEEWAY, 90.0)
    return np.int64(np.floor(low / size)), np.int64(np.floor(high / size))


@part
def _around(band, size):
    """How many cells a band of latitudes has: fewer towards the poles, so that they are as wide as they are high."""
    top = max(abs(band * size), abs((band + 1) * size))
    return max(np.int64(360.0 * np.cos(np.radians(top)) / size), np.int64(1)) if top < 90.0 else np.int64(1)


@part
def _wide(latitude, reach):
    """How many degrees of longitude a circle extends to either side; all of them where it contains a pole."""
    if abs(latitude) + reach + _LEEWAY >= 90.0:
        return 180.0
    sine = np.sin(np.radians(reach)) / np.cos(np.radians(latitude))
    return np.degrees(np.arcsin(min(sine, 1.0))) + _LEEWAY


# Entries


@part
def _widen(state, level, limit):
    if state[SHAPE] != SPHERE and level < EVERYONE:
        state[WIDEST + level] = max(state[WIDEST + level], np.int64(np.ceil(limit / _SIZE[level] * _PARTS)))


@part
def _move_all(state, entries, places, table, e, x, y):
    shape = state[SHAPE]
    usable, a, b, c, u, v = _settled(shape, x, y)
    while e >= 0:
        places[e, A], places[e, B], places[e, C] = a, b, c
        cx, cy = _home(shape, entries[e, LEVEL], usable, u, v)
        if entries[e, CX] != cx or entries[e, CY] != cy:
            _leave(state, entries, table, e)
            if cx != _NOWHERE:
                _enter(state, entries, table, e, cx, cy)
        e = np.int64(entries[e, SIBLING])


@part
def _enter(state, entries, table, e, cx, cy):
    level = EVERYONE if cx == _ANYWHERE else entries[e, LEVEL]
    entries[e, CX], entries[e, CY] = cx, cy
    at = _found(table, state[SEED], cx, cy, level + 1)
    after = -1
    if table[at, KIND] == 0:
        _remember(table, at, cx, cy, level + 1)
    else:
        after = table[at, VALUE]
        entries[after, PREVIOUS] = e
    entries[e, NEXT], entries[e, PREVIOUS] = after, -1
    table[at, VALUE] = e
    state[COUNTS + level] += 1


@part
def _leave(state, entries, table, e):
    cx = entries[e, CX]
    if cx == _NOWHERE:
        return
    level = EVERYONE if cx == _ANYWHERE else entries[e, LEVEL]
    after, before = entries[e, NEXT], entries[e, PREVIOUS]
    if after >= 0:
        entries[after, PREVIOUS] = before
    if before >= 0:
        entries[before, NEXT] = after
    else:
        at = _found(table, state[SEED], cx, entries[e, CY], level + 1)
        if after >= 0:
            table[at, VALUE] = after
        else:
            _forget(table, state[SEED], at)
    entries[e, CX], entries[e, CY] = _NOWHERE, 0
    state[COUNTS + level] -= 1


@part
def _new_entry(state, entries, places, table, client, level):
    """An entry without a place and without subscriptions, the first of its client and of its level."""
    e = state[FREE]
    if e >= 0:
        state[FREE] = entries[e, NEXT]
    else:
        e = state[USED]
        state[USED] += 1
    state[LIVE] += 1
    entries[e, CLIENT], entries[e, LEVEL], entries[e, FIRST] = client, level, -1
    entries[e, CX], entries[e, CY], entries[e, NEXT], entries[e, PREVIOUS] = _NOWHERE, 0, -1, -1
    places[e, LIMIT] = 0.0
    after = state[FIRSTS + level]
    if after >= 0:
        entries[after, LEVEL_PREVIOUS] = e
    entries[e, LEVEL_NEXT], entries[e, LEVEL_PREVIOUS] = after, -1
    state[FIRSTS + level] = e
    at = _found(table, state[SEED], client, 0, _CLIENT_KEY)
    entries[e, SIBLING] = -1
    if table[at, KIND] == 0:
        _remember(table, at, client, 0, _CLIENT_KEY)
    else:
        entries[e, SIBLING] = table[at, VALUE]
    table[at, VALUE] = e
    return e


@part
def _old_entry(state, entries, table, e):
    """Takes an entry that has no subscriptions out of every list."""
    _leave(state, entries, table, e)
    after, before = entries[e, LEVEL_NEXT], entries[e, LEVEL_PREVIOUS]
    if after >= 0:
        entries[after, LEVEL_PREVIOUS] = before
    if before >= 0:
        entries[before, LEVEL_NEXT] = after
    else:
        state[FIRSTS + entries[e, LEVEL]] = after
    at = _found(table, state[SEED], entries[e, CLIENT], 0, _CLIENT_KEY)
    sibling = np.int64(table[at, VALUE])
    if sibling != e:  # a client has few entries
        while entries[sibling, SIBLING] != e:
            sibling = np.int64(entries[sibling, SIBLING])
        entries[sibling, SIBLING] = entries[e, SIBLING]
    elif entries[e, SIBLING] >= 0:
        table[at, VALUE] = entries[e, SIBLING]
    else:
        _forget(table, state[SEED], at)
    entries[e, NEXT] = state[FREE]
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
    at = _found(table, state[SEED], position, 0, _POSITION_KEY)
    _remember(table, at, position, 0, _POSITION_KEY)
    table[at, VALUE] = s


# The table: open addressing, and what is taken out leaves no mark


@part
def _found(table, seed, key, key_2, kind):
    """The row of a key, or the empty one where it belongs."""
    mask = len(table) - 1
    at = _hashed(seed, key, key_2, kind) & mask
    while table[at, KIND] != 0:
        if table[at, KEY] == key and table[at, KEY_2] == key_2 and table[at, KIND] == kind:
            break
        at = (at + 1) & mask
    return at


@part
def _first(table, seed, cx, cy, level):
    """The first entry of a cell, -1 for none."""
    at = _found(table, seed, cx, cy, level + 1)
    return np.int64(table[at, VALUE]) if table[at, KIND] != 0 else np.int64(-1)


@part
def _remember(table, at, key, key_2, kind):
    table[at, KEY], table[at, KEY_2], table[at, KIND] = key, key_2, kind


@part
def _forget(table, seed, at):
    """Empties a row; those behind it that had to give way to it move up."""
    mask = len(table) - 1
    hole = other = at
    while True:
        other = (other + 1) & mask
        if table[other, KIND] == 0:
            break
        home = _hashed(seed, table[other, KEY], table[other, KEY_2], table[other, KIND]) & mask
        if ((other - home) & mask) >= ((other - hole) & mask):
            for column in range(VALUE + 1):
                table[hole, column] = table[other, column]
            hole = other
    table[hole, KIND] = 0


@part
def _hashed(seed, key, key_2, kind):
    """Well mixed, and with a seed, so that nobody can choose places that all fall on the same row."""
    half = np.uint64(32)
    h = ((np.uint64(key) << half) ^ np.uint64(key_2)) + np.uint64(seed)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ np.uint64(kind)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) >> np.uint64(1))
