"""Covering kernels: which conjuncts of a segment contain a filter's conjuncts, and which lie within them?

A filter comes as rows of PREDICATE (`query`), with attributes and strings numbered as in the index. What compiled code
cannot decide about strings has been decided before, for each string and each test that the index knows: `answers` has
the answers, and `codes_at` and `tests_at` say where those for each predicate of the filter begin, -1 for none. `system`
marks the system attributes, `has_subject_or_structure` the subscriptions with a subject or a structure, some of whose
predicates do not come from their content. Positions that `covering.covers` has to confirm come as their complement.
Comparisons return one of the levels NO, OVERLAP, MAYBE and YES.
"""

import numpy as np

from tidings.matching.index.conjuncts import RESIDUAL, SEVERAL
from tidings.matching.index.kernels.jit import BYTES, FLAG, INT32S, INT64S, INTEGER, PREDICATES, inlined, kernel, part
from tidings.matching.index.kernels.match import (
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
NO_CODE, ANY_CODE = -2, -3  # a string that no filter in the index mentions; a string that is unknown
EXACT_ONES, RESIDUAL_ONES, ALL_OVERLAPPING = range(3)  # which conjuncts `within` examines


@kernel(BYTES)
def owners(raw):
    """Return the owners of all conjuncts of a segment."""
    return i4(raw, OWNER)


# Conjuncts that contain the filter


@kernel(BYTES, PREDICATES, INT64S, INT64S, INT32S, BYTES, BYTES, INT32S, FLAG, INT32S)
def containing(raw, query, point, tests_at, place, answers, system, has_subject_or_structure, asks_system, out):
    """Write the positions of the subscriptions that may contain one alternative of a filter; return how many.

    A conjunct that contains the alternative contains its *point*: the lowest number, some string (by its code), a
    missing value for attributes that it does not restrict. So the tables are looked up for the point as for an event,
    and the remaining conjuncts are compared in full. A conjunct of several is only compared with the point, and never
    certain.

    Args:
        raw: The segment.
        query: The alternative's predicates.
        point: For each predicate the code of the point's string.
        tests_at: For each predicate where its answers for string tests begin.
        place: For each attribute the number of its predicate, -1 for none.
        answers: The answers.
        system: For each attribute whether it is a system attribute.
        has_subject_or_structure: For each subscription whether it has a subject or a structure.
        asks_system: Whether the index has predicates on system attributes.
        out: Where positions are written.
    """
    keys, key_attribute, key_kind = i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r, access = f8(raw, KEY_F), i2(raw, KEY_R), bytes_of(raw, ACCESS)
    cluster_block, block_conjunct, block_word = i4(raw, CLUSTER_BLOCK), i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD)
    block_entry, entry_attribute, entry_table = i4(raw, BLOCK_ENTRY), i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE)
    bits, alive, owner = u8(raw, BITS), u8(raw, ALIVE), i4(raw, OWNER)
    pred_first, preds = i4(raw, PRED_FIRST), preds_of(raw)
    row, is_point_known = _rows_of_point(raw, query, point)
    clusters = len(key_attribute)
    # A predicate on a system attribute may come from the subscription's subject, which covering ignores.
    # And clusters that are reached through a string test cannot be looked up by one string.
    hashed = is_point_known and not asks_system and not access[len(access) - 1]
    acc = np.empty(8, np.uint64)
    count = 0
    for step in range(-1, len(query) if hashed else clusters):
        cluster = np.int64(clusters if step < 0 else step)
        if hashed and step >= 0:
            cluster = _cluster_of_point(keys, key_attribute, key_kind, key_f, key_r, access, query[step], point[step])
            if cluster < 0:
                continue
        key_level, key_may_contain, key_is_system = YES, True, False
        if cluster < clusters:
            attribute, kind = key_attribute[cluster], np.int64(key_kind[cluster])
            f, r, at = key_f[cluster], key_r[cluster], place[attribute]
            key_is_system = system[attribute] != 0
            if at < 0:
                key_level, key_may_contain = NO, False
            else:
                key_level = _contains(kind, f, r, f, r, query[at], point[at], tests_at[at], answers)
                key_may_contain = _may_contain_point(kind, f, r, f, r, query[at], point[at], tests_at[at], answers)
            if not key_may_contain and not key_is_system:
                continue
        for block in range(cluster_block[cluster], cluster_block[cluster + 1]):
            word = block_word[block]
            words = block_word[block + 1] - word
            for i in range(words):
                acc[i] = alive[word + i]
            has_system_predicate = asks_system and (
                key_is_system or _restricts_system_attribute(system, block, block_entry, entry_attribute)
            )
            if not has_system_predicate:
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
                    several, is_structured = flags & SEVERAL != 0, has_subject_or_structure[position] != 0
                    if not (is_structured and key_is_system) and not (key_may_contain if several else key_level != NO):
                        continue
                    level = _conjunct_contains(
                        preds, pred_first[conjunct], pred_first[conjunct + 1], several, is_structured,
                        query, point, tests_at, place, answers, system,
                    )  # fmt: skip
                    if level != NO:
                        sure = level == YES and key_level == YES and flags == 0 and not is_structured
                        out[count] = position if sure else ~position
                        count += 1
    return count


