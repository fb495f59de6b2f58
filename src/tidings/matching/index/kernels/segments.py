"""Build segments: fill the tables of blocks, their summaries, and the hash table of clusters."""

import numpy as np

from tidings.matching.index.kernels.jit import BYTES, inlined, kernel
from tidings.matching.index.kernels.match import (
    BITS,
    BLOCK_CONJUNCT,
    BLOCK_ENTRY,
    BLOCK_WORD,
    BOOLEAN,
    BOOLEAN_ROW,
    CLUSTER_BLOCK,
    CLUSTER_ENTRY,
    EDGE_OF,
    EDGES,
    EDGES_AT,
    ENTRY_ATTRIBUTE,
    ENTRY_TABLE,
    EXACT_FLOAT,
    KEY_ATTRIBUTE,
    KEY_F,
    KEY_KIND,
    KEY_R,
    KEYS,
    LARGEST,
    MISSING,
    NUMBER,
    NUMBER_ROW,
    PRED_FIRST,
    PRESENT,
    ROW_MISSING,
    ROW_OTHER,
    ROWS,
    STRING,
    STRING_BUCKETS,
    STRING_ROW,
    SUMMARY,
    SUMMARY_ATTRIBUTE,
    SUMMARY_TABLE,
    TEST,
    WORD,
    bucket_of,
    bytes_of,
    f8,
    hash_value,
    i2,
    i4,
    i8,
    preds_of,
    u8,
)


@kernel(BYTES, alone=True)
def fill_tables(raw):
    """Fill the tables of all blocks.

    In the row of each bucket, one bit for each conjunct of the block that a value of the bucket might satisfy; in the
    second half of the row, one for each conjunct that every value of the bucket satisfies.
    """
    rows_of, edges, edge = i4(raw, ROWS), f8(raw, EDGES_AT), i4(raw, EDGE_OF)
    number_row, string_row, boolean_row = i4(raw, NUMBER_ROW), i4(raw, STRING_ROW), i4(raw, BOOLEAN_ROW)
    block_conjunct, block_word, block_entry = i4(raw, BLOCK_CONJUNCT), i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY)
    entry_attribute, entry_table, bits = i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE), u8(raw, BITS)
    pred_first, preds = i4(raw, PRED_FIRST), preds_of(raw)
    bits[:] = ~np.uint64(0)
    place = np.full(len(rows_of), -1, np.int64)
    for block in range(len(block_conjunct) - 1):
        first = block_conjunct[block]
        words = block_word[block + 1] - block_word[block]
        if block_entry[block] == block_entry[block + 1]:
            continue
        for entry in range(block_entry[block], block_entry[block + 1]):
            place[entry_attribute[entry]] = entry_table[entry]
        for conjunct in range(first, block_conjunct[block + 1]):
            lane = conjunct - first
            word, bit = lane // WORD, np.uint64(1) << np.uint64(lane % WORD)
            for p in range(pred_first[conjunct], pred_first[conjunct + 1]):
                pred = preds[p]
                attribute, kind = pred.what >> 3, pred.what & 7
                at = place[attribute] + word
                for half in range(2 * rows_of[attribute]):
                    bits[at + half * words] &= ~bit
                if kind == MISSING:
                    first_row, last_row = ROW_MISSING, ROW_MISSING
                elif kind == PRESENT:
                    first_row, last_row = ROW_OTHER, int(rows_of[attribute] - 1)
                elif kind == NUMBER:
                    first_row = number_row[attribute] + bucket_of(edges, edge[attribute], pred.low)
                    last_row = number_row[attribute] + bucket_of(edges, edge[attribute], pred.high)
                elif kind == BOOLEAN:
                    first_row = boolean_row[attribute] + int(pred.low)
                    last_row = boolean_row[attribute] + int(pred.high)
                elif kind == TEST or pred.low < 0:  # a test, or any string
                    first_row = int(string_row[attribute])
                    last_row = first_row + STRING_BUCKETS
                else:
                    first_row = string_row[attribute] + int(pred.low) % STRING_BUCKETS
                    last_row = first_row
                for row in range(first_row, last_row + 1):
                    bits[at + 2 * row * words] |= bit
                    if kind == NUMBER:
                        sure = holds_whole_bucket(
                            edges, edge[attribute], row - number_row[attribute],
                            pred.low, pred.low_rest, pred.high, pred.high_rest,
                        )  # fmt: skip
                    else:
                        sure = kind != TEST and (kind != STRING or pred.low < 0)
                    if sure:
                        bits[at + (2 * row + 1) * words] |= bit


