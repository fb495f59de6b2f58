"""The compiled heart of the index: building segments, and matching events against them. Arrays in, arrays out.

Nothing here allocates in proportion to anything but its output, and nothing knows of names, texts or Python
objects. Numbers are pairs of a float64 and the small integer that the float lost (`values.split_number`), compared
in that order: exact for all.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import intrinsic


@intrinsic
def _count_bits(typing_context: Any, value: Any) -> Any:
    """The processor's own population count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return value(value), generate


U1, U2, U3, U4, U5, U6, U7 = np.arange(1, 8, dtype=np.uint64)
WORD = 64
BLOCK = 512  # conjuncts that are looked at together
BUCKETS = 48  # of numbers, for each attribute
STRING_BUCKETS = 16
MISSING, NUMBER, STRING, BOOLEAN, PRESENT, TEST = range(6)
RESIDUAL, SEVERAL = 1, 2  # flags of a conjunct: the reference decides; its subscription has several conjuncts

# Rows of an attribute's table: missing, a kind that no constraint speaks of, then what the segment needs.
ROW_MISSING, ROW_OTHER, ROW_FIRST = 0, 1, 2


# A predicate: 24 bytes that lie together, since they are read together. `what` is the attribute times 8 plus the kind.
PREDICATE = np.dtype(
    [("low", "f8"), ("high", "f8"), ("what", "i4"), ("low_rest", "i2"), ("high_rest", "i2")],
    align=True,
)


class Arrays(NamedTuple):
    """A segment, as the kernels see it.

    A: attributes, C: clusters, B: blocks, E: entries, N: conjuncts, P: predicates.
    """

    rows: Any  # A: how many rows the tables of an attribute have
    number_row: Any  # A: the first row for numbers, 0 for none
    string_row: Any
    boolean_row: Any
    edge: Any  # A: which of the edges
    edges: Any  # between buckets of numbers
    access: Any  # A: whether some cluster is reached through the attribute
    keys: Any  # hash table of clusters, -1 where empty
    key_attribute: Any  # C: the access predicate of a cluster
    key_kind: Any
    key_f: Any
    key_r: Any
    cluster_block: Any  # C + 2: a cluster's first block; the last cluster has no access predicate
    block_conjunct: Any  # B + 1: a block's first conjunct
    block_word: Any  # B + 1: its first word in `alive`
    block_entry: Any  # B + 1: its first entry
    entry_attribute: Any  # E
    entry_table: Any  # E: where the table starts in `bits`
    bits: Any
    alive: Any
    position: Any  # N: of the subscription
    flags: Any  # N
    pred_first: Any  # N + 1
    pred: Any  # P: records of PREDICATE, without the access predicates


class Events(NamedTuple):
    """A batch of events: a row a column, a column an event."""

    attribute: Any  # the attribute of each column
    kind: Any
    f: Any
    r: Any
    tests: Any  # the string tests that a value passes: columns x events, numbers of lists
    test_first: Any  # a list's first member in `test_members`; one more at the end
    test_members: Any


class Scratch(NamedTuple):
    """What a thread writes while it matches; `stamp` marks the event that a mark belongs to."""

    kind: Any  # A
    f: Any
    r: Any
    row: Any
    test_stamp: Any
    seen: Any  # subscriptions
    stamp: Any  # one number


@njit(cache=True, inline="always")
def bucket_of(edges, edge, f):
    """How many of the edges lie at or below the number."""
    low, high = 0, edges.shape[1]
    while low < high:
        middle = (low + high) >> 1
        if edges[edge, middle] <= f:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def row_of(kind, f, number_row, string_row, boolean_row, edges, edge):
    """The row of an attribute's table that a value falls into."""
    if kind == MISSING:
        return ROW_MISSING
    if kind == NUMBER and number_row > 0:
        return number_row + bucket_of(edges, edge, f)
    if kind == STRING and string_row > 0:
        return string_row + (STRING_BUCKETS if f < 0 else int(f) % STRING_BUCKETS)
    if kind == BOOLEAN and boolean_row > 0:
        return boolean_row + int(f)
    return ROW_OTHER