@inlined
def _cluster_of_point(keys, key_attribute, key_kind, key_f, key_r, access, predicate, code):
    """Return the cluster whose key is the point's value of one attribute; -1 for none.

    Args:
        keys: The hash table of the clusters' keys.
        key_attribute: The attribute of each cluster's key.
        key_kind: The kind of each cluster's key.
        key_f: The float of each cluster's key.
        key_r: The rest of each cluster's key.
        access: For each attribute in which ways its clusters are reached.
        predicate: The alternative's predicate on the attribute.
        code: The code of the point's string.
    """
    attribute, kind = predicate.what >> 3, predicate.what & 7
    if attribute >= len(access) - 1 or not access[attribute] & BY_VALUE:
        return np.int64(-1)
    f, r = predicate.low, predicate.low_rest
    if (kind == STRING) | (kind == TEST):
        kind, f, r = STRING, np.float64(code), np.int16(0)
    elif kind == PRESENT:
        kind, f, r = BOOLEAN, 0.0, np.int16(0)
    return np.int64(find_cluster(keys, key_attribute, key_kind, key_f, key_r, attribute, kind, f, r))


@part
def _rows_of_point(raw, query, point):
    """Return the row of each attribute's table for the point, -1 if it is unknown; and whether all are known."""
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    row, is_known = np.full(len(number_row), ROW_MISSING, np.int64), True
    for a in range(len(query)):
        attribute, kind, f = query[a].what >> 3, query[a].what & 7, query[a].low
        if (kind == STRING) | (kind == TEST):
            kind, f = STRING, np.float64(point[a])
        elif kind == PRESENT:
            kind, f = BOOLEAN, 0.0
        is_known &= f != ANY_CODE or kind != STRING
        if attribute < len(row):
            row[attribute] = row_of(
                kind, f, number_row[attribute], string_row[attribute], boolean_row[attribute], edges, edge[attribute]
            )
            if kind == STRING and f == ANY_CODE:
                row[attribute] = -1
    return row, is_known


@part
def _restricts_system_attribute(system, block, block_entry, entry_attribute):
    """Return whether a conjunct in the block restricts a system attribute."""
    for entry in range(block_entry[block], block_entry[block + 1]):  # noqa: SIM110 - a generator does not compile
        if system[entry_attribute[entry]]:
            return True
    return False


@part
def _conjunct_contains(
    preds, first, last, several, is_structured, query, point, tests_at, place, answers, system
):  # fmt: skip
    """Return the level at which a conjunct contains the alternative, apart from its access predicate."""
    level = YES
    for p in range(first, last):
        pred = preds[p]
        attribute, kind, low = pred.what >> 3, pred.what & 7, pred.low
        if is_structured and (system[attribute] or (kind == PRESENT) | (kind == MISSING)):
            continue  # from the subject or the structure, or perhaps from the content
        if system[attribute]:
            if (kind == NUMBER) | (kind == BOOLEAN):
                return NO  # never satisfied: system attributes are strings
            if kind == PRESENT:
                kind, low = STRING, -1.0
        at = place[attribute]
        if at < 0:
            if several and kind == MISSING:
                continue
            return NO
        if several:
            may_contain = _may_contain_point(
                kind, low, pred.low_rest, pred.high, pred.high_rest, query[at], point[at], tests_at[at], answers
            )  # fmt: skip
            predicate_level = MAYBE if may_contain else NO
        else:
            predicate_level = _contains(
                kind, low, pred.low_rest, pred.high, pred.high_rest, query[at], point[at], tests_at[at], answers
            )  # fmt: skip
        level = min(level, predicate_level)
        if level == NO:
            return NO
    return level


@part
def _not_above(f, r, g, s):
    """Return whether one number is not above another, each as a float and the rest that it lost."""
    return f < g or (f == g and r <= s)


