"""Covering questions, asked of the segments: whose content covers a filter, and whose content does it cover?

The answers are those of `covering.covers`. Compiled code finds the candidates; it decides where both sides are
comparisons of attributes with constants, and leaves to `covers` what has several alternatives, string patterns, or
conditions that cannot be taken apart. These last ones `covers` takes as they stand: nothing is known of their outcome
but that it is one. So a filter with such conditions is asked here as if they all came out the way that suits it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.matching import covering
from tidings.matching.formula import ALWAYS, NEVER, Formula, judgements, supposing, when_true
from tidings.matching.index import relations
from tidings.matching.index.columns import Columns
from tidings.matching.index.conjuncts import (
    Conjunct,
    Constraint,
    Kind,
    can_be,
    conjunct_inside,
    conjuncts_of,
    conjuncts_where,
)
from tidings.matching.index.layout import PREDICATE, Raw
from tidings.matching.index.never import Never
from tidings.matching.index.register import Register
from tidings.matching.index.relations import ALL_OVERLAPPING, ANY_CODE, EXACT_ONES, NO_CODE, RESIDUAL_ONES
from tidings.matching.index.stringtests import passes, witness
from tidings.matching.satisfiability import satisfiable
from tidings.model.filter import Filter

Row = tuple[float, float, int, int, int]
_NOTHING = np.zeros(0, np.uint8)


class _Found(NamedTuple):
    """Positions: those that are sure, and those that `covers` has to confirm."""

    sure: set[int]
    doubtful: set[int]


class Covers:
    """The questions that can be asked of an index as it is now. Whoever asks holds its lock."""

    def __init__(self, columns: Columns, register: Register, segments: Sequence[Raw], never: Never) -> None:
        self._columns, self._register, self._segments, self._never = columns, register, segments, never
        self._system = columns.system()

    def covering(self, content: Filter) -> set[str]:
        """The ids of the subscriptions whose content covers this filter."""
        expression = content.expression
        alternatives = conjuncts_of(expression)
        if not all(one.exact for one in alternatives):
            formula = when_true(expression)
            if not satisfiable(formula):
                return set(self._register.positions)
            narrower = _least(formula)
            if narrower is None:
                found = self._within(alternatives, ALL_OVERLAPPING)
                return self._confirmed(found, lambda one: covering.covers(one, content))
            alternatives = narrower
        alternatives = [one for one in alternatives if can_be(one)]
        if not alternatives:
            return set(self._register.positions)
        found = self._containing(alternatives)
        return self._confirmed(found, lambda one: covering.covers(one, content))

    def covered_by(self, content: Filter) -> set[str]:
        """The ids of the subscriptions whose content this filter covers."""
        alternatives = certain = conjuncts_of(content.expression)
        if any(one.exact and not one.constraints for one in alternatives):
            return set(self._register.positions)
        if not all(one.exact for one in alternatives):
            formula = when_true(content.expression)
            if _free(formula):
                certain = conjuncts_where(supposing(formula, NEVER))
        sure, doubtful = self._within(certain, EXACT_ONES)
        if self._never.residuals:
            doubtful |= self._within(alternatives, RESIDUAL_ONES).doubtful
        sure |= self._never.positions(self._register, self._segments, self._system)
        return self._confirmed(_Found(sure, doubtful), lambda one: covering.covers(content, one))

    def _confirmed(self, found: _Found, ask: Callable[[Filter], bool]) -> set[str]:
        names, register = self._register.names, self._register
        confirmed = {names[at] for at in found.doubtful - found.sure if ask(register[at].content)}
        return confirmed.union(names[at] for at in found.sure)

    # Who contains all of the alternatives

    def _containing(self, alternatives: list[Conjunct]) -> _Found:
        found: _Found | None = None
        for one in alternatives:
            outer = self._outer(one)
            sure, doubtful = self._asked(relations.containing, outer)
            if not one.exact:
                sure, doubtful = set(), sure | doubtful
            if found is not None:
                both = (found.sure | found.doubtful) & (sure | doubtful)
                sure &= found.sure
                doubtful = both - sure
            found = _Found(sure, doubtful)
        return found or _Found(set(), set())

    def _outer(self, alternative: Conjunct) -> tuple[Any, ...]:
        """One alternative, as `relations.containing` takes it. What the index has never heard of, nobody asks for."""
        columns, answers = self._columns, _Answers()
        rows: list[Row] = []
        point: list[int] = []
        tests_at: list[int] = []
        place = np.full(len(columns), -1, np.int32)
        for name, constraint in alternative.constraints.items():
            attribute = columns.numbers.get(name)
            if attribute is None:
                continue
            place[attribute] = len(rows)
            asked = _as_text(name, constraint)
            rows.append(columns.known_predicate(attribute, asked))
            text = _point_of(asked)
            column = columns.column(attribute)
            point.append(ANY_CODE if text is None else column.codes.get(text, NO_CODE))
            numbers: Any = ()
            if column.tests is not None and asked.kind in (Kind.STRING, Kind.TEST):
                numbers = column.tests.all() if text is None else column.tests.passed_by(text)
            tests_at.append(answers.add_numbers(numbers, columns.test_count))
        return (
            np.array(rows, PREDICATE),
            np.array(point, np.int64),
            np.array(tests_at, np.int64),
            place,
            answers.array(),
            self._system,
            self._register.framed,
            columns.asks_system,
        )

    # Who lies within one of the alternatives

    def _within(self, alternatives: list[Conjunct], which: int) -> _Found:
        possible = [one for one in alternatives if can_be(one)]
        if not possible:
            return _Found(set(), set())
        inner = self._inner(possible)
        return self._asked(relations.within, (*inner, which))

    def _inner(self, alternatives: list[Conjunct]) -> tuple[Any, ...]:
        """All alternatives, as `relations.within` takes them."""
        columns, answers = self._columns, _Answers()
        rows: list[Row] = []
        first, codes_at, tests_at = [0], [], []
        for alternative in alternatives:
            for name, constraint in alternative.constraints.items():
                attribute = columns.numbers.get(name, len(columns))
                asked = _as_text(name, constraint)
                rows.append(columns.known_predicate(attribute, asked))
                codes, numbers = self._strings_within(attribute, asked)
                codes_at.append(answers.add(codes))
                tests_at.append(answers.add_numbers(numbers, columns.test_count))
            first.append(len(rows))
        return (
            np.array(rows, PREDICATE),
            np.array(first, np.int64),
            np.array([one.exact for one in alternatives], np.uint8),
            np.array(codes_at, np.int64),
            np.array(tests_at, np.int64),
            answers.array(),
            self._system,
            self._register.framed,
        )

    def _strings_within(self, attribute: int, asked: Constraint) -> tuple[Any, Any]:
        """Of the strings and the tests that the index knows, those that may lie within a constraint: for each string
        whether it does, and the numbers of the tests.
        """
        if attribute == len(self._columns) or asked.kind not in (Kind.STRING, Kind.TEST):
            return _NOTHING, ()
        column, test = self._columns.column(attribute), asked.test
        if test is None:  # what lies within one string, and is anything at all, is that string
            if column.tests is None or asked.text is None:
                return _NOTHING, ()
            return _NOTHING, column.tests.passed_but_for_regexes(asked.text)
        codes = np.array([passes(test, text) for text in column.codes], np.uint8)
        tests = () if column.tests is None else column.tests.items()
        return codes, [number for one, number in tests if (text := witness(one)) is None or passes(test, text)]

    def _asked(self, kernel: Callable[..., int], question: tuple[Any, ...]) -> _Found:
        sure: set[int] = set()
        doubtful: set[int] = set()
        for raw in self._segments:
            out = np.empty(_size(raw), np.int32)
            found = out[: kernel(raw, *question, out)]
            unsure = found < 0
            sure.update(found[~unsure].tolist())
            doubtful.update((~found[unsure]).tolist())
        return _Found(sure, doubtful)


class _Answers:
    """Lists of answers, one behind the other."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.uint8]] = []
        self._size = 0

    def add(self, answers: npt.NDArray[np.uint8]) -> int:
        self._parts.append(answers)
        self._size += len(answers)
        return self._size - len(answers)

    def add_numbers(self, numbers: Any, count: int) -> int:
        """A yes for each of the numbers; -1 if there are none."""
        if not len(numbers):
            return -1
        answers = np.zeros(count, np.uint8)
        answers[numbers] = 1
        return self.add(answers)

    def array(self) -> npt.NDArray[np.uint8]:
        return np.concatenate([_NOTHING, *self._parts])


def _least(formula: Formula) -> list[Conjunct] | None:
    """What someone who covers the formula must contain: all of it, or at least some of it (which is not exact)."""
    if not _free(formula):
        return None
    opened = supposing(formula, ALWAYS)
    alternatives = conjuncts_where(opened)
    if all(one.exact for one in alternatives):
        return alternatives
    inside = conjunct_inside(opened)
    return [inside._replace(exact=False)] if inside is not None and can_be(inside) else None


def _free(formula: Formula) -> bool:
    """Whether the conditions that cannot be taken apart may all come out as asked, or all otherwise."""
    asked: dict[Any, Any] = {}
    return all(asked.setdefault(one.condition, one) == one for one in judgements(formula))


def _as_text(name: str, constraint: Constraint) -> Constraint:
    """A system attribute that is there is a string."""
    return Constraint(Kind.STRING) if name.startswith("$") and constraint.kind is Kind.PRESENT else constraint


def _point_of(constraint: Constraint) -> str | None:
    """A string that satisfies the constraint; None if none is known."""
    if constraint.test is not None:
        return witness(constraint.test)
    return constraint.text or ""


def _size(raw: Raw) -> int:
    """How many conjuncts a segment has room for."""
    return len(relations.owners(raw))
