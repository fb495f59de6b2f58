"""What subscriptions ask, by position: for those who come from elsewhere than the content and want to know the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.kernels import SEPARATOR
from tidings.matching.index.layout import PREDICATE
from tidings.matching.index.segment import Conjuncts

_SOME = 1024  # below it, nothing is tidied up


class Pool:
    """Predicates in the order in which they came, each conjunct behind a separator with its flags."""

    def __init__(self) -> None:
        self.ends = np.zeros(2 * 64, np.int32)  # two a position: its first predicate, and behind its last
        self.preds = np.zeros(256, PREDICATE)
        self._used = self._garbage = 0

    @property
    def nbytes(self) -> int:
        return self.ends.nbytes + self.preds.nbytes

    def put(self, position: int, conjuncts: Sequence[tuple[int, list[Any]]]) -> None:
        """The conjuncts of a subscription: flags, and rows of PREDICATE."""
        rows: list[Any] = []
        for flags, predicates in conjuncts:
            rows.append((0.0, 0.0, flags * 8 + SEPARATOR, 0, 0))
            rows += predicates
        self._reserve(position + 1, len(rows))
        self.preds[self._used : self._used + len(rows)] = rows
        self.ends[2 * position], self.ends[2 * position + 1] = self._used, self._used + len(rows)
        self._used += len(rows)

    def put_many(self, conjuncts: Conjuncts) -> None:
        """The same of many subscriptions."""
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
        self._garbage += int(self.ends[2 * position + 1] - self.ends[2 * position])
        self.ends[2 * position : 2 * position + 2] = 0
        if self._garbage > _SOME + self._used // 2:
            self._tidy()

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        self._tidy()
        return {"ends": self.ends, "preds": self.preds[: self._used]}

    @classmethod
    def of(cls, ends: npt.NDArray[Any], preds: npt.NDArray[Any]) -> "Pool":
        """What `saved` gave."""
        pool = cls()
        # A file does not keep that the records are aligned, and the kernels take no others.
        pool.ends, pool.preds, pool._used = ends.copy(), preds.view(PREDICATE), len(preds)
        return pool

    def _reserve(self, positions: int, more: int) -> None:
        if 2 * positions > len(self.ends):
            self.ends = _grown(self.ends, 4 * positions)
        if self._used + more > len(self.preds):
            self.preds = _grown(self.preds, 2 * (self._used + more))

    def _tidy(self) -> None:
        """Only what is in use."""
        first, last = self.ends[::2], self.ends[1::2]
        living = np.flatnonzero(last > first)
        lengths = (last - first)[living]
        ends = np.cumsum(lengths)
        source = np.repeat(first[living] - (ends - lengths), lengths) + np.arange(lengths.sum())
        self.preds = _grown(self.preds[source], max(256, 2 * len(source)))
        first[living], last[living] = ends - lengths, ends
        self._used, self._garbage = len(source), 0


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown
