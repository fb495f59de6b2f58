"""Run the matching kernels: a segment and encoded events in, positions out, with scratch memory for each thread."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.columns import EncodedEvents
from tidings.matching.index.kernels import layout, match
from tidings.matching.index.kernels.layout import NEEDED, Raw

Positions = npt.NDArray[np.int32]
UNLIMITED = 1 << 62
NOBODY: Positions = np.empty(0, np.int32)
_UNSORTED_EVENTS_MAX = 64  # events up to which sorting them by cluster does not pay off


class SegmentMatcher:
    """Matches events against segments, in any thread; each thread has its own scratch memory and output buffer."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._thread_scratch: list[tuple[threading.Thread, layout.Scratch]] = []
        self._ended_counters = np.zeros(4, np.int64)  # the counters of threads that have ended

    @property
    def counters(self) -> npt.NDArray[np.int64]:
        """The counters of all threads together."""
        with self._lock:
            return sum((scratch.counters for _, scratch in self._thread_scratch), self._ended_counters.copy())

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that have scratch memory here."""
        with self._lock:
            return [thread for thread, _ in self._thread_scratch]

    def scratch(self, attributes: int, tests: int, positions: int) -> Raw:
        """Return this thread's scratch memory, large enough for so many attributes, string tests and positions."""
        local = self._local
        arrays: layout.Scratch | None = getattr(local, "arrays", None)
        if (
            arrays is None
            or len(arrays.kind) < attributes
            or len(arrays.test_stamp) < tests
            or len(arrays.match_stamp) < positions
        ):
            local.scratch = layout.scratch_of(2 * attributes + 64, 2 * tests + 64, 2 * positions + 64)
            local.arrays = layout.scratch(local.scratch)
            if arrays is None:
                local.out = np.empty(4096, np.int32)
            else:
                local.arrays.counters[:] = arrays.counters
            self._register_scratch(local.arrays)
        return local.scratch  # type: ignore[no-any-return]

    def _register_scratch(self, arrays: layout.Scratch) -> None:
        """Register this thread's scratch memory, and drop that of threads that have ended."""
        current = threading.current_thread()
        with self._lock:
            others = [(thread, scratch) for thread, scratch in self._thread_scratch if thread is not current]
            self._ended_counters += sum(
                (scratch.counters for thread, scratch in others if not thread.is_alive()), np.zeros(4, np.int64)
            )
            self._thread_scratch = [
                *((thread, scratch) for thread, scratch in others if thread.is_alive()),
                (current, arrays),
            ]

    def match_one(self, encoded: tuple[Any, Any], scratch: Raw, raw: Raw, limit: int) -> Positions | None:
        """Return the positions of the subscriptions whose content an event satisfies.

        Returns None if there are more candidates than the limit. Positions that the reference has to confirm come as
        their complement.

        Args:
            encoded: The event, as `Columns.encode` returns it.
            scratch: This thread's scratch memory.
            raw: The segment.
            limit: The number of candidates above which the kernel gives up.
        """
        while True:
            out: Positions = self._local.out
            count = match.match_event(raw, scratch, *encoded, limit, out)
            if count >= 0:
                return out[:count].copy()
            if count == match.TOO_MANY:
                return None
            self._local.out = np.empty(2 * int(self._local.arrays.counters[NEEDED]), np.int32)

    def match_many(self, encoded: EncodedEvents, scratch: Raw, raw: Raw, rows: int) -> tuple[Any, Positions]:
        """Return the pairs of an event and a position, by ascending event.

        Events that reach the same cluster are matched one after the other, so that its tables stay in the processor's
        cache.

        Args:
            encoded: The events.
            scratch: This thread's scratch memory.
            raw: The segment.
            rows: The number of events.
        """
        order = np.arange(rows)
        column = np.flatnonzero(encoded.attribute == _leading_attribute(layout.segment(raw)))
        if len(column) and rows > _UNSORTED_EVENTS_MAX:
            order = np.lexsort((encoded.f[column[0]], encoded.kind[column[0]]))
        position, ends = self._match_in_order(encoded.in_order(order), scratch, raw, rows)
        return match.in_event_order(order, ends, position)  # type: ignore[no-any-return]

    def _match_in_order(self, events: EncodedEvents, scratch: Raw, raw: Raw, rows: int) -> tuple[Positions, Any]:
        """Match events in the given order, in as many kernel calls as the output needs.

        Returns the positions, and where in them the output of each event ends.
        """
        ends, out = np.zeros(rows, np.int64), np.empty(1 << 20, np.int32)
        parts: list[Positions] = []
        start = offset = 0
        while True:
            done = match.match_events(raw, scratch, *events, start, out, ends)
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
    """Return the attribute that most conjuncts are reached through, weighted by frequency; -1 if there is none."""
    if not len(arrays.key_attribute):
        return -1
    blocks = np.diff(arrays.cluster_block)[:-1].astype(float)
    return int(np.argmax(np.bincount(arrays.key_attribute, blocks**2)))
