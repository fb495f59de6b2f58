"""Find the subscriptions that nothing can match: every filter covers them, though no segment finds them."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidings.matching.formula import when_true
from tidings.matching.index.conjuncts import RESIDUAL, Conjunct, is_satisfiable
from tidings.matching.index.kernels import layout
from tidings.matching.index.kernels.layout import Raw
from tidings.matching.index.kernels.match import BOOLEAN, NUMBER
from tidings.matching.index.segment import Conjuncts, live_conjuncts
from tidings.matching.satisfiability import satisfiable
from tidings.model.subscription import Subscription


class SubscriptionPositions(Protocol):
    """The subscription at each position. `PositionTable` says what each of these is."""

    @property
    def positions(self) -> dict[str, int]: ...
    def __getitem__(self, position: int) -> Subscription: ...


class UnsatisfiableFilters:
    """Tracks the positions of unsatisfiable content filters.

    `note` only collects suspects; `positions` decides about them when a query needs to know. The caller must hold the
    index's lock.
    """

    def __init__(self, unread: bool = False) -> None:
        self._unsatisfiable_positions: set[int] = set()
        self._suspects: set[int] = set()
        self._needs_scan = unread  # the segments came from a file and were not searched for suspects yet
        self.residuals = unread  # whether there may be filters whose conjuncts are not exact

    def note(self, position: int, conjuncts: list[Conjunct]) -> None:
        """Note a new subscription as a suspect if its conjuncts leave open whether it can be satisfied."""
        residual = not all(conjunct.exact for conjunct in conjuncts)
        self.residuals = self.residuals or residual
        if residual or not conjuncts or not all(map(is_satisfiable, conjuncts)):
            self._suspects.add(position)

    def note_many(self, positions: Iterable[int], conjuncts: Conjuncts, system: npt.NDArray[np.uint8]) -> None:
        """Note many new subscriptions, with all their conjuncts."""
        owners = conjuncts.owner >> 2
        self._suspects.update(set(positions).difference(owners.tolist()))
        doubtful = conjuncts.owner & RESIDUAL != 0
        self.residuals = self.residuals or bool(doubtful.any())
        # System attributes are strings, never numbers or booleans.
        strange = (system[conjuncts.attribute] != 0) & np.isin(conjuncts.kind, (NUMBER, BOOLEAN))
        doubtful[np.repeat(np.arange(len(owners)), np.diff(conjuncts.pred_first))[strange]] = True
        self._suspects.update(owners[doubtful].tolist())

    def forget(self, position: int) -> None:
        """Forget the subscription at a position."""
        self._unsatisfiable_positions.discard(position)
        self._suspects.discard(position)

    def positions(
        self, position_table: SubscriptionPositions, segments: Sequence[Raw], system: npt.NDArray[np.uint8]
    ) -> set[int]:
        """Return the positions of the subscriptions that nothing can match."""
        if self._needs_scan:
            self._needs_scan = False
            unseen = set(position_table.positions.values())
            for arrays in map(layout.segment, segments):
                if not len(arrays.keys):  # the buffer: its subscriptions were added after loading
                    continue
                conjuncts = live_conjuncts(arrays)
                self.note_many((), conjuncts, system)
                unseen.difference_update((conjuncts.owner >> 2).tolist())
            self._suspects |= unseen
        for position in self._suspects:
            if not satisfiable(when_true(position_table[position].content.expression)):
                self._unsatisfiable_positions.add(position)
        self._suspects = set()
        return self._unsatisfiable_positions
