"""How the conjuncts of a segment stand to those of a filter, compiled: which contain it, and which lie within it.

The filter comes as rows of PREDICATE, as conjuncts do, of attributes and strings that the index knows. What compiled
code cannot say of strings was found out before, for each string and each test: `ok` holds the answers. Positions that
`covering.covers` has to confirm come as their complement.
"""

import numpy as np

from tidings.matching.index.compiling import BYTES, FLAG, INT32S, INT64S, INTEGER, PREDICATES, kernel, part
from tidings.matching.index.conjuncts import RESIDUAL, SEVERAL
from tidings.matching.index.kernels import (
    ACCESS,
    ALIVE,
    BITS,
    BLOCK_CONJUNCT,
    BLOCK_ENTRY,
    BLOCK_WORD,
    BOOLEAN,
    BOOLEAN_ROW,
    BY_VALUE,
    CLUSTER_BLOCK,
    EDGE_OF,
    EDGES_AT,
    ENTRY_ATTRIBUTE,
    ENTRY_TABLE,
    KEY_ATTRIBUTE,
    KEY_F,
    KEY_KIND,
    KEY_R,
    KEYS,
    MISSING,
    NUMBER,
    NUMBER_ROW,
    OWNER,
    PRED_FIRST,
    PRESENT,
    ROW_MISSING,
    ROW_OTHER,
    STRING,
    STRING_ROW,
    TEST,
    U1,
    WORD,
    bytes_of,
    count_bits,
    f8,
    find_cluster,
    i2,
    i4,
    i8,
    preds_of,
    row_of,
    u8,
)

NO, OVERLAP, MAYBE, YES = range(4)
NO_CODE, ANY_CODE = -2, -3  # a string that no filter mentions; one that is not known
EXACT_ONES, RESIDUAL_ONES, ALL_OVERLAPPING = range(3)  # which conjuncts `within` looks at


@kernel(BYTES)
def owners(raw):
    """The owners of all conjuncts of a segment."""
    return i4(raw, OWNER)


# Who contains it


@kernel(BYTES, PREDICATES, INT64S, INT64S, INT32S, BYTES, BYTES, INT32S, FLAG, INT32S)
def containing(raw, asked, point, tests_at, place, ok, system, framed, asks_system, out):
    """Writes the subscriptions that may contain one alternative of a filter; returns how many.

    Whoever contains it contains its `point`: the lowest number, some string (by its code), a missing value where
    nothing is asked. So the tables are asked for that point as for an event, and what is left is compared in full;
    those with several alternatives are only asked whether they contain the point, and never sure.
    """
    keys, key_attribute, key_kind = i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r, access = f8(raw, KEY_F), i2(raw, KEY_R), bytes_of(raw, ACCESS)
    cluster_block, block_conjunct, block_word = i4(raw, CLUSTER_BLOCK), i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD)
    block_entry, entry_attribute, entry_table = i4(raw, BLOCK_ENTRY), i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE)
    bits, alive, owner = u8(raw, BITS), u8(raw, ALIVE), i4(raw, OWNER)
    pred_first, preds = i4(raw, PRED_FIRST), preds_of(raw)
    row, known = _rows_of_point(raw, asked, point)
    clusters = len(key_attribute)
    # A system attribute may be asked by the subscription's subject, which is not part of the question.
    # Nor can whoever is reached through a string test be looked up by one string.
    hashed = known and not asks_system and not access[len(access) - 1]
    acc = np.empty(8, np.uint64)
    count = 0
    for step in range(-1, len(asked) if hashed else clusters):
        cluster = np.int64(clusters if step < 0 else step)
        if hashed and step >= 0:
            attribute, kind = asked[step].what >> 3, asked[step].what & 7
            if attribute >= len(access) - 1 or not access[attribute] & BY_VALUE:
                continue
            f, r = asked[step].low, asked[step].low_rest
            if (kind == STRING) | (kind == TEST):
                kind, f, r = STRING, np.float64(point[step]), np.int16(0)
            elif kind == PRESENT:
                kind, f, r = BOOLEAN, 0.0, np.int16(0)
            cluster = np.int64(find_cluster(keys, key_attribute, key_kind, key_f, key_r, attribute, kind, f, r))
            if cluster < 0:
                continue
        key_level, key_met, key_is_system = YES, True, False
        if cluster < clusters:
            attribute, kind = key_attribute[cluster], np.int64(key_kind[cluster])
            f, r, at = key_f[cluster], key_r[cluster], place[attribute]
            key_is_system = system[attribute] != 0
            if at < 0:
                key_level, key_met = NO, False
            else:
                key_level = _contains(kind, f, r, f, r, asked[at], point[at], tests_at[at], ok)
                key_met = _meets(kind, f, r, f, r, asked[at], point[at], tests_at[at], ok)
            if not key_met and not key_is_system:
                continue
        for block in range(cluster_block[cluster], cluster_block[cluster + 1]):
            word = block_word[block]
            words = block_word[block + 1] - word
            for i in range(words):
                acc[i] = alive[word + i]
            speaks = asks_system and (key_is_system or _speaks_of(system, block, block_entry, entry_attribute))
            if not speaks:
                for entry in range(block_entry[block], block_entry[block + 1]):
                    at = row[entry_attribute[entry]]
                    if at >= 0:
                        for i in range(words):
                            acc[i] &= bits[entry_table[entry] + 2 * at * words + i]
            for i in range(words):
                left = acc[i]
                while left:
                    low = left & (~left + U1)
                    left ^= low
                    conjunct = block_conjunct[block] + i * WORD + np.int64(count_bits(low - U1))
                    position, flags = owner[conjunct] >> 2, owner[conjunct] & 3
                    several, is_framed = flags & SEVERAL != 0, framed[position] != 0
                    if not (is_framed and key_is_system) and not (key_met if several else key_level != NO):
                        continue
                    level = _conjunct_contains(
                        preds, pred_first[conjunct], pred_first[conjunct + 1], several, is_framed,
                        asked, point, tests_at, place, ok, system,
                    )  # fmt: skip
                    if level != NO:
                        sure = level == YES and key_level == YES and flags == 0 and not is_framed
                        out[count] = position if sure else ~position
                        count += 1
    return count


