"""A compiled hash table of small integers: open addressing, linear probing, and deletion without tombstones."""

import numpy as np

from tidings.matching.index.kernels.jit import part

KEY, KEY_2, KIND, VALUE = range(4)  # the columns of a row; a row of kind 0 is empty


@part
def find_row(table, seed, key, key_2, kind):
    """Return the row of a key, or the empty row where it belongs.

    Args:
        table: The table; its length is a power of two.
        seed: The seed of its hash.
        key: The first half of the key.
        key_2: The second half of the key.
        kind: The kind of the key, above 0.
    """
    mask = len(table) - 1
    at = hash_key(seed, key, key_2, kind) & mask
    while table[at, KIND] != 0:
        if table[at, KEY] == key and table[at, KEY_2] == key_2 and table[at, KIND] == kind:
            break
        at = (at + 1) & mask
    return at


@part
def insert_key(table, at, key, key_2, kind):
    """Write a key into an empty row that `find_row` returned; the caller writes the value.

    Args:
        table: The table.
        at: The row.
        key: The first half of the key.
        key_2: The second half of the key.
        kind: The kind of the key.
    """
    table[at, KEY], table[at, KEY_2], table[at, KIND] = key, key_2, kind


@part
def delete_row(table, seed, at):
    """Empty a row, and move later rows up that it had displaced (backward shift)."""
    mask = len(table) - 1
    hole = other = at
    while True:
        other = (other + 1) & mask
        if table[other, KIND] == 0:
            break
        first_choice = hash_key(seed, table[other, KEY], table[other, KEY_2], table[other, KIND]) & mask
        if ((other - first_choice) & mask) >= ((other - hole) & mask):
            for column in range(VALUE + 1):
                table[hole, column] = table[other, column]
            hole = other
    table[hole, KIND] = 0


@part
def hash_key(seed, key, key_2, kind):
    """Return a hash that depends on the seed, so that a client cannot choose places that collide.

    Args:
        seed: The seed.
        key: The first half of the key.
        key_2: The second half of the key.
        kind: The kind of the key.
    """
    half = np.uint64(32)
    h = ((np.uint64(key) << half) ^ np.uint64(key_2)) + np.uint64(seed)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ np.uint64(kind)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) >> np.uint64(1))