@part
def _contains(kind, low, low_rest, high, high_rest, query, point, tests_at, answers):
    """Return the level at which a predicate contains the filter's predicate on the same attribute."""
    query_kind = query.what & 7
    if kind == MISSING or query_kind == MISSING:
        return YES if kind == query_kind else NO
    if kind == PRESENT:
        return YES
    if (kind == NUMBER) | (kind == BOOLEAN):
        inside = (
            kind == query_kind
            and _not_above(low, low_rest, query.low, query.low_rest)
            and _not_above(query.high, query.high_rest, high, high_rest)
        )
        return YES if inside else NO
    if query_kind != STRING and query_kind != TEST:
        return NO
    if kind == STRING and low < 0:
        return YES
    if kind == STRING and query_kind == STRING:
        return YES if low == query.low else NO
    return MAYBE if _may_contain_string(kind, low, point, tests_at, answers) else NO


@part
def _may_contain_point(kind, low, low_rest, high, high_rest, query, point, tests_at, answers):
    """Return whether a predicate contains the point, as far as that is known; the point of PRESENT is False."""
    query_kind = query.what & 7
    if kind == MISSING or query_kind == MISSING:
        return kind == query_kind
    if kind == PRESENT:
        return True
    if query_kind == PRESENT:
        return kind == BOOLEAN and low == 0
    if (kind == NUMBER) | (kind == BOOLEAN):
        return (
            kind == query_kind
            and _not_above(low, low_rest, query.low, query.low_rest)
            and _not_above(query.low, query.low_rest, high, high_rest)
        )
    if query_kind != STRING and query_kind != TEST:
        return False
    return (kind == STRING and low < 0) or _may_contain_string(kind, low, point, tests_at, answers)


@part
def _may_contain_string(kind, low, point, tests_at, ok):
    """Return whether a predicate on strings contains the point's string, as far as that is known."""
    if kind == STRING:
        return (point == ANY_CODE) | (point == low)
    return tests_at >= 0 and ok[tests_at + np.int64(low)] != 0


# Conjuncts that lie within the filter