@part
def _rows_of_point(raw, asked, point):
    """The row of each attribute's table that the point falls into, -1 where it is not known; and whether all are."""
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    row, known = np.full(len(number_row), ROW_MISSING, np.int64), True
    for a in range(len(asked)):
        attribute, kind, f = asked[a].what >> 3, asked[a].what & 7, asked[a].low
        if (kind == STRING) | (kind == TEST):
            kind, f = STRING, np.float64(point[a])
        elif kind == PRESENT:
            kind, f = BOOLEAN, 0.0
        known &= f != ANY_CODE or kind != STRING
        if attribute < len(row):
            row[attribute] = row_of(
                kind, f, number_row[attribute], string_row[attribute], boolean_row[attribute], edges, edge[attribute]
            )
            if kind == STRING and f == ANY_CODE:
                row[attribute] = -1
    return row, known


@part
def _speaks_of(system, block, block_entry, entry_attribute):
    """Whether someone in the block asks for a system attribute."""
    for entry in range(block_entry[block], block_entry[block + 1]):  # noqa: SIM110 - a generator does not compile
        if system[entry_attribute[entry]]:
            return True
    return False


@part
def _conjunct_contains(
    preds, first, last, several, is_framed, asked, point, tests_at, place, ok, system
):  # fmt: skip
    level = YES
    for p in range(first, last):
        pred = preds[p]
        attribute, kind, low = pred.what >> 3, pred.what & 7, pred.low
        if is_framed and (system[attribute] or (kind == PRESENT) | (kind == MISSING)):
            continue  # subject and structure ask so, or perhaps the content
        if system[attribute]:
            if (kind == NUMBER) | (kind == BOOLEAN):
                return NO  # what is never true
            if kind == PRESENT:
                kind, low = STRING, -1.0
        at = place[attribute]
        if at < 0:
            if several and kind == MISSING:
                continue
            return NO
        if several:
            met = _meets(
                kind, low, pred.low_rest, pred.high, pred.high_rest, asked[at], point[at], tests_at[at], ok
            )  # fmt: skip
            found = MAYBE if met else NO
        else:
            found = _contains(
                kind, low, pred.low_rest, pred.high, pred.high_rest, asked[at], point[at], tests_at[at], ok
            )  # fmt: skip
        level = min(level, found)
        if level == NO:
            return NO
    return level


@part
def _not_above(f, r, g, s):
    """Numbers as pairs of a float and what it lost."""
    return f < g or (f == g and r <= s)


@part
def _contains(kind, low, low_rest, high, high_rest, asked, point, tests_at, ok):
    """Whether a predicate contains what the filter asks of the same attribute."""
    wanted = asked.what & 7
    if kind == MISSING or wanted == MISSING:
        return YES if kind == wanted else NO
    if kind == PRESENT:
        return YES
    if (kind == NUMBER) | (kind == BOOLEAN):
        inside = (
            kind == wanted
            and _not_above(low, low_rest, asked.low, asked.low_rest)
            and _not_above(asked.high, asked.high_rest, high, high_rest)
        )
        return YES if inside else NO
    if wanted != STRING and wanted != TEST:
        return NO
    if kind == STRING and low < 0:
        return YES
    if kind == STRING and wanted == STRING:
        return YES if low == asked.low else NO
    return MAYBE if _meets_string(kind, low, point, tests_at, ok) else NO


