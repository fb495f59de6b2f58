"""The conjuncts of an index: a small unordered buffer for new ones, and segments of growing size.

`add` writes into the buffer. A full buffer becomes a segment, and segments of similar size are merged, so that a
conjunct is sorted only a few times however many there are (as in a log-structured merge tree). `remove` clears a bit; a
segment with more than a quarter of its conjuncts removed is rebuilt.

One thread may change a store while others match against `segments`, a tuple that is replaced as a whole.
"""

from typing import Self

import numpy as np

from tidings.matching.index import segment
from tidings.matching.index.kernels import layout
from tidings.matching.index.kernels.layout import Raw, Segment
from tidings.matching.index.kernels.match import BLOCK, WORD
from tidings.matching.index.segment import Array, Conjuncts

BUFFER = 2 * BLOCK
GROWTH = 4  # a segment is merged with the previous one until that one is so many times larger
DEAD_SHARE = 0.25
_BUFFER_COST_SEGMENTS = 2  # matching against the buffer costs as much as against so many segments

Predicates = list[tuple[float, float, int, int, int]]


class _StoredSegment:
    """A segment with the data that is needed to remove conjuncts from it."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.arrays = layout.segment(raw)
        self.size = len(self.arrays.owner)
        self.dead = self.size - int(np.bitwise_count(self.arrays.alive).sum())
        self._order: Array | None = None  # conjuncts by position, sorted when the first one is removed

    def remove(self, position: int) -> int:
        """Clear the bits of the conjuncts of a subscription; return how many were set."""
        owners = self.arrays.owner
        if self._order is None:
            self._order = np.argsort(owners, kind="stable")
        low = np.searchsorted(owners, np.int32(position << 2), side="left", sorter=self._order)
        high = np.searchsorted(owners, np.int32((position << 2) + 3), side="right", sorter=self._order)
        removed = 0
        for conjunct in self._order[low:high]:
            removed += _clear(self.arrays, int(conjunct))
        self.dead += removed
        return removed


class SegmentStore:
    """A set of conjuncts that grows and shrinks one by one, arranged as segments for the matching kernels."""

    def __init__(self) -> None:
        self.stored_segments: list[_StoredSegment] = []
        self._attributes = 0
        self._new_buffer(BUFFER * 4, 64)
        # The segments to match against. The tuple is replaced as a whole when all is in place: a concurrent match
        # sees either the old segments or the new ones, and never a conjunct twice or not at all.
        self.segments: tuple[Raw, ...] = ()
        self.extra_segments = 0  # additional segments that an event is matched against because they are not merged
        # Positions removed during a merge in the background; None if there is none.
        self._removed_during_merge: list[int] | None = None
        self._publish()

    def _publish(self) -> None:
        """Replace `segments` by the current segments and, if it is not empty, the buffer."""
        segments = tuple(stored.raw for stored in self.stored_segments)
        self.segments = (*segments, self._raw_buffer) if self._count else segments
        self.extra_segments = max(0, len(segments) - 1 + (_BUFFER_COST_SEGMENTS if self._count else 0))

    @property
    def conjuncts(self) -> int:
        """The number of conjuncts that were not removed."""
        return sum(stored.size - stored.dead for stored in self.stored_segments) + len(self._buffered)

    @property
    def dead(self) -> int:
        """The number of removed conjuncts that still take space in segments."""
        return sum(stored.dead for stored in self.stored_segments)

    def add(self, position: int, flags: int, predicates: Predicates, attributes: int) -> None:
        """Add one conjunct of a subscription.

        Args:
            position: The subscription's position.
            flags: RESIDUAL and SEVERAL, or 0.
            predicates: The conjunct's predicates as rows of PREDICATE.
            attributes: How many attributes the index knows.
        """
        if self._count == BUFFER:
            self._flush()
        if attributes > len(self._buffer.rows) or self._predicates_used + len(predicates) > len(self._buffer.pred):
            self._grow_buffer(attributes, len(predicates))
        buffer, at = self._buffer, self._count
        if predicates:
            buffer.pred[self._predicates_used : self._predicates_used + len(predicates)] = predicates
        self._predicates_used += len(predicates)
        buffer.owner[at], buffer.pred_first[at + 1] = position << 2 | flags, self._predicates_used
        self._count += 1
        self._buffered.setdefault(position, []).append(at)
        buffer.alive[at // WORD] |= np.uint64(1 << at % WORD)  # from here on matches find it
        if at == 0:
            self._publish()

    def add_many(self, conjuncts: Conjuncts, attributes: int) -> None:
        """Add many conjuncts at once, as a segment of their own."""
        self._attributes = max(self._attributes, attributes)
        if len(conjuncts.owner):
            self.stored_segments.append(_StoredSegment(segment.build(conjuncts, attributes)))
            self._merge_similar()
        self._publish()

    def flushed_segments(self) -> list[Raw]:
        """Turn the buffer into a segment; return all segments, which is what can be saved."""
        if self._count:
            self._flush()
        return [stored.raw for stored in self.stored_segments]

    def order_for(self, events: int) -> None:
        """Prepare for matching so many events at once.

        The buffer becomes a segment, and segments are merged as far as that pays off.
        """
        self.flushed_segments()
        merged = False
        while len(self.stored_segments) > 1 and sum(stored.size for stored in self.stored_segments[-2:]) <= 2 * events:
            self._merge_last()
            merged = True
        if merged:
            self._publish()

    def begin_merge(self) -> list[_StoredSegment]:
        """Return the segments that `merge` can merge while this store changes, and begin to note removals.

        Each call that returns segments must be followed by `end_merge`. Returns an empty list if there is nothing to
        merge, or if another thread is merging already.
        """
        if self._removed_during_merge is not None:
            return []
        self.flushed_segments()
        if len(self.stored_segments) < 2:
            return []
        self._removed_during_merge = []
        return list(self.stored_segments)

    def end_merge(self, sources: list[_StoredSegment], merged: Raw | None) -> None:
        """End a merge that `begin_merge` began: put the merged segment in place of the segments that it was made from.

        Positions that were removed meanwhile are removed from it. Nothing is replaced if `merged` is None (the merge
        failed) or if these segments have been merged or rebuilt since.
        """
        removed, self._removed_during_merge = self._removed_during_merge or [], None
        if merged is None or self.stored_segments[: len(sources)] != sources:
            return
        replacement = _StoredSegment(merged)
        for position in removed:
            replacement.remove(position)
        self.stored_segments[: len(sources)] = [replacement]
        self._publish()

    def merge(self, sources: list[_StoredSegment]) -> Raw:
        """Merge segments into one, without their removed conjuncts; this changes nothing in the store."""
        parts = [segment.live_conjuncts(stored.arrays) for stored in sources]
        return segment.build(segment.joined(parts), self._attributes)

    @classmethod
    def of(cls, segments: list[Raw], attributes: int) -> Self:
        """Return a store of the segments that `flushed_segments` returned."""
        store = cls()
        store._attributes = max(store._attributes, attributes)
        store.stored_segments = [_StoredSegment(raw) for raw in segments]
        store._publish()
        return store

    def live_conjuncts(self) -> Conjuncts | None:
        """Return all conjuncts that were not removed, in the form that `add_many` takes; None without segments."""
        self.flushed_segments()
        parts = [segment.live_conjuncts(stored.arrays) for stored in self.stored_segments]
        return segment.joined(parts) if parts else None

    def remove(self, position: int) -> None:
        """Remove all conjuncts of the subscription at a position."""
        if self._removed_during_merge is not None:
            self._removed_during_merge.append(position)
        places = self._buffered.pop(position, None)
        for at in places or ():
            self._buffer.alive[at // WORD] &= ~np.uint64(1 << at % WORD)
        sparse = [
            stored
            for stored in self.stored_segments
            if stored.remove(position) and stored.dead > DEAD_SHARE * stored.size
        ]
        if sparse:
            self.stored_segments = [
                part
                for stored in self.stored_segments
                for part in ([stored] if stored not in sparse else self._rebuilt(stored))
            ]
            self._publish()

    def _rebuilt(self, stored: _StoredSegment) -> list[_StoredSegment]:
        """Rebuild a segment without its removed conjuncts; return nothing if all were removed."""
        conjuncts = segment.live_conjuncts(stored.arrays)
        return [_StoredSegment(segment.build(conjuncts, self._attributes))] if len(conjuncts.owner) else []

    def _flush(self) -> None:
        """Turn the buffer into a segment and begin a new buffer."""
        conjuncts = segment.live_conjuncts(_trimmed(self._buffer, self._count))
        self._new_buffer(len(self._buffer.pred), len(self._buffer.rows))
        self.add_many(conjuncts, self._attributes)

    def _merge_similar(self) -> None:
        """Merge the last segments until each is GROWTH times larger than the next."""
        while len(self.stored_segments) > 1 and self.stored_segments[-2].size < GROWTH * self.stored_segments[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        sources = [self.stored_segments.pop() for _ in range(2)]
        self.stored_segments.append(_StoredSegment(self.merge(sources)))

    def _new_buffer(self, predicates: int, attributes: int) -> None:
        self._attributes = max(self._attributes, attributes)
        self._raw_buffer = segment.unordered(BUFFER, predicates, attributes)
        self._buffer = layout.segment(self._raw_buffer)
        self._count = self._predicates_used = 0
        self._buffered: dict[int, list[int]] = {}

    def _grow_buffer(self, attributes: int, more: int) -> None:
        """Replace the buffer by one with room for more predicates or attributes."""
        old = self._buffer
        predicates = len(old.pred)
        while self._predicates_used + more > predicates:
            predicates *= 2
        room = max(len(old.rows), 2 * attributes if attributes > len(old.rows) else 0)
        self._attributes = max(self._attributes, room)
        raw = segment.unordered(BUFFER, predicates, room)
        grown = layout.segment(raw)
        for name in ("alive", "owner", "pred_first"):
            getattr(grown, name)[:] = getattr(old, name)
        grown.pred[: self._predicates_used] = old.pred[: self._predicates_used]
        self._raw_buffer, self._buffer = raw, grown
        self._publish()


def _trimmed(buffer: Segment, count: int) -> Segment:
    """Return the buffer without its unused end."""
    blocks = -(-count // BLOCK)
    ends = np.minimum(buffer.block_conjunct[: blocks + 1], count)
    return buffer._replace(
        cluster_block=np.array([0, blocks], np.int32),
        block_conjunct=ends,
        block_word=buffer.block_word[: blocks + 1],
        alive=buffer.alive[: blocks * (BLOCK // WORD)],
        owner=buffer.owner[:count],
        pred_first=buffer.pred_first[: count + 1],
        pred=buffer.pred[: int(buffer.pred_first[count])],
    )


def _clear(arrays: Segment, conjunct: int) -> bool:
    """Clear the bit of a conjunct; return whether it was set."""
    block = int(np.searchsorted(arrays.block_conjunct, conjunct, side="right")) - 1
    lane = conjunct - int(arrays.block_conjunct[block])
    word, bit = int(arrays.block_word[block]) + lane // WORD, np.uint64(1 << lane % WORD)
    was_alive = bool(arrays.alive[word] & bit)
    arrays.alive[word] &= ~bit
    return was_alive
