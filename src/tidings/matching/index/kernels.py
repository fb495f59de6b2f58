"""The compiled heart of the index: matching events against segments. Arrays in, arrays out.

Nothing here allocates in proportion to anything but its output, and nothing knows of names, texts or Python
objects. Numbers are pairs of a float64 and the small integer that the float lost (`columns.split_number`), compared
in that order: exact for all.
"""

from typing import Any

import numpy as np
from numba.extending import intrinsic

from tidings.matching.index.compiling import (
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
from tidings.matching.index.conjuncts import RESIDUAL, SEVERAL
from tidings.matching.index.layout import CHECKED, FOUND, HEAD, NEEDED, PREDICATE, STAMP, Scratch, Segment


@intrinsic
def count_bits(typing_context: Any, value: Any) -> Any:
    """The processor's own population count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return value(value), generate


U1, U2, U3, U4, U5, U6, U7 = np.arange(1, 8, dtype=np.uint64)
U8, U9, U10, U11, U12, U13, U14, U15 = np.arange(8, 16, dtype=np.uint64)
WORD = 64
BLOCK = 512  # conjuncts that are looked at together
BUCKETS = 32  # of numbers, for each attribute
EDGES = BUCKETS - 1
STRING_BUCKETS = 16
MISSING, NUMBER, STRING, BOOLEAN, PRESENT, TEST = range(6)
BY_VALUE, BY_TEST = 1, 2  # how clusters are reached through an attribute
SEPARATOR = 7  # no predicate, but what stands between conjuncts where they lie by subscription
EXACT_FLOAT = 2.0**53  # below it, a float loses nothing of an integer
LARGEST = np.finfo(np.float64).max

# Rows of an attribute's table: missing, a kind that no constraint speaks of, then what the segment needs. A row has two
# halves: conjuncts that a value there might satisfy, and those that every value there satisfies.
ROW_MISSING, ROW_OTHER, ROW_FIRST = 0, 1, 2
NO_ROOM, TOO_MANY = -1, -2
WORTH_ASKING = np.uint64(
    8
)  # candidates of a block: for fewer, the half of the table that tells who is sure is not read
PENDING = 2 * BLOCK // WORD  # behind a block's candidates: the numbers of those that must be checked

# Where each array stands in the table of contents.
(
    ROWS, NUMBER_ROW, STRING_ROW, BOOLEAN_ROW, EDGE_OF, EDGES_AT, ACCESS, KEYS, KEY_ATTRIBUTE, KEY_KIND, KEY_F, KEY_R,
    KEY_HIGH, CLUSTER_BLOCK, CLUSTER_ENTRY, SUMMARY_ATTRIBUTE, SUMMARY_TABLE, SUMMARY, BLOCK_CONJUNCT,
    BLOCK_WORD, BLOCK_ENTRY, ENTRY_ATTRIBUTE, ENTRY_TABLE, BITS, ALIVE, OWNER,
    PRED_FIRST, PRED,
) = range(len(Segment._fields))  # fmt: skip
KIND, F, R, ROW, PRESENT_ONES, TEST_STAMP, SEEN, COUNTERS = range(len(Scratch._fields))


# An array out of a block. The functions below take single arrays: handing over a tuple of thirty of them costs ten
# times what the work itself does wherever the compiler does not dissolve the call.


@inlined
def bytes_of(raw, field):
    contents = raw[:HEAD].view(np.int64)
    return raw[contents[2 * field] : contents[2 * field + 1]]


@inlined
def i2(raw, field):
    return bytes_of(raw, field).view(np.int16)


@inlined
def i4(raw, field):
    return bytes_of(raw, field).view(np.int32)


@inlined
def i8(raw, field):
    return bytes_of(raw, field).view(np.int64)


@inlined
def u8(raw, field):
    return bytes_of(raw, field).view(np.uint64)


@inlined
def f8(raw, field):
    return bytes_of(raw, field).view(np.float64)


@inlined
def preds_of(raw):
    return bytes_of(raw, PRED).view(PREDICATE)


# Where a value falls


@inlined
def bucket_of(edges, edge, f):
    """How many of the edges lie at or below the number. There are 31: five steps without a branch to guess wrong."""
    at = edge * EDGES
    found = np.int64(16) * (edges[at + 15] <= f)
    found += np.int64(8) * (edges[at + found + 7] <= f)
    found += np.int64(4) * (edges[at + found + 3] <= f)
    found += np.int64(2) * (edges[at + found + 1] <= f)
    return found + np.int64(edges[at + found] <= f)


@inlined
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


@inlined
def mix(attribute, kind, f, r):
    """A 64-bit hash of a value of an attribute."""
    bits = np.uint64(0x9E3779B97F4A7C15)
    h = np.uint64(attribute) * bits + np.uint64(kind)
    # -0.0 and 0.0 are one number.
    value = np.float64(f + 0.0).view(np.uint64)
    h = (h ^ value) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(31)) ^ np.uint64(np.int64(r) & np.int64(0xFFFF))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(29))


# An event into the scratch


@inlined
def lay_event(event, attributes, kinds, fs, rs, present):
    """What `Columns.encode` made; attributes from `attributes` on are left out. Returns how many there are."""
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
def lay_event_of_many(e, event_attribute, event_kind, event_f, event_r, attributes, kinds, fs, rs, present):
    """The same of a batch, as `match_events` takes it."""
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
def lay_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, end):
    """The string tests that the event passes, behind its attributes; returns where they end."""
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
    """The rows of a segment's tables that the values fall into."""
    for c in range(size):
        a = present[c]
        row[a] = row_of(kinds[a], fs[a], number_row[a], string_row[a], boolean_row[a], edges, edge[a])


# Matching


@inlined
def find_cluster(keys, key_attribute, key_kind, key_f, key_r, attribute, kind, f, r):
    mask = len(keys) - 1
    slot = np.int64(mix(attribute, kind, f, r) & np.uint64(mask))
    while keys[slot] >= 0:
        c = keys[slot]
        if key_f[c] == f and key_kind[c] == kind and key_r[c] == r and (kind == TEST or key_attribute[c] == attribute):
            return c
        slot = (slot + 1) & mask
    return -1


@inlined
def passes(preds, first, last, kinds, fs, rs, test_stamp, stamp):
    """Whether the event that lies in the scratch satisfies all predicates of a conjunct, exactly.

    All are looked at, whatever the first ones say: nobody can guess the answer, and without a branch on it the
    processor fetches the next conjunct's predicates meanwhile.
    """
    passed = True
    for p in range(first, last):
        pred = preds[p]
        attribute, kind = pred.what >> 3, pred.what & 7
        # It was added while we match: either answer is right, but memory is not to be touched.
        if attribute >= len(kinds):
            return False
        given, f = kinds[attribute], fs[attribute]
        if kind == NUMBER or kind == BOOLEAN:  # noqa: SIM109 - tuples cost time in a kernel
            low, high = pred.low, pred.high
            passed &= (given == kind) & (f >= low) & (f <= high)
            # On a bound itself, what the float lost decides.
            if (f == low) | (f == high):
                passed &= (f != low) | (rs[attribute] >= pred.low_rest)
                passed &= (f != high) | (rs[attribute] <= pred.high_rest)
        elif kind == STRING:
            passed &= (given == STRING) & ((pred.low < 0) | (pred.low == f))
        elif kind == TEST:
            if given != STRING or int(pred.low) >= len(test_stamp) or test_stamp[int(pred.low)] != stamp:
                return False
        else:
            passed &= (kind == MISSING) == (given == MISSING)
    return passed


@inlined
def survivors(alive, bits, word, words, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """ANDs the rows of an event's values: candidates into the first half of `acc`, those that need no check into the
    second.
    """
    if words == 8:
        return _survivors_of_eight(alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc)
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
def _survivors_of_eight(alive, bits, word, first_entry, last_entry, entry_attribute, entry_table, row, acc):
    """The same for a full block. Unsigned places: for others the compiler must allow for counting from the end."""
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
    if left <= WORTH_ASKING:  # it is as quick to check them
        acc[8] = acc[9] = acc[10] = acc[11] = acc[12] = acc[13] = acc[14] = acc[15] = np.uint64(0)
        return True
    for entry in range(first_entry, last_entry):
        at = np.uint64(entry_table[entry] + row[entry_attribute[entry]] * 16)
        a, b, c, d = a & bits[at + U8], b & bits[at + U9], c & bits[at + U10], d & bits[at + U11]
        e, f, g, h = e & bits[at + U12], f & bits[at + U13], g & bits[at + U14], h & bits[at + U15]
    acc[8], acc[9], acc[10], acc[11], acc[12], acc[13], acc[14], acc[15] = a, b, c, d, e, f, g, h
    return True


@inlined
def noted(found, seen, stamp, out, count):
    """Writes a conjunct's subscription down, unless another of its conjuncts was there first."""
    position = found >> 2
    if found & SEVERAL:
        if position >= len(seen) or seen[position] == stamp:
            return count
        if not found & RESIDUAL:
            seen[position] = stamp
    if count < len(out):
        out[count] = ~position if found & RESIDUAL else position
    return count + 1


@inlined
def find_blocks(
    keys, key_attribute, key_kind, key_f, key_r, access, cluster_block, cluster_entry,
    summary_attribute, summary_table, summary, kinds, fs, rs, row, present, size, end, blocks,
):  # fmt: skip
    """Writes down the blocks in which the event in the scratch may have candidates; returns how many.

    From `size` to `end`, `present` are the string tests that it passes.
    """
    count = 0
    for c in range(-1, end):  # first those without an access predicate, then through each value, then each test
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
def look_up(
    blocks, size, block_conjunct, block_word, block_entry, entry_attribute, entry_table, bits, alive, owner, pred_first,
    preds, kinds, fs, rs, row, test_stamp, seen, stamp, acc, out, count, limit,
):  # fmt: skip
    """Writes whom of these blocks the event in the scratch concerns into `out`, from `count` on, as far as it has room.

    Positions that the reference has to confirm come as their complement. Returns the count with those for which there
    was no room, and how many candidates there were; above `limit` of them it gives up.
    """
    candidates = 0
    for b in range(size):
        block = blocks[b]
        word = block_word[block]
        words = block_word[block + 1] - word
        if not survivors(
            alive, bits, word, words, block_entry[block], block_entry[block + 1],
            entry_attribute, entry_table, row, acc,
        ):  # fmt: skip
            continue
        # Without tables nobody is sure.
        trusted = ~np.uint64(0) if block_entry[block + 1] > block_entry[block] else np.uint64(0)
        first, doubtful = block_conjunct[block], 0
        for w in range(words):
            sure = acc[8 + w] & trusted
            unsure = acc[w] & ~sure
            candidates += int(count_bits(acc[w]))
            while sure:
                low = sure & (~sure + U1)
                sure ^= low
                found = owner[first + w * WORD + np.int64(count_bits(low - U1))]
                if found & 3:
                    count = noted(found, seen, stamp, out, count)
                else:
                    if count < len(out):
                        out[count] = found >> 2
                    count += 1
            while unsure:
                low = unsure & (~unsure + U1)
                unsure ^= low
                acc[PENDING + doubtful] = np.uint64(first + w * WORD) + count_bits(low - U1)
                doubtful += 1
        for i in range(doubtful):
            conjunct = np.int64(acc[PENDING + i])
            passed = passes(preds, pred_first[conjunct], pred_first[conjunct + 1], kinds, fs, rs, test_stamp, stamp)
            found = owner[conjunct]
            if found & 3:
                if passed:
                    count = noted(found, seen, stamp, out, count)
            else:
                if count < len(out):
                    out[count] = found >> 2
                count += passed
        if candidates > limit:
            return count, candidates
    return count, candidates


@kernel(BYTES, BYTES, FLOATS, INT32S, INTEGER, INT32S)
def match_event(raw, scratch, event, tests, limit, out):
    """Whom one event concerns: how many positions stand in `out`, or -1 if there was no room (the counters tell how
    much is needed), or -2 if there were more candidates than the limit.

    The event is what `Columns.encode` makes; `tests` are the string tests that its strings pass.
    """
    kinds, fs, rs, row = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R), i4(scratch, ROW)
    present, test_stamp, seen = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, SEEN)
    counters = i8(scratch, COUNTERS)
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    counters[STAMP] += 1
    stamp = counters[STAMP]
    size = lay_event(event, len(number_row), kinds, fs, rs, present)
    find_rows(present, size, kinds, fs, number_row, string_row, boolean_row, edges, edge, row)
    access, end = bytes_of(raw, ACCESS), size
    for test in tests:
        test_stamp[test] = stamp
        present[end] = test
        end += 1
    blocks = np.empty(len(i4(raw, BLOCK_WORD)), np.int32)
    many = find_blocks(
        i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND), f8(raw, KEY_F), i2(raw, KEY_R), access,
        i4(raw, CLUSTER_BLOCK), i4(raw, CLUSTER_ENTRY), i4(raw, SUMMARY_ATTRIBUTE), i8(raw, SUMMARY_TABLE),
        u8(raw, SUMMARY), kinds, fs, rs, row, present, size, end if access[len(access) - 1] else size, blocks,
    )  # fmt: skip
    acc = np.empty(PENDING + BLOCK, np.uint64)
    count, candidates = look_up(
        blocks, many, i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY), i4(raw, ENTRY_ATTRIBUTE),
        i8(raw, ENTRY_TABLE), u8(raw, BITS), u8(raw, ALIVE), i4(raw, OWNER), i4(raw, PRED_FIRST), preds_of(raw),
        kinds, fs, rs, row, test_stamp, seen, stamp, acc, out, 0, limit,
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
    """Matches many events, a row an event and a column an attribute, from the `first` on.

    `event_r` and `tests` have no rows where nothing is lost and nothing tested; `tests` are numbers of lists. `ends`
    says where the output of each event ends. Returns the event for which `out` had no room (the counters tell how
    much it needs), or how many there are.
    """
    kinds, fs, rs, row = bytes_of(scratch, KIND), f8(scratch, F), i2(scratch, R), i4(scratch, ROW)
    present, test_stamp, seen = i4(scratch, PRESENT_ONES), i8(scratch, TEST_STAMP), i8(scratch, SEEN)
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
        size = lay_event_of_many(
            e, event_attribute, event_kind, event_f, event_r, len(number_row), kinds, fs, rs, present
        )
        find_rows(present, size, kinds, fs, number_row, string_row, boolean_row, edges, edge, row)
        end = lay_tests_of_many(e, tests, test_first, test_members, stamp, test_stamp, present, size)
        many = find_blocks(
            keys, key_attribute, key_kind, key_f, key_r, access, cluster_block, cluster_entry,
            summary_attribute, summary_table, summary, kinds, fs, rs, row, present, size,
            end if access[len(access) - 1] else size, blocks,
        )  # fmt: skip
        count, candidates = look_up(
            blocks, many, block_conjunct, block_word, block_entry, entry_attribute, entry_table, bits, alive, owner,
            pred_first, preds, kinds, fs, rs, row, test_stamp, seen, stamp, acc, out, filled, unlimited,
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