@part
def _meets(kind, low, low_rest, high, high_rest, asked, point, tests_at, ok):
    """Whether a predicate contains the point, as far as that is known; of PRESENT, the point is False."""
    wanted = asked.what & 7
    if kind == MISSING or wanted == MISSING:
        return kind == wanted
    if kind == PRESENT:
        return True
    if wanted == PRESENT:
        return kind == BOOLEAN and low == 0
    if (kind == NUMBER) | (kind == BOOLEAN):
        return (
            kind == wanted
            and _not_above(low, low_rest, asked.low, asked.low_rest)
            and _not_above(asked.low, asked.low_rest, high, high_rest)
        )
    if wanted != STRING and wanted != TEST:
        return False
    return (kind == STRING and low < 0) or _meets_string(kind, low, point, tests_at, ok)


@part
def _meets_string(kind, low, point, tests_at, ok):
    if kind == STRING:
        return (point == ANY_CODE) | (point == low)
    return tests_at >= 0 and ok[tests_at + np.int64(low)] != 0


# Who lies within it


@kernel(BYTES, PREDICATES, INT64S, BYTES, INT64S, INT64S, BYTES, BYTES, INT32S, INTEGER, INT32S)
def within(raw, asked, first, exact, codes_at, tests_at, ok, system, framed, which, out):
    """Writes the subscriptions that may lie within a filter; returns how many.

    An exact conjunct must lie within the only alternative, or overlap one of several; a residual one, or any if all
    that overlap are wanted, must overlap one.
    """
    key_attribute, key_kind = i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r, cluster_block = f8(raw, KEY_F), i2(raw, KEY_R), i4(raw, CLUSTER_BLOCK)
    block_conjunct, block_word, block_entry = i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY)
    entry_attribute, entry_table, bits = i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE), u8(raw, BITS)
    alive, owner = u8(raw, ALIVE), i4(raw, OWNER)
    pred_first, preds = i4(raw, PRED_FIRST), preds_of(raw)
    row = _rows_of_equalities(raw, asked)
    clusters, alternatives = len(key_attribute), len(exact)
    single = alternatives == 1 and which == EXACT_ONES
    enough = MAYBE if single else OVERLAP
    acc = np.empty(8, np.uint64)
    count = 0
    for cluster in range(clusters + 1):
        key, kind, f, r = np.int64(-1), np.int64(0), 0.0, np.int16(0)
        if cluster < clusters:
            key, kind = np.int64(key_attribute[cluster]), np.int64(key_kind[cluster])
            f, r = key_f[cluster], key_r[cluster]
            possible = False
            for a in range(alternatives):
                level = YES
                for q in range(first[a], first[a + 1]):
                    if asked[q].what >> 3 == key:
                        level = _lies_within(kind, f, r, f, r, asked[q], codes_at[q], tests_at[q], ok)
                possible |= level >= enough
            if not possible and not system[key]:
                continue
        for block in range(cluster_block[cluster], cluster_block[cluster + 1]):
            word = block_word[block]
            words = block_word[block + 1] - word
            for i in range(words):
                acc[i] = alive[word + i]
            tabled = block_entry[block + 1] > block_entry[block]
            if single and tabled and not _asked_in_block(
                asked, row, key, block, words, block_entry, entry_attribute, entry_table, bits, acc
            ):  # fmt: skip
                continue
            for i in range(words):
                left = acc[i]
                while left:
                    lowest = left & (~left + U1)
                    left ^= lowest
                    conjunct = block_conjunct[block] + i * WORD + np.int64(count_bits(lowest - U1))
                    position, flags = owner[conjunct] >> 2, owner[conjunct] & 3
                    if which != ALL_OVERLAPPING and (flags & RESIDUAL != 0) != (which == RESIDUAL_ONES):
                        continue
                    is_framed = framed[position] != 0
                    best, sure = NO, False
                    for a in range(alternatives):
                        level = _conjunct_within(
                            preds, pred_first[conjunct], pred_first[conjunct + 1], key, kind, f, r,
                            asked, first[a], first[a + 1], codes_at, tests_at, ok,
                            system, is_framed, which != EXACT_ONES, single,
                        )  # fmt: skip
                        sure |= level == YES and exact[a] != 0
                        best = max(best, level)
                    if best >= enough:
                        sure &= which == EXACT_ONES and flags == 0 and not is_framed
                        out[count] = position if sure else ~position
                        count += 1
    return count


