"""Memory as the kernels take it: all arrays of a thing in one block of bytes, with a table of contents in front.

One argument costs a call as little as can be, one file holds a segment, and one mapping shares it between processes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Raw = npt.NDArray[np.uint8]

# A predicate: 24 bytes that lie together, since they are read together. `what` is the attribute times 8 plus the kind.
PREDICATE = np.dtype(
    [("low", "f8"), ("high", "f8"), ("what", "i4"), ("low_rest", "i2"), ("high_rest", "i2")],
    align=True,
)
_LINE = 64  # every array starts at a cache line


class Segment(NamedTuple):
    """A segment's arrays.

    A: attributes, C: clusters, B: blocks, E: entries, N: conjuncts, P: predicates.
    """

    rows: Any  # A: how many rows the tables of an attribute have
    number_row: Any  # A: the first row for numbers, 0 for none
    string_row: Any
    boolean_row: Any
    edge: Any  # A: which of the edges
    edges: Any  # between buckets of numbers, BUCKETS - 1 for each
    access: Any  # A: whether some cluster is reached through the attribute
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
    summary: Any  # for each row a bit for each block that has a candidate there
    block_conjunct: Any  # B + 1: a block's first conjunct
    block_word: Any  # B + 1: its first word in `alive`
    block_entry: Any  # B + 1: its first entry; a block of few conjuncts has none, and all are checked
    entry_attribute: Any  # E
    entry_table: Any  # E: where the table starts in `bits`
    bits: Any
    alive: Any
    owner: Any  # N: the subscription's position times 4, plus the flags
    pred_first: Any  # N + 1
    pred: Any  # P: records of PREDICATE, without the access predicates


class Scratch(NamedTuple):
    """What a thread writes while it matches."""

    kind: Any  # A: of the event's value, MISSING between events
    f: Any
    r: Any
    row: Any
    present: Any  # the attributes that the event has, and behind them the string tests that it passes
    test_stamp: Any  # the last event that passed a string test
    seen: Any  # subscriptions: the last event that was found to concern them
    counters: Any  # see below


STAMP, CHECKED, FOUND, NEEDED = range(4)  # the number of the event; candidates, matches; room that was missing

# In the order of the fields.
_SEGMENT_TYPES = (
    *("i4", "i4", "i4", "i4", "i4", "f8", "u1", "i4", "i4", "u1", "f8", "i2", "f8"),
    *("i4", "i4", "i4", "i8", "u8", "i4", "i4", "i4", "i4", "i8", "u8", "u8", "i4", "i4"),
)
_SCRATCH_TYPES = ("u1", "f8", "i2", "i4", "i4", "i8", "i8", "i8")
HEAD = 512  # bytes of the table of contents: first and last byte of each array


def segment_of(arrays: Segment) -> Raw:
    """The arrays of a segment, copied into one block."""
    return _packed([np.ascontiguousarray(one, kind) for one, kind in zip(arrays, _segment_types(), strict=True)])


def segment(raw: Raw) -> Segment:
    """The arrays that lie in a block, to read and to write."""
    return Segment(*_views(raw, _segment_types()))


def scratch_of(attributes: int, tests: int, positions: int) -> Raw:
    sizes = (attributes, attributes, attributes, attributes, attributes + tests, tests, positions, 4)
    return _packed([np.zeros(size, kind) for size, kind in zip(sizes, _SCRATCH_TYPES, strict=True)])


def scratch(raw: Raw) -> Scratch:
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
