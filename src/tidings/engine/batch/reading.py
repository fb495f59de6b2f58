"""The publications of a batch, as far as they were read: by the rows that they stand in."""

import numpy as np

from tidings.engine.batch.publications import Publications
from tidings.engine.batch.texts import Ints
from tidings.model.event import Event


class Reading:
    def __init__(self, rows: int) -> None:
        self._parts: list[Publications] = []
        self._part, self._place = np.full(rows, -1), np.zeros(rows, np.int64)

    def note(self, rows: Ints, publications: Publications) -> None:
        self._part[rows], self._place[rows] = len(self._parts), np.arange(len(rows))
        self._parts.append(publications)

    def event(self, row: int) -> Event:
        return self._parts[int(self._part[row])].event(int(self._place[row]))

    def located(self, rows: Ints) -> list[tuple[Publications, Ints, Ints]]:
        """Where the events of these rows were read: their rows there, and their places among those given."""
        part, place = self._part[rows], self._place[rows]
        if len(self._parts) == 1:
            return [(self._parts[0], place, np.arange(len(rows)))]
        found = ((number, np.flatnonzero(part == number)) for number in np.unique(part).tolist())
        return [(self._parts[number], place[mine], mine) for number, mine in found]

    def read_all(self) -> None:
        """Before many of them are asked for."""
        for one in self._parts:
            one.read_all()