@part
def _rows_of_equalities(raw, asked):
    """The row that those within an equality must have a bit in, -1 where the filter asks for no equality."""
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    row = np.full(len(asked), -1, np.int64)
    for q in range(len(asked)):
        attribute, kind = asked[q].what >> 3, asked[q].what & 7
        equal = kind == NUMBER and asked[q].low == asked[q].high
        equal |= kind == STRING and asked[q].low != -1
        if equal and attribute < len(number_row):
            row[q] = row_of(
                kind, asked[q].low, number_row[attribute], string_row[attribute], boolean_row[attribute],
                edges, edge[attribute],
            )  # fmt: skip
    return row


@part
def _asked_in_block(asked, row, key, block, words, block_entry, entry_attribute, entry_table, bits, acc):
    """Leaves those of a block that ask for each attribute that the filter asks for; whether there are any."""
    for q in range(len(asked)):
        attribute, kind = asked[q].what >> 3, asked[q].what & 7
        if attribute == key:
            continue
        table = np.int64(-1)
        for entry in range(block_entry[block], block_entry[block + 1]):
            if entry_attribute[entry] == attribute:
                table = entry_table[entry]
        if table < 0:
            return False
        left = np.uint64(0)
        for i in range(words):
            # Who asks nothing of the attribute has a bit in every row.
            if kind == MISSING:
                acc[i] &= bits[table + 2 * ROW_MISSING * words + i] & ~bits[table + 2 * ROW_OTHER * words + i]
            else:
                acc[i] &= ~bits[table + 2 * ROW_MISSING * words + i]
                if row[q] >= 0:
                    acc[i] &= bits[table + 2 * row[q] * words + i]
            left |= acc[i]
        if left == 0:
            return False
    return True


@part
def _conjunct_within(
    preds, begin, end, key, key_kind, key_f, key_r, asked, first, last, codes_at, tests_at, ok,
    system, is_framed, loose, single,
):  # fmt: skip
    level = YES
    for q in range(first, last):
        attribute = asked[q].what >> 3
        found, there = NO, False
        if attribute == key and not (loose and is_framed and system[key]):
            there = True
            found = _lies_within(key_kind, key_f, key_r, key_f, key_r, asked[q], codes_at[q], tests_at[q], ok)
        for p in range(begin, end):
            pred = preds[p]
            if pred.what >> 3 != attribute:
                continue
            kind, low = pred.what & 7, pred.low
            if loose and is_framed and (system[attribute] or (kind == PRESENT) | (kind == MISSING)):
                continue
            there = True
            if system[attribute] and kind == PRESENT:
                kind, low = STRING, -1.0
            if not (system[attribute] and ((kind == NUMBER) | (kind == BOOLEAN))):
                found = _lies_within(
                    kind, low, pred.low_rest, pred.high, pred.high_rest, asked[q], codes_at[q], tests_at[q], ok
                )  # fmt: skip
        if not there and (loose or (not single and asked[q].what & 7 == MISSING)):
            found = OVERLAP
        level = min(level, found)
        if level == NO:
            return NO
    return level


@part
def _lies_within(kind, low, low_rest, high, high_rest, asked, codes_at, tests_at, ok):
    """Whether a predicate lies within what the filter asks of the same attribute, or overlaps it at least."""
    wanted = asked.what & 7
    if kind == MISSING or wanted == MISSING:
        return YES if kind == wanted else NO
    if wanted == PRESENT:
        return YES
    if kind == PRESENT:
        return OVERLAP
    if (kind == NUMBER) | (kind == BOOLEAN):
        if kind != wanted:
            return NO
        if _not_above(asked.low, asked.low_rest, low, low_rest) and _not_above(
            high, high_rest, asked.high, asked.high_rest
        ):
            return YES
        apart = not _not_above(asked.low, asked.low_rest, high, high_rest) or not _not_above(
            low, low_rest, asked.high, asked.high_rest
        )
        return NO if apart else OVERLAP
    if wanted != STRING and wanted != TEST:
        return NO
    if wanted == STRING and asked.low == -1:
        return YES
    if kind == STRING and low < 0:
        return MAYBE if wanted == TEST else OVERLAP
    if kind == STRING:
        if wanted == STRING:
            return YES if low == asked.low else NO
        return MAYBE if ok[codes_at + np.int64(low)] else NO
    return MAYBE if tests_at >= 0 and ok[tests_at + np.int64(low)] else OVERLAP