@kernel(BYTES, PREDICATES, INT64S, BYTES, INT64S, INT64S, BYTES, BYTES, INT32S, INTEGER, INT32S)
def within(raw, query, first, exact, codes_at, tests_at, answers, system, has_subject_or_structure, which, out):
    """Write the positions of the subscriptions that may lie within a filter; return how many.

    With EXACT_ONES, an exact conjunct must lie within the only alternative, or overlap one of several. With
    RESIDUAL_ONES a residual conjunct, and with ALL_OVERLAPPING any conjunct, must overlap one.

    Args:
        raw: The segment.
        query: The predicates of all alternatives.
        first: Where the predicates of each alternative begin.
        exact: Whether each alternative is exact.
        codes_at: For each predicate where its answers for strings begin.
        tests_at: For each predicate where its answers for string tests begin.
        answers: The answers.
        system: For each attribute whether it is a system attribute.
        has_subject_or_structure: For each subscription whether it has a subject or a structure.
        which: EXACT_ONES, RESIDUAL_ONES or ALL_OVERLAPPING.
        out: Where positions are written.
    """
    key_attribute, key_kind = i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r, cluster_block = f8(raw, KEY_F), i2(raw, KEY_R), i4(raw, CLUSTER_BLOCK)
    block_conjunct, block_word, block_entry = i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY)
    entry_attribute, entry_table, bits = i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE), u8(raw, BITS)
    alive, owner = u8(raw, ALIVE), i4(raw, OWNER)
    pred_first, preds = i4(raw, PRED_FIRST), preds_of(raw)
    row = _rows_of_equalities(raw, query)
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
                    if query[q].what >> 3 == key:
                        level = _lies_within(kind, f, r, f, r, query[q], codes_at[q], tests_at[q], answers)
                possible |= level >= enough
            if not possible and not system[key]:
                continue
        for block in range(cluster_block[cluster], cluster_block[cluster + 1]):
            word = block_word[block]
            words = block_word[block + 1] - word
            for i in range(words):
                acc[i] = alive[word + i]
            tabled = block_entry[block + 1] > block_entry[block]
            if single and tabled and not _reduce_to_restricting(
                query, row, key, block, words, block_entry, entry_attribute, entry_table, bits, acc
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
                    is_structured = has_subject_or_structure[position] != 0
                    best, sure = NO, False
                    for a in range(alternatives):
                        level = _conjunct_within(
                            preds, pred_first[conjunct], pred_first[conjunct + 1], key, kind, f, r,
                            query, first[a], first[a + 1], codes_at, tests_at, answers,
                            system, is_structured, which != EXACT_ONES, single,
                        )  # fmt: skip
                        sure |= level == YES and exact[a] != 0
                        best = max(best, level)
                    if best >= enough:
                        sure &= which == EXACT_ONES and flags == 0 and not is_structured
                        out[count] = position if sure else ~position
                        count += 1
    return count


@part
def _rows_of_equalities(raw, query):
    """Return for each equality of the filter the row in which every conjunct within it has a bit.

    The row of other predicates is -1.
    """
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    edge, edges = i4(raw, EDGE_OF), f8(raw, EDGES_AT)
    row = np.full(len(query), -1, np.int64)
    for q in range(len(query)):
        attribute, kind = query[q].what >> 3, query[q].what & 7
        equal = kind == NUMBER and query[q].low == query[q].high
        equal |= kind == STRING and query[q].low != -1
        if equal and attribute < len(number_row):
            row[q] = row_of(
                kind, query[q].low, number_row[attribute], string_row[attribute], boolean_row[attribute],
                edges, edge[attribute],
            )  # fmt: skip
    return row


@part
def _reduce_to_restricting(query, row, key, block, words, block_entry, entry_attribute, entry_table, bits, acc):
    """Reduce `acc` to the conjuncts of a block that restrict each attribute of the filter.

    Return whether any is left.
    """
    for q in range(len(query)):
        attribute, kind = query[q].what >> 3, query[q].what & 7
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
            # A conjunct that does not restrict the attribute has a bit in every row.
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
    preds, begin, end, key, key_kind, key_f, key_r, query, first, last, codes_at, tests_at, answers,
    system, is_structured, is_lenient, single,
):  # fmt: skip
    """Return the level at which a conjunct, with its access predicate, lies within an alternative."""
    level = YES
    for q in range(first, last):
        attribute = query[q].what >> 3
        predicate_level, is_restricted = NO, False
        if attribute == key and not (is_lenient and is_structured and system[key]):
            is_restricted = True
            predicate_level = _lies_within(
                key_kind, key_f, key_r, key_f, key_r, query[q], codes_at[q], tests_at[q], answers
            )
        for p in range(begin, end):
            pred = preds[p]
            if pred.what >> 3 != attribute:
                continue
            kind, low = pred.what & 7, pred.low
            if is_lenient and is_structured and (system[attribute] or (kind == PRESENT) | (kind == MISSING)):
                continue
            is_restricted = True
            if system[attribute] and kind == PRESENT:
                kind, low = STRING, -1.0
            if not (system[attribute] and ((kind == NUMBER) | (kind == BOOLEAN))):
                predicate_level = _lies_within(
                    kind, low, pred.low_rest, pred.high, pred.high_rest, query[q], codes_at[q], tests_at[q], answers
                )  # fmt: skip
        if not is_restricted and (is_lenient or (not single and query[q].what & 7 == MISSING)):
            predicate_level = OVERLAP
        level = min(level, predicate_level)
        if level == NO:
            return NO
    return level


@part
def _lies_within(kind, low, low_rest, high, high_rest, query, codes_at, tests_at, answers):
    """Return the level at which a predicate lies within, or overlaps, the filter's predicate on the same attribute."""
    query_kind = query.what & 7
    if kind == MISSING or query_kind == MISSING:
        return YES if kind == query_kind else NO
    if query_kind == PRESENT:
        return YES
    if kind == PRESENT:
        return OVERLAP
    if (kind == NUMBER) | (kind == BOOLEAN):
        if kind != query_kind:
            return NO
        if _not_above(query.low, query.low_rest, low, low_rest) and _not_above(
            high, high_rest, query.high, query.high_rest
        ):
            return YES
        is_disjoint = not _not_above(query.low, query.low_rest, high, high_rest) or not _not_above(
            low, low_rest, query.high, query.high_rest
        )
        return NO if is_disjoint else OVERLAP
    if query_kind != STRING and query_kind != TEST:
        return NO
    if query_kind == STRING and query.low == -1:
        return YES
    if kind == STRING and low < 0:
        return MAYBE if query_kind == TEST else OVERLAP
    if kind == STRING:
        if query_kind == STRING:
            return YES if low == query.low else NO
        return MAYBE if answers[codes_at + np.int64(low)] else NO
    return MAYBE if tests_at >= 0 and answers[tests_at + np.int64(low)] else OVERLAP
