"""Spark SQL as the judge of what filters mean: nobody here wrote it.

The canonical text of a filter is Spark SQL, as long as comparisons stay within a kind. Filters and events are drawn
in bulk; each pair must be true, false or unknown to both, the parser and the reference on our side, Spark on the other.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.sizes import variants
from tests.spark.typed_filters import TESTS, TYPES, conditions, events
from tidings import Filter
from tidings.matching.reference import Scope, truth
from tidings.model.expression import And, Between, Comparison, Condition, In, IsNull, Like, Not, Or, Rlike, children
from tidings.model.values import Attributes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILTERS, EVENTS, ROUNDS = 60, 80, 3
Truth = bool | None
T = TypeVar("T")


@pytest.mark.parametrize("number", variants(1, range(ROUNDS)))
@pytest.mark.parametrize("kind", TESTS)
def test_spark_agrees_in_all_three_truth_values(compiling: "SparkSession", kind: str, number: int) -> None:
    filters = [Filter(expression) for expression in drawn(conditions(TESTS[kind]), FILTERS, number)]
    assert [Filter.parse(str(one)) for one in filters] == filters
    rows = drawn_events(number)

    differences = disagreements(compiling, filters, rows)

    if differences:
        smallest = min(differences, key=lambda one: len(str(one.filter)))
        pytest.fail(
            f"{len(differences)} disagreements; the shortest, and its smallest part that disagrees:\n"
            f"{smallest}\n{reduced(compiling, smallest)}"
        )
    answers = Counter(truth(one.expression, Scope(row)) for one in filters for row in rows)
    assert all(answers[answer] > 0.05 * answers.total() for answer in (True, False, None)), answers


class Disagreement(NamedTuple):
    filter: Filter
    event: Attributes
    ours: Truth
    theirs: Truth

    def __str__(self) -> str:
        event = {name: self.event.get(name) for name in sorted(self.filter.names)}
        return f"  {self.filter}\n    of {event}\n    is {self.ours} to us and {self.theirs} to Spark"


def drawn(strategy: SearchStrategy[T], count: int, number: int) -> list[T]:
    """That many examples, or fewer where the same come again; the same ones for the same number.

    Spark takes a second for a question, however many filters and events are in it, and a whole round is too large for
    one example of Hypothesis. So Hypothesis draws here and does no more; `reduced` stands in for its shrinking.
    """
    return list(dict.fromkeys(_one(strategy, number * count + place) for place in range(count)))


@cache
def drawn_events(number: int) -> list[Attributes]:
    return drawn(events, EVENTS, number)


def _one(strategy: SearchStrategy[T], number: int) -> T:
    examples: list[T] = []

    @seed(number)
    @settings(
        max_examples=2,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(example: T) -> None:
        examples.append(example)

    draw()
    return examples[-1]  # the first is the simplest there is, and later ones would resemble each other


def disagreements(spark: "SparkSession", filters: list[Filter], rows: list[Attributes]) -> list[Disagreement]:
    verdicts = judged(spark, [str(one) for one in filters], rows)
    return [
        Disagreement(one, row, ours, theirs)
        for one, answers in zip(filters, verdicts, strict=True)
        for row, theirs in zip(rows, answers, strict=True)
        if (ours := truth(one.expression, Scope(row))) is not theirs
    ]


def judged(spark: "SparkSession", texts: list[str], rows: list[Attributes]) -> list[list[Truth]]:
    """What Spark says: a list for each text, an answer for each row, all in one job."""
    table = pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()})
    # Spark reads a backslash in a literal as the start of an escape, and we do not: outside of literals there is none,
    # so it is written twice. (With spark.sql.parser.escapedStringLiterals it would read quotes differently instead.)
    columns = [f"{text} AS v{place}" for place, text in enumerate(t.replace("\\", "\\\\") for t in texts)]
    answers = spark.createDataFrame(table).selectExpr(*columns).toArrow()
    return [column.to_pylist() for column in answers.columns]


def reduced(spark: "SparkSession", found: Disagreement) -> Disagreement:
    parts = [Filter(part) for part in _conditions(found.filter.expression)]
    return min(disagreements(spark, parts, [found.event]), key=lambda one: len(str(one.filter)))


def _conditions(node: Condition) -> Iterator[Condition]:
    yield node
    for child in children(node):
        if isinstance(child, Comparison | Between | In | Like | Rlike | IsNull | And | Or | Not):
            yield from _conditions(child)


@pytest.fixture(scope="module")
def compiling(spark: "SparkSession") -> Iterator["SparkSession"]:
    """Spark as it works on real data: on a table as small as ours it would rather interpret than compile."""
    spark.conf.set(_EXCLUDED, "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation")
    yield spark
    spark.conf.unset(_EXCLUDED)


_EXCLUDED = "spark.sql.optimizer.excludedRules"
