"""Hypothesis strategies for filters that Spark SQL reads as we do, and for the events that they are put to.

Every attribute has one type, and every comparison stays within a kind, for that is where both promise the same
answer; what differs on purpose is in test_differences.py. Literals and attributes come from the same small pools, so
that equality happens, and the pools hold the values at which implementations go wrong.
"""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidings.model.expression import (
    FALSE,
    NULL,
    TRUE,
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Rlike,
    ValueExpression,
    all_of,
    any_of,
)
from tidings.model.values import Attributes

Values = SearchStrategy[ValueExpression]
Conditions = SearchStrategy[Condition]

# Integers and floats with room for arithmetic (n, m, x, y), which Spark answers with an error where it overflows;
# strings without line ends (s, t), at which the two kinds of regular expressions differ.
TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("i", "j", "n", "m"), pa.int64()),
    **dict.fromkeys(("d", "e", "x", "y"), pa.float64()),
    **dict.fromkeys(("s", "t", "any text", "`"), pa.string()),
    **dict.fromkeys(("b", "c"), pa.bool_()),
}

_INTEGERS = [0, 1, -1, 2, 10, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, -(2**53) - 1]
_INTEGERS += [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 0.1 + 0.2, 2.5, 123456.789, 9007199254740992.0, 9007199254740994.0]
_FLOATS += [1e15, 1e16, 1e22, 1e-4, 1e-5, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]
_FLOATS += [-1.7976931348623157e308, 1.2345678901234567e-300, 0.30000000000000027, 4503599627370497.5]
_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "a ",
    " a",
    "ab",
    "it's",
    "''",
    "100%",
    "a_b",
    "C:\\a\\b",
    "\\",
    "\\%",
    "null",
    "TRUE",
    "1",
]
_TEXTS += ["é", "e\u0301", "ß", "\uffff", "\U00010000", "😀", "a😀b", "\U0010ffff", "日本", '"', "--", "/*", "\t", "\0"]
_LETTERS = "aab%_\\'é😀 "

integers = st.sampled_from(_INTEGERS) | st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
small_integers = st.integers(-4, 4) | st.integers(-1_000, 1_000)
floats = st.sampled_from(_FLOATS) | st.floats(allow_nan=False, allow_infinity=False)
small_floats = st.sampled_from([0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 2.0, -2.5, 1e-7]) | st.floats(-1e6, 1e6)
plain_texts = st.sampled_from(_TEXTS) | st.text(_LETTERS, max_size=4)
texts = plain_texts | st.text(_LETTERS + "\n\r\u2028", max_size=4) | st.text(max_size=3)

_VALUES: dict[str, SearchStrategy[Any]] = {
    **dict.fromkeys("ij", integers),
    **dict.fromkeys("nm", small_integers),
    **dict.fromkeys("de", floats),
    **dict.fromkeys("xy", small_floats),
    **dict.fromkeys("st", plain_texts),
    **dict.fromkeys(("any text", "`"), texts),
    **dict.fromkeys("bc", st.booleans()),
}


def _weighted(*choices: tuple[int, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """One of them, by weight: `|` gives every branch of a branch a weight of its own."""
    return st.sampled_from([one for weight, one in choices for _ in range(weight)]).flatmap(lambda one: one)


events = st.fixed_dictionaries({name: _weighted((1, st.none()), (4, values)) for name, values in _VALUES.items()}).map(
    Attributes.of
)


def _value(names: list[str], literals: SearchStrategy[Any]) -> Values:
    # NULL is rare: what is unknown anyway tells little of all the rest.
    return _weighted((6, st.sampled_from(names).map(Attribute)), (5, literals.map(Constant)), (1, st.just(NULL)))


def _arithmetic(names: list[str], literals: SearchStrategy[Any], divisors: SearchStrategy[Any]) -> Values:
    """Calculations that begin with an attribute: Spark calculates constants among themselves in types of its own."""

    def longer(left: Values) -> Values:
        return st.one_of(
            st.builds(Arithmetic, left, st.sampled_from("+-*"), operand),
            st.builds(Arithmetic, operand, st.sampled_from("+-*"), left),
            st.builds(Arithmetic, left, st.just("%"), divisors.filter(bool).map(Constant)),
            st.builds(Negative, left),
        )

    operand = _value(names, literals)
    return longer(longer(st.sampled_from(names).map(Attribute)) | st.sampled_from(names).map(Attribute))


def _escaped(character: str) -> str:
    return "\\" + character if character in "%_\\" else character


def _tests(value: Values) -> Conditions:
    """What may be asked of values of one ordered kind."""
    return _weighted(
        (4, st.builds(Comparison, value, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), value)),
        (2, st.builds(Between, value, value, value)),
        (2, st.builds(In, value, st.lists(value, min_size=1, max_size=5).map(tuple))),
        (1, st.builds(IsNull, value)),
    )


_whole = _value(["i", "j", "n", "m"], integers)
_calculated = _arithmetic(["n", "m"], small_integers, small_integers)
_real = _value(["d", "e", "x", "y"], floats)
_measured = _arithmetic(["x", "y"], small_floats, small_floats)
# Two integers divide as floats in both.
_ratio = st.builds(
    Arithmetic,
    st.sampled_from(["i", "n", "x"]).map(Attribute),
    st.just("/"),
    (small_integers | small_floats).filter(bool).map(Constant),
)
_text = _value(["s", "t", "any text", "`"], texts)
_flag = _value(["b", "c"], st.booleans())

# Random patterns seldom match; those made of a text, with some of its characters left open, often do.
_pieces = st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "a", "b", "é", "😀", "'", " "])
_like = st.lists(_pieces, max_size=5).map("".join) | plain_texts.flatmap(
    lambda text: st.tuples(*[st.sampled_from([_escaped(one), _escaped(one), "_", "%", "_%"]) for one in text])
).map("".join)
_atom = st.sampled_from(
    ["a", "b", "é", "😀", "'", "%", ".", r"\.", r"\\", r"\d", r"\w", r"\W", "[ab]", "[^a]", "[a-c]", "[^é😀]"]
)
_repeated = st.builds(str.__add__, _atom, st.sampled_from(["", "", "*", "+", "?", "{1,2}", "*?"]))
_branch = st.lists(_repeated, max_size=3).map("".join)
_group = st.builds("({}|{}){}".format, _branch, _branch, st.sampled_from(["", "+", "?"]))
_rlike = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", "^"]),
    st.lists(_repeated | _group, min_size=1, max_size=3).map("".join),
    st.sampled_from(["", "", "$"]),
)

TESTS: dict[str, Conditions] = {
    "integers": _tests(_whole) | _tests(_calculated | _value(["i", "j", "n", "m"], small_integers)),
    "floats": _tests(_real) | _tests(_measured | _ratio | _value(["x", "y"], small_floats)),
    "strings": _tests(_text),
    "patterns": st.builds(Like, _text, _like) | st.builds(Rlike, _value(["s", "t"], plain_texts), _rlike),
    "booleans": _weighted(
        (3, st.builds(Comparison, _flag, st.sampled_from(["=", "!="]), _flag)),
        (1, st.builds(In, _flag, st.lists(_flag, min_size=1, max_size=3).map(tuple))),
        (1, st.builds(IsNull, _flag)),
        (1, st.sampled_from([TRUE, FALSE, NULL])),
    ),
}
TESTS["all kinds"] = _weighted(*[(1, tests) for tests in TESTS.values()])


def conditions(tests: Conditions, depth: int = 3) -> Conditions:
    """The tests, and what AND, OR and NOT make of them."""
    if not depth:
        return tests
    inner = conditions(tests, depth - 1)
    parts = st.lists(inner, min_size=2, max_size=3)
    return _weighted((3, tests), (2, parts.map(all_of)), (2, parts.map(any_of)), (2, st.builds(Not, inner)))
