"""Where Spark SQL answers differently on purpose: both answers, and why.

An answer is True, False, None for unknown, or the name of an error. Anyone who moves a filter to `DataFrame.filter`
meets these, and `test_row_checks.py` keeps away from them.
"""

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidings import Filter, TidingsError
from tidings.matching.reference import Scope, truth
from tidings.model.values import Attributes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Answer = bool | None | str

LARGEST, SMALLEST = 2**63 - 1, -(2**63)

KINDS = "kinds do not compare and nothing is cast; Spark casts the string"
FLAGS = "booleans are equal or not, and have no order; Spark has FALSE < TRUE"
EXACT = "integers and floats compare exactly; Spark compares a bigint with a double as doubles"
DECIMAL = "a number with a point is a float; to Spark it is an exact decimal, unless it has an exponent"
ZERO = "division by zero is unknown; Spark raises"
OVERFLOW = "what does not fit into 64 bits is unknown; Spark raises"
INFINITE = "there is no infinity, what overflows is unknown; Spark calculates on with it"
NARROW = "integers have 64 bits; Spark gives small literals 32"
TEXT = "LIKE and RLIKE are of strings; Spark makes a string of the number"
RE2 = "RE2 takes time linear in the text and therefore has no such thing; Spark's patterns are Java's"
LINES = "RE2's $ is the end of the text and its . all but \\n; Java has more line ends and a $ before the last one"
CLASSES = "what a class of characters holds: RE2's differ from Java's"
NAMES = "a dot is part of a name; Spark looks into a column of structs, unless the name stands in backquotes"