@njit(cache=True, inline="always")
def mix(attribute, kind, f, r):
    """A 64-bit hash of a value of an attribute."""
    bits = np.uint64(0x9E3779B97F4A7C15)
    h = np.uint64(attribute) * bits + np.uint64(kind)
    # -0.0 and 0.0 are one number.
    value = np.float64(f + 0.0).view(np.uint64)
    h = (h ^ value) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(31)) ^ np.uint64(np.int64(r) & np.int64(0xFFFF))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(29))


@njit(cache=True)
def fill_tables(s):
    """In the row of each bucket, one bit for each conjunct of the block that a value there might satisfy."""
    for block in range(len(s.block_conjunct) - 1):
        first, last = s.block_conjunct[block], s.block_conjunct[block + 1]
        words = s.block_word[block + 1] - s.block_word[block]
        for entry in range(s.block_entry[block], s.block_entry[block + 1]):
            attribute, table = s.entry_attribute[entry], s.entry_table[entry]
            rows = s.rows[attribute]
            for i in range(rows * words):
                s.bits[table + i] = ~np.uint64(0)
        for conjunct in range(first, last):
            lane = conjunct - first
            word, bit = lane // WORD, np.uint64(1) << np.uint64(lane % WORD)
            for p in range(s.pred_first[conjunct], s.pred_first[conjunct + 1]):
                attribute = s.pred[p].what >> 3
                entry = _entry_of(s, block, attribute)
                at, rows = s.entry_table[entry] + word, s.rows[attribute]
                for row in range(rows):
                    s.bits[at + row * words] &= ~bit
                first_row, last_row = _allowed(s, attribute, s.pred[p].what & 7, s.pred[p].low, s.pred[p].high)
                for row in range(first_row, last_row + 1):
                    s.bits[at + row * words] |= bit


@njit(cache=True)
def _entry_of(s, block, attribute):
    for entry in range(s.block_entry[block], s.block_entry[block + 1]):
        if s.entry_attribute[entry] == attribute:
            return entry
    return -1


@njit(cache=True)
def _allowed(s, attribute, kind, low, high):
    """The rows of the attribute's table whose values might satisfy a predicate."""
    if kind == MISSING:
        return ROW_MISSING, ROW_MISSING
    if kind == PRESENT:
        return ROW_OTHER, s.rows[attribute] - 1
    if kind == NUMBER:
        start, edges, edge = s.number_row[attribute], s.edges, s.edge[attribute]
        return start + bucket_of(edges, edge, low), start + bucket_of(edges, edge, high)
    if kind == BOOLEAN:
        return s.boolean_row[attribute] + int(low), s.boolean_row[attribute] + int(high)
    if kind == TEST or low < 0:  # some strings, or all
        return s.string_row[attribute], s.string_row[attribute] + STRING_BUCKETS
    row = s.string_row[attribute] + int(low) % STRING_BUCKETS
    return row, row


@njit(cache=True)
def hash_clusters(s):
    mask = len(s.keys) - 1
    for c in range(len(s.key_attribute)):
        slot = np.int64(mix(s.key_attribute[c], s.key_kind[c], s.key_f[c], s.key_r[c]) & np.uint64(mask))
        while s.keys[slot] >= 0:
            slot = (slot + 1) & mask
        s.keys[slot] = c


# The functions below take single arrays, not the tuples: a tuple of thirty arrays is copied at every call that the
# compiler does not dissolve, which costs ten times what the work itself does.


