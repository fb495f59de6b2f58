"""A hash table of small integers, compiled: open addressing, and what is taken out leaves no mark."""

import numpy as np

from tidings.matching.index.compiling import part

KEY, KEY_2, KIND, VALUE = range(4)  # the columns of a row; one of kind 0 is empty


@part
def found(table, seed, key, key_2, kind):
    """The row of a key, or the empty one where it belongs."""
    mask = len(table) - 1
    at = hashed(seed, key, key_2, kind) & mask
    while table[at, KIND] != 0:
        if table[at, KEY] == key and table[at, KEY_2] == key_2 and table[at, KIND] == kind:
            break
        at = (at + 1) & mask
    return at


@part
def remember(table, at, key, key_2, kind):
    table[at, KEY], table[at, KEY_2], table[at, KIND] = key, key_2, kind


@part
def forget(table, seed, at):
    """Empties a row; those behind it that had to give way to it move up."""
    mask = len(table) - 1
    hole = other = at
    while True:
        other = (other + 1) & mask
        if table[other, KIND] == 0:
            break
        home = hashed(seed, table[other, KEY], table[other, KEY_2], table[other, KIND]) & mask
        if ((other - home) & mask) >= ((other - hole) & mask):
            for column in range(VALUE + 1):
                table[hole, column] = table[other, column]
            hole = other
    table[hole, KIND] = 0


@part
def hashed(seed, key, key_2, kind):
    """Well mixed, and with a seed, so that nobody can choose places that all fall on the same row."""
    half = np.uint64(32)
    h = ((np.uint64(key) << half) ^ np.uint64(key_2)) + np.uint64(seed)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ np.uint64(kind)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) >> np.uint64(1))
