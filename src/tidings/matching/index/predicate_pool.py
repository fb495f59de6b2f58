"""The predicates of subscriptions by position: for the spatial index, which finds subscriptions by place."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.kernels.layout import PREDICATE
from tidings.matching.index.kernels.match import SEPARATOR
from tidings.matching.index.segment import Conjuncts

_COMPACTION_SLACK = 1024  # unused predicates up to which nothing is compacted


class PredicatePool:
    """The conjuncts of subscriptions by position, in one array: a separator with its flags, then its predicates."""

    def __init__(self) -> None:
        self.ends = np.zeros(2 * 64, np.int32)  # for each position where its predicates begin and end
        self.preds = np.zeros(256, PREDICATE)
        self._used = self._garbage = 0

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return self.ends.nbytes + self.preds.nbytes

    def put(self, position: int, conjuncts: Sequence[tuple[int, list[Any]]]) -> None:
        """Add the conjuncts of a subscription: flags, and rows of PREDICATE."""
        rows: list[Any] = []
        for flags, predicates in conjuncts:
            rows.append((0.0, 0.0, flags * 8 + SEPARATOR, 0, 0))
            rows += predicates
        self._reserve(position + 1, len(rows))
        self.preds[self._used : self._used + len(rows)] = rows
        self.ends[2 * position], self.ends[2 * position + 1] = self._used, self._used + len(rows)
        self._used += len(rows)

    def put_many(self, conjuncts: Conjuncts) -> None:
        """Add the conjuncts of many subscriptions."""
        order = np.argsort(conjuncts.owner, kind="stable")
        owner, lengths = conjuncts.owner[order], np.diff(conjuncts.pred_first)[order]
        starts = np.cumsum(lengths + 1) - lengths - 1  # of each conjunct's separator, among the new ones
        total = int(lengths.sum()) + len(order)
        self._reserve(int(owner[-1] >> 2) + 1, total)
        rows = self.preds[self._used : self._used + total]
        places = np.repeat(starts + 1 - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        source = np.repeat(conjuncts.pred_first[:-1][order] - (np.cumsum(lengths) - lengths), lengths)
        rows[places] = conjuncts.pred[source + np.arange(lengths.sum())]
        rows["what"][starts] = (owner & 3) * 8 + SEPARATOR
        position, first = np.unique(owner >> 2, return_index=True)
        self.ends[2 * position] = self._used + starts[first]
        self.ends[2 * position + 1] = self._used + np.append(starts[first][1:], total)
        self._used += total

    def remove(self, position: int) -> None:
        """Remove the conjuncts of a subscription."""
        self._garbage += int(self.ends[2 * position + 1] - self.ends[2 * position])
        self.ends[2 * position : 2 * position + 2] = 0
        if self._garbage > _COMPACTION_SLACK + self._used // 2:
            self._compact()

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays, compacted."""
        self._compact()
        return {"ends": self.ends, "preds": self.preds[: self._used]}

    @classmethod
    def of(cls, ends: npt.NDArray[Any], preds: npt.NDArray[Any]) -> "PredicatePool":
        """Return the pool whose arrays `saved` returned."""
        pool = cls()
        # A file loses the alignment of the records' type, and the kernels take no other type.
        pool.ends, pool.preds, pool._used = ends.copy(), preds.view(PREDICATE), len(preds)
        return pool

    def _reserve(self, positions: int, more: int) -> None:
        if 2 * positions > len(self.ends):
            self.ends = _grown(self.ends, 4 * positions)
        if self._used + more > len(self.preds):
            self.preds = _grown(self.preds, 2 * (self._used + more))

    def _compact(self) -> None:
        """Compact the array: keep only the predicates in use."""
        first, last = self.ends[::2], self.ends[1::2]
        in_use = np.flatnonzero(last > first)
        lengths = (last - first)[in_use]
        ends = np.cumsum(lengths)
        source = np.repeat(first[in_use] - (ends - lengths), lengths) + np.arange(lengths.sum())
        self.preds = _grown(self.preds[source], max(256, 2 * len(source)))
        first[in_use], last[in_use] = ends - lengths, ends
        self._used, self._garbage = len(source), 0


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown
