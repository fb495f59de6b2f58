"""Match events against segments: the innermost loops of the index.

Theory of operation, for one event and one segment (see `matching.index.segment` for its structure):

1. `write_event` writes the event's values into the scratch memory, by attribute; `find_rows` computes the row of each
   attribute's tables that the value falls into.
2. `find_blocks` looks up the clusters of the event's values and of the string tests that it passes, adds the cluster
   without access predicates, and uses summaries to select blocks.
3. `block_candidates` ANDs the rows of a block's tables: candidates, and those of them that need no check.
4. `match_blocks` checks the other candidates with `passes` and writes positions.

Parameters that are named like fields of `Segment` or `Scratch` are these arrays; `kinds`, `fs` and `rs` are the kinds,
floats and rests of the event's values by attribute; `stamp` is the event's number. Nothing here allocates in proportion
to anything but its output. Numbers are pairs of a float64 and the small integer that the float lost
(`columns.split_number`), compared in this order, which is exact.
"""

from typing import Any

import numpy as np
from numba.extending import intrinsic

from tidings.matching.index.conjuncts import RESIDUAL, SEVERAL
from tidings.matching.index.kernels.jit import (
    BYTE_ROWS,
    BYTES,
    FLOAT_ROWS,
    FLOATS,
    INT16_ROWS,
    INT32_ROWS,
    INT32S,
    INT64S,
    INTEGER,
    inlined,
    kernel,
)
from tidings.matching.index.kernels.layout import CHECKED, FOUND, HEAD, NEEDED, PREDICATE, STAMP, Scratch, Segment


