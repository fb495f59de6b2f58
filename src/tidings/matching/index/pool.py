"""What subscriptions ask, by position: for those who come from elsewhere than the content and want to know the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index import kernels
from tidings.matching.index.kernels import SEPARATOR
from tidings.matching.index.layout import PREDICATE
from tidings.matching.index.segment import Conjuncts

_SOME = 1024  # below it, nothing is tidied up


class Pool:
    """Predicates in the order in which they came, each conjunct behind a separator with its flags."""

    def __init__(self) -> None:
        self._first = np.zeros(64, np.int32)
        self._last = np.zeros(64, np.int32)
        self._preds = np.zeros(256, PREDICATE)
        self._used = self._garbage = 0

    @property
    def nbytes(self) -> int:
        return self._first.nbytes + self._last.nbytes + self._preds.nbytes

    def put(self, position: int, conjuncts: Sequence[tuple[int, list[Any]]]) -> None:
        """The conjuncts of a subscription: flags, and rows of PREDICATE."""
        rows: list[Any] = []
        for flags, predicates in conjuncts:
            rows.append((0.0, 0.0, flags * 8 + SEPARATOR, 0, 0))
            rows += predicates
        self._reserve(position + 1, len(rows))
        self._preds[self._used : self._used + len(rows)] = rows
        self._first[position], self._last[position] = self._used, self._used + len(rows)
        self._used += len(rows)

    def put_many(self, conjuncts: Conjuncts) -> None:
        """The same of many subscriptions."""
        order = np.argsort(conjuncts.owner, kind="stable")
        owner, lengths = conjuncts.owner[order], np.diff(conjuncts.pred_first)[order]
        starts = np.cumsum(lengths + 1) - lengths - 1  # of each conjunct's separator, among the new ones
        total = int(lengths.sum()) + len(order)
        self._reserve(int(owner[-1] >> 2) + 1, total)
        rows = self._preds[self._used : self._used + total]
        places = np.repeat(starts + 1 - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        source = np.repeat(conjuncts.pred_first[:-1][order] - (np.cumsum(lengths) - lengths), lengths)
        rows[places] = conjuncts.pred[source + np.arange(lengths.sum())]
        rows["what"][starts] = (owner & 3) * 8 + SEPARATOR
        position, first = np.unique(owner >> 2, return_index=True)
        self._first[position] = self._used + starts[first]
        self._last[position] = self._used + np.append(starts[first][1:], total)
        self._used += total

    def remove(self, position: int) -> None:
        self._garbage += int(self._last[position] - self._first[position])
        self._first[position] = self._last[position] = 0
        if self._garbage > _SOME + self._used // 2:
            self._tidy()

    def checked(self, positions: npt.NDArray[np.int32], scratch: Any, values: Any, tests: Any) -> Any:
        """Which of the positions an event concerns by its content; complements are for the reference to confirm."""
        out = np.empty(len(positions), np.int32)
        count = kernels.check_positions(
            self._first, self._last, self._preds, scratch, values, tests, positions, out
        )  # fmt: skip
        return out[:count]

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        self._tidy()
        return {"first": self._first, "last": self._last, "preds": self._preds[: self._used]}

    @classmethod
    def of(cls, first: npt.NDArray[Any], last: npt.NDArray[Any], preds: npt.NDArray[Any]) -> "Pool":
        """What `saved` gave."""
        pool = cls()
        pool._first, pool._last, pool._preds, pool._used = first.copy(), last.copy(), preds, len(preds)
        return pool

    def _reserve(self, positions: int, more: int) -> None:
        if positions > len(self._first):
            self._first, self._last = (_grown(one, 2 * positions) for one in (self._first, self._last))
        if self._used + more > len(self._preds):
            self._preds = _grown(self._preds, 2 * (self._used + more))

    def _tidy(self) -> None:
        """Only what is in use."""
        living = np.flatnonzero(self._last > self._first)
        lengths = (self._last - self._first)[living]
        ends = np.cumsum(lengths)
        source = np.repeat(self._first[living] - (ends - lengths), lengths) + np.arange(lengths.sum())
        self._preds = _grown(self._preds[source], max(256, 2 * len(source)))
        self._first[living], self._last[living] = ends - lengths, ends
        self._used, self._garbage = len(source), 0


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown
