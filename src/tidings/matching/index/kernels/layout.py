"""Memory for the kernels: all arrays of a segment, or of a thread's scratch memory, in one block of bytes.

A table of contents at the beginning has the first and last byte of each array. A block is the cheapest argument for a
call, one file holds a segment, and one memory mapping shares it between processes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Raw = npt.NDArray[np.uint8]

# A predicate: 24 bytes that are read together. `what` is the attribute's number times 8 plus the kind.
PREDICATE = np.dtype(
    [("low", "f8"), ("high", "f8"), ("what", "i4"), ("low_rest", "i2"), ("high_rest", "i2")],
    align=True,
)
_LINE = 64  # every array starts at a cache line


class Segment(NamedTuple):
    """The arrays of a segment; `matching.index.segment` explains clusters, blocks, tables and summaries.

    The comments name their lengths: A attributes, C clusters, B blocks, E entries, N conjuncts, P predicates.
    """

    rows: Any  # A: how many rows the tables of an attribute have
    number_row: Any  # A: the first row for numbers, 0 for none
    string_row: Any
    boolean_row: Any
    edge: Any  # A: the number of its row of `edges`
    edges: Any  # the edges between buckets of numbers, BUCKETS - 1 in a row
    access: Any  # A + 1: how clusters are reached (BY_VALUE, BY_TEST); last, whether any is by a test
    keys: Any  # hash table of clusters, -1 where empty
    key_attribute: Any  # C: the access predicate of a cluster: an equality, or a string test
    key_kind: Any
    key_f: Any
    key_r: Any
    key_high: Any
    cluster_block: Any  # C + 2: a cluster's first block; the last cluster has no access predicate
    cluster_entry: Any  # C + 2: the first entry of its summary; a cluster of few blocks has none
    summary_attribute: Any  # for each entry of a summary
    summary_table: Any  # where its table starts in `summary`
    summary: Any  # for each row a bit for each block, set if it has a candidate there
    block_conjunct: Any  # B + 1: a block's first conjunct
    block_word: Any  # B + 1: its first word in `alive`
    block_entry: Any  # B + 1: its first entry; a block of few conjuncts has none: all are checked
    entry_attribute: Any  # E
    entry_table: Any  # E: where the table starts in `bits`
    bits: Any
    alive: Any
    owner: Any  # N: the subscription's position times 4, plus the flags
    pred_first: Any  # N + 1
    pred: Any  # P: records of PREDICATE, without the access predicates


class Scratch(NamedTuple):
    """The memory that a thread writes to while it matches."""

    kind: Any  # A: the kind of the event's value; MISSING between events
    f: Any
    r: Any
    row: Any
    present: Any  # the attributes that the event has, and behind them the string tests that it passes
    test_stamp: Any  # for each string test the number of the last event that passed it
    match_stamp: Any  # for each subscription with several conjuncts the last event that it matched
    counters: Any  # STAMP, CHECKED, FOUND and NEEDED


# Counters: the event's number; candidates; matches; the size of output that was needed.
STAMP, CHECKED, FOUND, NEEDED = range(4)

# The types of the arrays, in the order of the fields.
_SEGMENT_TYPES = (
    *("i4", "i4", "i4", "i4", "i4", "f8", "u1", "i4", "i4", "u1", "f8", "i2", "f8"),
    *("i4", "i4", "i4", "i8", "u8", "i4", "i4", "i4", "i4", "i8", "u8", "u8", "i4", "i4"),
)
_SCRATCH_TYPES = ("u1", "f8", "i2", "i4", "i4", "i8", "i8", "i8")
HEAD = 512  # bytes of the table of contents


def segment_of(arrays: Segment) -> Raw:
    """Copy the arrays of a segment into one block of memory, and return it."""
    return _packed([np.ascontiguousarray(array, kind) for array, kind in zip(arrays, _segment_types(), strict=True)])


def segment(raw: Raw) -> Segment:
    """Return the arrays of a segment in a block, as views that can be written."""
    return Segment(*_views(raw, _segment_types()))


def scratch_of(attributes: int, tests: int, positions: int) -> Raw:
    """Return a block of scratch memory for so many attributes, string tests and positions."""
    sizes = (attributes, attributes, attributes, attributes, attributes + tests, tests, positions, 4)
    return _packed([np.zeros(size, kind) for size, kind in zip(sizes, _SCRATCH_TYPES, strict=True)])


def scratch(raw: Raw) -> Scratch:
    """Return the arrays of the scratch memory in a block, as views."""
    return Scratch(*_views(raw, _SCRATCH_TYPES))


def _segment_types() -> list[Any]:
    return [*_SEGMENT_TYPES, PREDICATE]


def _packed(arrays: Sequence[npt.NDArray[Any]]) -> Raw:
    places: list[int] = []
    end = HEAD
    for array in arrays:
        begin = -(-end // _LINE) * _LINE
        end = begin + array.nbytes
        places += [begin, end]
    raw = _aligned(end)
    raw[:HEAD] = 0
    raw[: 8 * len(places)].view(np.int64)[:] = places
    for array, begin in zip(arrays, places[::2], strict=True):
        raw[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
    return raw


def _views(raw: Raw, types: Sequence[Any]) -> list[Any]:
    places = raw[:HEAD].view(np.int64).tolist()
    return [raw[places[2 * i] : places[2 * i + 1]].view(kind) for i, kind in enumerate(types)]


def _aligned(size: int) -> Raw:
    room = np.empty(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + size]