@intrinsic
def count_bits(typing_context: Any, value: Any) -> Any:
    """Count the set bits of an integer with the processor's instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return value(value), generate


U1, U2, U3, U4, U5, U6, U7 = np.arange(1, 8, dtype=np.uint64)
U8, U9, U10, U11, U12, U13, U14, U15 = np.arange(8, 16, dtype=np.uint64)
WORD = 64
BLOCK = 512  # conjuncts in a block
BUCKETS = 32  # buckets of numbers for each attribute
EDGES = BUCKETS - 1
STRING_BUCKETS = 16
MISSING, NUMBER, STRING, BOOLEAN, PRESENT, TEST = range(6)
BY_VALUE, BY_TEST = 1, 2  # how clusters are reached through an attribute
SEPARATOR = 7  # the kind of a record between conjuncts in a `PredicatePool`
EXACT_FLOAT = 2.0**53  # below this, floats represent all integers exactly
LARGEST = np.finfo(np.float64).max

# Rows of an attribute's table: missing, a kind without predicates, then those that the segment needs. A row has two
# halves: conjuncts that a value there might satisfy, and conjuncts that every value there satisfies.
ROW_MISSING, ROW_OTHER, ROW_FIRST = 0, 1, 2
NO_ROOM, TOO_MANY = -1, -2
WORTH_ASKING = np.uint64(8)  # candidates in a block up to which the second half of the tables is not read
PENDING = 2 * BLOCK // WORD  # where in `acc` the conjuncts to be checked begin, behind both sets of bits

# The number of each array in the table of contents.
(
    ROWS, NUMBER_ROW, STRING_ROW, BOOLEAN_ROW, EDGE_OF, EDGES_AT, ACCESS, KEYS, KEY_ATTRIBUTE, KEY_KIND, KEY_F, KEY_R,
    KEY_HIGH, CLUSTER_BLOCK, CLUSTER_ENTRY, SUMMARY_ATTRIBUTE, SUMMARY_TABLE, SUMMARY, BLOCK_CONJUNCT,
    BLOCK_WORD, BLOCK_ENTRY, ENTRY_ATTRIBUTE, ENTRY_TABLE, BITS, ALIVE, OWNER,
    PRED_FIRST, PRED,
) = range(len(Segment._fields))  # fmt: skip
KIND, F, R, ROW, PRESENT_ONES, TEST_STAMP, MATCH_STAMP, COUNTERS = range(len(Scratch._fields))


# An array of a block. The functions below take single arrays: passing a tuple of thirty of them costs ten
# times as much as the work itself wherever the compiler does not inline the call.


@inlined
def bytes_of(raw, field):
    """Return an array of a block, by its number, as bytes."""
    contents = raw[:HEAD].view(np.int64)
    return raw[contents[2 * field] : contents[2 * field + 1]]


@inlined
def i2(raw, field):
    """Return an array of a block as 16-bit integers."""
    return bytes_of(raw, field).view(np.int16)


@inlined
def i4(raw, field):
    """Return an array of a block as 32-bit integers."""
    return bytes_of(raw, field).view(np.int32)


@inlined
def i8(raw, field):
    """Return an array of a block as 64-bit integers."""
    return bytes_of(raw, field).view(np.int64)


@inlined
def u8(raw, field):
    """Return an array of a block as unsigned 64-bit integers."""
    return bytes_of(raw, field).view(np.uint64)


@inlined
def f8(raw, field):
    """Return an array of a block as 64-bit floats."""
    return bytes_of(raw, field).view(np.float64)


@inlined
def preds_of(raw):
    """Return the predicates in a block."""
    return bytes_of(raw, PRED).view(PREDICATE)


# The row of a value


@inlined
def bucket_of(edges, edge, f):
    """Return the bucket of a number: how many of the 31 edges are at or below it, in five steps without branches."""
    at = edge * EDGES
    bucket = np.int64(16) * (edges[at + 15] <= f)
    bucket += np.int64(8) * (edges[at + bucket + 7] <= f)
    bucket += np.int64(4) * (edges[at + bucket + 3] <= f)
    bucket += np.int64(2) * (edges[at + bucket + 1] <= f)
    return bucket + np.int64(edges[at + bucket] <= f)


@inlined
def row_of(kind, f, number_row, string_row, boolean_row, edges, edge):
    """Return the row of an attribute's table that a value falls into.

    Args:
        kind: The value's kind.
        f: The value as a float; for a string, its code.
        number_row: The attribute's first row for numbers, 0 for none.
        string_row: The attribute's first row for strings, 0 for none.
        boolean_row: The attribute's first row for booleans, 0 for none.
        edges: The edges of all attributes.
        edge: The attribute's row of edges.
    """
    if kind == MISSING:
        return ROW_MISSING
    if kind == NUMBER and number_row > 0:
        return number_row + bucket_of(edges, edge, f)
    if kind == STRING and string_row > 0:
        return string_row + (STRING_BUCKETS if f < 0 else int(f) % STRING_BUCKETS)
    if kind == BOOLEAN and boolean_row > 0:
        return boolean_row + int(f)
    return ROW_OTHER


@inlined
def hash_value(attribute, kind, f, r):
    """Return a 64-bit hash of an attribute's value.

    Args:
        attribute: The attribute's number.
        kind: The value's kind.
        f: The value as a float.
        r: What the value lost as a float.
    """
    bits = np.uint64(0x9E3779B97F4A7C15)
    h = np.uint64(attribute) * bits + np.uint64(kind)
    # -0.0 and 0.0 are equal.
    value = np.float64(f + 0.0).view(np.uint64)
    h = (h ^ value) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(31)) ^ np.uint64(np.int64(r) & np.int64(0xFFFF))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(29))


# Writing an event into the scratch memory


@inlined
def write_event(event, attributes, kinds, fs, rs, present):
    """Write an event's values into the scratch memory; return how many attributes it has.

    Args:
        event: The values, as `Columns.encode` returns them.
        attributes: The number of attributes that the segment knows; others are left out.
        kinds: Where the kinds are written.
        fs: Where the floats are written.
        rs: Where the rests are written.
        present: Where the attributes are listed.
    """
    size, v = 0, 1
    plain = 1 + 2 * np.int64(event[0])
    while v < len(event):
        attribute = np.int64(event[v])
        if v < plain:
            kind, f, r = NUMBER, event[v + 1], 0
            v += 2
        else:
            kind, f, r = int(event[v + 1]), event[v + 2], int(event[v + 3])
            v += 4
        if attribute < attributes:
            present[size] = attribute
            size += 1
            kinds[attribute], fs[attribute], rs[attribute] = kind, f, r
    return size


@inlined
def write_event_of_many(e, event_attribute, event_kind, event_f, event_r, attributes, kinds, fs, rs, present):
    """Write the values of one event of a batch into the scratch memory; return how many attributes it has.

    Args:
        e: The event's row.
        event_attribute: The attribute of each column.
        event_kind: The kinds of the values, a row for each event.
        event_f: The floats of the values.
        event_r: The rests of the values; without rows if there are none.
        attributes: The number of attributes that the segment knows; others are left out.
        kinds: Where the kinds are written.
        fs: Where the floats are written.
        rs: Where the rests are written.
        present: Where the attributes are listed.
    """
    size = 0
    for c in range(len(event_attribute)):
        attribute, kind = event_attribute[c], event_kind[e, c]
        if attribute < attributes and kind != MISSING:
            present[size] = attribute
            size += 1
            kinds[attribute], fs[attribute] = kind, event_f[e, c]
            rs[attribute] = event_r[e, c] if len(event_r) else 0
    return size


@inlined
def write_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, end):
    """Write the string tests that one event of a batch passes behind its attributes; return where they end.

    Args:
        e: The event's row.
        tests: The list of string tests that each value passes, -1 for none; without rows if there are none.
        test_first: Where each list begins in `test_members`.
        test_members: The string tests of all lists.
        stamp: The event's number.
        test_stamp: For each string test the last event that passed it.
        present: Where the tests are listed.
        end: Where the event's attributes end in `present`.
    """
    if len(tests):
        for c in range(tests.shape[1]):
            if tests[e, c] >= 0:
                for t in range(test_first[tests[e, c]], test_first[tests[e, c] + 1]):
                    test_stamp[test_members[t]] = stamp
                    present[end] = test_members[t]
                    end += 1
    return end


@inlined
def find_rows(present, size, kinds, fs, number_row, string_row, boolean_row, edges, edge, row):
    """Write the rows of the tables that the event's values fall into.

    Args:
        present: The event's attributes.
        size: How many attributes it has.
        kinds: The kinds of the event's values by attribute.
        fs: The floats of the event's values by attribute.
        number_row: As in `Segment`.
        string_row: As in `Segment`.
        boolean_row: As in `Segment`.
        edges: As in `Segment`.
        edge: As in `Segment`.
        row: Where the row of each attribute is written.
    """
    for c in range(size):
        a = present[c]
        row[a] = row_of(kinds[a], fs[a], number_row[a], string_row[a], boolean_row[a], edges, edge[a])


# Matching


@inlined
def find_cluster(keys, key_attribute, key_kind, key_f, key_r, attribute, kind, f, r):
    """Return the cluster of an access predicate, -1 if there is none.

    The arrays of keys are those of `Segment`.

    Args:
        attribute: The attribute's number; 0 for a string test.
        kind: The value's kind, or TEST.
        f: The value as a float, or the test's number.
        r: What the value lost as a float.
    """
    mask = len(keys) - 1
    slot = np.int64(hash_value(attribute, kind, f, r) & np.uint64(mask))
    while keys[slot] >= 0:
        c = keys[slot]
        if key_f[c] == f and key_kind[c] == kind and key_r[c] == r and (kind == TEST or key_attribute[c] == attribute):
            return c
        slot = (slot + 1) & mask
    return -1


@inlined
def passes(preds, first, last, kinds, fs, rs, test_stamp, stamp):
    """Return whether the event in the scratch memory satisfies all predicates of a conjunct, exactly.

    It evaluates all of them, whatever the first ones say: the outcome is unpredictable, and without a branch on it the
    processor can prefetch the next conjunct's predicates.

    Args:
        preds: The predicates.
        first: The conjunct's first predicate.
        last: The end of its predicates.
        kinds: The kinds of the event's values by attribute.
        fs: The floats of the event's values by attribute.
        rs: The rests of the event's values by attribute.
        test_stamp: For each string test the last event that passed it.
        stamp: The event's number.
    """
    passed = True
    for p in range(first, last):
        pred = preds[p]
        attribute, kind = pred.what >> 3, pred.what & 7
        # Added during this match: either answer is right, but no memory beyond the arrays may be read.
        if attribute >= len(kinds):
            return False
        value_kind, f = kinds[attribute], fs[attribute]
        if kind == NUMBER or kind == BOOLEAN:  # noqa: SIM109 - tuples cost time in a kernel
            low, high = pred.low, pred.high
            passed &= (value_kind == kind) & (f >= low) & (f <= high)
            # On the bound itself, the rest decides.
            if (f == low) | (f == high):
                passed &= (f != low) | (rs[attribute] >= pred.low_rest)
                passed &= (f != high) | (rs[attribute] <= pred.high_rest)
        elif kind == STRING:
            passed &= (value_kind == STRING) & ((pred.low < 0) | (pred.low == f))
        elif kind == TEST:
            if value_kind != STRING or int(pred.low) >= len(test_stamp) or test_stamp[int(pred.low)] != stamp:
                return False
        else:
            passed &= (kind == MISSING) == (value_kind == MISSING)
    return passed


@inlined
def block_candidates(alive, bits, word, words, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """AND the rows of an event's values in one block; return whether any candidate is left.

    The other arrays are those of `Segment`.

    Args:
        word: The block's first word in `alive`.
        words: How many words the block has.
        first_entry: The block's first table.
        last_entry: The end of its tables.
        row: The row of each attribute that the event's value falls into.
        acc: The first 8 words receive the candidates, the next 8 those of them that need no check.
    """
    if words == 8:
        return _candidates_of_full_block(
            alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc
        )
    left = np.uint64(0)
    for i in range(words):
        acc[i] = acc[8 + i] = alive[word + i]
        left |= acc[i]
    for entry in range(first_entry, last_entry):
        if left == 0:
            return False
        at = entry_table[entry] + 2 * row[entry_attribute[entry]] * words
        left = np.uint64(0)
        for i in range(words):
            acc[i] &= bits[at + i]
            acc[8 + i] &= bits[at + words + i]
            left |= acc[i]
    return left != 0


@inlined
def _candidates_of_full_block(alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """Do the work of `block_candidates` for a full block.

    Indices are unsigned, since for signed ones the compiler must handle negative indices.
    """
    at = np.uint64(word)
    a, b, c, d = alive[at], alive[at + U1], alive[at + U2], alive[at + U3]
    e, f, g, h = alive[at + U4], alive[at + U5], alive[at + U6], alive[at + U7]
    for entry in range(first_entry, last_entry):
        at = np.uint64(entry_table[entry] + row[entry_attribute[entry]] * 16)
        a, b, c, d = a & bits[at], b & bits[at + U1], c & bits[at + U2], d & bits[at + U3]
        e, f, g, h = e & bits[at + U4], f & bits[at + U5], g & bits[at + U6], h & bits[at + U7]
        if (a | b | c | d | e | f | g | h) == 0:
            return False
    acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7] = a, b, c, d, e, f, g, h
    left = count_bits(a) + count_bits(b) + count_bits(c) + count_bits(d)
    left += count_bits(e) + count_bits(f) + count_bits(g) + count_bits(h)
    if left <= WORTH_ASKING:  # checking them is as fast
        acc[8] = acc[9] = acc[10] = acc[11] = acc[12] = acc[13] = acc[14] = acc[15] = np.uint64(0)
        return True
    for entry in range(first_entry, last_entry):
        at = np.uint64(entry_table[entry] + row[entry_attribute[entry]] * 16)
        a, b, c, d = a & bits[at + U8], b & bits[at + U9], c & bits[at + U10], d & bits[at + U11]
        e, f, g, h = e & bits[at + U12], f & bits[at + U13], g & bits[at + U14], h & bits[at + U15]
    acc[8], acc[9], acc[10], acc[11], acc[12], acc[13], acc[14], acc[15] = a, b, c, d, e, f, g, h
    return True


@inlined
def append_once(owner, match_stamp, stamp, out, count):
    """Write a conjunct's subscription into the output, unless another of its conjuncts has; return the new count.

    Args:
        owner: The conjunct's owner: position and flags.
        match_stamp: For each subscription the last event that it matched.
        stamp: The event's number.
        out: Where positions are written.
        count: How many there are so far.
    """
    position = owner >> 2
    if owner & SEVERAL:
        if position >= len(match_stamp) or match_stamp[position] == stamp:
            return count
        if not owner & RESIDUAL:
            match_stamp[position] = stamp
    if count < len(out):
        out[count] = ~position if owner & RESIDUAL else position
    return count + 1


@inlined
def find_blocks(
    keys, key_attribute, key_kind, key_f, key_r, access, cluster_block, cluster_entry,
    summary_attribute, summary_table, summary, kinds, fs, rs, row, present, size, end, blocks,
):  # fmt: skip
    """Write the blocks in which the event in the scratch memory may have candidates; return how many.

    The arrays of keys, clusters and summaries are those of `Segment`, those of values those of `Scratch`.

    Args:
        present: The event's attributes, and behind them the string tests that it passes.
        size: Where the attributes end.
        end: Where the string tests end.
        blocks: Where the blocks are written.
    """
    count = 0
    for c in range(-1, end):  # the cluster without access predicates, then those of values, then those of tests
        cluster = np.int64(len(key_attribute))
        if c >= size:
            cluster = np.int64(find_cluster(keys, key_attribute, key_kind, key_f, key_r, 0, TEST, present[c], 0))
        elif c >= 0:
            attribute = present[c]
            if not access[attribute] & BY_VALUE:
                continue
            cluster = np.int64(
                find_cluster(
                    keys, key_attribute, key_kind, key_f, key_r,
                    attribute, kinds[attribute], fs[attribute], rs[attribute],
                )
            )  # fmt: skip
        if cluster < 0:
            continue
        first, last = cluster_block[cluster], cluster_block[cluster + 1]
        if cluster_entry[cluster] == cluster_entry[cluster + 1]:
            for block in range(first, last):
                blocks[count] = block
                count += 1
            continue
        across = (last - first + WORD - 1) // WORD
        for word in range(across):
            left = ~np.uint64(0)
            for s in range(cluster_entry[cluster], cluster_entry[cluster + 1]):
                left &= summary[summary_table[s] + row[summary_attribute[s]] * across + word]
            while left:
                low = left & (~left + U1)
                left ^= low
                block = first + word * WORD + np.int64(count_bits(low - U1))
                if block < last:
                    blocks[count] = block
                    count += 1
    return count


@inlined
def match_blocks(
    blocks, size, block_conjunct, block_word, block_entry, entry_attribute, entry_table, bits, alive, owner, pred_first,
    preds, kinds, fs, rs, row, test_stamp, match_stamp, stamp, acc, out, count, limit,
):  # fmt: skip
    """Write the positions of the subscriptions in some blocks that the event in the scratch memory matches.

    Positions that the reference has to confirm come as their complement. Returns the count, including positions for
    which `out` had no room, and the number of candidates; above `limit` candidates it gives up.

    Args:
        blocks: The blocks.
        size: How many blocks there are.
        acc: Working memory.
        out: Where positions are written, from `count` on.
        count: How many positions there are so far.
        limit: The number of candidates above which it gives up.
    """
    candidates = 0
    for b in range(size):
        block = blocks[b]
        word = block_word[block]
        words = block_word[block + 1] - word
        if not block_candidates(
            alive, bits, word, words, block_entry[block], block_entry[block + 1],
            entry_attribute, entry_table, row, acc,
        ):  # fmt: skip
            continue
        # Without tables every candidate must be checked.
        tabled = ~np.uint64(0) if block_entry[block + 1] > block_entry[block] else np.uint64(0)
        first, doubtful = block_conjunct[block], 0
        for w in range(words):
            sure = acc[8 + w] & tabled
            unsure = acc[w] & ~sure
            candidates += int(count_bits(acc[w]))
            while sure:
                low = sure & (~sure + U1)
                sure ^= low
                conjunct_owner = owner[first + w * WORD + np.int64(count_bits(low - U1))]
                if conjunct_owner & 3:
                    count = append_once(conjunct_owner, match_stamp, stamp, out, count)
                else:
                    if count < len(out):
                        out[count] = conjunct_owner >> 2
                    count += 1
            while unsure:
                low = unsure & (~unsure + U1)
                unsure ^= low
                acc[PENDING + doubtful] = np.uint64(first + w * WORD) + count_bits(low - U1)
                doubtful += 1
        for i in range(doubtful):
            conjunct = np.int64(acc[PENDING + i])
            passed = passes(preds, pred_first[conjunct], pred_first[conjunct + 1], kinds, fs, rs, test_stamp, stamp)
            conjunct_owner = owner[conjunct]
            if conjunct_owner & 3:
                if passed:
                    count = append_once(conjunct_owner, match_stamp, stamp, out, count)
            else:
                if count < len(out):
                    out[count] = conjunct_owner >> 2
                count += passed
        if candidates > limit:
            return count, candidates
    return count, candidates


@kernel(BYTES, BYTES, FLOATS, INT32S, INTEGER, INT32S)
def match_event(raw, scratch, event, tests, limit, out):
    """Match one event against a segment; return how many positions were written into `out`.

    Returns NO_ROOM if `out` is too small (the counter NEEDED has the required size), and TOO_MANY if there are more
    candidates than the limit.

    Args:
        raw: The segment.
        scratch: The thread's scratch memory.
        event: The values, as `Columns.encode` returns them.
        tests: The string tests that the event passes.
        limit: The number of candidates above which it gives up.
        out: Where positions are written.
    """
    kinds, fs, rs, row = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R), i4(scratch, ROW)
    present, test_stamp, match_stamp = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, MATCH_STAMP)
    counters = i8(scratch, COUNTERS)
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    counters[STAMP] += 1
    stamp = counters[STAMP]
    size = write_event(event, len(number_row), kinds, fs, rs, present)
    find_rows(present, size, kinds, fs, number_row, string_row, boolean_row, edges, edge, row)
    access, end = bytes_of(raw, ACCESS), size
    for test in tests:
        test_stamp[test] = stamp
        present[end] = test
        end += 1
    blocks = np.empty(len(i4(raw, BLOCK_WORD)), np.int32)
    block_count = find_blocks(
        i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND), f8(raw, KEY_F), i2(raw, KEY_R), access,
        i4(raw, CLUSTER_BLOCK), i4(raw, CLUSTER_ENTRY), i4(raw, SUMMARY_ATTRIBUTE), i8(raw, SUMMARY_TABLE),
        u8(raw, SUMMARY), kinds, fs, rs, row, present, size, end if access[len(access) - 1] else size, blocks,
    )  # fmt: skip
    acc = np.empty(PENDING + BLOCK, np.uint64)
    count, candidates = match_blocks(
        blocks, block_count, i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY),
        i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE), u8(raw, BITS), u8(raw, ALIVE), i4(raw, OWNER),
        i4(raw, PRED_FIRST), preds_of(raw), kinds, fs, rs, row, test_stamp, match_stamp, stamp, acc, out, 0, limit,
    )  # fmt: skip
    for c in range(size):
        kinds[present[c]], row[present[c]] = MISSING, ROW_MISSING
    counters[CHECKED] += candidates
    if candidates > limit:
        return TOO_MANY
    if count > len(out):
        counters[NEEDED] = count
        return NO_ROOM
    counters[FOUND] += count
    return count


@kernel(BYTES, BYTES, INT32S, BYTE_ROWS, FLOAT_ROWS, INT16_ROWS, INT32_ROWS, INT32S, INT32S, INTEGER, INT32S, INT64S)
def match_events(
    raw, scratch, event_attribute, event_kind, event_f, event_r, tests, test_first, test_members, first, out, ends
):
    """Match many events from `first` on; return the event for which `out` had no room, or the number of events.

    In the first case the counter NEEDED has the size that this event requires.

    Args:
        raw: The segment.
        scratch: The thread's scratch memory.
        event_attribute: The attribute of each column.
        event_kind: The kinds of the values, a row for each event.
        event_f: The floats of the values.
        event_r: The rests of the values; without rows if there are none.
        tests: The list of string tests that each value passes, -1 for none; without rows if there are none.
        test_first: Where each list begins in `test_members`.
        test_members: The string tests of all lists.
        first: The event to begin with.
        out: Where positions are written.
        ends: Where the end of each event's positions is written.
    """
    kinds, fs, rs, row = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R), i4(scratch, ROW)
    present, test_stamp, match_stamp = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, MATCH_STAMP)
    counters = i8(scratch, COUNTERS)
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    keys, key_attribute, key_kind = i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r, access = f8(raw, KEY_F), i2(raw, KEY_R), bytes_of(raw, ACCESS)
    cluster_block, block_conjunct = i4(raw, CLUSTER_BLOCK), i4(raw, BLOCK_CONJUNCT)
    cluster_entry, summary_attribute = i4(raw, CLUSTER_ENTRY), i4(raw, SUMMARY_ATTRIBUTE)
    summary_table, summary = i8(raw, SUMMARY_TABLE), u8(raw, SUMMARY)
    block_word, block_entry = i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY)
    blocks = np.empty(len(block_word), np.int32)
    entry_attribute, entry_table, bits, alive = (
        i4(raw, ENTRY_ATTRIBUTE),
        i8(raw, ENTRY_TABLE),
        u8(raw, BITS),
        u8(raw, ALIVE),
    )
    owner, pred_first, preds = i4(raw, OWNER), i4(raw, PRED_FIRST), preds_of(raw)
    acc = np.empty(PENDING + BLOCK, np.uint64)
    unlimited = np.int64(1) << np.int64(62)
    filled = 0
    for e in range(first, len(ends)):
        counters[STAMP] += 1
        stamp = counters[STAMP]
        size = write_event_of_many(
            e, event_attribute, event_kind, event_f, event_r, len(number_row), kinds, fs, rs, present
        )
        find_rows(present, size, kinds, fs, number_row, string_row, boolean_row, edges, edge, row)
        end = write_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, size)
        block_count = find_blocks(
            keys, key_attribute, key_kind, key_f, key_r, access, cluster_block, cluster_entry,
            summary_attribute, summary_table, summary, kinds, fs, rs, row, present, size,
            end if access[len(access) - 1] else size, blocks,
        )  # fmt: skip
        count, candidates = match_blocks(
            blocks, block_count, block_conjunct, block_word, block_entry, entry_attribute, entry_table, bits, alive,
            owner, pred_first, preds, kinds, fs, rs, row, test_stamp, match_stamp, stamp, acc, out, filled, unlimited,
        )  # fmt: skip
        for c in range(size):
            kinds[present[c]], row[present[c]] = MISSING, ROW_MISSING
        counters[CHECKED] += candidates
        if count > len(out):
            counters[NEEDED] = count - filled
            return e
        counters[FOUND] += count - filled
        filled = count
        ends[e] = count
    return len(ends)


@kernel(INT64S, INT64S, INT32S)
def in_event_order(order, ends, out):
    """Return the output of `match_events` sorted by event: event numbers and positions."""
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