@njit(cache=True, inline="always")
def find_cluster(keys, key_attribute, key_kind, key_f, key_r, attribute, kind, f, r):
    mask = len(keys) - 1
    slot = np.int64(mix(attribute, kind, f, r) & np.uint64(mask))
    while keys[slot] >= 0:
        c = keys[slot]
        if key_attribute[c] == attribute and key_kind[c] == kind and key_f[c] == f and key_r[c] == r:
            return c
        slot = (slot + 1) & mask
    return -1


@njit(cache=True, inline="always")
def passes(preds, first, last, kinds, fs, rs, test_stamp, stamp):
    """Whether the event that lies in the scratch satisfies all predicates of a conjunct, exactly."""
    for p in range(first, last):
        pred = preds[p]
        attribute, kind = pred.what >> 3, pred.what & 7
        if attribute >= len(
            kinds
        ):  # it was added while we match: either answer is right, but memory is not to be touched
            return False
        given, f = kinds[attribute], fs[attribute]
        if kind == NUMBER or kind == BOOLEAN:  # noqa: SIM109 - tuples cost time in a kernel
            if given != kind or f < pred.low or f > pred.high:
                return False
            # On a bound itself, what the float lost decides.
            if f == pred.low and rs[attribute] < pred.low_rest:
                return False
            if f == pred.high and rs[attribute] > pred.high_rest:
                return False
        elif kind == STRING:
            if given != STRING or (pred.low >= 0 and pred.low != f):
                return False
        elif kind == TEST:
            if given != STRING or int(pred.low) >= len(test_stamp) or test_stamp[int(pred.low)] != stamp:
                return False
        elif (kind == MISSING) != (given == MISSING):
            return False
    return True


@njit(cache=True, inline="always")
def survivors(alive, bits, word, words, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """ANDs the rows of an event's values; what is left in `acc` are the block's candidates."""
    if words == 8:
        return _survivors_of_eight(alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc)
    left = np.uint64(0)
    for i in range(words):
        acc[i] = alive[word + i]
        left |= acc[i]
    for entry in range(first_entry, last_entry):
        if left == 0:
            return False
        at = entry_table[entry] + row[entry_attribute[entry]] * words
        left = np.uint64(0)
        for i in range(words):
            acc[i] &= bits[at + i]
            left |= acc[i]
    return left != 0


@njit(cache=True, inline="always")
def _survivors_of_eight(alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """The same for a full block. Unsigned places: for others the compiler must allow for counting from the end."""
    at = np.uint64(word)
    a, b, c, d = alive[at], alive[at + U1], alive[at + U2], alive[at + U3]
    e, f, g, h = alive[at + U4], alive[at + U5], alive[at + U6], alive[at + U7]
    for entry in range(first_entry, last_entry):
        at = np.uint64(entry_table[entry] + row[entry_attribute[entry]] * 8)
        a, b, c, d = a & bits[at], b & bits[at + U1], c & bits[at + U2], d & bits[at + U3]
        e, f, g, h = e & bits[at + U4], f & bits[at + U5], g & bits[at + U6], h & bits[at + U7]
        if (a | b | c | d | e | f | g | h) == 0:
            return False
    acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7] = a, b, c, d, e, f, g, h
    return True


@njit(cache=True)
def match_events(s, events, order, scratch, first, out, ends):
    """Matches the events of `order` from the `first` on.

    `ends[i]` is where the output of event order[i] ends; positions that the reference has to confirm come as their
    complement. Returns the place in the order for which `out` had no room (or the length of the order), the room that
    it needs, and how many candidates were checked.
    """
    count, checked = 0, 0
    acc = np.empty(BLOCK // WORD, np.uint64)
    attributes, no_access, columns = len(s.rows), len(s.key_attribute), len(events.attribute)
    number_row, string_row, boolean_row = s.number_row, s.string_row, s.boolean_row
    edge, edges, access, keys = s.edge, s.edges, s.access, s.keys
    key_attribute, key_kind, key_f, key_r = s.key_attribute, s.key_kind, s.key_f, s.key_r
    cluster_block, block_conjunct = s.cluster_block, s.block_conjunct
    block_word, block_entry = s.block_word, s.block_entry
    entry_attribute, entry_table, bits, alive = s.entry_attribute, s.entry_table, s.bits, s.alive
    positions, flags, pred_first, preds = s.position, s.flags, s.pred_first, s.pred
    event_attribute, event_kind, event_f, event_r = events.attribute, events.kind, events.f, events.r
    tests, test_first, test_members = events.tests, events.test_first, events.test_members
    kinds, fs, rs, row = scratch.kind, scratch.f, scratch.r, scratch.row
    test_stamp, seen = scratch.test_stamp, scratch.seen
    for i in range(first, len(order)):
        e = order[i]
        scratch.stamp[0] += 1
        stamp = scratch.stamp[0]
        for c in range(columns):
            attribute, kind = event_attribute[c], event_kind[c, e]
            if attribute < attributes and kind != MISSING:
                f = event_f[c, e]
                kinds[attribute], fs[attribute], rs[attribute] = kind, f, event_r[c, e]
                row[attribute] = row_of(
                    kind,
                    f,
                    number_row[attribute],
                    string_row[attribute],
                    boolean_row[attribute],
                    edges,
                    edge[attribute],
                )
                if len(tests) and tests[c, e] >= 0:
                    for t in range(test_first[tests[c, e]], test_first[tests[c, e] + 1]):
                        test_stamp[test_members[t]] = stamp
        before = count
        for c in range(-1, columns):  # first those without an access predicate, then through each value
            cluster = no_access
            if c >= 0:
                attribute, kind = event_attribute[c], event_kind[c, e]
                if attribute >= attributes or kind == MISSING or not access[attribute]:
                    continue
                cluster = find_cluster(
                    keys, key_attribute, key_kind, key_f, key_r, attribute, kind, event_f[c, e], event_r[c, e]
                )
                if cluster < 0:
                    continue
            for block in range(cluster_block[cluster], cluster_block[cluster + 1]):
                word = block_word[block]
                words = block_word[block + 1] - word
                if not survivors(
                    alive, bits, word, words, block_entry[block], block_entry[block + 1],
                    entry_attribute, entry_table, row, acc,
                ):  # fmt: skip
                    continue
                for w in range(words):
                    candidates = acc[w]
                    while candidates:
                        low = candidates & (~candidates + U1)
                        candidates ^= low
                        conjunct = block_conjunct[block] + w * WORD + np.int64(_count_bits(low - U1))
                        checked += 1
                        if not passes(
                            preds, pred_first[conjunct], pred_first[conjunct + 1], kinds, fs, rs, test_stamp, stamp
                        ):
                            continue
                        position, flag = positions[conjunct], flags[conjunct]
                        if flag & SEVERAL:
                            if position >= len(seen) or seen[position] == stamp:
                                continue
                            if not flag & RESIDUAL:
                                seen[position] = stamp
                        if count < len(out):
                            out[count] = ~position if flag & RESIDUAL else position
                        count += 1
        for c in range(columns):
            attribute = event_attribute[c]
            if attribute < attributes:
                kinds[attribute], row[attribute] = MISSING, ROW_MISSING
        if count > len(out):
            return i, count - before, checked
        ends[i] = count
    return len(order), 0, checked


@njit(cache=True)
def in_event_order(order, ends, out):
    """The output of `match_events` by rising event: event numbers and positions."""
    starts = np.zeros(len(order) + 1, np.int64)
    for i in range(len(order)):
        starts[order[i] + 1] = ends[i] - (ends[i - 1] if i else 0)
    for e in range(len(order)):
        starts[e + 1] += starts[e]
    event, position = np.empty(len(out), np.int64), np.empty(len(out), np.int32)
    for i in range(len(order)):
        at = starts[order[i]]
        for j in range(ends[i - 1] if i else 0, ends[i]):
            event[at], position[at] = order[i], out[j]
            at += 1
    return event, position