DIFFERENCES: list[tuple[str, dict[str, Any], Answer, Answer, str]] = [
    # Kinds
    ("'1' = 1", {}, None, True, KINDS),
    ("a = 1", {"a": "1"}, None, True, KINDS),
    ("a != 2", {"a": "1"}, None, True, KINDS),
    ("a > 9", {"a": "10"}, None, True, KINDS),
    ("a = 1", {"a": "one"}, None, "CAST_INVALID_INPUT", KINDS),
    ("a IN (1, 2)", {"a": "1"}, None, True, KINDS),
    ("a BETWEEN 1 AND 3", {"a": "2"}, None, True, KINDS),
    ("a + '1' = 2", {"a": 1}, None, True, KINDS),
    ("a + 1 IS NULL", {"a": "one"}, True, "CAST_INVALID_INPUT", KINDS),
    ("a = 'true'", {"a": True}, None, True, KINDS),
    ("a AND TRUE", {"a": "true"}, None, True, "only a boolean is true by itself; Spark casts the string"),
    ("a = 1", {"a": True}, None, "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "no such comparison: Spark refuses it"),
    ("a + TRUE = 2", {"a": 1}, None, "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "no such sum: Spark refuses it"),
    # Booleans
    ("TRUE > FALSE", {}, None, True, FLAGS),
    ("a >= FALSE", {"a": False}, None, True, FLAGS),
    ("a BETWEEN FALSE AND TRUE", {"a": True}, None, True, FLAGS),
    # Integers and floats
    ("a = b", {"a": 2**53 + 1, "b": 2.0**53}, False, True, EXACT),
    ("a > b", {"a": 2**53 + 1, "b": 2.0**53}, True, False, EXACT),
    ("a = 9.007199254740992E15", {"a": 2**53 + 1}, False, True, EXACT),
    ("a < b", {"a": LARGEST, "b": 2.0**63}, True, False, EXACT),
    ("a IN (b)", {"a": LARGEST, "b": 2.0**63}, False, True, EXACT),
    ("a = 9223372036854775807.0", {"a": LARGEST}, False, True, DECIMAL),
    ("0.1 + 0.2 = 0.3", {}, False, True, DECIMAL),
    (f"a < {10**40}.0", {"a": 1.0}, True, "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION", DECIMAL),
    # Arithmetic
    ("a / 0 = 1", {"a": 1}, None, "DIVIDE_BY_ZERO", ZERO),
    ("a / b > 1.0", {"a": 1.0, "b": 0.0}, None, "DIVIDE_BY_ZERO", ZERO),
    ("a % 0 = 1", {"a": 1}, None, "REMAINDER_BY_ZERO", ZERO),
    ("a / 0 IS NULL", {"a": 1}, True, "DIVIDE_BY_ZERO", ZERO),
    ("a + 1 > 0", {"a": LARGEST}, None, "ARITHMETIC_OVERFLOW", OVERFLOW),
    ("a - 1 < 0", {"a": SMALLEST}, None, "ARITHMETIC_OVERFLOW", OVERFLOW),
    ("a * 2 > 0", {"a": LARGEST}, None, "ARITHMETIC_OVERFLOW", OVERFLOW),
    ("-a > 0", {"a": SMALLEST}, None, "ARITHMETIC_OVERFLOW", OVERFLOW),
    ("2147483647 + 1 > 0", {}, True, "ARITHMETIC_OVERFLOW", NARROW),
    ("-(-2147483648) > 0", {}, True, "ARITHMETIC_OVERFLOW", NARROW),
    ("a * 10.0 > 0.0", {"a": 1e308}, None, True, INFINITE),
    ("a * 10.0 - a * 10.0 = 0.0", {"a": 1e308}, None, False, INFINITE),
    ("a = a", {"a": math.nan}, "InvalidValueError", True, "NaN is no value; to Spark it equals itself"),
    ("a > 1e308", {"a": math.nan}, "InvalidValueError", True, "NaN is no value; to Spark it is the largest"),
    # Patterns
    ("a LIKE '1%'", {"a": 10}, None, True, TEXT),
    ("a RLIKE '5$'", {"a": 1.5}, None, True, TEXT),
    ("a LIKE 't%'", {"a": True}, None, True, TEXT),
    ("a RLIKE 'a(?=b)'", {"a": "ab"}, "FilterError", True, RE2),
    ("a RLIKE 'a(?!b)'", {"a": "ab"}, "FilterError", False, RE2),
    ("a RLIKE '(?<=a)b'", {"a": "ab"}, "FilterError", True, RE2),
    (r"a RLIKE '(a)\1'", {"a": "aa"}, "FilterError", True, RE2),
    ("a RLIKE 'a++'", {"a": "aa"}, "FilterError", True, RE2),
    ("a RLIKE '(?P<letter>a)'", {"a": "a"}, True, "INVALID_PARAMETER_VALUE.PATTERN", "Java names groups (?<letter>a)"),
    ("a RLIKE 'a$'", {"a": "a\n"}, False, True, LINES),
    ("a RLIKE 'a.b'", {"a": "a\rb"}, True, False, LINES),
    ("a RLIKE 'a.b'", {"a": "a\u2028b"}, True, False, LINES),
    (r"a RLIKE '\s'", {"a": "\v"}, False, True, CLASSES),
    ("a RLIKE '(?i)É'", {"a": "é"}, True, False, CLASSES),
    ("a RLIKE '[[:alpha:]]'", {"a": "z"}, True, False, CLASSES),
    # Names and signs
    ("engine.temp > 5", {"engine.temp": 10}, True, "UNRESOLVED_COLUMN.WITH_SUGGESTION", NAMES),
    ("b = 1", {"a": 1}, None, "UNRESOLVED_COLUMN.WITH_SUGGESTION", "what is missing is NULL; a column must be there"),
    ("A = 1", {"a": 1}, None, True, "case counts in names; in Spark it does not, unless it is told so"),
    ("a = 1 --1", {"a": 2}, "FilterError", False, "there are no comments; to Spark two signs begin one"),
    ("a == 1", {"a": 1}, "FilterError", True, "equality is a single ="),
    ("a = 1 = TRUE", {"a": 1}, "FilterError", True, "comparisons do not chain"),
    ("a = 1L", {"a": 1}, "FilterError", True, "numbers have no suffix"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "attributes", "ours", "theirs", "why"), DIFFERENCES, ids=[row[0] for row in DIFFERENCES]
)
def test_both_answers(
    spark: "SparkSession", text: str, attributes: dict[str, Any], ours: Answer, theirs: Answer, why: str
) -> None:
    assert ours is not theirs
    assert our_answer(text, attributes) == ours, why
    assert spark_answer(spark, text, attributes) == theirs, why


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        (r"a LIKE 'a\b'", {"a": "ab"}),  # a backslash before what needs none
        ("a LIKE 'a\\'", {"a": "a\\"}),
        ("a = 1e400", {"a": 1.0}),
        ("a RLIKE '('", {"a": "("}),
    ],
)
def test_neither_answers(spark: "SparkSession", text: str, attributes: dict[str, Any]) -> None:
    assert our_answer(text, attributes) == "FilterError"
    assert isinstance(spark_answer(spark, text, attributes), str)


def our_answer(text: str, attributes: dict[str, Any]) -> Answer:
    try:
        return truth(Filter.parse(text).expression, Scope(Attributes.of(attributes)))
    except TidingsError as error:
        return type(error).__name__


def spark_answer(spark: "SparkSession", text: str, attributes: dict[str, Any]) -> Answer:
    from pyspark.errors import PySparkException

    table = pa.table({name: [value] for name, value in (attributes or {"unused": 0}).items()})
    try:
        # A backslash is twice a backslash to Spark, as in test_row_checks.py.
        answer: Answer = spark.createDataFrame(table).selectExpr(text.replace("\\", "\\\\")).toArrow()[0][0].as_py()
    except PySparkException as error:
        return str(error.getCondition())
    return answer