@kernel(BYTES, alone=True)
def fill_summaries(raw):
    """Fill the summaries: in each row, one bit for each block of the cluster that has a candidate there."""
    rows_of, cluster_block, cluster_entry = i4(raw, ROWS), i4(raw, CLUSTER_BLOCK), i4(raw, CLUSTER_ENTRY)
    summary_attribute, summary_table, summary = i4(raw, SUMMARY_ATTRIBUTE), i8(raw, SUMMARY_TABLE), u8(raw, SUMMARY)
    block_word, block_entry = i4(raw, BLOCK_WORD), i4(raw, BLOCK_ENTRY)
    entry_attribute, entry_table, bits = i4(raw, ENTRY_ATTRIBUTE), i8(raw, ENTRY_TABLE), u8(raw, BITS)
    summary[:] = ~np.uint64(0)
    place = np.zeros(len(rows_of), np.int64)
    for cluster in range(len(cluster_entry) - 1):
        if cluster_entry[cluster] == cluster_entry[cluster + 1]:
            continue
        for s in range(cluster_entry[cluster], cluster_entry[cluster + 1]):
            place[summary_attribute[s]] = summary_table[s]
        first = cluster_block[cluster]
        across = (cluster_block[cluster + 1] - first + WORD - 1) // WORD
        for block in range(first, cluster_block[cluster + 1]):
            words, word = block_word[block + 1] - block_word[block], (block - first) // WORD
            bit = np.uint64(1) << np.uint64((block - first) % WORD)
            for entry in range(block_entry[block], block_entry[block + 1]):
                attribute = entry_attribute[entry]
                for row in range(rows_of[attribute]):
                    left = np.uint64(0)
                    for i in range(words):
                        left |= bits[entry_table[entry] + 2 * row * words + i]
                    if left == 0:
                        summary[place[attribute] + row * across + word] &= ~bit


@inlined
def holds_whole_bucket(edges, edge, bucket, low, low_rest, high, high_rest):
    """Return whether every number of a bucket lies within the bounds.

    Above 2^53 a float stands for several integers, and a bound on the bucket's edge may separate them.

    Args:
        edges: The edges of all attributes.
        edge: The attribute's row of edges.
        bucket: The bucket.
        low: The lower bound.
        low_rest: What the lower bound lost as a float.
        high: The upper bound.
        high_rest: What the upper bound lost as a float.
    """
    at = edge * EDGES
    start = edges[at + bucket - 1] if bucket > 0 else -LARGEST
    fits_low = low < start or (low == start and low_rest == 0 and (abs(low) < EXACT_FLOAT or low == -LARGEST))
    if bucket == EDGES or edges[at + bucket] == np.inf:
        return fits_low and high == LARGEST
    end = edges[at + bucket]
    fits_high = high >= end or (np.nextafter(high, np.inf) >= end and high_rest == 0 and abs(high) < EXACT_FLOAT)
    return fits_low and fits_high


@kernel(BYTES, alone=True)
def hash_clusters(raw):
    """Fill the hash table of clusters."""
    keys, key_attribute, key_kind = i4(raw, KEYS), i4(raw, KEY_ATTRIBUTE), bytes_of(raw, KEY_KIND)
    key_f, key_r = f8(raw, KEY_F), i2(raw, KEY_R)
    mask = len(keys) - 1
    for c in range(len(key_attribute)):
        attribute = 0 if key_kind[c] == TEST else key_attribute[c]  # a test's number also identifies its attribute
        slot = np.int64(hash_value(attribute, key_kind[c], key_f[c], key_r[c]) & np.uint64(mask))
        while keys[slot] >= 0:
            slot = (slot + 1) & mask
        keys[slot] = c
