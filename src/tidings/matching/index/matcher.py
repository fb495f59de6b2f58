"""Kernels at work: a segment and encoded events in, positions out, in memory that every thread has of its own."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index import kernels, layout
from tidings.matching.index.columns import Events
from tidings.matching.index.layout import NEEDED, Raw

Positions = npt.NDArray[np.int32]
UNLIMITED = 1 << 62
NOBODY: Positions = np.empty(0, np.int32)
_SOME = 64  # events that are not worth being put in order


class Matcher:
    def __init__(self) -> None:
        self._local = threading.local()
        self._changing = threading.Lock()
        self._at_work: list[tuple[threading.Thread, layout.Scratch]] = []
        self._gone = np.zeros(4, np.int64)  # what threads had counted that have ended

    @property
    def counters(self) -> npt.NDArray[np.int64]:
        """Of all threads together."""
        with self._changing:
            return sum((one.counters for _, one in self._at_work), self._gone.copy())

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that have scratch memory here."""
        with self._changing:
            return [thread for thread, _ in self._at_work]

    def scratch(self, attributes: int, tests: int, positions: int) -> Raw:
        """This thread's scratch memory, large enough for so many of each."""
        local = self._local
        known: layout.Scratch | None = getattr(local, "arrays", None)
        if (
            known is None
            or len(known.kind) < attributes
            or len(known.test_stamp) < tests
            or len(known.seen) < positions
        ):
            local.scratch = layout.scratch_of(2 * attributes + 64, 2 * tests + 64, 2 * positions + 64)
            local.arrays = layout.scratch(local.scratch)
            if known is None:
                local.out = np.empty(4096, np.int32)
            else:
                local.arrays.counters[:] = known.counters
            self._note(local.arrays)
        return local.scratch  # type: ignore[no-any-return]

    def _note(self, arrays: layout.Scratch) -> None:
        """This thread's memory from now on. That of threads that have ended is let go."""
        mine = threading.current_thread()
        with self._changing:
            others = [(thread, one) for thread, one in self._at_work if thread is not mine]
            self._gone += sum((one.counters for thread, one in others if not thread.is_alive()), np.zeros(4, np.int64))
            self._at_work = [*((thread, one) for thread, one in others if thread.is_alive()), (mine, arrays)]

    def one(self, encoded: tuple[Any, Any], scratch: Raw, raw: Raw, limit: int) -> Positions | None:
        """Whom the content concerns; None if there are more candidates than the limit."""
        while True:
            out: Positions = self._local.out
            count = kernels.match_event(raw, scratch, *encoded, limit, out)
            if count >= 0:
                return out[:count].copy()
            if count == kernels.TOO_MANY:
                return None
            self._local.out = np.empty(2 * int(self._local.arrays.counters[NEEDED]), np.int32)

    def many(self, encoded: Events, scratch: Raw, raw: Raw, rows: int) -> tuple[Any, Positions]:
        """Pairs of an event and a position. Events that meet the same cluster come one after the other, so that its
        tables stay in the cache.
        """
        order = np.arange(rows)
        column = np.flatnonzero(encoded.attribute == _leading_attribute(layout.segment(raw)))
        if len(column) and rows > _SOME:
            order = np.lexsort((encoded.f[column[0]], encoded.kind[column[0]]))
        position, ends = self._in_order(encoded.in_order(order), scratch, raw, rows)
        return kernels.in_event_order(order, ends, position)  # type: ignore[no-any-return]

    def _in_order(self, given: Events, scratch: Raw, raw: Raw, rows: int) -> tuple[Positions, Any]:
        ends, out = np.zeros(rows, np.int64), np.empty(1 << 20, np.int32)
        parts: list[Positions] = []
        start = offset = 0
        while True:
            done = kernels.match_events(raw, scratch, *given, start, out, ends)
            filled = int(ends[done - 1]) if done > start else 0
            ends[start:done] += offset
            offset += filled
            if done == rows and not parts:
                return out[:filled], ends
            parts.append(out[:filled].copy())
            if done == rows:
                return np.concatenate(parts), ends
            start = done
            needed = int(self._local.arrays.counters[NEEDED])
            if needed > len(out):
                out = np.empty(2 * needed, np.int32)


def _leading_attribute(arrays: layout.Segment) -> int:
    """The attribute through which the most conjuncts are reached, weighed by how often that happens."""
    if not len(arrays.key_attribute):
        return -1
    blocks = np.diff(arrays.cluster_block)[:-1].astype(float)
    return int(np.argmax(np.bincount(arrays.key_attribute, blocks**2)))
