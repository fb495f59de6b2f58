"""Covering queries on segments: which subscriptions cover a filter, and which does it cover?

The answers are those of `covering.covers`. Kernels find candidates and decide where both sides are comparisons of
attributes with constants; `covers` confirms the others: several alternatives, string patterns, or conditions that
cannot be decomposed (XPath, arithmetic).

About the outcome of such a condition `covers` assumes nothing, except that it is the same wherever the condition
occurs. A query therefore assumes the outcome that is worst for covering: such conditions are fulfilled in the filter
that is to be covered, and not fulfilled in the filter that is to cover.

Every filter covers a subscription that nothing can match, though no segment does: `UnsatisfiableFilters` has these.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tidings.matching import covering
from tidings.matching.formula import ALWAYS, NEVER, Formula, outcomes_in, when_true, with_outcomes
from tidings.matching.index.columns import AttributeColumn
from tidings.matching.index.conjuncts import (
    RESIDUAL,
    Conjunct,
    Constraint,
    ConstraintKind,
    conjunct_inside,
    conjuncts_of,
    conjuncts_where,
    is_satisfiable,
)
from tidings.matching.index.kernels import covering as covering_kernels
from tidings.matching.index.kernels import layout
from tidings.matching.index.kernels.covering import ALL_OVERLAPPING, ANY_CODE, EXACT_ONES, NO_CODE, RESIDUAL_ONES
from tidings.matching.index.kernels.layout import PREDICATE, Raw
from tidings.matching.index.kernels.match import BOOLEAN, NUMBER
from tidings.matching.index.segment import Conjuncts, live_conjuncts
from tidings.matching.index.string_tests import passes, witness
from tidings.matching.satisfiability import satisfiable
from tidings.model.filter import FilterValue
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


Row = tuple[float, float, int, int, int]
_NOTHING = np.zeros(0, np.uint8)


class _CoveringCandidates(NamedTuple):
    """Positions found by a kernel: those that are certain, and those that `covers` has to confirm."""

    sure: set[int]
    doubtful: set[int]


class FilterColumns(Protocol):
    """The numbers of what filters mention. `Columns` says what each of these is."""

    numbers: dict[str, int]
    test_count: int
    asks_system: bool

    def __len__(self) -> int: ...
    def system(self) -> Any: ...
    def column(self, attribute: int) -> AttributeColumn: ...
    def known_predicate(self, attribute: int, constraint: Constraint) -> Row: ...


class CoveredSubscriptions(SubscriptionPositions, Protocol):
    """The subscriptions of the index. `PositionTable` says what each of these is."""

    has_subject_or_structure: npt.NDArray[np.int32]

    @property
    def names(self) -> list[str]: ...


class CoveringQueries:
    """Covering queries on the current state of an index; the caller must hold the index's lock."""

    def __init__(
        self,
        columns: FilterColumns,
        position_table: CoveredSubscriptions,
        segments: Sequence[Raw],
        unsatisfiable: UnsatisfiableFilters,
    ) -> None:
        self._columns, self._position_table, self._segments, self._unsatisfiable = (
            columns,
            position_table,
            segments,
            unsatisfiable,
        )
        self._system = columns.system()

    def covering(self, content: FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content covers this filter."""
        expression = content.expression
        alternatives = conjuncts_of(expression)
        if not all(alternative.exact for alternative in alternatives):
            formula = when_true(expression)
            if not satisfiable(formula):
                return set(self._position_table.positions)
            narrower = _necessary_conjuncts(formula)
            if narrower is None:
                candidates = self._within(alternatives, ALL_OVERLAPPING)
                return self._confirmed(candidates, lambda other: covering.covers(other, content))
            alternatives = narrower
        alternatives = [alternative for alternative in alternatives if is_satisfiable(alternative)]
        if not alternatives:
            return set(self._position_table.positions)
        candidates = self._containing(alternatives)
        return self._confirmed(candidates, lambda other: covering.covers(other, content))

    def covered_by(self, content: FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content this filter covers."""
        alternatives = certain = conjuncts_of(content.expression)
        if any(alternative.exact and not alternative.constraints for alternative in alternatives):
            return set(self._position_table.positions)
        if not all(alternative.exact for alternative in alternatives):
            formula = when_true(content.expression)
            if _has_consistent_outcomes(formula):
                certain = conjuncts_where(with_outcomes(formula, NEVER))
        sure, doubtful = self._within(certain, EXACT_ONES)
        if self._unsatisfiable.residuals:
            doubtful |= self._within(alternatives, RESIDUAL_ONES).doubtful
        sure |= self._unsatisfiable.positions(self._position_table, self._segments, self._system)
        return self._confirmed(_CoveringCandidates(sure, doubtful), lambda other: covering.covers(content, other))

    def _confirmed(self, candidates: _CoveringCandidates, decide: Callable[[FilterValue], bool]) -> set[str]:
        """Return the ids of the certain candidates and of the doubtful ones that `decide` confirms."""
        names, table = self._position_table.names, self._position_table
        confirmed = {names[at] for at in candidates.doubtful - candidates.sure if decide(table[at].content)}
        return confirmed.union(names[at] for at in candidates.sure)

    # Subscriptions that contain all of the alternatives

    def _containing(self, alternatives: list[Conjunct]) -> _CoveringCandidates:
        """Return the candidates for containing all of the alternatives."""
        candidates: _CoveringCandidates | None = None
        for alternative in alternatives:
            outer = self._outer(alternative)
            sure, doubtful = self._candidates_of(covering_kernels.containing, outer)
            if not alternative.exact:
                sure, doubtful = set(), sure | doubtful
            if candidates is not None:
                both = (candidates.sure | candidates.doubtful) & (sure | doubtful)
                sure &= candidates.sure
                doubtful = both - sure
            candidates = _CoveringCandidates(sure, doubtful)
        return candidates or _CoveringCandidates(set(), set())

    def _outer(self, alternative: Conjunct) -> tuple[Any, ...]:
        """Return one alternative as arguments of `covering_kernels.containing`.

        Attributes that the index does not know are left out, since no subscription restricts them.
        """
        columns, answers = self._columns, _Answers()
        rows: list[Row] = []
        point: list[int] = []
        tests_at: list[int] = []
        predicate_of = np.full(len(columns), -1, np.int32)
        for name, constraint in alternative.constraints.items():
            attribute = columns.numbers.get(name)
            if attribute is None:
                continue
            predicate_of[attribute] = len(rows)
            text_constraint = _as_text(name, constraint)
            rows.append(columns.known_predicate(attribute, text_constraint))
            text = _point_of(text_constraint)
            column = columns.column(attribute)
            point.append(ANY_CODE if text is None else column.codes.get(text, NO_CODE))
            numbers: Any = ()
            if column.tests is not None and text_constraint.kind in (ConstraintKind.STRING, ConstraintKind.TEST):
                numbers = column.tests.all() if text is None else column.tests.passed_by(text)
            tests_at.append(answers.add_numbers(numbers, columns.test_count))
        return (
            np.array(rows, PREDICATE),
            np.array(point, np.int64),
            np.array(tests_at, np.int64),
            predicate_of,
            answers.array(),
            self._system,
            self._position_table.has_subject_or_structure,
            columns.asks_system,
        )

    # Subscriptions that lie within one of the alternatives

    def _within(self, alternatives: list[Conjunct], which: int) -> _CoveringCandidates:
        """Return the candidates for lying within the alternatives, of the conjuncts that `which` selects."""
        possible = [alternative for alternative in alternatives if is_satisfiable(alternative)]
        if not possible:
            return _CoveringCandidates(set(), set())
        inner = self._inner(possible)
        return self._candidates_of(covering_kernels.within, (*inner, which))

    def _inner(self, alternatives: list[Conjunct]) -> tuple[Any, ...]:
        """Return all alternatives as arguments of `covering_kernels.within`."""
        columns, answers = self._columns, _Answers()
        rows: list[Row] = []
        first, codes_at, tests_at = [0], [], []
        for alternative in alternatives:
            for name, constraint in alternative.constraints.items():
                attribute = columns.numbers.get(name, len(columns))
                text_constraint = _as_text(name, constraint)
                rows.append(columns.known_predicate(attribute, text_constraint))
                codes, numbers = self._strings_within(attribute, text_constraint)
                codes_at.append(answers.add(codes))
                tests_at.append(answers.add_numbers(numbers, columns.test_count))
            first.append(len(rows))
        return (
            np.array(rows, PREDICATE),
            np.array(first, np.int64),
            np.array([alternative.exact for alternative in alternatives], np.uint8),
            np.array(codes_at, np.int64),
            np.array(tests_at, np.int64),
            answers.array(),
            self._system,
            self._position_table.has_subject_or_structure,
        )

    def _strings_within(self, attribute: int, constraint: Constraint) -> tuple[Any, Any]:
        """Return which strings and tests of an attribute may lie within a constraint.

        The result has a yes or no for each string that the index knows, and the numbers of tests.
        """
        if attribute == len(self._columns) or constraint.kind not in (ConstraintKind.STRING, ConstraintKind.TEST):
            return _NOTHING, ()
        column, test = self._columns.column(attribute), constraint.test
        if test is None:  # only a test that this string passes can lie within it
            if column.tests is None or constraint.text is None:
                return _NOTHING, ()
            return _NOTHING, column.tests.passed_but_for_regexes(constraint.text)
        codes = np.array([passes(test, text) for text in column.codes], np.uint8)
        tests = () if column.tests is None else column.tests.items()
        return codes, [
            number for string_test, number in tests if (text := witness(string_test)) is None or passes(test, text)
        ]

    def _candidates_of(self, kernel: Callable[..., int], arguments: tuple[Any, ...]) -> _CoveringCandidates:
        """Run a covering kernel on every segment and collect its candidates."""
        sure: set[int] = set()
        doubtful: set[int] = set()
        for raw in self._segments:
            out = np.empty(_size(raw), np.int32)
            positions = out[: kernel(raw, *arguments, out)]
            is_doubtful = positions < 0
            sure.update(positions[~is_doubtful].tolist())
            doubtful.update((~positions[is_doubtful]).tolist())
        return _CoveringCandidates(sure, doubtful)


class _Answers:
    """Lists of yes-or-no answers for a kernel, concatenated."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.uint8]] = []
        self._size = 0

    def add(self, answers: npt.NDArray[np.uint8]) -> int:
        """Append a list; return where it begins."""
        self._parts.append(answers)
        self._size += len(answers)
        return self._size - len(answers)

    def add_numbers(self, numbers: Any, count: int) -> int:
        """Append a list of `count` answers with a yes for each of the numbers.

        Return where it begins, or -1 without numbers.
        """
        if not len(numbers):
            return -1
        answers = np.zeros(count, np.uint8)
        answers[numbers] = 1
        return self.add(answers)

    def array(self) -> npt.NDArray[np.uint8]:
        """Return all lists as one array."""
        return np.concatenate([_NOTHING, *self._parts])


def _necessary_conjuncts(formula: Formula) -> list[Conjunct] | None:
    """Return conjuncts that a filter must contain to cover the formula.

    They are the whole formula with every condition that cannot be decomposed taken as fulfilled or, if that is not
    exact, one conjunct within it. Returns None if neither is found.
    """
    if not _has_consistent_outcomes(formula):
        return None
    opened = with_outcomes(formula, ALWAYS)
    alternatives = conjuncts_where(opened)
    if all(alternative.exact for alternative in alternatives):
        return alternatives
    inside = conjunct_inside(opened)
    return [inside._replace(exact=False)] if inside is not None and is_satisfiable(inside) else None


def _has_consistent_outcomes(formula: Formula) -> bool:
    """Return whether each condition that cannot be decomposed occurs in the formula with a single outcome.

    Then all of them may come out as the formula asks, and all may come out otherwise.
    """
    outcomes: dict[Any, Any] = {}
    return all(outcomes.setdefault(outcome.condition, outcome) == outcome for outcome in outcomes_in(formula))


def _as_text(name: str, constraint: Constraint) -> Constraint:
    """Return the constraint with PRESENT replaced by STRING for a system attribute, which is always a string."""
    return (
        Constraint(ConstraintKind.STRING)
        if name.startswith("$") and constraint.kind is ConstraintKind.PRESENT
        else constraint
    )


def _point_of(constraint: Constraint) -> str | None:
    """Return a string that satisfies the constraint; None if none is known."""
    if constraint.test is not None:
        return witness(constraint.test)
    return constraint.text or ""


def _size(raw: Raw) -> int:
    """Return for how many conjuncts a segment has room."""
    return len(covering_kernels.owners(raw))
