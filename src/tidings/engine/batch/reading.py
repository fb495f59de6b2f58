"""The publications of a batch, wherever they were read: whoever makes notifications asks for them by their rows."""

import numpy as np
import numpy.typing as npt

from tidings.engine.batch.publications import Publications
from tidings.model.event import Event


class Reading:
    def __init__(self, rows: int) -> None:
        self._parts: list[Publications] = []
        self._part, self._place = np.full(rows, -1), np.zeros(rows, np.int64)

    def note(self, rows: npt.NDArray[np.int64], publications: Publications) -> None:
        self._part[rows], self._place[rows] = len(self._parts), np.arange(len(rows))
        self._parts.append(publications)

    def event(self, row: int) -> Event:
        return self._parts[int(self._part[row])].event(int(self._place[row]))

    def read_all(self) -> None:
        """Before many of them are asked for."""
        for one in self._parts:
            one.read_all()
