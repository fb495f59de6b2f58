"""The subscriptions that nothing can match: whatever the question, they are covered, though no segment finds them."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tidings.matching.formula import when_true
from tidings.matching.index import layout
from tidings.matching.index.conjuncts import RESIDUAL, Conjunct, can_be
from tidings.matching.index.kernels import BOOLEAN, NUMBER
from tidings.matching.index.layout import Raw
from tidings.matching.index.register import Register
from tidings.matching.index.segment import Conjuncts, taken_apart
from tidings.matching.satisfiability import satisfiable


class Never:
    """Who might be one of them is noted as it comes, and looked at when someone asks. Whoever calls holds a lock."""

    def __init__(self, unread: bool = False) -> None:
        self._known: set[int] = set()
        self._suspects: set[int] = set()
        self._unread = unread  # the segments came from a file, and nobody has looked through them yet
        self.residuals = unread  # whether there may be any that the conjuncts do not tell all of

    def note(self, position: int, conjuncts: list[Conjunct]) -> None:
        """A subscription that comes in."""
        residual = not all(one.exact for one in conjuncts)
        self.residuals = self.residuals or residual
        if residual or not conjuncts or not all(map(can_be, conjuncts)):
            self._suspects.add(position)

    def note_many(self, positions: Iterable[int], conjuncts: Conjuncts, system: npt.NDArray[np.uint8]) -> None:
        """Many that come in, with all their conjuncts."""
        owners = conjuncts.owner >> 2
        self._suspects.update(set(positions).difference(owners.tolist()))
        doubtful = conjuncts.owner & RESIDUAL != 0
        self.residuals = self.residuals or bool(doubtful.any())
        # The system's attributes are strings, never numbers.
        strange = (system[conjuncts.attribute] != 0) & np.isin(conjuncts.kind, (NUMBER, BOOLEAN))
        doubtful[np.repeat(np.arange(len(owners)), np.diff(conjuncts.pred_first))[strange]] = True
        self._suspects.update(owners[doubtful].tolist())

    def forget(self, position: int) -> None:
        self._known.discard(position)
        self._suspects.discard(position)

    def positions(self, register: Register, segments: Sequence[Raw], system: npt.NDArray[np.uint8]) -> set[int]:
        """Where they stand."""
        if self._unread:
            self._unread = False
            everyone = set(register.positions.values())
            for arrays in map(layout.segment, segments):
                if not len(arrays.keys):  # the buffer: who is in it came later
                    continue
                part = taken_apart(arrays)
                self.note_many((), part, system)
                everyone.difference_update((part.owner >> 2).tolist())
            self._suspects |= everyone
        for position in self._suspects:
            if not satisfiable(when_true(register[position].content.expression)):
                self._known.add(position)
        self._suspects = set()
        return self._known
