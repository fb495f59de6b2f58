"""Where conjuncts live: a small unordered buffer, and segments of growing size behind it.

Adding writes into the buffer; a full buffer becomes a segment, and segments of like size are merged, so that a
conjunct is sorted a few times in its life, however many there are. Removing clears a bit; a segment a quarter of
which is dead is built anew.
"""

from typing import Self

import numpy as np

from tidings.matching.index import layout, segment
from tidings.matching.index.kernels import BLOCK, WORD
from tidings.matching.index.layout import Raw, Segment
from tidings.matching.index.segment import Array, Conjuncts

BUFFER = 2 * BLOCK
GROWTH = 4  # a segment is merged into the one before it until that one is so many times larger
DEAD_SHARE = 0.25
_UNORDERED = 2  # looking at the buffer takes as long as at so many segments

Predicates = list[tuple[float, float, int, int, int]]


class _Shelf:
    """A segment, with what is needed to take conjuncts out of it."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.arrays = layout.segment(raw)
        self.size = len(self.arrays.owner)
        self.dead = self.size - int(np.bitwise_count(self.arrays.alive).sum())
        self._order: Array | None = None  # conjuncts by position, made when the first one is removed

    def remove(self, position: int) -> int:
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


class Store:
    def __init__(self) -> None:
        self.shelves: list[_Shelf] = []
        self._attributes = 0
        self._new_buffer(BUFFER * 4, 64)
        # Everything there is to match against. It is replaced as a whole when all is in place: whoever matches
        # meanwhile sees either what was before or what is after, and never a conjunct twice or not at all.
        self.segments: tuple[Raw, ...] = ()
        self.detours = 0  # segments that an event would not have to look at if all were in order
        self._left: list[int] | None = None  # positions removed while shelves are put in order; None if none are
        self._publish()

    def _publish(self) -> None:
        segments = tuple(shelf.raw for shelf in self.shelves)
        self.segments = (*segments, self._raw_buffer) if self._count else segments
        self.detours = max(0, len(segments) - 1 + (_UNORDERED if self._count else 0))

    @property
    def conjuncts(self) -> int:
        return sum(shelf.size - shelf.dead for shelf in self.shelves) + len(self._buffered)

    @property
    def dead(self) -> int:
        return sum(shelf.dead for shelf in self.shelves)

    def add(self, position: int, flags: int, predicates: Predicates, attributes: int) -> None:
        if self._count == BUFFER:
            self._flush()
        if attributes > len(self._buffer.rows) or self._used + len(predicates) > len(self._buffer.pred):
            self._grow_buffer(attributes, len(predicates))
        buffer, at = self._buffer, self._count
        if predicates:
            buffer.pred[self._used : self._used + len(predicates)] = predicates
        self._used += len(predicates)
        buffer.owner[at], buffer.pred_first[at + 1] = position << 2 | flags, self._used
        self._count += 1
        self._buffered.setdefault(position, []).append(at)
        buffer.alive[at // WORD] |= np.uint64(1 << at % WORD)  # from here on it counts
        if at == 0:
            self._publish()

    def add_many(self, conjuncts: Conjuncts, attributes: int) -> None:
        """Many at once, straight into a segment."""
        self._attributes = max(self._attributes, attributes)
        if len(conjuncts.owner):
            self.shelves.append(_Shelf(segment.build(conjuncts, attributes)))
            self._settle()
        self._publish()

    def settled(self) -> list[Raw]:
        """Everything in segments, nothing in the buffer: what can be saved."""
        if self._count:
            self._flush()
        return [shelf.raw for shelf in self.shelves]

    def order_for(self, events: int) -> None:
        """Before so many events come at once: all in segments, and in fewer ones as far as that is worth the while."""
        self.settled()
        merged = False
        while len(self.shelves) > 1 and sum(shelf.size for shelf in self.shelves[-2:]) <= 2 * events:
            self._merge_last()
            merged = True
        if merged:
            self._publish()

    def scattered(self) -> list[_Shelf]:
        """The shelves that are to be put in order by `one_shelf`, which may be done while this changes; `replace` must
        follow. None if they are in order, or somebody is at it."""
        if self._left is not None:
            return []
        self.settled()
        if len(self.shelves) < 2:
            return []
        self._left = []
        return list(self.shelves)

    def replace(self, shelves: list[_Shelf], ordered: Raw | None) -> None:
        """Puts what was made of some shelves in their place, unless they have been put in order otherwise since. None:
        nothing was made."""
        left, self._left = self._left or [], None
        if ordered is None or self.shelves[: len(shelves)] != shelves:
            return
        made = _Shelf(ordered)
        for position in left:
            made.remove(position)
        self.shelves[: len(shelves)] = [made]
        self._publish()

    def one_shelf(self, shelves: list[_Shelf]) -> Raw:
        """The living of several shelves in one segment."""
        parts = [segment.taken_apart(shelf.arrays) for shelf in shelves]
        return segment.build(segment.joined(parts), self._attributes)

    @classmethod
    def of(cls, segments: list[Raw], attributes: int) -> Self:
        """What `settled` gave."""
        store = cls()
        store._attributes = max(store._attributes, attributes)
        store.shelves = [_Shelf(raw) for raw in segments]
        store._publish()
        return store

    def living(self) -> Conjuncts | None:
        """All conjuncts, as they came in; None if there are none."""
        self.settled()
        parts = [segment.taken_apart(shelf.arrays) for shelf in self.shelves]
        return segment.joined(parts) if parts else None

    def remove(self, position: int) -> None:
        if self._left is not None:
            self._left.append(position)
        places = self._buffered.pop(position, None)
        for at in places or ():
            self._buffer.alive[at // WORD] &= ~np.uint64(1 << at % WORD)
        decayed = [shelf for shelf in self.shelves if shelf.remove(position) and shelf.dead > DEAD_SHARE * shelf.size]
        if decayed:
            self.shelves = [
                one for shelf in self.shelves for one in ([shelf] if shelf not in decayed else self._anew(shelf))
            ]
            self._publish()

    def _anew(self, shelf: _Shelf) -> list[_Shelf]:
        """The shelf without its dead; nothing at all if nobody lives."""
        living = segment.taken_apart(shelf.arrays)
        return [_Shelf(segment.build(living, self._attributes))] if len(living.owner) else []

    def _flush(self) -> None:
        """Makes the buffer a segment."""
        living = segment.taken_apart(_cut(self._buffer, self._count))
        self._new_buffer(len(self._buffer.pred), len(self._buffer.rows))
        self.add_many(living, self._attributes)

    def _settle(self) -> None:
        while len(self.shelves) > 1 and self.shelves[-2].size < GROWTH * self.shelves[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        both = [self.shelves.pop() for _ in range(2)]
        self.shelves.append(_Shelf(self.one_shelf(both)))

    def _new_buffer(self, predicates: int, attributes: int) -> None:
        self._attributes = max(self._attributes, attributes)
        self._raw_buffer = segment.unordered(BUFFER, predicates, attributes)
        self._buffer = layout.segment(self._raw_buffer)
        self._count = self._used = 0
        self._buffered: dict[int, list[int]] = {}

    def _grow_buffer(self, attributes: int, more: int) -> None:
        old = self._buffer
        predicates = len(old.pred)
        while self._used + more > predicates:
            predicates *= 2
        room = max(len(old.rows), 2 * attributes if attributes > len(old.rows) else 0)
        self._attributes = max(self._attributes, room)
        raw = segment.unordered(BUFFER, predicates, room)
        grown = layout.segment(raw)
        for name in ("alive", "owner", "pred_first"):
            getattr(grown, name)[:] = getattr(old, name)
        grown.pred[: self._used] = old.pred[: self._used]
        self._raw_buffer, self._buffer = raw, grown
        self._publish()


def _cut(buffer: Segment, count: int) -> Segment:
    """The buffer without its unused end."""
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
    block = int(np.searchsorted(arrays.block_conjunct, conjunct, side="right")) - 1
    lane = conjunct - int(arrays.block_conjunct[block])
    word, bit = int(arrays.block_word[block]) + lane // WORD, np.uint64(1 << lane % WORD)
    was_alive = bool(arrays.alive[word] & bit)
    arrays.alive[word] &= ~bit
    return was_alive
